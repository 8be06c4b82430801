"""Summarise the cost of a whole launch by memory space: sentences under the table of its counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from memlane.number_format import plural, rounded
from memlane.record import Site, SiteCounts, Totals, Trace

MEETING = 1.005
"""Least number of lanes per address for which an atomic is mentioned: below, each lane has an address of its own."""


def counted_sites(trace: Trace) -> Iterator[Site]:
    """Yield the sites of a trace whose transactions were counted, for each launch."""
    return (one.site for launch in trace.launches for one in launch.counts)


def order_notes(sites: Iterable[Site]) -> list[str]:
    """Return a sentence that names the operations whose counts may depend on the order of threads; none if there are none."""
    places = dict.fromkeys(f"{PurePath(site.file).name}:{site.line} {site.op}" for site in sites if site.order_dependent)
    if not places:
        return []
    return [
        f"Counts that may depend on the order in which threads run: {', '.join(places)}. Their addresses or their number of executions "
        "depend on the result of an atomic operation or a volatile load."
    ]


def total_notes(entries: Sequence[SiteCounts]) -> Iterator[str]:
    """Yield a sentence for each space that was accessed, and one for atomics with several lanes per address; `entries` by place."""
    # generic accesses without sectors reached other memory, whose bytes do not count here
    in_global = [one for one in entries if (one.site.space == "global" and one.requests) or (one.site.space == "generic" and one.sectors)]
    if in_global:
        total = Totals.of(in_global)
        why = _why_less_moved(in_global) if total.bytes > (total.bytes_moved or 0) else ""
        yield (
            f"Global memory: {plural(total.bytes, 'byte')} requested, {total.bytes_moved or 0:,} moved "
            f"({plural(total.sectors, 'sector')}, ideal {total.ideal_sectors:,}){why}."
        )
    total = Totals.of(entries)
    if total.wavefronts:
        yield (
            f"Shared memory: {plural(total.wavefronts, 'wavefront')}, ideal {total.ideal_wavefronts:,}; {total.conflicts or 0:,} are "
            "conflicts."
        )
    if total.local_requests:
        yield (
            f"Local memory in PTX (a hint: the assembler may keep it in registers): {plural(total.local_requests, 'request')}, "
            f"{plural(total.local_sectors, 'sector')}, {plural(total.local_bytes_moved, 'byte')} moved."
        )
    met = [one for one in entries if (one.lanes_per_address or 0) >= MEETING]
    if met:
        listed = "; ".join(f"{PurePath(one.site.file).name}:{one.site.line} {rounded(one.lanes_per_address)}{_most(one)}" for one in met)
        yield f"Lanes per address of atomics, on average per request: {listed}."


def _why_less_moved(entries: Sequence[SiteCounts]) -> str:
    """Return why lanes may request more bytes than move, as the end of a sentence."""
    less = [one for one in entries if one.bytes > (one.bytes_moved or 0)]
    reasons = ["lanes of a request access the same bytes"] if any(one.site.kind != "copy" for one in less) else []
    if any(one.site.op.startswith("cp.") for one in less):
        reasons.append("copies fill part of their destination with zeros instead of reading it")
    return f"; fewer bytes are moved than requested where {' or '.join(reasons)}" if reasons else ""


def _most(entry: SiteCounts) -> str:
    return f" (at most {entry.most_lanes_at_address})" if entry.most_lanes_at_address else ""

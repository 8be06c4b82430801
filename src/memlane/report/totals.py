"""What a launch cost as a whole, space by space: sentences under the table of its counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from memlane.record import SiteCounts, Totals
from memlane.report.numbers import number, plural

MEETING = 1.005
"""Lanes per address from which on an atomic is mentioned: below, each lane has an address of its own."""


def total_notes(entries: Sequence[SiteCounts]) -> Iterator[str]:
    """A sentence for each space that was accessed, and one for the atomics whose lanes meet; `entries` by place."""
    # a generic access without sectors came to other memory, whose bytes are none of these
    in_global = [one for one in entries if one.site.space in ("global", "generic") and one.sectors]
    if in_global:
        total = Totals.of(in_global)
        yield (
            f"Global memory: {total.bytes:,} bytes asked for, {total.bytes_moved or 0:,} moved "
            f"({total.sectors:,} sectors, ideal {total.ideal_sectors:,})."
        )
    total = Totals.of(entries)
    if total.wavefronts:
        yield f"Shared memory: {total.wavefronts:,} wavefronts, ideal {total.ideal_wavefronts:,}; {total.conflicts or 0:,} are conflicts."
    if total.local_requests:
        yield (
            f"Local memory, as in PTX (a hint: the assembler may keep it in registers): {plural(total.local_requests, 'request')}, "
            f"{total.local_sectors:,} sectors, {total.local_bytes_moved:,} bytes moved."
        )
    met = [one for one in entries if (one.lanes_per_address or 0) >= MEETING]
    if met:
        listed = "; ".join(f"{PurePath(one.site.file).name}:{one.site.line} {number(one.lanes_per_address)}{_most(one)}" for one in met)
        yield f"Lanes per address of atomics, in the mean request: {listed}."


def _most(entry: SiteCounts) -> str:
    return f" (at most {entry.most_lanes_at_address})" if entry.most_lanes_at_address else ""

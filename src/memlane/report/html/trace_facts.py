"""Describe a trace on its page: where it was taken, what ran, what is missing, and what tracing changed."""

from __future__ import annotations

from collections.abc import Sequence

from memlane.chip import Chip
from memlane.number_format import extents, plural, rounded
from memlane.record import Footprint, LaunchInfo, Perturbation, Skipped, Trace, kernel_label
from memlane.report.call_notes import called_note
from memlane.report.exactness import completeness_notes
from memlane.report.failures import broken_off_note
from memlane.report.html.model import Facts
from memlane.report.modelled_times import limited_by
from memlane.report.perturbation import staging_notes
from memlane.report.sample_notes import sample_notes
from memlane.report.skipped_accesses import skipped_note

END_WORDS = {"issue-only": "issued"}
"""Words that tables use for the labels of ends, as in the terminal; others are shown unchanged."""
MEANINGS = {
    "complete": "when the value had arrived",
    "issue-only": "when the access had left the warp; it may complete later",
    "block-visible": "when every thread of the block would see what was stored",
    "device-visible": "when every thread of the device would see what was stored",
}
"""When the end of an access was read, by its label; other labels are self-explanatory."""
MOST_LAUNCHES = 40
"""Largest number of launches listed individually."""


def trace_facts(trace: Trace, chip: Chip | None) -> list[Facts]:
    """Return the facts in groups."""
    groups = [_where(trace, chip), _what_ran(trace), _completeness(trace), _perturbation(trace)]
    return [group for group in groups if group.rows]


def warnings(trace: Trace) -> list[str]:
    """Return what a reader must know before any number: failed launches, launches traced in part, lost records."""
    told = [f"Launch {launch.id} ({kernel_label(launch.kernel)}) failed: {launch.failed}." for launch in trace.launches if launch.failed]
    told += [broken_off_note(trace.failed)] if trace.failed else []
    told += sample_notes(trace)
    if trace.lost:
        told.append(
            f"{plural(trace.lost, 'record')} did not fit into the buffer: times cover only the first records of each warp, and totals "
            "do not include the lost records."
        )
    return told


def _where(trace: Trace, chip: Chip | None) -> Facts:
    product = f" ({chip.product})" if chip is not None and chip.product else ""
    rows = [
        ("chip", f"{trace.chip}{product}"),
        ("target" if len(trace.devices) == 1 else "targets", ", ".join(trace.devices) if len(trace.devices) > 1 else trace.target),
        ("times", "modelled by the emulator's clock; no GPU was measured" if trace.modelled else "measured"),
        ("nominal clock", f"{trace.clock_mhz:,.0f} MHz" if trace.clock_mhz else "not known"),
        ("driver", trace.driver or ("none: emulated" if trace.modelled else "its version is not in the trace")),
        ("memlane", trace.version or "not known"),
    ]
    return Facts("Where it was taken", tuple(rows))


def _what_ran(trace: Trace) -> Facts:
    several = len(trace.devices) > 1
    rows = [
        (f"launch {launch.id}{f' on {launch.device}' if several else ''}", _launch(launch)) for launch in trace.launches[:MOST_LAUNCHES]
    ]
    if len(trace.launches) > MOST_LAUNCHES:
        rows.append(("and", f"{plural(len(trace.launches) - MOST_LAUNCHES, 'more launch')}"))
    return Facts("What ran", tuple(rows))


def _launch(launch: LaunchInfo) -> str:
    parts = [
        f"{launch.kernel}, grid {extents(launch.grid)}, block {extents(launch.block)}",
        f"clusters of {extents(launch.cluster)} blocks" if launch.cluster is not None else "",
        f"{plural(launch.shared_bytes, 'byte')} of dynamic shared memory" if launch.shared_bytes else "",
        f"stream {launch.stream}" if launch.stream else "",
        f"arguments {', '.join(launch.arguments)}" if launch.arguments else "",
        f"probe scheme {launch.scheme}" if launch.scheme else "",
        f"traced: {launch.sample}" if launch.sample is not None else "",
        f"{plural(launch.lost, 'record')} lost" if launch.lost else "",
        f"failed: {launch.failed}" if launch.failed else "",
        "" if launch.counts else "transactions not counted",
        f"modelled time {limited_by(launch)}" if limited_by(launch) else "",
    ]
    return "; ".join(part for part in parts if part)


def _completeness(trace: Trace) -> Facts:
    kept = trace.table.num_rows
    rows = [("records", f"{kept:,} kept, {trace.lost:,} lost")]
    rows += [("where to", note) for note in staging_notes(trace)]
    unseen = sum(launch.accesses_not_kept for launch in trace.launches)
    if unseen:
        rows.append(("transactions", f"not kept for {plural(unseen, 'access')}, including those of the probes"))
    windows = ", ".join(f"{name} {plural(cycles, 'cycle')}" for name, cycles in trace.windows.items())
    if windows:
        rows.append(("empty window", f"{windows}: what a probe records around nothing; not subtracted from any number here"))
    rows += [("ends", note) for note in completeness_notes(trace)]
    rows += [("called functions", note.partition(": ")[2]) for note in [called_note(trace.sites)] if note]
    rows += [("not examined", note.removeprefix("Not examined: ")) for note in [_skipped(trace.skipped)] if note]
    labels = dict.fromkeys(site.completeness for site in trace.sites)
    rows += [(END_WORDS.get(label, label), f"the end was read {MEANINGS[label]}") for label in labels if label in MEANINGS]
    return Facts("Contents of the trace", tuple(rows))


def _skipped(skipped: Sequence[Skipped]) -> str:
    return skipped_note(skipped) if skipped else ""


def _perturbation(trace: Trace) -> Facts:
    told: dict[tuple[str, str], None] = {}
    for launch in trace.launches:
        name = kernel_label(launch.kernel)
        told[name, "not examined when this was recorded" if launch.perturbation is None else _changes(launch.perturbation, trace)] = None
    return Facts("What tracing changed", tuple(told))


def _changes(found: Perturbation, trace: Trace) -> str:
    parts = []
    if found.plain is not None and found.probed is not None:
        parts.append(_footprints(found.plain, found.probed))
    else:
        parts.append(f"registers and resident blocks are not known{f': {found.unknown}' if found.unknown else ''}")
    if found.plain_ns is not None and found.probed_ns is not None:
        how = "modelled" if trace.modelled else f"median of {found.rounds}"
        ratio = "" if found.slowdown is None else f", {rounded(found.slowdown)} times"
        parts.append(f"time {rounded(found.plain_ns / 1e3)} \N{RIGHTWARDS ARROW} {rounded(found.probed_ns / 1e3)} us ({how}{ratio})")
    else:
        parts.append("time without probes was not measured (`memlane trace --perturbation`)")
    return "; ".join(parts)


def _footprints(plain: Footprint, probed: Footprint) -> str:
    pairs = (
        ("registers", plain.registers, probed.registers),
        ("bytes of local memory per thread", plain.local_bytes, probed.local_bytes),
        ("bytes of shared memory per block", plain.shared_bytes, probed.shared_bytes),
        ("blocks on a multiprocessor", plain.resident_blocks, probed.resident_blocks),
    )
    return "; ".join(f"{name} {before} \N{RIGHTWARDS ARROW} {after}" for name, before, after in pairs)

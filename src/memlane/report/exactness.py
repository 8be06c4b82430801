"""Write the notes below a table that compare its numbers with the machine code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from memlane.number_format import plural
from memlane.record import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE, EXACT, HINT, ISSUE_ONLY, MERGED, NOT_CHECKED, Site, SiteCounts, Trace

MARK = "~"
"""Mark behind an operation in a table of counts: the hardware accesses memory differently."""
_NOT_EXACT = {MERGED: "Merged", HINT: "A hint only"}
_MOST = 8
"""Largest number of places listed individually."""


def mark(entry: SiteCounts) -> str:
    """Return the mark behind an operation; empty for counts that are exact or were not checked."""
    return "" if entry.exactness in (EXACT, NOT_CHECKED) else f" {MARK}"


def wide_label(entry: SiteCounts) -> str:
    """Return the label that replaces the operation for an access that ptxas merged from several."""
    return f"= {entry.site.nbytes} B {entry.site.kind}"


def exactness_notes(entries: Sequence[SiteCounts], merged: Sequence[SiteCounts] = ()) -> list[str]:
    """Return notes on how many operations, summed by place, are exact, and why the others are not.

    `merged`: the merged machine accesses that the table also shows.
    """
    checked = [entry for entry in entries if entry.exactness != NOT_CHECKED]
    notes = []
    if checked:
        exact = sum(entry.exactness == EXACT for entry in checked)
        notes.append(
            f"Exact: {exact:,} of {plural(len(entries), 'operation')}; the assembled code has the same accesses: number, width, kind and "
            "lanes."
        )
    notes += _inexact_notes(checked)
    if merged:
        notes.append("=: the assembler merged the accesses marked ~ into this one; use its counts instead of theirs.")
    elif any(entry.exactness == MERGED for entry in checked):
        notes.append("The cost of the assembled access that replaces merged ones was not counted.")
    absent = Counter(entry.exactness_reason for entry in entries if entry.exactness == NOT_CHECKED)
    for reason in absent:
        notes.append(f"Not compared with the assembled code{f': {reason}' if reason else ''}.")
    return notes


def _inexact_notes(entries: Iterable[SiteCounts]) -> list[str]:
    """Return a note for each reason for inexact counts, with the operations concerned."""
    places: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry.exactness in _NOT_EXACT:
            places.setdefault((entry.exactness, entry.exactness_reason), []).append(_place(entry.site))
    return [f"{MARK} {_NOT_EXACT[verdict]}: {_listed(told, ', ')}; {reason}." for (verdict, reason), told in places.items()]


def completeness_notes(trace: Trace) -> list[str]:
    """Return notes on how the end of an access was determined, which accesses tracing changed, and whose times may be another's."""
    timed = [site for site in trace.sites if site.evidence]
    notes = []
    for evidence, sites in _grouped(timed):
        complete = sum(site.completeness == COMPLETE for site in sites)
        notes.append(f"Of {len(sites):,} timed instructions {complete:,} are complete, {evidence}.")
    for label, who in ((BLOCK_VISIBLE, "every thread of the block"), (DEVICE_VISIBLE, "every thread of the device")):
        shown = [_place(site) for site in timed if site.completeness == label]
        if shown:
            notes.append(f"Timed until {who} sees the stored value, as confirmed by the load or fence listed: {_listed(shown)}.")
    if any(site.kind == "wait" for site in timed):
        notes.append("A wait is complete when it has returned; a copy is timed from its start until its wait has returned.")
    issued = [f"{_place(site)}: {site.reason}" for site in timed if site.completeness == ISSUE_ONLY and site.kind in ("load", "atomic")]
    if issued:
        notes.append(f"Timed only until they were issued, although they return a value: {_listed(issued)}.")
    behind = [f"{_place(site)}: {site.fallback}" for site in timed if site.fallback]
    if behind:
        notes.append(f"Waited for right after the access, because its consumer is not known: {_listed(behind)}.")
    shared = [f"{_place(site)}: {', '.join(site.shared_waits)}" for site in timed if site.shared_waits]
    if shared:
        notes.append(
            f"Waited for earlier, together with another result on the same scoreboard, so that consumers wait less: {_listed(shared)}."
        )
    changed = [f"{_place(site)}: {site.changed}" for site in timed if site.changed]
    if changed:
        notes.append(f"Changed by tracing: {_listed(changed)}.")
    others = [f"{_place(site)}: {', '.join(site.also_waits)}" for site in timed if site.also_waits]
    if others:
        notes.append(f"The window also waits for other results, and the time may be theirs: {_listed(others)}.")
    return notes


def _grouped(sites: Iterable[Site]) -> list[tuple[str, list[Site]]]:
    groups: dict[str, list[Site]] = {}
    for site in sites:
        groups.setdefault(site.evidence, []).append(site)
    return list(groups.items())


def _place(site: Site) -> str:
    return f"{PurePath(site.file).name}:{site.line} {site.op}"


def _listed(told: Iterable[str], between: str = "; ") -> str:
    """Join the texts, each once, with its count where an unrolled loop has several identical ones."""
    amounts = Counter(told)
    texts = [text if amount == 1 else f"{amount} x {text}" for text, amount in amounts.items()]
    more = [f"and {len(texts) - _MOST:,} more"] if len(texts) > _MOST else []
    return between.join((*texts[:_MOST], *more))

"""Findings as the page shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memlane.diagnose import Finding, clean_kernels, explain, uncounted_launches
from memlane.errors import RecordError
from memlane.record import Trace, kernel_label
from memlane.report.html.model import FindingCard
from memlane.report.numbers import number, percent, plural

_PARTS = (("what", "what"), ("why", "cause"), ("cost", "cost"), ("time", "time"), ("remedy", "remedy"), ("evidence", "evidence"))
"""Parts of a finding with the attribute that tells each."""


@dataclass(frozen=True)
class Found:
    """What was found, or why nothing could be."""

    cards: tuple[FindingCard, ...]
    notes: tuple[str, ...]
    by_line: dict[tuple[str, int], tuple[int, ...]]
    """Ranks by file and line."""


def found(trace: Trace) -> Found:
    """The findings of `trace`; one that cannot be explained says so in the notes."""
    try:
        findings = explain(trace)
    except RecordError as error:
        return Found((), (f"{str(error)[:1].upper()}{str(error)[1:]}.",), {})
    by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
    for finding in findings:
        by_line[finding.file, finding.line].append(finding.rank)
    ranks = {place: tuple(own) for place, own in by_line.items()}
    return Found(tuple(map(_card, findings)), tuple(_notes(trace, findings)), ranks)


def _card(finding: Finding) -> FindingCard:
    share = getattr(finding, "cost_share", None)
    parts = [(name, _sentence(getattr(finding, attribute, ""))) for name, attribute in _PARTS]
    return FindingCard(
        rank=finding.rank,
        title=finding.title,
        kernel=kernel_label(finding.kernel),
        place=finding.place,
        op=finding.op,
        file=finding.file,
        line=finding.line,
        source=finding.source,
        share="" if share is None else percent(share),
        parts=tuple((name, text) for name, text in parts if text) or (("what", str(finding)),),
    )


def _sentence(part: Any) -> str:
    told = "; ".join(f"{name} {number(value)}" for name, value in part.items()) if isinstance(part, Mapping) else str(part).strip()
    return f"{told[:1].upper()}{told[1:]}{'' if told.endswith(('.', '!', '?')) else '.'}" if told else ""


def _notes(trace: Trace, findings: Sequence[Finding]) -> list[str]:
    notes = []
    clean = clean_kernels(trace, findings)
    if clean:
        notes.append(f"{', '.join(map(kernel_label, clean))}: no problems found.")
    uncounted = uncounted_launches(trace)
    if uncounted:
        kernels = ", ".join(dict.fromkeys(kernel_label(launch.kernel) for launch in uncounted))
        notes.append(
            f"Not looked at, because their transactions were not counted: {plural(len(uncounted), 'launch')} of {kernels}. "
            "Record with `memlane trace --counts`."
        )
    if not findings and not clean and not uncounted:
        notes.append("No access was counted, so there is nothing to explain.")
    return notes

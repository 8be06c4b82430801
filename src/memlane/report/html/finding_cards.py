"""Prepare findings for the page: in the words of the terminal, each with the drawing of its access."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from memlane.chip import Chip
from memlane.diagnose import Finding, Findings, clean_kernels, explain, uncounted_launches
from memlane.errors import RecordError
from memlane.number_format import plural, rounded
from memlane.record import AccessExample, Trace, kernel_label
from memlane.report.findings import MODELLED_TIMES, cause_in_short, clean_note, headline, unexamined_notes
from memlane.report.html.model import FindingCard
from memlane.report.show import costliest, draw_access

_DERIVATION = (("problem", "what"), ("cost", "time"), ("excess", "cost"), ("evidence", "evidence"))
"""Parts of a card that are shown on request, each with the attribute of the finding that holds it."""
_DRAWN_UNITS = ("sectors", "wavefronts", "lanes")
"""Units of findings about the addresses of the lanes of one access, which a drawing can show."""


@dataclass(frozen=True)
class FindingCards:
    """The findings of a trace, or the reason why there are none."""

    cards: tuple[FindingCard, ...]
    notes: tuple[str, ...]
    by_line: dict[tuple[str, int], tuple[int, ...]]
    """Ranks by file and line."""


def finding_cards(trace: Trace, chip: Chip | None, most_drawn: int, kernels: Collection[str] | None = None) -> FindingCards:
    """Return the findings of `trace`; the first `most_drawn` include a drawing of their access, if the trace has its addresses.

    `kernels`: labels of the kernels to include; None for all. If the trace cannot be explained, the notes give the reason.
    """
    try:
        findings = _in_kernels(explain(trace), kernels)
    except RecordError as error:
        return FindingCards((), (f"{str(error)[:1].upper()}{str(error)[1:]}.",), {})
    by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
    for finding in findings:
        by_line[finding.file, finding.line].append(finding.rank)
    ranks = {place: tuple(own) for place, own in by_line.items()}
    cards = [_card(finding, _drawing(trace, finding, chip) if finding.rank <= most_drawn else "") for finding in findings]
    return FindingCards(tuple(cards), tuple(_notes(trace, findings, kernels)), ranks)


def _in_kernels(findings: Findings, kernels: Collection[str] | None) -> Findings:
    if kernels is None:
        return findings
    unexamined = [
        replace(one, kernels=tuple(title for title in one.kernels if kernel_label(title) in kernels)) for one in findings.unexamined
    ]
    return Findings([one for one in findings if kernel_label(one.kernel) in kernels], [one for one in unexamined if one.kernels])


def _card(finding: Finding, drawing: str) -> FindingCard:
    parts = [(name, _sentence(getattr(finding, attribute))) for name, attribute in _DERIVATION]
    return FindingCard(
        rank=finding.rank,
        rule=finding.rule,
        title=finding.title,
        kernel=kernel_label(finding.kernel),
        place=finding.where,
        op=finding.op,
        file=finding.file,
        line=finding.line,
        source=finding.source,
        headline=headline(finding),
        cause=_sentence(cause_in_short(finding)),
        launch=_sentence(finding.launch),
        fix=_sentence(finding.remedy),
        derivation=tuple((name, text) for name, text in parts if text),
        drawing=Markup(drawing),  # made by us, with all text in it escaped
    )


def _drawing(trace: Trace, finding: Finding, chip: Chip | None) -> str:
    """Return the costliest access of a finding as SVG; empty if the trace has no addresses of it."""
    if chip is None or not finding.unit.startswith(_DRAWN_UNITS):
        return ""
    own = [one for one in trace.examples if _is_of(trace, one, finding)]
    return draw_access(trace, costliest(own), chip) if own else ""


def _is_of(trace: Trace, example: AccessExample, finding: Finding) -> bool:
    site = trace.sites[example.site]
    is_named = not finding.arrays or (site.array or site.array_label) in finding.arrays
    return is_named and (site.kernel, site.file, site.line, site.op) == (finding.kernel, finding.file, finding.line, finding.op)


def _sentence(part: Any) -> str:
    text = "; ".join(f"{name} {rounded(value)}" for name, value in part.items()) if isinstance(part, Mapping) else str(part).strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""


def _notes(trace: Trace, findings: Findings, kernels: Collection[str] | None) -> list[str]:
    notes = []
    clean = [title for title in clean_kernels(trace, findings) if kernels is None or kernel_label(title) in kernels]
    if clean:
        notes.append(clean_note(findings, clean))
    uncounted = [one for one in uncounted_launches(trace) if kernels is None or kernel_label(one.kernel) in kernels]
    if uncounted:
        names = ", ".join(dict.fromkeys(kernel_label(launch.kernel) for launch in uncounted))
        notes.append(
            f"Transactions were not counted in {plural(len(uncounted), 'launch')} of {names}: record with `memlane trace --counts`."
        )
    if not findings and not clean and not uncounted:
        notes.append("No access was counted, so there is nothing to explain.")
    notes += unexamined_notes(findings.unexamined)
    if trace.modelled and findings:
        notes.append(MODELLED_TIMES)
    return notes

"""Render the results of the checker, for the terminal and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from memlane.launch import Report
from memlane.number_format import plural
from memlane.record import kernel_label, source_line
from memlane.report.failures import failed_fields, failed_notes
from memlane.report.json import document_head
from memlane.report.table import plain

if TYPE_CHECKING:
    from memlane.measure import FailedLaunch


def render_reports(
    reports: Sequence[Report],
    launches: int,
    kernels: Sequence[str],
    sources: Mapping[str, str] | None = None,
    failed: str = "",
    failed_launches: Sequence[FailedLaunch] = (),
) -> RenderableType:
    """Return each report as a paragraph under its source lines.

    `kernels`: titles of the kernels that were launched, `launches` times in total. `failed`: why the program stopped early; empty if it did
    not. `failed_launches`: launches that failed.
    """
    parts: list[RenderableType] = []
    for number, report in enumerate(reports, 1):
        parts.append(plain(f"{number}. {report.kind}, {kernel_label(report.kernel)}", "bold red"))
        actors = [report.who] if report.other is None or report.other.place == report.who.place else [report.who, report.other]
        for actor in actors:
            text = source_line(sources or {}, actor.file, actor.line)
            if text:
                parts.append(Padding(plain(f"{actor.line:>4}  {text}", "cyan"), (0, 0, 0, 3)))
        parts += [Padding(plain(str(report)), (0, 0, 0, 3)), Text()]
    names = ", ".join(dict.fromkeys(map(kernel_label, kernels)))
    found = plural(len(reports), "finding") if reports else "nothing found"
    if launches:
        parts.append(plain(f"Checked {plural(launches, 'launch')} of {names}: {found}."))
    parts += [plain(note) for note in failed_notes(failed, failed_launches, "Findings up to that point are listed.")]
    return Group(*parts)


def reports_document(
    reports: Sequence[Report], launches: int, kernels: Sequence[str], failed: str = "", failed_launches: Sequence[FailedLaunch] = ()
) -> dict[str, Any]:
    """Return the JSON document of kind "reports". `failed` and `failed_launches` as for `render_reports`."""
    return {
        **document_head("reports"),
        **failed_fields(failed, failed_launches),
        "launches": launches,
        "kernels": list(dict.fromkeys(kernels)),
        "reports": [report.as_dict() for report in reports],
    }

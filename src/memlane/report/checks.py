"""What the checker found, for the terminal and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from memlane.launch import Report
from memlane.record import kernel_label
from memlane.report.json import document_head
from memlane.report.numbers import plural
from memlane.report.table import plain


def render_reports(
    reports: Sequence[Report], launches: int, kernels: Sequence[str], sources: Mapping[str, str] | None = None
) -> RenderableType:
    """Each report as a paragraph under its source lines. `kernels` are the titles of those that were launched, `launches` times in all."""
    parts: list[RenderableType] = []
    for number, report in enumerate(reports, 1):
        parts.append(plain(f"{number}. {report.kind}, {kernel_label(report.kernel)}", "bold red"))
        actors = [report.who] if report.other is None or report.other.place == report.who.place else [report.who, report.other]
        for actor in actors:
            text = _source_line(sources or {}, actor.file, actor.line)
            if text:
                parts.append(Padding(plain(f"{actor.line:>4}  {text}", "cyan"), (0, 0, 0, 3)))
        parts += [Padding(plain(str(report)), (0, 0, 0, 3)), Text()]
    names = ", ".join(dict.fromkeys(map(kernel_label, kernels)))
    found = plural(len(reports), "finding") if reports else "nothing found"
    parts.append(plain(f"Checked {plural(launches, 'launch')} of {names}: {found}."))
    return Group(*parts)


def reports_document(reports: Sequence[Report], launches: int, kernels: Sequence[str]) -> dict[str, Any]:
    """Kind "reports"."""
    return {
        **document_head("reports"),
        "launches": launches,
        "kernels": list(dict.fromkeys(kernels)),
        "reports": [report.as_dict() for report in reports],
    }


def _source_line(sources: Mapping[str, str], file: str, line: int) -> str:
    lines = sources.get(file, "").splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""

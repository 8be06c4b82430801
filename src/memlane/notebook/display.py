"""How memlane's objects look in IPython: a table of HTML in a notebook, a table of text in a terminal.

Formatters are registered by the names of the types, so that nothing is loaded before there is something to show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WIDTH = 100
"""Columns of tables of text."""


def _trace_html(trace: Any) -> str:
    from memlane.report.html import trace_html

    return trace_html(trace)


def _counts_html(counts: Any) -> str:
    from memlane.report.html import counts_html

    return counts_html(counts)


def _findings_html(findings: Any) -> str:
    from memlane.report.html import findings_html

    return findings_html(findings)


def _trace_text(trace: Any) -> str:
    from memlane.report import render_trace, to_text

    return to_text(render_trace(trace), _WIDTH)


def _counts_text(counts: Any) -> str:
    from memlane.report import render_counts, to_text

    return to_text(render_counts(counts), _WIDTH)


def _findings_text(findings: Any) -> str:
    from memlane.report import render_findings, to_text

    return to_text(render_findings(findings), _WIDTH)


def _comparison_text(comparison: Any) -> str:
    from memlane.report import to_text
    from memlane.report.comparison import render_comparison

    return to_text(render_comparison(comparison), _WIDTH)


_HTML = {
    ("memlane.record.trace", "Trace"): _trace_html,
    ("memlane.record.counts", "Counts"): _counts_html,
    ("memlane.diagnose.rules", "Findings"): _findings_html,
}
_TEXT = {
    ("memlane.record.trace", "Trace"): _trace_text,
    ("memlane.record.counts", "Counts"): _counts_text,
    ("memlane.diagnose.rules", "Findings"): _findings_text,
    ("memlane.diagnose.comparison", "Comparison"): _comparison_text,
}


def register(shell: Any) -> None:
    """Let memlane's objects show themselves in this InteractiveShell."""
    formatters = shell.display_formatter.formatters
    for (module, name), html in _HTML.items():
        formatters["text/html"].for_type_by_name(module, name, html)
    for (module, name), text in _TEXT.items():
        formatters["text/plain"].for_type_by_name(module, name, _pretty(text))


def unregister(shell: Any) -> None:
    """Undo `register`."""
    for kind, table in (("text/html", _HTML), ("text/plain", _TEXT)):
        formatter = shell.display_formatter.formatters[kind]
        for module, name in table:
            # It is under its name until an object of it was shown, and under its type from then on.
            formatter.pop(f"{module}.{name}", None)


def _pretty(text: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    """As IPython's pretty printer calls it; an object within another stays one line."""

    def show(one: Any, printer: Any, cycle: bool) -> None:
        is_inner = cycle or len(printer.stack) > 1
        printer.text(repr(one) if is_inner else text(one).rstrip("\n"))

    return show

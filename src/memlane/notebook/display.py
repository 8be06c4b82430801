"""Register how IPython displays memlane's objects: an HTML table in a notebook, a text table in a terminal.

Formatters are registered by the names of the types, so that nothing is loaded before there is something to show.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

_HTML = {
    ("memlane.record.trace", "Trace"): "trace_html",
    ("memlane.record.counts", "Counts"): "counts_html",
    ("memlane.diagnose.rules", "Findings"): "findings_html",
}
_TEXT = {
    ("memlane.record.trace", "Trace"): "trace_text",
    ("memlane.record.counts", "Counts"): "counts_text",
    ("memlane.diagnose.rules", "Findings"): "findings_text",
    ("memlane.diagnose.changes", "Comparison"): "comparison_text",
}
"""Function of `tables` that displays a type, by module and name of the type."""


def register(shell: Any) -> None:
    """Register the displays of memlane's objects in this InteractiveShell."""
    formatters = shell.display_formatter.formatters
    for (module, name), html in _HTML.items():
        formatters["text/html"].for_type_by_name(module, name, _table(html))
    for (module, name), text in _TEXT.items():
        formatters["text/plain"].for_type_by_name(module, name, _pretty(_table(text)))


def unregister(shell: Any) -> None:
    """Undo `register`."""
    for kind, table in (("text/html", _HTML), ("text/plain", _TEXT)):
        formatter = shell.display_formatter.formatters[kind]
        for module, name in table:
            # It is under its name until an object of it is shown, and under its type from then on.
            formatter.pop(f"{module}.{name}", None)


def _table(function: str) -> Callable[[Any], str]:
    def show(one: Any) -> str:
        text: str = getattr(import_module("memlane.notebook.tables"), function)(one)
        return text

    return show


def _pretty(text: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    """Return a formatter for IPython's pretty printer; an object within another stays one line."""

    def show(one: Any, printer: Any, cycle: bool) -> None:
        is_inner = cycle or len(printer.stack) > 1
        printer.text(repr(one) if is_inner else text(one).rstrip("\n"))

    return show

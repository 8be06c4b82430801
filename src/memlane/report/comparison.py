"""Render the differences between two traces or counts, for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from memlane.diagnose.changes import CERTAINTY, Change, Comparison, KernelChange, LineChange, summary
from memlane.diagnose.side import Line
from memlane.number_format import UNKNOWN, percent, short
from memlane.report.json import document_head
from memlane.report.table import plain

_HEADERS = {
    "requests": "accesses\n/launch",
    "sectors_per_request": "sectors\n/request",
    "wavefronts_per_request": "wavefr.\n/request",
    "cycles_p50": "p50\ncycles",
    "cycles_per_warp": "cycles\n/warp",
}


def render_comparison(comparison: Comparison) -> RenderableType:
    """Return a summary sentence, then for each kernel a table by source line; red is more, green is less, dim is within noise."""
    parts: list[RenderableType] = [plain(summary(comparison), "bold")]
    parts += [plain(f"Note: {note}.", "yellow") for note in comparison.notes]
    for kernel in comparison.kernels:
        parts += [Text(), *_kernel(kernel)]
    return Group(*parts, Text(), *(plain(note, "dim") for note in footer_notes(comparison)))


def _kernel(kernel: KernelChange) -> list[RenderableType]:
    name = kernel.after if kernel.before == kernel.after else f"{kernel.before} -> {kernel.after}"
    parts: list[RenderableType] = [plain(name, "bold"), plain(f"  launches: {_from_to(*kernel.launches)}")]
    if kernel.time_ns.difference is not None:
        parts.append(Text("  time without probes: ").append_text(_time(kernel.time_ns)).append(" us"))
    elif kernel.probed_ns.difference is not None:
        parts.append(Text("  modelled time with probes: ").append_text(_time(kernel.probed_ns)).append(" us"))
    if kernel.cycles_of_life.difference is not None:
        parts.append(Text("  life of a traced warp: ").append_text(_cell(kernel.cycles_of_life)).append(" cycles"))
    parts += [plain(f"  Note: {note}.", "yellow") for note in kernel.notes]
    return [*parts, Text(), *_table(kernel)]


def _table(kernel: KernelChange) -> list[Text]:
    """Return each source line in a row of its own, and below it a row for each operation; columns without any number are left out."""
    shown = [measure for measure in _HEADERS if any(line.changes[measure].difference is not None for line in kernel.lines)]
    rows: list[tuple[Text, Text, list[Text]] | Text] = []
    text = ""
    for line in kernel.lines:
        if line.text and line.text != text:
            text = line.text
            rows.append(plain(f"{PurePath(line.file).name}: {text}", "dim"))
        rows.append((Text(_numbers(line)), plain(line.op), [_cell(line.changes[measure]) for measure in shown]))
        if line.was:
            rows.append(plain(f"  was: {line.was}", "dim"))
    for only, word, launches in ((kernel.only_before, "gone", kernel.launches[0]), (kernel.only_after, "new", kernel.launches[1])):
        for one in only:
            cells = [plain(number_alone(one, measure, launches)) for measure in shown]
            rows.append((Text(str(one.line)), plain(f"{one.op} ({word})", "yellow"), cells))
    return _aligned(rows, [_HEADERS[measure].split("\n") for measure in shown])


def _aligned(rows: Sequence[tuple[Text, Text, list[Text]] | Text], headers: Sequence[Sequence[str]]) -> list[Text]:
    """Return the rows with their cells aligned in columns; rows that are text are kept unchanged."""
    cells = [row for row in rows if not isinstance(row, Text)]
    number = max((len(row[0]) for row in cells), default=0)
    op = max((len(row[1]) for row in cells), default=0)
    widths = [max(*map(len, header), *(len(row[2][place]) for row in cells)) for place, header in enumerate(headers)]
    found = []
    for level in range(2 if headers else 0):
        found.append(
            Text(" " * (number + op + 4) + "".join(f"  {header[level]:>{width}}" for header, width in zip(headers, widths, strict=True)))
        )
    for row in rows:
        if isinstance(row, Text):
            found.append(row)
            continue
        made = Text("  ").append_text(row[0]).append(" " * (number - len(row[0]) + 2)).append_text(row[1]).append(" " * (op - len(row[1])))
        for cell, width in zip(row[2], widths, strict=True):
            made.append(" " * (width - len(cell) + 2)).append_text(cell)
        found.append(made)
    return found


def _numbers(line: LineChange) -> str:
    return _from_to(line.before, line.after)


def _from_to(before: int, after: int) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def in_words(change: Change) -> str:
    """Return `32 -> 4`, one number if nothing changed, with `~` before one that may be noise."""
    return _cell(change).plain


def _cell(change: Change) -> Text:
    """Return the text of `in_words` with its colour."""
    if change.difference is None:
        known = change.after if change.before is None else change.before
        return Text(UNKNOWN if known is None else _number(known), "dim")
    assert change.before is not None
    assert change.after is not None
    if not change.is_change:
        sign = "" if change.is_known else "?"
        return Text(f"{sign}{_number(change.after)}" if change.is_exact else f"{sign}~{_number(change.after)}", "dim")
    return Text(f"{_number(change.before)} -> {_number(change.after)}", "red" if change.difference > 0 else "green")


def _time(change: Change) -> Text:
    """Return a change of time in us, without a colour where the noise is not known."""
    before, after = ((one or 0.0) / 1e3 for one in (change.before, change.after))
    if change.is_exact:
        return _cell(Change(before, after, is_exact=True))
    return Text(f"{_number(before)} -> {_number(after)}")


def number_alone(line: Line, measure: str, launches: int) -> str:
    """Return a measure of a line that only one side has; `launches`: the number of launches of its kernel on that side."""
    if measure == "requests":
        return UNKNOWN if line.requests is None else _number(line.requests / max(launches, 1))
    value = {"sectors_per_request": line.sectors_per_request, "wavefronts_per_request": line.wavefronts_per_request}.get(measure)
    return UNKNOWN if value is None else _number(value)


def _number(value: float) -> str:
    return short(round(value)) if abs(value - round(value)) < 0.005 or abs(value) >= 100 else f"{value:.3g}"


_EXCEPTION = (
    "There is one exception: on a GPU, the counts of an operation may depend on the order in which threads run if its addresses or its "
    "number of executions depend on the result of an atomic operation or a volatile load."
)


def footer_notes(comparison: Comparison) -> list[str]:
    """Return notes, a sentence or two each, on the meaning and the reliability of the numbers."""
    changes = [change for kernel in comparison.kernels for change in (kernel.cycles_of_life, *_times(kernel.lines))]
    compared = [change for change in changes if change.difference is not None]
    are_modelled = bool(compared) and all(change.is_exact for change in compared)
    notes = [
        f"From {comparison.names[0]} to {comparison.names[1]}. Counts are deterministic, so every difference shown is real."
        + ("" if are_modelled else f" {_EXCEPTION}")
    ]
    if compared and not are_modelled:
        notes.append(
            f"Cycles are medians over the warps. ~ marks a change within the noise: zero lies inside the {percent(CERTAINTY)} confidence "
            "interval of the difference, found by resampling warps (or launches if there are enough). ? marks a change with too few warps "
            "to judge."
        )
    elif are_modelled:
        notes.append("Cycles are medians over the warps. Both sides are modelled, so there is no noise.")
    if any(kernel.cycles_of_life.difference is not None and kernel.time_ns.difference is None for kernel in comparison.kernels):
        notes.append(
            "The launches ran with probes, and the cost of recording may hide a gain. Traces taken with --perturbation also hold the time "
            "of the launch without probes, which is then compared."
        )
    return notes


def _times(lines: Sequence[LineChange]) -> list[Change]:
    return [change for line in lines for change in (line.cycles_p50, line.cycles_per_warp)]


# -- JSON --------------------------------------------------------------------------------------------------------------------------


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """Return the JSON document of kind "comparison"."""
    return {
        **document_head("comparison"),
        "before": comparison.names[0],
        "after": comparison.names[1],
        "summary": summary(comparison),
        "changed": comparison.is_change,
        "certainty": CERTAINTY,
        "kernels": [_kernel_entry(kernel) for kernel in comparison.kernels],
        "not_compared": list(comparison.not_compared),
        "notes": list(comparison.notes),
    }


def _kernel_entry(kernel: KernelChange) -> dict[str, Any]:
    return {
        "before": kernel.before,
        "after": kernel.after,
        "launches": list(kernel.launches),
        "cycles_of_life": _change_entry(kernel.cycles_of_life),
        "time_ns": _change_entry(kernel.time_ns),
        "probed_ns": _change_entry(kernel.probed_ns),
        "lines": [
            {
                "file": line.file,
                "before": line.before,
                "after": line.after,
                "op": line.op,
                "text": line.text,
                "was": line.was,
                "changed": line.is_change,
                **{name: _change_entry(change) for name, change in line.changes.items()},
            }
            for line in kernel.lines
        ],
        "only_before": [_line_entry(line) for line in kernel.only_before],
        "only_after": [_line_entry(line) for line in kernel.only_after],
        "notes": list(kernel.notes),
    }


def _change_entry(change: Change) -> dict[str, Any]:
    return {**asdict(change), "changed": change.is_change if change.is_known else None}


def _line_entry(line: Line) -> dict[str, Any]:
    names = ("file", "line", "op", "space", "text", "requests", "sectors_per_request", "wavefronts_per_request")
    return {name: getattr(line, name) for name in names}

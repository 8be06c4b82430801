"""Fit a lab's table to a terminal: wrap lines between words, leave out columns without room, and print remarks below the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from rich.table import Table as Grid
from rich.text import Text

from memlane.lab import Table

LABELS = 2
"""Number of leading columns that identify a row; they and one number are never left out."""
_GAP, _SHORT = 2, 14
_MOST_LABELS = 3
"""Maximum number of leading text columns that name a row in front of its remark."""


@dataclass(frozen=True)
class Fitted:
    """The printable form of a table."""

    grid: Grid
    width: int
    """Width of the grid; larger than requested only if the labels and one number need it."""
    left_out: tuple[str, ...]
    """Titles of the columns that were left out."""


def fitted(table: Table, width: int) -> Fitted:
    """Return the table fitted to `width` characters, without breaking a word or a number."""
    titles = [name.replace("_cycles", "" if in_cycles(table) else ", cycles") for name in table.head]
    texts = [[title, *(_cell(line[number]) for line in table.lines)] for number, title in enumerate(titles)]
    least = [max(_narrowest(text, number < LABELS) for text in column) for number, column in enumerate(texts)]
    shown = _shown(table, least, width)
    widths = {number: least[number] for number in shown}
    wanted = {number: max(map(len, texts[number])) for number in shown}
    _spread(widths, wanted, width - _total(widths.values()))
    grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for number in shown:
        words = all(isinstance(line[number], str) for line in table.lines)
        grid.add_column(Text(titles[number]), justify="left" if number < LABELS or words else "right", width=widths[number])
    for line in table.lines:
        grid.add_row(*(Text(_cell(line[number])) for number in shown))
    left_out = (title for number, title in enumerate(titles) if number not in widths and table.head[number] not in table.remarks)
    return Fitted(grid, _total(widths.values()), tuple(left_out))


def remarks(table: Table) -> list[str]:
    """Return the remarks of a table's rows as sentences; a remark shared by several rows is given once, with the labels of these rows."""
    found: dict[str, list[str]] = {}
    columns = range(min(len(table.head), _MOST_LABELS))
    labelled = list(takewhile(lambda number: all(isinstance(line[number], str) for line in table.lines), columns))
    for line in table.lines:
        for column in (table.head.index(name) for name in table.remarks):
            if remark := line[column]:
                found.setdefault(str(remark), []).append(", ".join(str(line[number]) for number in labelled))
    if len(found) == 1 and sum(map(len, found.values())) == len(table.lines) > 1:
        return list(found)
    return [f"{'; '.join(dict.fromkeys(labels))}: {remark}" for remark, labels in found.items()]


def in_cycles(table: Table) -> bool:
    """Return whether all numbers of the table are cycles, so that the unit can be in the title."""
    numbers = [column for column in range(len(table.head)) if any(isinstance(line[column], float) for line in table.lines)]
    return bool(numbers) and all(table.head[column].endswith("_cycles") for column in numbers)


def _narrowest(text: str, is_label: bool) -> int:
    """Return the narrowest column that shows a text; a short label such as `(90, 0, 90)` counts as one word."""
    return len(text) if is_label and len(text) <= _SHORT else max((len(word) for word in text.split()), default=0)


def _shown(table: Table, least: list[int], width: int) -> list[int]:
    """Return the columns that fit at their narrowest, leaving out first the table's `spare` columns and then the last ones."""
    shown = [number for number in range(len(least)) if table.head[number] not in table.remarks]
    spare = [table.head.index(name) for name in table.spare]
    going = [*spare, *(number for number in reversed(shown[LABELS:]) if number not in spare)]
    while len(shown) > LABELS + 1 and _total(least[number] for number in shown) > width:
        shown.remove(going.pop(0))
    return shown


def _spread(widths: dict[int, int], wanted: dict[int, int], room: int) -> None:
    """Distribute the remaining width evenly among the columns that still wrap."""
    while room > 0 and (narrow := [number for number in widths if widths[number] < wanted[number]]):
        for number in narrow[:room]:
            widths[number] += 1
        room -= len(narrow[:room])


def _total(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + _GAP * (len(listed) - 1)


def _cell(cell: str | float | None) -> str:
    if cell is None or isinstance(cell, str):
        return cell or "-"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.1f}"

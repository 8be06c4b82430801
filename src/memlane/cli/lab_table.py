"""A lab's table on a terminal: lines break between words, columns without room are left out by name, sentences stand below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from rich.table import Table as Grid
from rich.text import Text

from memlane.lab import Table

LABELS = 2
"""The first columns say what a line is about; they and one number always stay."""
_GAP, _SHORT = 2, 14
_MOST_LABELS = 3
"""So many first columns, if they have words, name a line in front of a remark on it."""


@dataclass(frozen=True)
class Fitted:
    """What is printed of a table."""

    grid: Grid
    width: int
    """Of the grid; more than was asked for only where the labels and one number need it."""
    left_out: tuple[str, ...]
    """Titles of the columns that are not in it."""


def fitted(table: Table, width: int) -> Fitted:
    """The table in so many columns of text. No word and no number is broken."""
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
    """Return the sentences of a table's columns of remarks: one that several lines have once, with the labels of these lines."""
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
    """Whether all its numbers are cycles, so that the title can say so once."""
    numbers = [column for column in range(len(table.head)) if any(isinstance(line[column], float) for line in table.lines)]
    return bool(numbers) and all(table.head[column].endswith("_cycles") for column in numbers)


def _narrowest(text: str, is_label: bool) -> int:
    """The narrowest column that shows a text: short labels, as `(90, 0, 90)`, are one word."""
    return len(text) if is_label and len(text) <= _SHORT else max((len(word) for word in text.split()), default=0)


def _shown(table: Table, least: list[int], width: int) -> list[int]:
    """The columns for which there is room at their narrowest: what the table can spare goes first, then the last ones."""
    shown = [number for number in range(len(least)) if table.head[number] not in table.remarks]
    spare = [table.head.index(name) for name in table.spare]
    going = [*spare, *(number for number in reversed(shown[LABELS:]) if number not in spare)]
    while len(shown) > LABELS + 1 and _total(least[number] for number in shown) > width:
        shown.remove(going.pop(0))
    return shown


def _spread(widths: dict[int, int], wanted: dict[int, int], room: int) -> None:
    """Hand out the room that is left, evenly among the columns that still break lines."""
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

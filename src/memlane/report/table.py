"""Render a table of numbers under the source lines they belong to, for 80 columns and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_WIDE = 100
"""Least terminal width, in columns, with long headers."""


def plain(text: str, style: str = "") -> Text:
    """Return untrusted text for the terminal: no markup, and no escape sequences."""
    return Text("".join(character if character.isprintable() else " " for character in text), style=style)


@dataclass(frozen=True)
class Column:
    """A column of numbers: its header and width on a narrow and on a wide terminal. A header may have several lines."""

    narrow: tuple[str, int]
    wide: tuple[str, int]


@dataclass(frozen=True)
class Row:
    """One operation on one source line."""

    file: str
    line: int
    op: str
    cells: tuple[str, ...]
    """One cell per column."""
    alarming: tuple[int, ...] = ()
    """Columns whose number is highlighted."""


@dataclass(frozen=True)
class LineTable:
    """The table of one kernel: a heading, then each source line and under it one row per operation.

    Rows of one line are adjacent.
    """

    heading: str
    subheading: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    sources: Mapping[str, str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield plain(self.heading, "bold")
        yield plain(f"  {self.subheading}")
        if not self.rows:
            return
        yield self._table([Text("  operation"), *(Text(header) for header, _ in self._layout(width))], width, "dim")
        room = width - sum(space + 1 for _, space in self._layout(width))
        shown: tuple[str, int] | None = None
        for row in self.rows:
            if (row.file, row.line) != shown:
                shown = (row.file, row.line)
                yield plain(self._source_line(row, width), "cyan")
            label = f"  {row.op}"
            if len(label) > room:  # an opcode cut in two is hard to read: give it a line of its own
                yield plain(label)
                label = ""
            cells = [Text(cell, style="bold red" if number in row.alarming else "") for number, cell in enumerate(row.cells)]
            yield self._table([plain(label), *cells], width)

    def _layout(self, width: int) -> list[tuple[str, int]]:
        return [column.wide if width >= _WIDE else column.narrow for column in self.columns]

    def _table(self, cells: Sequence[Text], width: int, style: str = "") -> Table:
        """Return one row as a table of its own, because a source line takes the whole width; fixed widths keep rows aligned."""
        table = Table(box=None, show_header=False, expand=True, pad_edge=False, padding=(0, 1, 0, 0), style=style)
        table.add_column(ratio=1, overflow="fold", vertical="bottom")
        for _, room in self._layout(width):
            table.add_column(width=room, justify="right", overflow="fold", vertical="bottom")
        table.add_row(*cells)
        return table

    def _source_line(self, row: Row, width: int) -> str:
        lines = self.sources.get(row.file, "").splitlines()
        text = lines[row.line - 1].strip().expandtabs(1) if 0 < row.line <= len(lines) else ""
        is_alone = all(other.file == row.file for other in self.rows)
        label = f"{row.line:>4}" if is_alone else f"{PurePath(row.file).name}:{row.line}"
        full = f"{label}  {text}".rstrip()
        return full if len(full) <= width else f"{full[: width - 3]}..."

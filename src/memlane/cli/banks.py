"""Implement `memlane banks`: count the wavefronts of access patterns under layouts of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.later import later
from memlane.cli.output import wrong_use
from memlane.cli.terminal import show, show_json
from memlane.errors import CommandError
from memlane.number_format import plural

if TYPE_CHECKING:
    from rich import table as rich_tables
    from rich import text as texts
    from rich.table import Table

    from memlane import chip as chips
    from memlane import layout, report
    from memlane.chip import AccessKind
    from memlane.layout import Layout, Spec, Wavefronts

    _Cell = tuple[Spec, Wavefronts]
else:
    rich_tables = later("rich.table")
    texts = later("rich.text")
    chips = later("memlane.chip")
    layout = later("memlane.layout")
    report = later("memlane.report")


def banks(
    patterns: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Patterns, separated by commas: contiguous (row), stride (column), strideN, diagonal, antidiagonal, xordiagonal, "
            "blockRxC, anyblockRxC, random, or formulas of lane t and offset r, c as in '(t, 2 * t + c)'.",
        ),
    ] = "contiguous,stride,diagonal,antidiagonal,xordiagonal,block8x4,random",
    layouts: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Layouts, separated by commas: row-major, column-major, pad(1), strided(33, 1), skewed(1), tiled(8, 4), morton, "
            "diagonal-strip, xor, Swizzle<3, 2, 3>, linear(19, 10, 13, 23, 8), ras, rap; ras(7) uses the seed 7.",
        ),
    ] = "row-major,pad(1),xor,ras,rap",
    width: Annotated[str, typer.Option(metavar="BYTES", help="Bytes per lane; separate several by commas.")] = "4",
    rows: o.TileRows = 32,
    columns: o.TileColumns = 32,
    chip: Annotated[str, typer.Option(metavar="NAMES", help="Chips whose bank rules to use, separated by commas.")] = "h200",
    access: o.AccessKinds = "load",
    draws: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="Number of random layouts to average over for `ras` and `rap`.")
    ] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Count the wavefronts of shared-memory access patterns under each layout: mean and worst over all offsets in a tile."""
    with wrong_use():
        words, specs = layout.split_names(patterns), [layout.read_spec(text) for text in layout.split_names(layouts)]
        made = [[spec.of(rows, columns, seed) for seed in range(draws if spec.random else 1)] for spec in specs]
        found = []
        for name, nbytes, kind in product(layout.split_names(chip), widths(width), o.access_kinds(access)):
            cells = [list(_row(word, specs, made, name, nbytes, kind)) for word in words]
            found.append(((name, nbytes, kind), cells))
    if as_json:
        entries = [_entry(spec, cell) for _, cells in found for row in cells for spec, cell in row]
        show_json({**report.document_head("banks"), "rows": rows, "columns": columns, "entries": entries})
        return
    for (name, nbytes, kind), cells in found:
        head = f"{kind}s of {plural(nbytes, 'byte')} per lane, tile of {rows}x{columns}, by the rules of {name}"
        show(texts.Text(head, style="bold"), _table(words, specs, cells), texts.Text())
    show(texts.Text(_NOTE, style="dim"))


_NOTE = (
    "Wavefronts of one access of a warp: mean / worst over all offsets in the tile, or one number if both are equal. Ideal: the fewest "
    "possible for the same bytes. Conflicts: wavefronts above the ideal. ras and rap without a seed: averaged over random layouts."
)


def widths(text: str) -> list[int]:
    """Return the widths in bytes from a comma-separated list."""
    words = layout.split_names(text)
    for word in words:
        if word not in ("1", "2", "4", "8", "16"):
            raise CommandError(f"--width {text}: a lane cannot access {word} bytes; choose one of 1, 2, 4, 8, 16")
    return [int(word) for word in words]


def _row(word: str, specs: Sequence[Spec], made: Sequence[Sequence[Layout]], chip: str, nbytes: int, kind: AccessKind) -> Iterator[_Cell]:
    """Yield the cell of a pattern under each layout."""
    for spec, layouts in zip(specs, made, strict=True):
        one = layout.pattern(word, layouts[0].rows, layouts[0].columns)
        if spec.random:
            yield spec, layout.count_drawn(layouts, spec.name, one, chips.load(chip), nbytes, kind)
        else:
            yield spec, layout.count(layouts[0], one, chips.load(chip), nbytes, kind)


def _entry(spec: Spec, cell: Wavefronts) -> dict[str, object]:
    return {**asdict(cell), "layout": spec.name, "conflicts": cell.conflicts}


def _table(words: Sequence[str], specs: Sequence[Spec], cells: Sequence[Sequence[_Cell]]) -> Table:
    table = rich_tables.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("pattern", overflow="fold")
    for name in ("ideal", *(spec.name for spec in specs)):
        table.add_column(texts.Text(name), justify="right", overflow="fold")
    for word, row in zip(words, cells, strict=True):
        table.add_row(texts.Text(word), number(row[0][1].ideal), *(texts.Text(mean_and_worst(cell), style=_style(cell)) for _, cell in row))
    return table


def mean_and_worst(cell: Wavefronts) -> str:
    return number(cell.mean) if cell.mean == cell.worst else f"{number(cell.mean)} / {cell.worst}"


def number(value: float) -> str:
    """Format a number with two decimals, or none if they are zeros."""
    return f"{value:.0f}" if abs(value - round(value)) < 0.005 else f"{value:.2f}"


def _style(cell: Wavefronts) -> str:
    return "bold red" if cell.worst > 2 * cell.ideal_worst else ""

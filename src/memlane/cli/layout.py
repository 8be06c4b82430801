"""Implement `memlane layout search` and `memlane layout show`: find a layout for a set of patterns, or print one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.banks import mean_and_worst, number, widths
from memlane.cli.later import later
from memlane.cli.output import wrong_use
from memlane.cli.terminal import show as display
from memlane.cli.terminal import show_json
from memlane.errors import CommandError
from memlane.number_format import plural

if TYPE_CHECKING:
    from rich import console as consoles
    from rich import progress as bars
    from rich import table as rich_tables
    from rich import text as texts

    from memlane import chip as chips
    from memlane import layout as layouts
    from memlane import optimize, report
    from memlane.optimize import Certificate
else:
    consoles = later("rich.console")
    bars = later("rich.progress")
    rich_tables = later("rich.table")
    texts = later("rich.text")
    chips = later("memlane.chip")
    layouts = later("memlane.layout")
    optimize = later("memlane.optimize")
    report = later("memlane.report")


def search(
    patterns: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help=(
                "Patterns, separated by commas, the most important first: row, column, strideN, diagonal, antidiagonal, xordiagonal, "
                "blockRxC, anyblockRxC, or formulas of lane t and offset r, c as in '(t, 2 * t + c)'. row@16 requests 16 bytes per "
                "lane."
            ),
        ),
    ],
    width: Annotated[str, typer.Option(metavar="BYTES", help="Bytes per lane, for patterns that do not specify them.")] = "4",
    element: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Bytes per element of the tile; default: the width of the narrowest access.")
    ] = None,
    rows: o.TileRows = 32,
    columns: o.TileColumns = 32,
    chip: Annotated[str, typer.Option(metavar="NAME", help="The chip whose bank rules to use.")] = "h200",
    access: o.AccessKinds = "load,store",
    padding: Annotated[bool, typer.Option("--padding", help="Allow layouts that take more memory.")] = False,
    terms: Annotated[
        int, typer.Option(metavar="N", help="The maximum number of terms of a swizzle, 1 to 4; each costs up to 3 operations.")
    ] = 3,
    as_json: o.Json = False,
) -> None:
    """Find the layout of a shared-memory tile that is best for all of the patterns, by counting every candidate at every offset."""
    chosen = widths(width)
    if len(chosen) != 1:
        raise CommandError(f"--width {width}: give one width; to use another width for one pattern, append it to the pattern, as in row@16")
    with wrong_use(), _progress() as progress:
        found = optimize.search_layout(
            layouts.split_names(patterns), width=chosen[0], element=element, rows=rows, columns=columns, chip=chips.load(chip),
            kinds=o.access_kinds(access), padding=padding, terms=terms, progress=progress,
        )  # fmt: skip
    if as_json:
        show_json(_document(found))
    else:
        _print(found)


def show(
    layout: Annotated[
        str, typer.Argument(metavar="LAYOUT", help="A layout in the notation of `memlane banks`, for example 'Swizzle<3, 2, 3>'.")
    ],
    rows: o.TileRows = 32,
    columns: o.TileColumns = 32,
    element: Annotated[int, typer.Option(metavar="BYTES", help="Bytes per element.")] = 4,
) -> None:
    """Show the bank of each element under a layout, and the layout as CUDA C++."""
    if element not in (1, 2, 4, 8, 16):
        raise CommandError(f"--element {element}: an element has 1, 2, 4, 8 or 16 bytes")
    with wrong_use():
        one = layouts.read_spec(layout).of(rows, columns)
    room = f"{plural(one.size * element, 'byte')}"
    typer.echo(f"{one}: the bank of each element of {plural(element, 'byte')}; size {room}; address: {one.cost}\n")
    typer.echo(one.picture(element_bytes=element))
    typer.echo(one.cuda_source(o.LAYOUT_FUNCTION), nl=False)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar on a terminal, and remove it when the search ends."""
    console = consoles.Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (bars.TextColumn("searching"), bars.BarColumn(24), bars.MofNCompleteColumn(), bars.TextColumn("layouts"))
    with bars.Progress(*columns, console=console, transient=True) as display:
        task = display.add_task("", total=None)
        yield lambda done, total: display.update(task, completed=done, total=total)


def _print(found: Certificate) -> None:
    room = found.layout.size - found.layout.rows * found.layout.columns
    address = f"  address: {found.extra} more than row-major; space: {plural(room, 'element') if room else 'none'} more"
    table = rich_tables.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("pattern", "access"):
        table.add_column(name, overflow="fold")
    for name in ("offsets", "worst", "ideal", "mean", "row-major", "RAP"):
        table.add_column(name, justify="right")
    for entry, plain, rap in zip(found.entries, found.plain, found.rap, strict=True):
        bad = "bold red" if entry.worst > 2 * entry.ideal_worst else ""
        cells = (str(entry.ideal_worst), number(entry.mean), mean_and_worst(plain), mean_and_worst(rap))
        access = texts.Text(f"{entry.kind} {entry.width} B")
        table.add_row(texts.Text(entry.pattern), access, f"{entry.accesses:,}", texts.Text(str(entry.worst), style=bad), *cells)
    head = (texts.Text(str(found.layout), style="bold"), texts.Text(address), texts.Text())
    display(*head, table, texts.Text(), texts.Text(_how(found), style="dim"), texts.Text(found.verdict), texts.Text())
    typer.echo(found.layout.cuda_source(o.LAYOUT_FUNCTION), nl=False)


def _how(found: Certificate) -> str:
    return (
        f"Wavefronts of a warp's access by the rules of {found.entries[0].chip}, counted at every offset of each pattern. RAP: mean / "
        f"worst observed over {found.rap[0].draws} random layouts. Searched: {found.exhaustive}; {plural(found.examined, 'layout')}."
    )


def _document(found: Certificate) -> dict[str, object]:
    return {
        **report.document_head("layout"),
        "layout": str(found.layout),
        "python": repr(found.layout),
        "cuda": found.layout.cuda_source(o.LAYOUT_FUNCTION),
        "rows": found.layout.rows,
        "columns": found.layout.columns,
        "size": found.layout.size,
        "extra_operations": found.extra.operations,
        "extra_lookups": found.extra.lookups,
        "entries": [asdict(entry) for entry in found.entries],
        "row_major": [asdict(entry) for entry in found.plain],
        "rap": [asdict(entry) for entry in found.rap],
        "examined": found.examined,
        "families": found.exhaustive,
        "beats_rap": found.beats_rap,
        "verdict": found.verdict,
    }

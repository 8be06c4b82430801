"""Implement `memlane fix`: try layouts of shared memory, and show which make a kernel faster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.failure import passing_on, why
from memlane.cli.later import later
from memlane.cli.programs import Program, nothing_launched
from memlane.cli.stream import for_a_document
from memlane.cli.terminal import columns, on_terminal, show, show_json
from memlane.errors import CommandError

if TYPE_CHECKING:
    from rich import table as rich_tables
    from rich import text as texts

    from memlane import record, report
    from memlane.cli import fixer as fixers
    from memlane.cli import progress
    from memlane.cli.fixer import Fixer
    from memlane.optimize import Fix, LayoutAdvice, Measured
else:
    texts = later("rich.text")
    rich_tables = later("rich.table")
    progress = later("memlane.cli.progress")
    fixers = later("memlane.cli.fixer")
    record = later("memlane.record")
    report = later("memlane.report")


@runs_program
def fix(
    program: Program,
    launch: Annotated[
        int | None,
        typer.Option(
            "--launch",
            metavar="N",
            min=0,
            help="The N-th launch of the script, from 0; default: the first of each kernel.",
            rich_help_panel=o.WHAT,
        ),
    ] = None,
    target: o.TargetName = "",
    array: Annotated[
        str,
        typer.Option(
            "--array",
            metavar="NAME",
            rich_help_panel=o.WHAT,
            help="The array in shared memory, by name or as 'dynamic[0:4096]'; default: all with bank conflicts.",
        ),
    ] = "",
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", rich_help_panel=o.WHAT, help="Rows of the array; default: derived from its columns."),
    ] = None,
    columns: Annotated[
        int | None,
        typer.Option(
            "--columns", metavar="N", rich_help_panel=o.WHAT, help="Elements in a row of the array; default: derived from the accesses."
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Try other layouts of a kernel's shared-memory arrays without changing its source, and show which make it faster."""
    for option, extent in (("--rows", rows), ("--columns", columns)):
        if extent is not None and extent < 1:
            raise CommandError(f"{option} {extent}: it must be at least 1")
    fixer = fixers.Fixer(launch, array, rows, columns)
    with for_a_document(as_json), progress.progress("trying layouts for"):
        failure = program.run(target, fixer)
    failure = failure or nothing_launched(program, fixer.seen, bool(fixer.looked_at), launch, "fix")
    with passing_on(failure):
        _report(fixer, as_json, why(failure))


def _report(fixer: Fixer, as_json: bool, failed: str) -> None:
    if as_json:
        arrays = [_document(one) for one in fixer.found]
        show_json(
            {
                **report.document_head("fix"),
                "failed": failed or None,
                "kernels": fixer.looked_at,
                "arrays": arrays,
                "global_arrays": [_advice(one) for one in fixer.advice],
            }
        )
        return
    for one in fixer.found:
        _print(one)
    for advice in fixer.advice:
        show(
            texts.Text(advice.verdict),
            *(texts.Text(f"  not tried: {layout}: {why}", style="dim") for layout, why in advice.refused if layout),
        )
        if advice.best is not None:
            typer.echo(f"\n{advice.best.layout.cuda_source(o.LAYOUT_FUNCTION).rstrip()}\n")
    others = [name for name in fixer.looked_at if name not in {record.kernel_label(one.kernel) for one in fixer.found}]
    if others:
        show(texts.Text(f"No bank conflicts in {', '.join(others)}: nothing to fix in shared memory."))
    if failed and fixer.looked_at:
        show(texts.Text(report.broken_off_note(failed)))


def _print(fix: Fix) -> None:
    show(texts.Text.assemble((f"{record.kernel_label(fix.kernel)}: {fix.array.title.rpartition('::')[2]}", "bold"), f" on {fix.target}"))
    names = ("wavefronts", "modelled us" if fix.modelled else "us", "times as fast", "registers", "shared bytes", "blocks per SM")
    tried = (fix.original, *fix.tried)
    # A terminal that is too narrow wraps a long name; in a file it stays on one line.
    room = 24 if on_terminal() else max(len(_cells(one)[0]) for one in tried)
    widths = [max(8, *map(len, name.split())) for name in names]
    table = rich_tables.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("layout", overflow="fold", width=room)
    for name, width in zip(names, widths, strict=True):
        table.add_column(name, justify="right", width=width)
    for one in tried:
        table.add_row(*_cells(one))
    show(table, width=max(columns(), room + sum(widths) + len(names)))
    show(*(texts.Text(f"  not tried: {layout}: {reason}", style="dim") for layout, reason in fix.refused), texts.Text(fix.verdict))
    if fix.advice:
        show(texts.Text(), texts.Text(fix.advice))
    source = fix.source(o.LAYOUT_FUNCTION).rstrip()
    if source:
        typer.echo(f"\n{source}")  # echo does not wrap, so that the text can be copied
    typer.echo()


def _cells(one: Measured) -> list[str]:
    name = "original" if one.layout is None else str(one.layout)
    fits = ("" if number is None else f"{number:,}" for number in (one.needs.registers, one.needs.shared_bytes, one.needs.blocks))
    name += " in the source" if one.in_source else ""
    return [name + ("" if one.same else " (other output)"), f"{one.wavefronts:,}", f"{one.time_ns / 1e3:.2f}", f"{one.speedup:.2f}", *fits]


def _document(fix: Fix) -> dict[str, object]:
    best = fix.best
    return {
        "kernel": fix.kernel,
        "target": fix.target,
        "modelled": fix.modelled,
        "array": fix.array.title,
        "element_bytes": fix.element_bytes,
        "ideal_wavefronts": fix.original.ideal_wavefronts,
        "original": _measured(fix.original),
        "tried": [_measured(one) for one in fix.tried],
        "refused": [{"layout": layout, "reason": reason} for layout, reason in fix.refused],
        "best": None if best is None else str(best.layout),
        "language": fix.language,
        "source": fix.source(o.LAYOUT_FUNCTION) or None,
        "cuda": None if best is None or best.layout is None else best.layout.cuda_source(o.LAYOUT_FUNCTION),
        "verdict": fix.verdict,
    }


def _advice(advice: LayoutAdvice) -> dict[str, object]:
    best = advice.best
    tried = [
        {
            "layout": str(one.layout),
            "sectors": one.sectors,
            "time_ns": one.time_ns,
            "same_output": one.same,
            "remap_ns": one.remap_ns,
            "exposed_ns": one.exposed_ns,
        }
        for one in advice.tried
    ]
    return {
        "kernel": advice.kernel,
        "parameter": advice.parameter,
        "shape": list(advice.shape),
        "type": advice.dtype,
        "sectors": advice.sectors,
        "ideal_sectors": advice.ideal_sectors,
        "time_ns": advice.original[1],
        "tried": tried,
        "refused": [{"layout": layout, "reason": reason} for layout, reason in advice.refused],
        "best": None if best is None else str(best.layout),
        "launches_to_pay": None if best is None else advice.break_even(),
        "verdict": advice.verdict,
    }


def _measured(one: Measured) -> dict[str, object]:
    return {
        "layout": None if one.layout is None else str(one.layout),
        "wavefronts": one.wavefronts,
        "time_ns": one.time_ns,
        "times_as_fast": one.speedup,
        "same_output": one.same,
        "in_source": one.in_source,
        "layout_alone": one.layout_alone,
        "limited_by": one.limited_by or None,
        **asdict(one.needs),
    }

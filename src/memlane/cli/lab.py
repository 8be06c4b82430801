"""Implement `memlane lab NAME`: run experiments on this machine. Each lab is one function."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import INTERRUPTED
from memlane.cli.later import later
from memlane.cli.options import TARGETS_HELP, target_names
from memlane.cli.output import may_fill
from memlane.cli.terminal import columns, show
from memlane.errors import CommandError

if TYPE_CHECKING:
    from rich import text as texts

    from memlane import chip as chips
    from memlane import lab as labs
    from memlane import targets
    from memlane.chip import Fact
    from memlane.cli import lab_table
    from memlane.lab import Machine, Request, Result, chip_file
    from memlane.lab import result as results
    from memlane.lab.bandwidth import lab as bandwidths
    from memlane.lab.latency import lab as latencies
    from memlane.lab.reduction import lab as reductions
    from memlane.lab.reduction import settings as reduction_settings
    from memlane.lab.remap import lab as remaps
    from memlane.lab.stencil import cases as stencil_cases
    from memlane.lab.stencil import lab as stencils
    from memlane.lab.volume import lab as volumes
    from memlane.lab.volume import scene
    from memlane.launch import Target
else:
    texts = later("rich.text")
    chips = later("memlane.chip")
    bandwidths = later("memlane.lab.bandwidth.lab")
    chip_file = later("memlane.lab.chip_file")
    lab_table = later("memlane.cli.lab_table")
    labs = later("memlane.lab")
    latencies = later("memlane.lab.latency.lab")
    reduction_settings = later("memlane.lab.reduction.settings")
    reductions = later("memlane.lab.reduction.lab")
    remaps = later("memlane.lab.remap.lab")
    results = later("memlane.lab.result")
    scene = later("memlane.lab.volume.scene")
    stencil_cases = later("memlane.lab.stencil.cases")
    stencils = later("memlane.lab.stencil.lab")
    targets = later("memlane.targets")
    volumes = later("memlane.lab.volume.lab")

LabTarget = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        autocompletion=target_names,
        help=f"Where to measure: {TARGETS_HELP}",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="Use small sizes and few repetitions, to test that everything works; the numbers are not valid measurements."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory for result.json, tables as CSV and figures; default: lab-NAME.")
]
Only = Annotated[
    str,
    typer.Option("--only", metavar="NAMES", help="Cases to measure, separated by semicolons (their names contain commas); default: all."),
]


def latency(
    target: LabTarget = "",
    quick: Quick = False,
    out: Out = None,
    only: Only = "",
    save_chip: Annotated[
        bool, typer.Option("--write-chip", help="Write the latencies into your own chip file, which takes precedence over the shipped one.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="With --write-chip: overwrite a chip file that exists.")] = False,
) -> None:
    """Measure the latency of each memory level, and what each probe of `memlane trace` records for it."""
    chosen = targets.target(target or None)
    _check_chip_file(chosen, save_chip, force)
    result, where = _run("latency", chosen, quick, out, only)
    found = latencies.chip_latencies(result.rows)
    if not chosen.modelled and found:
        _offer_chip_file(chosen, chip_file.latency_facts(found, _measured_by("latency", where)), save_chip, force)


def bandwidth(
    target: LabTarget = "",
    quick: Quick = False,
    out: Out = None,
    only: Only = "",
    save_chip: Annotated[
        bool, typer.Option("--write-chip", help="Write the numbers into your own chip file, which takes precedence over the shipped one.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="With --write-chip: change a chip file that exists, and keep its other entries.")
    ] = False,
) -> None:
    """Measure how fast this machine copies, reads and writes, and how long copies, launches and graphs take to start."""
    chosen = targets.target(target or None)
    _check_chip_file(chosen, save_chip, force)
    result, where = _run("bandwidth", chosen, quick, out, only)
    found = bandwidths.chip_facts(result.rows, chosen.chip, _measured_by("bandwidth", where))
    if not chosen.modelled and found:
        _offer_chip_file(chosen, found, save_chip, force)


def reduction(
    target: LabTarget = "",
    quick: Quick = False,
    out: Out = None,
    only: Only = "",
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size", metavar="N", help="Number of elements to sum, such as 2^24; repeat for several. Default: 2^22, 2^24, 2^28 on a GPU."
        ),
    ] = None,
    block: Annotated[
        list[int] | None, typer.Option("--block", metavar="N", help="Threads per block, 64 to 1024; repeat for several. Default: 128.")
    ] = None,
) -> None:
    """Measure the seven steps of the reduction course and five more: how fast each is, why, and compared with PyTorch and CuPy."""
    settings = reduction_settings.settings_of(size or (), block or ())
    said = [word for name, values in (("--size", size), ("--block", block)) for value in values or () for word in (name, str(value))]
    chosen = targets.target(target or None)
    _run("reduction", chosen, quick, out, only, lambda to, request: reductions.run_with(to, request, settings), said)


def remap(
    target: LabTarget = "",
    quick: Quick = False,
    out: Out = None,
    only: Only = "",
    matrix: Annotated[
        list[Path] | None,
        typer.Option("--matrix", metavar="FILE", help="A MatrixMarket file for the sparse product; repeat for several."),
    ] = None,
) -> None:
    """Measure what it costs to change the layout of an array during its upload, and what four kernels gain by it."""
    said = [word for path in matrix or () for word in ("--matrix", path.name)]
    chosen = targets.target(target or None)
    _run("remap", chosen, quick, out, only, lambda to, request: remaps.run_with(to, request, matrix or ()), said)


def shift(target: LabTarget = "", quick: Quick = False, out: Out = None, only: Only = "") -> None:
    """Measure what shifted and other layouts of shared memory gain, and what it costs to compute their addresses."""
    _run("shift", targets.target(target or None), quick, out, only)


def stencil(
    target: LabTarget = "",
    quick: Quick = False,
    out: Out = None,
    only: Only = "",
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help=(
                "Himeno's S, M, L or XL, or cells along each axis, Z first, as 7-point:512 or himeno:256x32x32; repeat for "
                "several. Default: the published sizes, or small ones on emulated devices."
            ),
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option("--devices", "-n", metavar="N", help="The largest number of devices; default: all GPUs, or 4 emulated devices."),
    ] = None,
) -> None:
    """Predict and measure how many time steps a stencil on several devices should make between two exchanges, as in a paper of 2012."""
    settings = stencil_cases.settings_of(size or (), devices)
    said = [word for text in size or () for word in ("--size", text)]
    said += ["--devices", str(devices)] if devices is not None else []
    chosen = targets.target(target or None)
    _run("stencil", chosen, quick, out, only, lambda to, request: stencils.run_with(to, request, settings), said)


def volume(
    target: LabTarget = "",
    quick: Quick = False,
    out: Out = None,
    only: Only = "",
    view: Annotated[
        list[str] | None,
        typer.Option("--view", metavar="X,Y,Z", help="A viewpoint, three angles in degrees such as 90,0,90; repeat for several."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="WxH", help="A block shape, such as 8x16; repeat for several. Default: all eight."),
    ] = None,
    size: Annotated[int | None, typer.Option("--size", metavar="N", help="Voxels along each side of the volume.")] = None,
    image: Annotated[int | None, typer.Option("--image", metavar="N", help="Pixels along each side of the image.")] = None,
) -> None:
    """Measure whether the access times in a trace explain the speed of volume rendering, as in a paper of 2012."""
    settings = scene.settings_of(view or (), shape or (), size, image)
    said = [word for name, values in (("--view", view), ("--shape", shape)) for value in values or () for word in (name, value)]
    said += [word for name, number in (("--size", size), ("--image", image)) if number is not None for word in (name, str(number))]
    chosen = targets.target(target or None)
    _run("volume", chosen, quick, out, only, lambda to, request: volumes.run_with(to, request, settings), said)


def _measured_by(lab: str, where: Machine) -> str:
    """Return the source that a chip file gives for a measured number."""
    return f"measured: {datetime.date.today().isoformat()}, driver {where.driver}, CUDA {where.cuda}, memlane lab {lab}"


def _offer_chip_file(target: Target, measured: Mapping[str, Fact], save_chip: bool, force: bool) -> None:
    """Write the user's chip file, or print the text that would be written."""
    text = chip_file.chip_file(target.chip, measured)
    if save_chip:
        typer.echo(f"Wrote {chip_file.write_chip(target.chip, text, force=force)}")
    else:
        typer.echo(f"\nWith --write-chip this goes into {chips.user_directory() or '$MEMLANE_CHIPS'}/{target.chip.name}.toml:\n\n{text}")


def _check_chip_file(target: Target, save_chip: bool, force: bool) -> None:
    """Raise CommandError before measuring if the chip file could not be written afterwards."""
    if save_chip and target.modelled:
        raise CommandError(f"--write-chip: the times of {target.name} come from its chip file; measure on a GPU: --target cuda:0")
    if save_chip:
        chip_file.check_chip_file(target.chip, force)


def _run(
    name: str,
    target: Target,
    quick: bool,
    out: Path | None,
    only: str,
    run: Callable[[Target, Request], Result] | None = None,
    said: Sequence[str] = (),
) -> tuple[Result, Machine]:
    """Run a lab, print its tables, write its files. `run` replaces the lab's function if the command has own options, listed in `said`."""
    run, where = run or labs.LABS[name].run, labs.machine(target)
    cases = tuple(word.strip() for word in only.split(";")) if only else ()
    folder = may_fill(out or Path(f"lab-{name}"))
    result = run(target, labs.Request(quick, cases, lambda text: typer.echo(f"{text} ...", err=True)))
    is_empty = all(row.metric == results.NOT_MEASURED for row in result.rows)
    if result.interrupted and is_empty:
        _tell_missing(result)
        raise KeyboardInterrupt
    options = [*(["--quick"] if quick else []), *(["--only", only] if only else []), *said]
    try:
        paths, left_out = result.save(folder, where, ["memlane", "lab", name, "--target", target.name, *options])
    except KeyboardInterrupt:
        raise CommandError(
            f"interrupted while files were written; {folder} has the results, without all figures", exit_code=INTERRUPTED
        ) from None
    for title, table in result.tables.items():
        if not table.printed:
            continue
        unit = "; cycles" if lab_table.in_cycles(table) else ""
        show(texts.Text(f"{title}, on {target.name}" + (", modelled" if target.modelled else "") + unit, style="bold"))
        made = lab_table.fitted(table, columns())
        show(made.grid, width=max(columns(), made.width))
        for remark in lab_table.remarks(table):
            show(texts.Text(remark, style="dim"))
        if made.left_out:
            show(texts.Text(f"columns not shown here: {', '.join(made.left_out)}; {title}.csv has all of them", style="dim"))
        show(texts.Text())
    _tell_missing(result)
    typer.echo(f"Wrote {', '.join(path.name for path in paths)} to {folder}")
    if left_out:
        typer.echo(left_out, err=True)
    if result.interrupted:
        raise CommandError(f"interrupted; {folder} has what was measured before", exit_code=INTERRUPTED)
    if is_empty and not all(row.holds for row in result.rows):
        raise CommandError(f"no case could be measured; {folder / 'result.json'} says why", exit_code=1)
    return result, where


def _tell_missing(result: Result) -> None:
    for row in result.rows:
        if row.metric == results.NOT_MEASURED:
            typer.echo(f"not measured: {row.case}: {row.note}", err=True)

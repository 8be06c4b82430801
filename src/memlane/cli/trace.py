"""`memlane trace`: when each access started and completed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import typer

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli import tracing as t
from memlane.cli.command import runs_program
from memlane.cli.later import later
from memlane.cli.notes import plan_notes
from memlane.cli.output import output_path, wrong_use
from memlane.cli.programs import Program, check_launched
from memlane.cli.progress import progress
from memlane.cli.terminal import show
from memlane.errors import BadLaunch, CommandError, DeviceError, LaunchError, MemlaneError

if TYPE_CHECKING:
    from memlane import instrument, measure, report
    from memlane import launch as launching
    from memlane.cli import selected
    from memlane.measure import Tracer
    from memlane.record import Trace
else:
    instrument = later("memlane.instrument")
    launching = later("memlane.launch")
    measure = later("memlane.measure")
    report = later("memlane.report")
    selected = later("memlane.cli.selected")


@runs_program
def trace(
    program: Program,
    scheme: t.Scheme = "dependent",
    stores: t.Stores = "issued",
    staging: t.Staging = "auto",
    counts: t.WithCounts = False,
    perturbation: t.Perturbation = False,
    space: t.Spaces = [],
    kind: t.Kinds = [],
    line: t.Lines = [],
    blocks: t.Blocks = "",
    warps: t.Warps = "",
    sms: t.Multiprocessors = "",
    executions: t.Executions = "",
    every: t.Every = 1,
    whole_blocks: t.WholeBlocks = False,
    seed: t.Seed = 0,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    check: o.Checked = False,
    deterministic: o.Deterministic = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    """Record when each memory access started and completed, and print a table by source line."""
    with wrong_use():
        selection = instrument.Selection(spaces=_chosen(space), kinds=_chosen(kind), lines=_chosen([("", number) for number in line]))
        windows = {"blocks": blocks or None, "warps": warps or None, "sms": sms or None, "executions": executions or None}
        sampling = instrument.Sampling.of(**windows, every=every, seed=seed, whole_blocks=whole_blocks)
        options = instrument.TraceOptions(scheme, selection, sampling, stores, staging)
    program.check()
    path = output_path(output, program.path, ".parquet", force)
    place = path.absolute()  # The script may well change the working directory.
    tracer = measure.Tracer(options, only_launch=launch, counts=counts, perturbation=perturbation)
    launched = selected.LaunchedKernels(launch)
    checks = Check(insist=True) if check else None
    with progress("tracing"), plan_notes(), checking(checks), launching.observing(launched, everywhere=True):
        failure = _run(program, target, tracer, deterministic)
    check_launched(program, tracer.seen, bool(tracer.traced), launch, "trace")
    if failure is None:
        launched.check(selection)
        selected.check_plans(tracer.plans)
    result = _finished(tracer, failure)
    result.save(place, force=force)
    show(report.render_trace(result))
    typer.echo(f"Wrote {path}")
    if failure is not None:
        raise failure
    if place.is_file():  # and no device
        typer.echo(f"Next: memlane explain {shlex.quote(str(path))}")


def _run(program: Program, target: str, tracer: Tracer, deterministic: bool) -> MemlaneError | None:
    """Run the program under `tracer`. What it broke off with, where something was recorded before; other errors are raised."""
    try:
        program.run(target, tracer, deterministic)
    except CommandError as error:  # The script failed, not a launch: what it launched before is whole.
        if not tracer.traced:
            raise
        return error
    except (DeviceError, LaunchError) as error:  # A launch broke off: what was recorded until then is told, where it is still there.
        if not tracer.traced or isinstance(error, BadLaunch):
            raise
        return error
    return None


def _finished(tracer: Tracer, failure: MemlaneError | None) -> Trace:
    """What was recorded: of a program that failed, the launches before. Where the device went down with it, there is only the failure."""
    try:
        return tracer.finish()
    except MemlaneError:
        if failure is None:
            raise
        raise failure if isinstance(failure, CommandError) else measure.gone(failure) from None


_T = TypeVar("_T")


def _chosen(values: Iterable[_T]) -> frozenset[_T] | None:
    """What an option that may be repeated chose; None, which chooses all, where it was not given."""
    return frozenset(values) or None

"""`memlane trace`: when each access started and completed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.notes import plan_notes
from memlane.cli.output import output_path
from memlane.cli.programs import Program
from memlane.cli.progress import progress
from memlane.cli.selected import LaunchedKernels, check_plans
from memlane.errors import BadLaunch, CommandError, DeviceError, LaunchError, MemlaneError
from memlane.instrument import SCHEMES, STAGINGS, Sampling, Selection, TraceOptions
from memlane.launch import observing
from memlane.measure import Tracer, gone
from memlane.record import Trace
from memlane.report import render_trace


@runs_program
def trace(
    program: Program,
    scheme: Annotated[str, typer.Option("--scheme", help=f"The probe: {', '.join(SCHEMES)}.")] = "dependent",
    space: Annotated[list[str], typer.Option("--space", help="Only accesses to this state space; repeat for several.")] = [],
    kind: Annotated[list[str], typer.Option("--kind", help="Only load, store, atomic, reduction, copy or wait; repeat for several.")] = [],
    line: Annotated[list[int], typer.Option("--line", help="Only accesses of this source line; repeat for several.")] = [],
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="On a GPU, count transactions too, by a launch of its own before each traced one; the emulator always does."
        ),
    ] = False,
    perturbation: Annotated[
        bool,
        typer.Option("--perturbation", help="Time each launch without and with probes too, by launches of its own before the traced one."),
    ] = False,
    stores: Annotated[
        str, typer.Option("--stores", help="Time stores until they are issued, or visible to their block, or to the device.")
    ] = "issued",
    staging: Annotated[
        str, typer.Option("--staging", help=f"Where records go first: {', '.join(STAGINGS)}; auto is what was measured to be quicker.")
    ] = "auto",
    blocks: Annotated[str, typer.Option("--blocks", metavar="A-B,C", help="Trace these blocks, by linear index, both ends included.")] = "",
    warps: Annotated[str, typer.Option("--warps", metavar="A-B,C", help="Trace these warps of each block.")] = "",
    sms: Annotated[str, typer.Option("--sms", metavar="A-B,C", help="Trace the warps on these SMs.")] = "",
    executions: Annotated[
        str,
        typer.Option("--executions", metavar="A-B", help="Record from the A-th to the B-th time, from 0, that a thread accesses."),
    ] = "",
    every: Annotated[int, typer.Option("--every", metavar="N", help="Trace one in N warps; the others run the original code.")] = 1,
    whole_blocks: Annotated[
        bool,
        typer.Option("--whole-blocks", help="With `--every`: trace all warps of one in N blocks, so that no other waits for a traced warp."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Which warps or blocks `--every` takes.")] = 0,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    check: o.Checked = False,
    deterministic: o.Deterministic = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    """Record when each memory access started and completed, and print a table by source line."""
    program.check()
    path = output_path(output, program.path, ".parquet", force)
    place = path.absolute()  # The script may well change the working directory.
    selection = Selection(spaces=_chosen(space), kinds=_chosen(kind), lines=_chosen([("", number) for number in line]))
    windows = {"blocks": blocks or None, "warps": warps or None, "sms": sms or None, "executions": executions or None}
    sampling = Sampling.of(**windows, every=every, seed=seed, whole_blocks=whole_blocks)
    options = TraceOptions(scheme, selection, sampling, stores, staging)
    tracer = Tracer(options, only_launch=launch, counts=counts, perturbation=perturbation)
    failure: MemlaneError | None = None
    launched = LaunchedKernels(launch)
    try:
        with progress("tracing"), plan_notes(), checking(Check(insist=True) if check else None), observing(launched, everywhere=True):
            program.run(target, tracer, deterministic)
    except CommandError as error:  # The script failed, not a launch: what it launched before is whole.
        if not tracer.traced:
            raise
        failure = error
    except (DeviceError, LaunchError) as error:  # A launch broke off: what was recorded until then is told, where it is still there.
        if not tracer.traced or isinstance(error, BadLaunch):
            raise
        failure = error
    if not tracer.seen:
        raise CommandError(f"{program.path} launched no kernel through memlane, so there is nothing to trace", exit_code=1)
    if not tracer.traced:
        raise CommandError(f"{program.path} made {tracer.seen} launches, numbered from 0; there is no launch {launch}", exit_code=1)
    if failure is None:
        launched.check(selection)
        check_plans(tracer.plans)
    result = _finished(tracer, failure)
    result.save(place, force=force)
    Console().print(render_trace(result))
    typer.echo(f"Wrote {path}")
    if failure is not None:
        raise failure
    typer.echo(f"Next: memlane explain {path}")


def _finished(tracer: Tracer, failure: MemlaneError | None) -> Trace:
    """What was recorded: of a program that failed, the launches before. Where the device went down with it, there is only the failure."""
    try:
        return tracer.finish()
    except MemlaneError:
        if failure is None:
            raise
        raise failure if isinstance(failure, CommandError) else gone(failure) from None


_T = TypeVar("_T")


def _chosen(values: Iterable[_T]) -> frozenset[_T] | None:
    """What an option that may be repeated chose; None, which chooses all, where it was not given."""
    return frozenset(values) or None

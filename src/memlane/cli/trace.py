"""`memlane trace`: when each access started and completed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli import tracing as t
from memlane.cli.command import runs_program
from memlane.cli.failure import finished, passing_on
from memlane.cli.later import later
from memlane.cli.notes import plan_notes
from memlane.cli.output import output_path, wrong_use
from memlane.cli.programs import Program, nothing_launched
from memlane.cli.progress import progress
from memlane.cli.terminal import show
from memlane.errors import RecordError

if TYPE_CHECKING:
    from memlane import instrument, measure, record, report
    from memlane import launch as launching
    from memlane.cli import selected
    from memlane.record import Trace
else:
    instrument = later("memlane.instrument")
    launching = later("memlane.launch")
    measure = later("memlane.measure")
    record = later("memlane.record")
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
    path = output_path(output, program.path, ".parquet", force, record.is_broken_off)
    place = path.absolute()  # The script may well change the working directory.
    tracer = measure.Tracer(options, only_launch=launch, counts=counts, perturbation=perturbation)
    launched = selected.LaunchedKernels(launch)
    checks = Check(insist=True) if check else None
    with progress("tracing"), plan_notes(), checking(checks), launching.observing(launched, everywhere=True):
        failure = program.run(target, tracer, deterministic)
    failure = failure or nothing_launched(program, tracer.seen, bool(tracer.traced), launch, "trace")
    if failure is None:
        launched.check(selection)
        selected.check_plans(tracer.plans)
    elif not tracer.traced:
        raise failure.error
    result = finished(tracer.finish, failure)
    if failure is not None:
        if not result.launches:
            raise failure.error
        result = replace(result, failed=failure.why)
    with passing_on(failure):
        _report(result, place, path, force)


def _report(trace: Trace, place: Path, path: Path, force: bool) -> None:
    """Write the records to `place`, which is called `path`, and show the table: also where the records cannot be written."""
    replaced = record.is_broken_off(place)
    try:
        trace.save(place, force=force or replaced)
    except RecordError:
        show(report.render_trace(trace))
        raise
    show(report.render_trace(trace))
    instead = ", in place of records that broke off" if replaced else ""
    if trace.failed:
        typer.echo(f"Wrote {path}{instead}: the records until the program broke off. Another trace may replace it without --force.")
        return
    typer.echo(f"Wrote {path}{instead}")
    if place.is_file():  # and no device
        typer.echo(f"Next: memlane explain {shlex.quote(str(path))}")


_T = TypeVar("_T")


def _chosen(values: Iterable[_T]) -> frozenset[_T] | None:
    """What an option that may be repeated chose; None, which chooses all, where it was not given."""
    return frozenset(values) or None

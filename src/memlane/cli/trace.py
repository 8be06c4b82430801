"""Implement `memlane trace`: record when each access started and completed."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from memlane.cli import options as o
from memlane.cli import tracing as t
from memlane.cli.command import runs_program
from memlane.cli.failure import passing_on
from memlane.cli.later import later
from memlane.cli.output import output_path, wrong_use
from memlane.cli.programs import Program
from memlane.cli.recording import record_program
from memlane.cli.terminal import show
from memlane.errors import RecordError

if TYPE_CHECKING:
    from memlane import instrument, record, report
    from memlane.record import Trace
else:
    instrument = later("memlane.instrument")
    record = later("memlane.record")
    report = later("memlane.report")


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
    done = record_program(
        program,
        options,
        verb="trace",
        target=target,
        launch=launch,
        counts=counts,
        perturbation=perturbation,
        check=check,
        deterministic=deterministic,
    )
    with passing_on(done.failure):
        _report(done.trace, place, path, force)


def _report(trace: Trace, place: Path, path: Path, force: bool) -> None:
    """Write the records to `place`, shown to the user as `path`, and print the table even if the records cannot be written."""
    replaced = record.is_broken_off(place)
    try:
        trace.save(place, force=force or replaced)
    except RecordError:
        show(report.render_trace(trace))
        raise
    show(report.render_trace(trace))
    instead = ", replacing an incomplete recording" if replaced else ""
    if trace.failed:
        typer.echo(f"Wrote {path}{instead}: the records up to the failure of the program. Another trace may replace it without --force.")
        return
    typer.echo(f"Wrote {path}{instead}")
    if place.is_file():  # not a device such as /dev/null
        typer.echo(f"Next: memlane explain {shlex.quote(str(path))}")


_T = TypeVar("_T")


def _chosen(values: Iterable[_T]) -> frozenset[_T] | None:
    """Return the values of a repeatable option; None, which selects everything, if it was not given."""
    return frozenset(values) or None

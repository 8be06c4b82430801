"""`memlane report INPUT`: a program, or a record file, as one page for a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program_or_file
from memlane.cli.failure import passing_on
from memlane.cli.later import later
from memlane.cli.output import output_path, recorded
from memlane.cli.programs import Program
from memlane.cli.progress import working
from memlane.cli.recording import record_program

if TYPE_CHECKING:
    from memlane import report as reports
else:
    reports = later("memlane.report")


@runs_program_or_file
def report(
    program: Program,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    deterministic: o.Deterministic = False,
    counts: o.WithCounts = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    """Write one HTML page: source with its heat, time line, warps, findings. It needs no network and can be sent to anyone.

    A program is traced and its transactions are counted, as by `memlane explain`.
    """
    if program.is_record:
        program.refuse_options(launch=launch, target=target, deterministic=deterministic, counts=counts, kernel=program.launch.kernel)
        with working(f"reading {program.path}"):
            trace, failure = recorded(program.path), None
        path = place = output_path(output, program.path, ".html", force)
    else:
        program.check()
        path = output_path(output, program.path, ".html", force)
        place = path.absolute()  # the script may change the working directory
        done = record_program(program, verb="report", target=target, launch=launch, counts=counts or "safe", deterministic=deterministic)
        trace, failure = done.trace, done.failure
    with passing_on(failure):
        with working(f"writing {path}"):
            reports.write_report(trace, place, force)
        typer.echo(f"Wrote {path} ({place.stat().st_size / 1e6:.1f} MB); open it in a browser.")

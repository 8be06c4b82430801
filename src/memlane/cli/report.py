"""Implement `memlane report INPUT`: write an HTML page about a program or a record file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program_or_file
from memlane.cli.failure import passing_on
from memlane.cli.later import later
from memlane.cli.output import output_path, recorded
from memlane.cli.programs import Program
from memlane.cli.recording import record_program
from memlane.errors import CommandError
from memlane.number_format import size

if TYPE_CHECKING:
    from memlane import report as reports
    from memlane.cli import progress
else:
    progress = later("memlane.cli.progress")
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
    """Write one HTML page: findings, annotated source, timeline, warps. The page needs no network and can be sent to anyone.

    A program is traced and its transactions are counted, as by `memlane explain`. Two record files make one page, before and after;
    `--kernel naive=tiled` then compares two kernels of different names.
    """
    if program.is_record and program.arguments:
        _write_comparison(program, output, force, launch=launch, target=target, deterministic=deterministic, counts=counts)
        return
    if program.is_record:
        program.refuse_options(launch=launch, target=target, deterministic=deterministic, counts=counts, kernel=program.launch.kernel)
        with progress.working(f"reading {program.path}"):
            trace, failure = recorded(program.path), None
        path = place = output_path(output, program.path, ".html", force)
    else:
        program.check()
        path = output_path(output, program.path, ".html", force)
        place = path.absolute()  # the script may change the working directory
        done = record_program(program, verb="report", target=target, launch=launch, counts=counts or "safe", deterministic=deterministic)
        trace, failure = done.trace, done.failure
    with passing_on(failure):
        with progress.working(f"writing {path}"):
            reports.write_report(trace, place, force)
        _tell_of_page(path, place)


def _write_comparison(program: Program, output: Path | None, force: bool, **unused: object) -> None:
    """Write the page that compares two record files. Raises CommandError for options that apply only to programs."""
    if len(program.arguments) > 1:
        raise CommandError(f"a page shows one record file, or two (before and after); got {1 + len(program.arguments)}")
    other = Path(program.arguments[0])
    replace(program, arguments=()).refuse_options(**unused)
    default = Path(f"{program.path.stem}-{other.stem}.html")
    path = output_path(output or default, program.path, ".html", force)
    with progress.working(f"comparing {program.path} with {other}"):
        before, after = recorded(program.path), recorded(other)
        names = str(program.path), str(other)
        pairs = o.kernel_pairs([program.launch.kernel] if program.launch.kernel else [])
        reports.write_comparison(before, after, path, names=names, kernels=pairs, force=force)
    _tell_of_page(path, path)


def _tell_of_page(path: Path, place: Path) -> None:
    typer.echo(f"Wrote {path} ({size(place.stat().st_size)}); open it in a browser.")

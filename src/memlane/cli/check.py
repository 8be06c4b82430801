"""Implement `memlane check`: find invalid accesses, data races and misused barriers in kernels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.failure import Failure, passing_on, why
from memlane.cli.later import later
from memlane.cli.programs import Program, nothing_launched
from memlane.cli.stream import for_a_document
from memlane.cli.terminal import show, show_json
from memlane.errors import CheckFailed

if TYPE_CHECKING:
    from memlane import measure, report, targets
    from memlane.cli import progress
    from memlane.measure import Checker
else:
    progress = later("memlane.cli.progress")
    measure = later("memlane.measure")
    report = later("memlane.report")
    targets = later("memlane.targets")


@runs_program
def check(
    program: Program,
    launch: o.LaunchNumber = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            metavar="NAME",
            autocompletion=o.target_names,
            help="The emulator to run on, for example emulator:a100.",
            rich_help_panel=o.RUN,
        ),
    ] = "",
    deterministic: o.Deterministic = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop at the first finding.", rich_help_panel=o.RUN)] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", help="Shuffle the order in which the warps of a block run, with this seed.", rich_help_panel=o.RUN
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Run on the emulator and report accesses out of bounds, reads of unwritten memory, data races, misused barriers and masks."""
    checker = measure.Checker(only_launch=launch, stop=stop, seed=seed)
    with for_a_document(as_json), progress.progress("checking"):
        failure = program.run(target or _emulator(), checker, deterministic)
    failure = failure or nothing_launched(program, checker.seen, bool(checker.checked or checker.failures), launch, "check")
    with passing_on(failure):
        if checker.checked or checker.failures or as_json:
            _print(checker, as_json, failure)
    if checker.reports or checker.failures:
        raise typer.Exit(1)


def _emulator() -> str:
    """Return the emulator that the environment names, or the default one: checks do not run on a GPU."""
    named = os.environ.get(targets.ENVIRONMENT, "")
    return named if named.startswith("emulator") else "emulator"


def _print(checker: Checker, as_json: bool, failure: Failure | None) -> None:
    kernels = [checked.launch.kernel.title for checked in checker.checked]
    if as_json:
        show_json(report.reports_document(checker.reports, len(kernels), kernels, why(failure), checker.failures))
        return
    # The finding that `--stop` stops at already says why the program ended.
    broken = ("", ()) if failure is not None and isinstance(failure.error, CheckFailed) else (why(failure), checker.failures)
    show(report.render_reports(checker.reports, len(kernels), kernels, checker.sources, *broken))

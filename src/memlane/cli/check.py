"""`memlane check`: what kernels do that no kernel may do."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.programs import Program
from memlane.cli.progress import progress
from memlane.errors import CommandError, LaunchError
from memlane.measure import Checker
from memlane.report import render_reports, reports_document, to_json
from memlane.targets import ENVIRONMENT


@runs_program
def check(
    program: Program,
    launch: o.LaunchNumber = None,
    target: Annotated[str, typer.Option("--target", "-t", help="The emulator to run on, for example `emulator:a100`.")] = "",
    deterministic: o.Deterministic = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop at the first finding.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Shuffle the order in which the warps of a block take their turns.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Run on the emulator and report accesses out of bounds, unwritten memory, data races, bad barriers and masks."""
    checker = Checker(only_launch=launch, stop=stop, seed=seed)
    try:
        with progress("checking"):
            program.run(target or _emulator(), checker, deterministic)
    except LaunchError:
        if checker.reports:
            _print(checker, as_json)
        raise
    if not checker.seen:
        raise CommandError(f"{program.path} launched no kernel through memlane, so there is nothing to check", exit_code=1)
    if not checker.checked:
        raise CommandError(f"{program.path} made {checker.seen} launches, numbered from 0; there is no launch {launch}", exit_code=1)
    _print(checker, as_json)
    if checker.reports:
        raise typer.Exit(1)


def _emulator() -> str:
    """The emulator that the environment names, else the default one: a GPU cannot check."""
    named = os.environ.get(ENVIRONMENT, "")
    return named if named.startswith("emulator") else "emulator"


def _print(checker: Checker, as_json: bool) -> None:
    kernels = [checked.launch.kernel.title for checked in checker.checked]
    if as_json:
        typer.echo(to_json(reports_document(checker.reports, len(kernels), kernels)))
    else:
        Console().print(render_reports(checker.reports, len(kernels), kernels, checker.sources))

"""`memlane count`: how many transactions each access costs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.programs import Program
from memlane.cli.progress import progress
from memlane.errors import CommandError
from memlane.measure import Counter
from memlane.report import counts_csv, counts_document, render_counts, to_json


@runs_program
def count(
    program: Program,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    check: o.Checked = False,
    deterministic: o.Deterministic = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table, one line for each access of the PTX.")] = False,
) -> None:
    """Count the transactions of every memory access: sectors, wavefronts, and the least that would do."""
    if as_json and as_csv:
        raise CommandError("--json and --csv are two formats; name one")
    counter = Counter(only_launch=launch, merged=True)
    with progress("counting"), checking(Check(insist=True) if check else None):
        program.run(target, counter, deterministic)
    if not counter.seen:
        raise CommandError(f"{program.path} launched no kernel through memlane, so there is nothing to count", exit_code=1)
    if not counter.counted:
        raise CommandError(f"{program.path} made {counter.seen} launches, numbered from 0; there is no launch {launch}", exit_code=1)
    results = counter.finish()
    if as_json:
        typer.echo(to_json(counts_document(results, counter.sources)))
    elif as_csv:
        typer.echo(counts_csv(results), nl=False)
    else:
        console = Console()
        for number, counts in enumerate(results):
            if number:
                console.print()
            console.print(render_counts(counts, counter.sources))

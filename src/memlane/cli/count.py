"""`memlane count`: how many transactions each access costs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli.programs import CompileOptions, LaunchOptions, Program
from memlane.cli.progress import progress
from memlane.errors import CommandError
from memlane.measure import Counter
from memlane.report import counts_csv, counts_document, render_counts, to_json


def count(
    source: o.Input,
    arguments: o.ScriptArguments = None,
    kernel: o.KernelName = "",
    grid: o.Grid = "",
    block: o.BlockShape = "",
    arg: o.KernelArguments = [],
    shared: o.SharedBytes = 0,
    launch: o.LaunchNumber = None,
    define: o.Define = [],
    include: o.Include = [],
    std: o.Standard = "c++17",
    arch: o.Arch = "",
    instantiate: o.Instantiate = [],
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
    program = Program(
        source, arguments or (), CompileOptions(define, include, std, arch, instantiate), LaunchOptions(kernel, grid, block, arg, shared)
    )
    with progress("counting"), checking(Check(insist=True) if check else None):
        program.run(target, counter, deterministic)
    if not counter.seen:
        raise CommandError(f"{source} launched no kernel through memlane, so there is nothing to count", exit_code=1)
    if not counter.counted:
        raise CommandError(f"{source} made {counter.seen} launches, numbered from 0; there is no launch {launch}", exit_code=1)
    results = counter.finish()
    if as_json:
        typer.echo(to_json(counts_document(results)))
    elif as_csv:
        typer.echo(counts_csv(results), nl=False)
    else:
        console = Console()
        for number, counts in enumerate(results):
            if number:
                console.print()
            console.print(render_counts(counts, counter.sources))

"""The `memlane` command: its commands, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from memlane.cli import check, count, doctor, explain, export, trace
from memlane.errors import MemlaneError

app = typer.Typer(
    name="memlane",
    help="See, count, explain and fix the memory accesses of CUDA kernels, on a GPU or without one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("trace")(trace.trace)
app.command("count")(count.count)
app.command("check")(check.check)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, the code of a `MemlaneError`, or 2 for a wrong command line.

    An error that a user can cause is one message on standard error. Any other exception is a bug and keeps its traceback.
    """
    try:
        # Typer prints what is wrong with a command line itself. The exceptions it does so for are no part of its interface.
        app(args=None if argv is None else list(argv), prog_name="memlane")
    except MemlaneError as error:
        print(f"memlane: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 0

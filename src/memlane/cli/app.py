"""The `memlane` command: its commands, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import typer

from memlane.cli import banks, check, compare, count, doctor, explain, export, fix, lab, layout, report, show, trace
from memlane.errors import CommandError, MemlaneError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""

app = typer.Typer(
    name="memlane",
    help="See, count, explain and fix the memory accesses of CUDA kernels, on a GPU or without one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """The command, for which Ctrl-C is an error like others. Typer would end without a word."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise CommandError("interrupted", exit_code=INTERRUPTED) from None

    return run


_layout = typer.Typer(
    help="Layouts of shared memory: search one for a set of patterns, show one.", no_args_is_help=True, rich_markup_mode=None
)

_commands = (
    trace.trace,
    count.count,
    check.check,
    explain.explain,
    compare.compare,
    fix.fix,
    show.show,
    export.export,
    report.report,
    banks.banks,
    doctor.doctor,
)
for _command in _commands:
    app.command(_command.__name__)(_interruptible(_command))
_layout.command("search")(_interruptible(layout.search))
_layout.command("show")(_interruptible(layout.show))
app.add_typer(_layout, name="layout")
_lab = typer.Typer(help="Experiments on this machine, each one command.", no_args_is_help=True, rich_markup_mode=None)
_lab.command("latency")(_interruptible(lab.latency))
_lab.command("reduction")(_interruptible(lab.reduction))
_lab.command("shift")(_interruptible(lab.shift))
_lab.command("volume")(_interruptible(lab.volume))


@_lab.callback()
def _labs() -> None:
    """Experiments on this machine, each one command."""


app.add_typer(_lab, name="lab")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, the code of a `MemlaneError`, 2 for a wrong command line, or 130 after Ctrl-C.

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
    except KeyboardInterrupt:  # Before a command began, or while its error was printed.
        print("memlane: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0

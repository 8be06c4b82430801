"""Define the `memlane` command with its subcommands, and turn errors into a message and an exit code in one place."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any

import typer

from memlane.cli import INTERRUPTED, later, loading, stream
from memlane.cli.failure import message
from memlane.cli.help import HelpfulCommand, examples
from memlane.errors import CommandError, MemlaneError

COMMANDS = {
    "trace": "Record when each memory access started and completed, and print a table by source line.",
    "count": "Count the transactions of every memory access: sectors, wavefronts, and the fewest possible of each.",
    "check": "Run on the emulator and report accesses out of bounds, reads of unwritten memory, data races, misused barriers and masks.",
    "explain": "Explain what is wrong with the memory accesses of a program or a record file, most expensive first.",
    "compare": (
        "Show what changed from A to B: counts, transactions, latency and time of each source line, and which changes are "
        "larger than the noise."
    ),
    "predict": "Predict how long the launches of a program take on other chips, and what limits them.",
    "fix": "Try other layouts of a kernel's shared-memory arrays without changing its source, and show which make it faster.",
    "show": "Draw how the lanes of one access map to sectors or banks, wavefront by wavefront.",
    "export": "Write the records of a trace in another format.",
    "report": "Write one HTML page: findings, annotated source, timeline, warps. The page needs no network and can be sent to anyone.",
    "banks": "Count the wavefronts of shared-memory access patterns under each layout: mean and worst over all offsets in a tile.",
    "doctor": "List what is installed and what this machine can do, with the command that installs each missing part.",
}
"""First sentence of each command's help, by the name of its module and function; listing them all loads none of the commands."""
GROUPS = {
    "layout": ("Search for a shared-memory layout that suits a set of access patterns, or show one.", ("search", "show")),
    "stencil": ("Predict the time of stencils on several GPUs before anything runs.", ("plan",)),
    "lab": (
        "Run experiments on this machine, each with one command.",
        ("bandwidth", "latency", "reduction", "remap", "shift", "stencil", "volume"),
    ),
}
"""Help text and command functions of each group, by its module."""
EPILOG = """\
Exit codes: 0, done; 1, the program, its kernel or a file failed, or `check` found something; 2, the command line is wrong;
130, interrupted. The exit code of a script is passed on. `memlane COMMAND --help` has examples."""
_COMPLETED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Environment variables in which shells pass the line to complete."""


def application(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line with all commands, loading only the one that `arguments` ask for.

    The command is the first word, because options in front of it end the program.
    """
    line = " ".join(os.environ.get(name, "") for name in _COMPLETED).split()[1:] if "_MEMLANE_COMPLETE" in os.environ else arguments
    asked = next((word for word in line if not word.startswith("-")), None)
    bare = "_MEMLANE_COMPLETE" in os.environ or not arguments or arguments[0] != asked  # then options of `memlane` itself are accepted
    app = typer.Typer(
        name="memlane",
        help="See, count, explain and fix the memory accesses of CUDA kernels, on a GPU or without one.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=bare,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_helps(bare),
    )
    app.callback()(_root if bare else _group)
    for name, said in COMMANDS.items():
        command = _loaded(name, name) if name == asked else _not_loaded
        help = None if name == asked else said
        app.command(name, help=help, short_help=said, cls=HelpfulCommand, epilog=examples(name), context_settings=_helps(True))(command)
    for name, (said, functions) in GROUPS.items():
        has_command = name == asked and not bare and len(arguments) > 1 and arguments[1] in functions
        group = typer.Typer(help=said, no_args_is_help=True, rich_markup_mode=None, context_settings=_helps(not has_command))
        for function in functions if name == asked else ():
            command = _loaded(name, function)
            first = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
            group.command(
                function, short_help=first, cls=HelpfulCommand, epilog=examples(f"{name} {function}"), context_settings=_helps(True)
            )(command)
        group.callback()(_group)
        app.add_typer(group, name=name, help=said, short_help=said)
    return app


def _helps(here: bool) -> dict[str, list[str]]:
    """Return the settings of one level of the command line: whether it accepts `--help`.

    It does not if the next word is a command: Typer would load all of its value converters, which takes as long as the help itself.
    """
    return {"help_option_names": ["-h", "--help"] if here else []}


def run(application: typer.Typer, arguments: Sequence[str]) -> int:
    """Run the application and return its exit code, as `memlane.cli.main` describes."""
    stream.replace_what_has_no_code()
    try:
        os.getcwd()
    except OSError:
        print("memlane: the working directory was deleted or cannot be read; change to another one", file=sys.stderr)
        return 2
    try:
        code = _run(application, arguments)
        stream.flush()
    except OSError as error:
        said = stream.refusal(error) or stream.refusal_of_file(error)
        if "--install-completion" in arguments:
            said = f"{error.filename} cannot be written: {error.strerror}; memlane --show-completion prints the completion"
        if said is None:
            raise
        with suppress(OSError):
            stream.flush()
        print(f"memlane: {said}", file=sys.stderr)
        return 1
    return code


def _run(application: typer.Typer, arguments: Sequence[str]) -> int:
    try:
        answer = application(args=list(arguments), prog_name="memlane", standalone_mode=False)
        code = answer if isinstance(answer, int) else 0
    except MemlaneError as error:
        print(message(error), file=sys.stderr)
        return error.exit_code
    except _UsageError as error:
        return _refuse(error, arguments)
    except SystemExit as stop:  # Typer raises it after a shell completion.
        code = stop.code if isinstance(stop.code, int) else 0
    except (KeyboardInterrupt, typer.Abort):  # Before a command began, or while its error was printed.
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("memlane: interrupted", file=sys.stderr)
    return code


_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Exception class that Typer raises for a wrong command line; Typer has no public name for it."""


_PLAINLY = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"it must be \1 or more"),
    (re.compile(r"Input should be a valid integer, .*"), "it must be a whole number"),
    (re.compile(r"\(Possible options: (.*)\)"), r"(did you mean \1?)"),
    (re.compile(r"\. Did you mean (.*)\?$"), r" (did you mean \1?)"),
)
"""Patterns of Typer's messages, and our wording for them."""


def _refuse(error: Any, arguments: Sequence[str]) -> int:
    """Print an error of the command line in one line, or the help of a command that was called without arguments."""
    if "Help" in type(error).__name__:
        error.show()
        return int(error.exit_code)
    said = " ".join(error.format_message().split()).rstrip(".")
    for theirs, ours in _PLAINLY:
        said = theirs.sub(ours, said)
    command = error.ctx.command_path if error.ctx is not None else " ".join(["memlane", *takewhile(_is_command, arguments)])
    listed = "commands" if said.startswith("No such command") else "options"
    print(f"memlane: {said[:1].lower()}{said[1:]}; {command} --help lists the {listed}", file=sys.stderr)
    return int(error.exit_code)


def _is_command(word: str) -> bool:
    return word in COMMANDS or word in GROUPS or any(word in functions for _, functions in GROUPS.values())


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memlane {sys.modules['memlane'].__version__}")  # loaded already; inner modules may not import it
        raise typer.Exit


def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    """Options of `memlane` itself; its help stands where the application is made."""


def _group() -> None:
    """A group is one also while it has fewer than two commands."""


def _not_loaded() -> None:
    """Stands for a command that was not asked for: it is listed, and never run."""


def _loaded(module: str, function: str) -> Callable[..., None]:
    return _interruptible(getattr(import_module(f"memlane.cli.{module}"), function))


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with its modules loaded first and Ctrl-C turned into a CommandError; Typer would end without a message."""

    @wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with loading():
            later.load()
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise CommandError("interrupted", exit_code=INTERRUPTED) from None

    return run

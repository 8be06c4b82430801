"""Implement `%%memlane`: trace, or count, the launches of a cell."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.display import SVG, display

from memlane.diagnose import explain
from memlane.errors import CommandError, MemlaneError
from memlane.instrument import TraceOptions
from memlane.launch import observing
from memlane.measure import Counter, Tracer
from memlane.record import Trace, kernel_label
from memlane.report.show import SourcePlace, draw_access, examples_at
from memlane.targets import override

_USAGE = "%%memlane [--target NAME] [--scheme NAME] [--counts] [--only-count] [--show FILE:LINE] [--into NAME]"

_FAILED = "the cell failed: "


@dataclass(frozen=True)
class _Options:
    """Options behind `%%memlane`."""

    target: str
    scheme: str
    counts: bool
    only_count: bool
    show: str
    into: str


def magic_of(shell: Any) -> Callable[[str, str], None]:
    """Return the cell magic for one InteractiveShell."""

    def memlane(line: str, cell: str) -> None:
        """Trace the launches of the cell, and show the table and the findings.

        --target NAME     where to run: cuda:0, emulator:h200, ...
        --scheme NAME     the probe
        --counts          on a GPU, count transactions too
        --only-count      count transactions, and trace nothing
        --show FILE:LINE  draw the costliest access of a source line as well (on the emulator)
        --into NAME       keep the trace (or the counts) in this variable
        """
        _run(shell, _parse(line), cell)

    return memlane


def _run(shell: Any, options: _Options, cell: str) -> None:
    watcher: Any = Counter() if options.only_count else Tracer(_trace_options(options.scheme), counts=options.counts)
    with override(options.target or None, everywhere=True), observing(watcher, everywhere=True):
        outcome = shell.run_cell(cell)
    why = _why(outcome)
    if not watcher.seen:
        _refuse(f"{_FAILED}{why}" if why else "the cell launched no kernel through memlane, so there is nothing to show")
    try:
        found = watcher.finish()
    except MemlaneError as error:
        raise _usage_error(f"{_FAILED}{why}" if why else str(error)) from None
    if isinstance(found, Trace) and why:
        found = replace(found, failed=why)
    if found or isinstance(found, Trace):
        _show(shell, options, found, getattr(watcher, "sources", {}))
    for launch in watcher.failures:
        print(f"Launch {launch.number} ({kernel_label(launch.kernel)}) failed: {launch.why}. It is not counted.")
    if why:  # Its traceback is already shown. The failure is passed on, so that the cells below do not run.
        _refuse(f"{_FAILED}{why}")


def _why(outcome: Any) -> str:
    """Return why the cell failed, in one line; empty if it did not."""
    if outcome.success:
        return ""
    error = outcome.error_before_exec or outcome.error_in_exec
    said = str(error).partition("\n")[0]
    return f"{type(error).__name__}{f': {said}' if said else ''}"


def _show(shell: Any, options: _Options, found: Any, sources: Any) -> None:
    for one in found if options.only_count else [found]:
        display(one)
    display(explain(found, sources) if options.only_count else explain(found))
    if options.show:
        display(_picture(found, options.show))
    if options.into:
        shell.user_ns[options.into] = found


def _picture(trace: Any, place: str) -> Any:
    try:
        return SVG(draw_access(trace, examples_at(trace, SourcePlace.parse(place))[0]))
    except CommandError as error:
        raise _usage_error(str(error)) from None


def _trace_options(scheme: str) -> TraceOptions:
    try:
        return TraceOptions(scheme)
    except (MemlaneError, ValueError) as error:
        raise _usage_error(str(error)) from None


class _Parser(argparse.ArgumentParser):
    """Parser that reports errors as IPython usage errors and does not exit."""

    def error(self, message: str) -> NoReturn:
        _refuse(f"{message}; {_USAGE}")


def _parse(line: str) -> _Options:
    parser = _Parser(prog="%%memlane", add_help=False, allow_abbrev=False)
    for name in ("--target", "--show", "--into"):
        parser.add_argument(name, default="")
    parser.add_argument("--scheme", default="dependent")
    for flag in ("--counts", "--only-count"):
        parser.add_argument(flag, action="store_true")
    options = _Options(**vars(parser.parse_args(_words(line))))
    if options.into and not options.into.isidentifier():
        _refuse(f"--into {options.into}: that is not the name of a variable")
    if options.only_count and (options.show or options.counts):
        _refuse("--only-count does not trace; leave out --show and --counts")
    return options


def _words(line: str) -> Sequence[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        _refuse(f"{error}; {_USAGE}")


def _refuse(message: str) -> NoReturn:
    raise _usage_error(message)


def _usage_error(message: str) -> Exception:
    """Return an exception that IPython shows as one line."""
    error: Exception = UsageError(message)
    return error

"""Describe how a program failed: a command first reports what was collected, and then raises the failure."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, TypeVar

from memlane.cli import INTERRUPTED, stream
from memlane.cli.later import later
from memlane.errors import CommandError, DeviceError, MemlaneError, RecordError

if TYPE_CHECKING:
    from memlane import measure
else:
    measure = later("memlane.measure")

_T = TypeVar("_T")


@dataclass(frozen=True)
class Failure:
    """The reason why a program failed."""

    error: MemlaneError
    """Error that the command raises after its report: the text for standard error, and the exit code."""
    why: str
    """The reason in one line, for tables, documents and record files."""


def why(failure: Failure | None) -> str:
    """Return the reason in one line; empty if the program completed."""
    return "" if failure is None else failure.why


def message(error: MemlaneError) -> str:
    """Return the text of an error for standard error, including its notes."""
    return "\n  ".join([f"memlane: {error}", *getattr(error, "__notes__", ())])


def failure_of(error: MemlaneError | KeyboardInterrupt) -> Failure:
    """Return the failure for an error of a launch, or for Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        return Failure(CommandError("interrupted", exit_code=INTERRUPTED), "interrupted")
    return Failure(error, _first_line(str(error)))


def failure_of_script(path: Path, file: str, error: BaseException) -> Failure | None:
    """Return the failure for the exception that ended a script; None for an exit that means success.

    `path` is the script's name in messages, and `file` is the name in its code objects. The text for an exception is Python's traceback.
    """
    if isinstance(error, SystemExit):
        return _failure_of_exit(path, error.code)
    if isinstance(error, KeyboardInterrupt):
        return failure_of(error)
    place = _frame_in(file, error)
    if isinstance(error, MemlaneError):
        if isinstance(error, CommandError):  # Its exit code refers to another command line.
            error = CommandError(str(error), exit_code=1)
        if place is not None and not isinstance(error, DeviceError):  # a DeviceError is about the machine, not about a line of the script
            error.add_note(f"reached from {path}:{place.lineno}: {place.line}")
        return failure_of(error)
    said = _traceback_in(file, error)
    reason = next((line for line in traceback.format_exception_only(error) if line[:1].strip()), type(error).__qualname__)
    where = "" if place is None else f"{path}:{place.lineno}: "
    return Failure(CommandError(f"{path} failed\n{said}{_advice(error)}", exit_code=1), where + _first_line(reason))


_LAUNCHERS = {
    "numba": ("numba.cuda", "Numba", "ml.numba(function, types)"),
    "triton": ("triton.runtime", "Triton", "ml.triton(function, types, constants)"),
    "cupy": ("cupy", "CuPy", "ml.cuda(text)"),
}
"""For each package: prefix of its modules that launch kernels, its display name, and the memlane function to use instead."""


def unseen_launches(loaded: Collection[str]) -> str:
    """Return advice for a script that launched nothing through memlane, as the end of a sentence.

    Empty if none of the `loaded` modules launches kernels itself.
    """
    for package, (_, name, instead) in _LAUNCHERS.items():
        if package in loaded:
            return f"; launches that {name} makes are not observed: load the kernel with target.load({instead}) and launch that"
    return ""


def _advice(error: BaseException) -> str:
    """Return a line of advice for an error raised in another package's kernel launch, which memlane cannot observe; empty otherwise.

    An error in the compiler of such a package, called by memlane, is not one of a launch.
    """
    frames, modules = error.__traceback__, set[str]()
    while frames is not None:
        modules.add(frames.tb_frame.f_globals.get("__name__", ""))
        frames = frames.tb_next
    if any(module.startswith("memlane.compile") for module in modules):
        return ""
    for prefix, name, instead in _LAUNCHERS.values():
        if any(module.startswith(prefix) for module in modules):
            return (
                f"\nmemlane: this launch was made by {name}, so memlane cannot observe it. Load the kernel with target.load({instead}) and "
                "launch that; the README shows how"
            )
    return ""


def _failure_of_exit(path: Path, code: object) -> Failure | None:
    """Return the failure for a Python exit code; None for None and 0, which mean success.

    Other numbers are passed on; any other object is a text for standard error, with exit code 1.
    """
    if code is None or (code == 0 and isinstance(code, int)):
        return None
    if isinstance(code, int):
        return Failure(CommandError(f"{path} stopped with exit code {code}", exit_code=int(code)), f"{path} stopped with exit code {code}")
    return Failure(CommandError(f"{path} stopped: {code}", exit_code=1), _first_line(f"{path} stopped: {code}"))


def _frame_in(file: str, error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost frame of the script in an error's traceback; None if there is none, as for an error in one of our threads."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return frames[-1] if frames else None


def _traceback_in(file: str, error: BaseException) -> str:
    """Return the traceback from the script on, without our frames that run the script."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != file:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


@contextmanager
def passing_on(failure: Failure | None) -> Iterator[None]:
    """Raise the failure after the `with` block, which prints and writes the report, even if the report cannot be written."""
    try:
        yield
    except RecordError as error:
        if failure is None:
            raise
        print(message(error), file=sys.stderr)
    except OSError as error:
        if failure is None or not stream.is_of_output(error):
            raise
        stream.give_up(error)
    if failure is not None:
        raise failure.error


def finished(finish: Callable[[], _T], failure: Failure | None) -> _T:
    """Return the result of `finish`. If it fails because the program's failure lost the records (a GPU error does), raise the latter."""
    try:
        with _second_interrupt(failure):
            return finish()
    except MemlaneError:
        if failure is None:
            raise
        raise (failure.error if isinstance(failure.error, CommandError) else measure.records_lost(failure.error)) from None


@contextmanager
def _second_interrupt(failure: Failure | None) -> Iterator[None]:
    """End the process at once on a second Ctrl-C inside the `with` block, because a GPU may never finish."""
    interrupted = failure is not None and failure.error.exit_code == INTERRUPTED and current_thread() is main_thread()
    if not interrupted or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

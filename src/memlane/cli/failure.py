"""How a program broke off that a command ran: the command reports what was collected until then, and passes the failure on."""

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
    """Why a program did not end well."""

    error: MemlaneError
    """What the command ends with after its report: the text for standard error, and the exit code."""
    why: str
    """The reason in one line: for tables, documents and record files."""


def why(failure: Failure | None) -> str:
    """The reason in one line; empty for a program that ended well."""
    return "" if failure is None else failure.why


def message(error: MemlaneError) -> str:
    """What standard error says of an error: its text and its notes."""
    return "\n  ".join([f"memlane: {error}", *getattr(error, "__notes__", ())])


def failure_of(error: MemlaneError | KeyboardInterrupt) -> Failure:
    """What a launch, or Ctrl-C, did to a program."""
    if isinstance(error, KeyboardInterrupt):
        return Failure(CommandError("interrupted", exit_code=INTERRUPTED), "interrupted")
    return Failure(error, _first_line(str(error)))


def failure_of_script(path: Path, file: str, error: BaseException) -> Failure | None:
    """What ended a script, which is called `path` and whose code is of `file`; None for an exit that means success. The text of an
    exception is the traceback that Python would show."""
    if isinstance(error, SystemExit):
        return _failure_of_exit(path, error.code)
    if isinstance(error, KeyboardInterrupt):
        return failure_of(error)
    place = _frame_in(file, error)
    if isinstance(error, MemlaneError):
        if isinstance(error, CommandError):  # Its exit code is about another command line.
            error = CommandError(str(error), exit_code=1)
        if place is not None and not isinstance(error, DeviceError):  # which is of the machine, wherever it is asked for
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
"""By package: the modules of it that launch kernels, its name for people, and what memlane has instead."""


def unseen_launches(loaded: Collection[str]) -> str:
    """Return what to do about a script that launched nothing through memlane, as the end of a sentence; empty where none of the `loaded`
    modules is one that launches kernels by itself."""
    for package, (_, name, instead) in _LAUNCHERS.items():
        if package in loaded:
            return f"; launches that {name} makes are not observed: load the kernel with target.load({instead}) and launch that"
    return ""


def _advice(error: BaseException) -> str:
    """Return a line for an error that comes out of another package's launch of a kernel: such a launch needs a GPU, and memlane does not
    see it."""
    frames, modules = error.__traceback__, set[str]()
    while frames is not None:
        modules.add(frames.tb_frame.f_globals.get("__name__", ""))
        frames = frames.tb_next
    for prefix, name, instead in _LAUNCHERS.values():
        if any(module.startswith(prefix) for module in modules):
            return (
                f"\nmemlane: this launch was made by {name}, so memlane cannot observe it. Load the kernel with target.load({instead}) and "
                "launch that; the README shows how"
            )
    return ""


def _failure_of_exit(path: Path, code: object) -> Failure | None:
    """Exit codes as Python has them: None and 0 are success, other numbers are passed on, anything else is a text for standard error."""
    if code is None or (code == 0 and isinstance(code, int)):
        return None
    if isinstance(code, int):
        return Failure(CommandError(f"{path} stopped with exit code {code}", exit_code=int(code)), f"{path} stopped with exit code {code}")
    return Failure(CommandError(f"{path} stopped: {code}", exit_code=1), _first_line(f"{path} stopped: {code}"))


def _frame_in(file: str, error: BaseException) -> traceback.FrameSummary | None:
    """The innermost line of the script that an error came through; None if it came from elsewhere, as from a thread of ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return frames[-1] if frames else None


def _traceback_in(file: str, error: BaseException) -> str:
    """The traceback from the script on: what leads to it is how we run scripts."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != file:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


@contextmanager
def passing_on(failure: Failure | None) -> Iterator[None]:
    """Inside the `with` block the report is printed and written; then the failure is raised, also where the report found no room."""
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
    """What was collected, from `finish`. After a failure that took it along, as that of a GPU does, the failure is raised."""
    try:
        with _second_interrupt(failure):
            return finish()
    except MemlaneError:
        if failure is None:
            raise
        raise (failure.error if isinstance(failure.error, CommandError) else measure.records_lost(failure.error)) from None


@contextmanager
def _second_interrupt(failure: Failure | None) -> Iterator[None]:
    """Inside the `with` block, after Ctrl-C, another one ends the process at once: a GPU may never finish what it is waited for."""
    interrupted = failure is not None and failure.error.exit_code == INTERRUPTED and current_thread() is main_thread()
    if not interrupted or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

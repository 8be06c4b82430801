"""Define the interface of a lab: a name, a summary, and a function from a target to a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from memlane.errors import CommandError, MemlaneError
from memlane.lab.result import NOT_MEASURED, Result, Row, failure
from memlane.launch import Target

Item = TypeVar("Item")


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class Request:
    """Options of a run: the cases to measure, and how thoroughly."""

    quick: bool = False
    """Small sizes and few repetitions: seconds on the emulator. Shows that it works; on a GPU its numbers are less reliable."""
    only: tuple[str, ...] = ()
    """Names of the cases to measure; all if empty."""
    tell: Callable[[str], None] = _silent
    """Function called with a line of progress before each case."""

    def chosen(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the cases to measure, in the order of `known`. Raises CommandError for an unknown case."""
        for name in self.only:
            if name not in known:
                raise CommandError(f"--only {name}: no such case; choose from: {', '.join(known)}")
        return tuple(name for name in known if not self.only or name in self.only)


class Cases:
    """The cases of a run, measured in turn: a case that fails leaves the others, and Ctrl-C leaves those before it."""

    def __init__(self) -> None:
        self.failed: list[Row] = []
        """Rows of the cases that could not be measured."""
        self.interrupted = False

    def each(self, cases: Iterable[Item]) -> Iterator[Item]:
        """Yield the cases until Ctrl-C."""
        for one in cases:
            if self.interrupted:
                return
            yield one

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Measure a case in the `with` block. If it fails or is interrupted, the block ends, and `failed` gets a row of that name."""
        try:
            yield
        except MemlaneError as error:
            self.failed.append(failure(name, error))
        except KeyboardInterrupt:
            self.interrupted = True
            self.failed.append(Row(name, NOT_MEASURED, None, "", reach=0.0, note="interrupted, and cases after it were not begun"))


@dataclass(frozen=True)
class Lab:
    """An experiment that can be repeated with one command: `memlane lab NAME`."""

    name: str
    summary: str
    """Summary in one line."""
    cases: tuple[str, ...]
    """Names that `--only` accepts."""
    run: Callable[[Target, Request], Result]

"""Define the interface of a lab: a name, a summary, and a function from a target to a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memlane.errors import CommandError
from memlane.lab.result import Result
from memlane.launch import Target


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


@dataclass(frozen=True)
class Lab:
    """An experiment that can be repeated with one command: `memlane lab NAME`."""

    name: str
    summary: str
    """Summary in one line."""
    cases: tuple[str, ...]
    """Names that `--only` accepts."""
    run: Callable[[Target, Request], Result]

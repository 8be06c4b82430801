"""What the compiler front end left out of a program, what a trace will keep, and what an export will take, told to who runs a command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _ToStandardError(logging.Handler):
    """One line for each note, and the same note once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage().partition("\n")[0]
        if line not in self._told:
            self._told.add(line)
            print(f"memlane: note: {line}", file=sys.stderr)


@contextmanager
def compile_notes() -> Iterator[None]:
    """Inside the `with` block what is left out of a program is told on standard error."""
    with _told(logging.getLogger("memlane.compile")):
        yield


@contextmanager
def plan_notes() -> Iterator[None]:
    """Inside the `with` block it is told on standard error, before each launch, what a trace may have no room for or leaves out."""
    with _told(logging.getLogger("memlane.measure")):
        yield


@contextmanager
def export_notes() -> Iterator[None]:
    """Inside the `with` block it is told on standard error, before anything is written, what will take long."""
    with _told(logging.getLogger("memlane.export")):
        yield


@contextmanager
def _told(logger: logging.Logger) -> Iterator[None]:
    handler, level = _ToStandardError(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)

"""Print log messages to standard error while a command runs: omissions of the compiler front end, limits of a trace, long exports."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class _ToStandardError(logging.Handler):
    """Log handler that prints one line per message, and each line only once."""

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
    """Print what the compiler front end leaves out of a program, inside the `with` block."""
    with _told(logging.getLogger("memlane.compile")):
        yield


@contextmanager
def plan_notes() -> Iterator[None]:
    """Print before each launch what a trace leaves out or may not have room for, inside the `with` block."""
    with _told(logging.getLogger("memlane.measure")):
        yield


@contextmanager
def export_notes() -> Iterator[None]:
    """Print which steps of an export will take long, before anything is written, inside the `with` block."""
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

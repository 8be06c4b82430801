"""What the compiler front end left out of a program, told to who runs a command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("memlane.compile")


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
    handler, level = _ToStandardError(), _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level)

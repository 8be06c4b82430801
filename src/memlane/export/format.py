"""What an exporter is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from memlane.record import Trace


@dataclass(frozen=True)
class Exporter:
    """One file format that a trace can be written in."""

    name: str
    """As in `memlane export --to NAME`."""
    suffix: str
    """Of its files, with the dot."""
    summary: str
    """One line for the help text."""
    write: Callable[[Trace, BinaryIO], None]
    """Write the trace to a stream that may not be able to seek, a part at a time where the trace is large."""

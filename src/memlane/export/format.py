"""What an exporter is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memlane.record import Trace


@dataclass(frozen=True)
class Exporter:
    """One format that a trace can be written in, as one file."""

    name: str
    """As in `memlane export --to NAME`."""
    suffix: str
    """Of its files, with the dot."""
    summary: str
    """One line for the help text."""
    write: Callable[[Trace, BinaryIO], None]
    """Write the trace to a stream that may not be able to seek, a part at a time where the trace is large."""


@dataclass(frozen=True)
class DirectoryExporter:
    """One format that takes a directory of files."""

    name: str
    suffix: str
    """Of its directories, with the dot."""
    summary: str
    anchor: str
    """The file that every such directory has, so that no other directory is taken for one and replaced."""
    write: Callable[[Trace, Path], None]
    """Write the trace into an empty directory."""


AnyExporter = Exporter | DirectoryExporter

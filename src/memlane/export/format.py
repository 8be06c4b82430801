"""Define the interface of an exporter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memlane.record import Trace


@dataclass(frozen=True)
class Exporter:
    """A format that writes a trace as one file."""

    name: str
    """Name of the format, as in `memlane export --to NAME`."""
    suffix: str
    """File extension, with the dot."""
    summary: str
    """One line for the help text."""
    write: Callable[[Trace, BinaryIO], None]
    """Function that writes the trace to a stream that may not be seekable, in parts if the trace is large."""


@dataclass(frozen=True)
class DirectoryExporter:
    """A format that writes a trace as a directory of files."""

    name: str
    suffix: str
    """Extension of the directories, with the dot."""
    summary: str
    anchor: str
    """File that every such directory contains; a directory without it is never replaced."""
    write: Callable[[Trace, Path], None]
    """Function that writes the trace into an empty directory."""


AnyExporter = Exporter | DirectoryExporter

"""Traces as files for other tools: one module per format. To add one, write `<name>.py` with an `EXPORTER` and name it in `exporters`."""

from __future__ import annotations

import os

from memlane.errors import CommandError
from memlane.export import clog2, csv, perfetto
from memlane.export.format import Exporter
from memlane.record import Trace, replacing

__all__ = ["Exporter", "export", "exporter", "exporters"]

exporters: dict[str, Exporter] = {entry.name: entry for entry in (csv.EXPORTER, clog2.EXPORTER, perfetto.EXPORTER)}
"""The formats by name."""


def exporter(name: str) -> Exporter:
    """The exporter called `name`; CommandError with the names that exist otherwise."""
    if name not in exporters:
        raise CommandError(f"there is no exporter {name!r}; choose from: {', '.join(sorted(exporters))}")
    return exporters[name]


def export(trace: Trace, name: str, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write `trace` to `path` in the format `name`, whole or not at all.

    CommandError for an unknown format; RecordError if the file exists and not `force`, or if it cannot be written.
    """
    chosen = exporter(name)
    with replacing(path, force) as stream:
        chosen.write(trace, stream)

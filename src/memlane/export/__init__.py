"""Write traces as files for other tools, one module per format.

To add a format, write `<name>.py` with an `EXPORTER` and list it in `exporters`.
"""

from __future__ import annotations

import os

from memlane.errors import CommandError
from memlane.export import clog2, csv, otf2, perfetto
from memlane.export.format import AnyExporter, DirectoryExporter, Exporter
from memlane.record import Trace, check_output, check_output_directory, replacing, replacing_directory

__all__ = ["AnyExporter", "DirectoryExporter", "Exporter", "check_export", "export", "exporter", "exporters"]

exporters: dict[str, AnyExporter] = {entry.name: entry for entry in (csv.EXPORTER, clog2.EXPORTER, otf2.EXPORTER, perfetto.EXPORTER)}
"""Formats by name."""


def exporter(name: str) -> AnyExporter:
    """Return the exporter called `name`; raises CommandError with the known names if there is none."""
    if name not in exporters:
        raise CommandError(f"unknown export format {name!r}; choose from: {', '.join(sorted(exporters))}")
    return exporters[name]


def check_export(name: str, path: str | os.PathLike[str], force: bool = False) -> None:
    """Check the format and the path before anything is read; raises the errors of `export`."""
    chosen = exporter(name)
    if isinstance(chosen, DirectoryExporter):
        check_output_directory(path, chosen.anchor, force)
    else:
        check_output(path, force)


def export(trace: Trace, name: str, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write `trace` to `path` in the format `name`, atomically.

    Raises CommandError for an unknown format; RecordError if the file (or directory, if the format is one) exists and not `force`, or if it
    cannot be written.
    """
    chosen = exporter(name)
    if isinstance(chosen, DirectoryExporter):
        with replacing_directory(path, chosen.anchor, force) as folder:
            chosen.write(trace, folder)
        return
    with replacing(path, force) as stream:
        chosen.write(trace, stream)

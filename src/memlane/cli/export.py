"""Implement `memlane export FILE --to csv`: convert records to another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli.later import later
from memlane.cli.notes import export_notes
from memlane.cli.options import RESULT, Force, Output, RecordFile, one_of
from memlane.cli.output import not_the_input, recorded, tell_of, wrong_use

if TYPE_CHECKING:
    from memlane import export as formats
    from memlane.cli import progress
else:
    progress = later("memlane.cli.progress")
    formats = later("memlane.export")


FORMATS = ("clog2", "csv", "otf2", "perfetto")
"""Formats of `memlane.export`, listed here because a help text must not load that package."""


def export(
    file: RecordFile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            autocompletion=one_of(*FORMATS),
            help=f"{', '.join(FORMATS)}.",
            rich_help_panel=RESULT,
        ),
    ],
    output: Output = None,
    force: Force = False,
) -> None:
    """Write the records of a trace in another format."""
    suffix = formats.exporter(to).suffix
    with progress.working(f"reading {file}"):
        trace = recorded(file)
    path = not_the_input(output or Path(file.stem + suffix), file)
    with wrong_use():
        formats.check_export(to, path, force)
    with export_notes(), progress.working(f"writing {path}"):
        formats.export(trace, to, path, force=force)
    tell_of(path)

"""`memlane export FILE --to csv`: the records in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memlane.cli.options import RESULT, Force, Output, RecordFile, one_of
from memlane.cli.output import not_the_input, recorded, tell_of, wrong_use
from memlane.export import check_export, exporter, exporters
from memlane.export import export as write


def export(
    file: RecordFile,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            autocompletion=one_of(*sorted(exporters)),
            help=f"{', '.join(sorted(exporters))}.",
            rich_help_panel=RESULT,
        ),
    ],
    output: Output = None,
    force: Force = False,
) -> None:
    """Write the records of a trace in another format."""
    suffix = exporter(to).suffix
    trace = recorded(file)
    path = not_the_input(output or Path(file.stem + suffix), file)
    with wrong_use():
        check_export(to, path, force)
    write(trace, to, path, force=force)
    tell_of(path)

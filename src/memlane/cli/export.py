"""`memlane export FILE --to csv`: the records in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memlane.cli.options import Force, Output
from memlane.cli.output import not_the_input
from memlane.export import check_export, exporter, exporters
from memlane.export import export as write
from memlane.record import load


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A record file written by `memlane trace`.")],
    to: Annotated[str, typer.Option("--to", help=f"The format: {', '.join(sorted(exporters))}.")],
    output: Output = None,
    force: Force = False,
) -> None:
    """Write the records of a trace in another format."""
    suffix = exporter(to).suffix
    trace = load(file)
    path = not_the_input(output or Path(file.stem + suffix), file)
    check_export(to, path, force)
    write(trace, to, path, force=force)
    typer.echo(f"Wrote {path}")

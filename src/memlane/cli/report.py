"""`memlane report FILE`: the trace as one page for a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from memlane.cli.later import later
from memlane.cli.options import Force, Output, RecordFile
from memlane.cli.output import output_path, recorded
from memlane.cli.progress import working

if TYPE_CHECKING:
    from memlane import report as reports
else:
    reports = later("memlane.report")


def report(
    file: RecordFile,
    output: Output = None,
    force: Force = False,
) -> None:
    """Write one HTML page: source with its heat, time line, warps, findings. It needs no network and can be sent to anyone."""
    with working(f"reading {file}"):
        trace = recorded(file)
    path = output_path(output, file, ".html", force)
    with working(f"writing {path}"):
        reports.write_report(trace, path, force)
    typer.echo(f"Wrote {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser.")

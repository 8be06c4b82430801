"""`memlane explain FILE`: what is wrong with the recorded accesses, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from memlane.diagnose import clean_kernels, uncounted_launches
from memlane.diagnose import explain as find
from memlane.record import load
from memlane.report import findings_document, render_findings, to_json

RecordFile = Annotated[Path, typer.Argument(metavar="FILE", help="A record file written by `memlane trace`.")]


def explain(file: RecordFile, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False) -> None:
    """Say what is wrong with the recorded accesses, the costliest first."""
    trace = load(file)
    findings, uncounted = find(trace), uncounted_launches(trace)
    clean = clean_kernels(trace, findings)
    sampled = [launch for launch in trace.launches if launch.sample is not None and launch not in uncounted]
    if as_json:
        typer.echo(to_json(findings_document(findings, uncounted, clean, trace.skipped, sampled)))
    else:
        Console().print(render_findings(findings, uncounted, clean, trace.skipped, sampled))
        typer.echo(f"Next: memlane report {file}")

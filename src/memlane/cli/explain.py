"""`memlane explain FILE`: what is wrong with the recorded accesses, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from memlane.diagnose import explain as find
from memlane.record import load
from memlane.report import findings_json, print_findings

RecordFile = Annotated[Path, typer.Argument(metavar="FILE", help="A record file written by `memlane trace`.")]


def explain(file: RecordFile, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False) -> None:
    """Say what is wrong with the recorded accesses, the costliest first."""
    findings = find(load(file))
    if as_json:
        typer.echo(json.dumps(findings_json(findings), indent=2))
    else:
        print_findings(findings)
        typer.echo(f"Next: memlane export {file} --to csv")

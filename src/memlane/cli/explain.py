"""`memlane explain FILE`: what is wrong with the recorded accesses, in words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from memlane.cli import options as o
from memlane.cli.later import later
from memlane.cli.output import recorded
from memlane.cli.progress import working
from memlane.cli.terminal import show, show_json

if TYPE_CHECKING:
    from memlane import diagnose, report
else:
    diagnose = later("memlane.diagnose")
    report = later("memlane.report")


def explain(file: o.RecordFile, as_json: o.Json = False) -> None:
    """Say what is wrong with the recorded accesses, the costliest first."""
    with working(f"explaining {file}"):
        trace = recorded(file)
        findings, uncounted = diagnose.explain(trace), diagnose.uncounted_launches(trace)
        clean = diagnose.clean_kernels(trace, findings)
    sampled = [launch for launch in trace.launches if launch.sample is not None and launch not in uncounted]
    if as_json:
        show_json(report.findings_document(findings, uncounted, clean, trace.skipped, sampled, trace.failed, trace))
    else:
        show(report.render_findings(findings, uncounted, clean, trace.skipped, sampled, trace.failed, trace))
        typer.echo(f"Next: memlane report {shlex.quote(str(file))}")

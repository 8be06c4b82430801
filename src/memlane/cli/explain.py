"""`memlane explain FILE`: what is wrong with the recorded accesses, in words."""

from __future__ import annotations

import shlex

import typer

from memlane.cli import options as o
from memlane.cli.output import recorded
from memlane.cli.terminal import show, show_json
from memlane.diagnose import clean_kernels, uncounted_launches
from memlane.diagnose import explain as find
from memlane.report import findings_document, render_findings


def explain(file: o.RecordFile, as_json: o.Json = False) -> None:
    """Say what is wrong with the recorded accesses, the costliest first."""
    trace = recorded(file)
    findings, uncounted = find(trace), uncounted_launches(trace)
    clean = clean_kernels(trace, findings)
    sampled = [launch for launch in trace.launches if launch.sample is not None and launch not in uncounted]
    if as_json:
        show_json(findings_document(findings, uncounted, clean, trace.skipped, sampled))
    else:
        show(render_findings(findings, uncounted, clean, trace.skipped, sampled))
        typer.echo(f"Next: memlane report {shlex.quote(str(file))}")

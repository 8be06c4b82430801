"""Render memlane's objects as HTML and as text. Loaded when there is something to show."""

from __future__ import annotations

from memlane.diagnose import Findings
from memlane.diagnose.changes import Comparison
from memlane.record import Counts, Trace
from memlane.report import render_counts, render_findings, render_trace, to_text
from memlane.report.comparison import render_comparison
from memlane.report.html import counts_html, findings_html, trace_html

__all__ = ["comparison_text", "counts_html", "counts_text", "findings_html", "findings_text", "trace_html", "trace_text"]

_WIDTH = 100
"""Width of text tables, in columns."""


def trace_text(trace: Trace) -> str:
    return to_text(render_trace(trace), _WIDTH)


def counts_text(counts: Counts) -> str:
    return to_text(render_counts(counts), _WIDTH)


def findings_text(findings: Findings) -> str:
    return to_text(render_findings(findings), _WIDTH)


def comparison_text(comparison: Comparison) -> str:
    return to_text(render_comparison(comparison), _WIDTH)

"""Render traces, counts, findings and comparisons for people and for programs.

terminal, findings      traces, counts and findings for the terminal
exactness, call_notes, failures, modelled_times, perturbation, sample_notes, skipped_accesses, totals
                        notes below them
comparison, checks      differences between two files; results of the checker
table, transactions     a table under source lines; transactions beside their ideal
json, spreadsheet       machine-readable documents
html                    the page
picture, show           a drawing of one access, and the choice of the access to draw
timelines               the timeline of a plan's steps, as a file
"""

from importlib import import_module
from typing import TYPE_CHECKING

from memlane.record import kernel_label as label
from memlane.report.checks import render_reports, reports_document
from memlane.report.failures import broken_off_note, failed_notes
from memlane.report.findings import TOP, headline, render_findings, render_worst, short_notes
from memlane.report.json import counts_document, document_head, findings_document, summary_document, to_json
from memlane.report.spreadsheet import counts_csv
from memlane.report.terminal import render_counts, render_trace, to_text

if TYPE_CHECKING:
    from memlane.report.html import write_comparison, write_report

__all__ = [
    "TOP",
    "broken_off_note",
    "counts_csv",
    "counts_document",
    "document_head",
    "failed_notes",
    "findings_document",
    "headline",
    "label",
    "render_counts",
    "render_findings",
    "render_reports",
    "render_trace",
    "render_worst",
    "reports_document",
    "short_notes",
    "summary_document",
    "to_json",
    "to_text",
    "write_comparison",
    "write_report",
]


def __getattr__(name: str) -> object:
    """Import the page on first use: it brings a template engine, which no other command needs."""
    if name not in ("write_comparison", "write_report"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module("memlane.report.html"), name)
    return found

"""What memlane knows, for people and for programs. Inside: numbers <- table <- terminal; json and spreadsheet stand alone; `html` is the page."""

from memlane.report.checks import render_reports, reports_document
from memlane.report.html import write_report
from memlane.report.json import counts_document, document_head, findings_document, summary_document, to_json
from memlane.report.spreadsheet import counts_csv
from memlane.report.terminal import render_counts, render_findings, render_trace, to_text

__all__ = [
    "counts_csv",
    "counts_document",
    "document_head",
    "findings_document",
    "render_counts",
    "render_findings",
    "render_reports",
    "render_trace",
    "reports_document",
    "summary_document",
    "to_json",
    "to_text",
    "write_report",
]

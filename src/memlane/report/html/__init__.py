"""Write the page of a trace: one HTML file.

Modules: model <- histogram, levels <- source_view, finding_cards, trace_facts; resources; pack, sampling <- timeline. `page` combines them,
`comparison_page` those of two traces. `plan_page` is the page of a plan's timeline; `tables` are the small ones of a notebook.
"""

from memlane.report.html.comparison_page import write_comparison
from memlane.report.html.page import render_page, write_report
from memlane.report.html.tables import counts_html, findings_html, trace_html

__all__ = ["counts_html", "findings_html", "render_page", "trace_html", "write_comparison", "write_report"]

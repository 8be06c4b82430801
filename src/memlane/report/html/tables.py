"""Render traces, counts and findings as small HTML tables for notebooks: fragments with their own style and no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import PurePath

from memlane.diagnose import Finding
from memlane.number_format import UNKNOWN, percent, plural, rounded, short
from memlane.record import Counts, Trace, kernel_label, source_line, summarise
from memlane.report.transactions import mean, with_ideal

MOST_ROWS = 40
"""Largest number of rows in a table; the number of further rows is stated below it."""

MOST_CHARACTERS = 60
"""Longest source line in a table, in characters."""

_CELL = "padding:1px 10px 1px 0;text-align:{};vertical-align:top;background:none"
_CODE = "font-family:ui-monospace,Menlo,Consolas,monospace"


def trace_html(trace: Trace) -> str:
    """Return one row for each source line and operation: accesses, transactions per request, cycles.

    Where the trace has them, exposed and hidden cycles too.
    """
    entries = summarise(trace)
    stalls = any(entry.exposed_mean is not None for entry in entries)
    head: tuple[str, ...] = (
        "line",
        "source",
        "operation",
        "kernel",
        "accesses",
        "sectors per request (ideal)",
        "wavefronts per request (ideal)",
        "p50 cycles",
        "p95 cycles",
        "p99 cycles",
        *(("exposed p50", "hidden p50") if stalls else ()),
        "share of warp life",
    )
    rows = [
        (
            f"{PurePath(entry.file).name}:{entry.line}",
            _shortened(source_line(trace.sources, entry.file, entry.line)),
            entry.op,
            kernel_label(entry.kernel),
            f"{entry.accesses:,}",
            with_ideal(entry.sectors_per_request, entry.ideal_sectors_per_request),
            with_ideal(entry.wavefronts_per_request, entry.ideal_wavefronts_per_request),
            short(entry.cycles_p50),
            short(entry.cycles_p95),
            short(entry.cycles_p99),
            *((short(entry.exposed_p50), short(entry.hidden_p50)) if stalls else ()),
            percent(entry.lifetime_share),
        )
        for entry in entries
    ]
    return _fragment(str(trace), _table(head, rows))


def counts_html(counts: Counts) -> str:
    """Return one row for each source line and operation: requests and their cost."""
    head = (
        "line",
        "source",
        "operation",
        "requests",
        "lanes per request",
        "sectors per request (ideal)",
        "wavefronts per request (ideal)",
        "excess sectors",
        "conflicts",
    )
    rows = [
        (
            f"{PurePath(entry.site.file).name}:{entry.site.line}",
            _shortened(source_line(counts.sources, entry.site.file, entry.site.line)),
            entry.site.op,
            f"{entry.requests:,}",
            rounded(entry.lanes_per_request),
            with_ideal(mean(entry.sectors, entry.requests), mean(entry.ideal_sectors, entry.requests)),
            with_ideal(mean(entry.wavefronts, entry.requests), mean(entry.ideal_wavefronts, entry.requests)),
            UNKNOWN if entry.excess_sectors is None else f"{entry.excess_sectors:,}",
            UNKNOWN if entry.conflicts is None else f"{entry.conflicts:,}",
        )
        for entry in counts.by_line()
    ]
    return _fragment(str(counts), _table(head, rows))


def findings_html(findings: Sequence[Finding]) -> str:
    """Return the findings in their order, each as its title and its paragraph."""
    if not findings:
        return _fragment("Nothing found.", "")
    items = "".join(f"<li style='margin-bottom:6px'><b>{escape(one.title)}</b><br>{escape(str(one))}</li>" for one in findings[:MOST_ROWS])
    left = len(findings) - MOST_ROWS
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    return _fragment(plural(len(findings), "finding"), f"<ol style='margin-top:4px'>{items}</ol>{more}")


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; columns of numbers, whose cells all begin with a digit or are unknown, are right-aligned, others left-aligned."""
    if not rows:
        return ""
    sides = [
        "right" if all(row[column][:1].isdigit() or row[column][:1] in "<-" for row in rows) else "left" for column in range(len(head))
    ]
    lines = [_row("th", head, sides), *(_row("td", row, sides) for row in rows[:MOST_ROWS])]
    more = f"<p style='margin:2px 0'>and {plural(len(rows) - MOST_ROWS, 'more row')}</p>" if len(rows) > MOST_ROWS else ""
    return f"<table style='border-collapse:collapse;font-size:12px'>{''.join(lines)}</table>{more}"


def _row(tag: str, cells: Sequence[str], sides: Iterable[str]) -> str:
    scope = " scope='col'" if tag == "th" else ""
    made = [f"<{tag}{scope} style='{_CELL.format(side)}'>{escape(cell)}</{tag}>" for cell, side in zip(cells, sides, strict=True)]
    return f"<tr>{''.join(made)}</tr>"


def _fragment(title: str, body: str) -> str:
    return f"<div style='margin:4px 0'><p style='margin:0 0 4px;{_CODE};font-size:12px'>{escape(title)}</p>{body}</div>"

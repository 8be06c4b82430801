"""The small tables of a notebook: the numbers of the summary and of the counts, and no markup from anybody else."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from memlane.diagnose import explain
from memlane.record import ACCESS_SCHEMA, summarise
from memlane.report.html import counts_html, findings_html, trace_html
from memlane.report.html.tables import MOST_ROWS
from tests.report.html.reading import Element, read
from tests.synthetic import SOURCE, counted, counts, site, transpose


def rows_of(fragment: str) -> list[list[str]]:
    root: Element = read(fragment)
    return [[cell.text for cell in row.inside if isinstance(cell, Element)] for row in root.all("tr")]


def test_a_trace_has_a_row_for_each_line_and_operation() -> None:
    trace = transpose()
    head, *rows = rows_of(trace_html(trace))
    assert [dict(zip(head, row, strict=True))["p95 cycles"] for row in rows] == [str(entry.cycles_p95) for entry in summarise(trace)]
    assert rows[1] == [
        "transpose.cu:4",
        "out[x * n + y] = in[y * n + x];",
        "st.global.f32",
        "naive",
        "20",
        "32 (4)",
        "-",
        "202",
        "204",
        "204",
        "10 %",
    ]
    assert str(trace) in read(trace_html(trace)).text


def test_a_trace_with_exposed_cycles_has_them_and_the_hidden_ones() -> None:
    trace = transpose()
    place, cycles = ACCESS_SCHEMA.get_field_index("exposed"), trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    exposed = pa.array((cycles - 7).astype("u4"), mask=trace.table["site"].to_numpy() != 0)
    head, *rows = rows_of(trace_html(replace(trace, table=trace.table.set_column(place, ACCESS_SCHEMA.field("exposed"), exposed))))
    told = [(row["exposed p50"], row["hidden p50"]) for row in (dict(zip(head, cells, strict=True)) for cells in rows)]
    entries = summarise(trace)
    assert told == [(str(entries[0].cycles_p50 - 7), "7"), *[("-", "-")] * (len(entries) - 1)]


def test_counts_have_their_excess() -> None:
    head, *rows = rows_of(counts_html(counts(*transpose().launches[0].counts, sources={"transpose.cu": SOURCE})))
    assert dict(zip(head, rows[1], strict=True)) == {
        "line": "transpose.cu:4",
        "source": "out[x * n + y] = in[y * n + x];",
        "operation": "st.global.f32",
        "requests": "20",
        "lanes per request": "32",
        "sectors per request (ideal)": "32 (4)",
        "wavefronts per request (ideal)": "-",
        "excess sectors": "560",
        "conflicts": "-",
    }


def test_long_tables_end_and_say_so() -> None:
    many = [counted(site(number, "ld.global.f32", number + 1), 1, sectors=4, ideal_sectors=4) for number in range(MOST_ROWS + 5)]
    fragment = counts_html(counts(*many))
    assert len(rows_of(fragment)) == 1 + MOST_ROWS
    assert "and 5 more rows" in fragment


def test_findings_are_their_paragraphs() -> None:
    findings = explain(transpose())
    items = read(findings_html(findings)).all("li")
    assert [item.text for item in items] == [f"{finding.title}{' '.join(str(finding).split())}" for finding in findings]
    assert read(findings_html([])).text == "Nothing found."


def test_names_are_text() -> None:
    hostile = "<script>alert(1)</script>&<b>"
    entries = [replace(one, site=replace(one.site, op=hostile)) for one in transpose().launches[0].counts]
    root = read(counts_html(counts(*entries)))
    assert not root.all("script")
    assert [cell.text for cell in root.all("td") if "alert" in cell.text] == [hostile]
    assert not read(findings_html([replace(explain(transpose())[0], what=hostile)])).all("script")

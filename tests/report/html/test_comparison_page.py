"""The page of two traces: its numbers are those of `compare`, its findings those of both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memlane.diagnose.comparison import compare
from memlane.errors import CommandError, RecordError
from memlane.record import SiteCounts, Trace
from memlane.report import to_text
from memlane.report.comparison import in_words, number_alone, render_comparison
from memlane.report.html import write_comparison
from memlane.report.html.comparison_page import render_comparison_page
from tests.report.html.reading import Element, read
from tests.synthetic import counts, transpose

NAMES = ("old.parquet", "new.parquet")


def mended() -> Trace:
    """The transposes, of which the naive one now stores to neighbouring addresses."""
    trace = transpose()

    def better(entry: SiteCounts) -> SiteCounts:
        return replace(entry, sectors=entry.ideal_sectors) if entry.site.op == "st.global.f32" else entry

    first = trace.launches[0]
    return replace(trace, launches=(replace(first, counts=tuple(map(better, first.counts))), *trace.launches[1:]))


def page(**pairs: str) -> Element:
    return read(render_comparison_page(transpose(), mended(), NAMES, pairs or None))


def test_the_numbers_are_those_of_compare() -> None:
    trace, other = transpose(), mended()
    shown = [
        [cell.text for cell in row.all("td") if "data-of" in cell.attributes]
        for table in page().all("table", "changes")
        for row in table.all("tbody")[0].all("tr")
    ]
    wanted = []
    for kernel in compare(trace, other).kernels:
        rows = [[in_words(change) for change in line.changes.values()] for line in kernel.lines]
        known = [column for column in zip(*rows, strict=True) if set(column) != {"-"}]
        wanted += [list(row) for row in zip(*known, strict=True)]
    assert shown == wanted
    assert "32 -> 4" in {text for row in shown for text in row}


def test_less_is_marked_as_less_and_what_stayed_as_the_same() -> None:
    (changed,) = [cell for cell in page().all("td") if cell.text == "32 -> 4"]
    assert changed.attributes["class"] == "less"
    back = read(render_comparison_page(mended(), transpose(), NAMES))
    (changed,) = [cell for cell in back.all("td") if cell.text == "4 -> 32"]
    assert changed.attributes["class"] == "more"


def test_a_finding_that_one_side_has_is_gone_or_new() -> None:
    def fates(root: Element) -> list[tuple[str, list[str]]]:
        return [(card.attributes["id"].partition("-")[0], [one.text for one in card.all("span", "fate")]) for card in root.all("li")]

    assert sorted(fates(page())) == [("after", []), ("before", []), ("before", ["gone"])]
    assert sorted(fates(read(render_comparison_page(mended(), transpose(), NAMES)))) == [("after", []), ("after", ["new"]), ("before", [])]


def test_accesses_of_a_line_that_one_side_has_are_those_of_a_launch() -> None:
    whole = transpose().launches[0].counts
    change = compare([counts(*whole)] * 3, [counts(*whole[:1])] * 3)
    (line,) = change.kernels[0].only_before
    (printed,) = [line for line in to_text(render_comparison(change), 120).splitlines() if "(gone)" in line]
    assert line.requests == 60, "over all launches"
    assert printed.split()[3] == number_alone(line, "requests", 3) == "20"


def test_kernels_of_different_names_are_paired_and_others_left_out() -> None:
    root = page(naive="tiled")
    assert [one.text for one in root.by_id("changes").all("h3")] == ["naive \N{RIGHTWARDS ARROW} tiled"]
    cards = {card.attributes["id"].partition("-")[0]: card.text for card in root.all("li")}
    assert "naive" in cards["before"]
    assert "tiled" in cards["after"]
    assert "naive" not in root.all("div", "two")[0].inside[-2].text
    assert {one.text for one in root.all("span", "fate")} == {"gone", "new"}


def test_both_sides_are_named_and_the_page_asks_for_nothing() -> None:
    root = page()
    text = root.by_id("title").text + root.all("dl", "sides")[0].text
    assert all(name in text for name in NAMES)
    assert not [one for one in root.walk() if one.tag in ("link", "img", "iframe") or one.attributes.get("src")]
    ids = [one.attributes["id"] for one in root.walk() if "id" in one.attributes]
    assert len(ids) == len(set(ids))


def test_a_page_is_written_once_and_not_of_kernels_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "two.html"
    write_comparison(transpose(), mended(), path, names=NAMES)
    with pytest.raises(RecordError, match=r"two\.html exists; pass --force"):
        write_comparison(transpose(), mended(), path)
    with pytest.raises(CommandError, match="after has no kernel none; it has: naive, tiled"):
        write_comparison(transpose(), mended(), tmp_path / "other.html", kernels={"naive": "none"})
    assert not (tmp_path / "other.html").exists()

"""The page of a trace, read without a browser: what it says, that it asks for nothing, and that it stays small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from memlane.diagnose import explain
from memlane.errors import RecordError
from memlane.number_format import percent, short
from memlane.record import ACCESS_SCHEMA, WARP_DTYPE, Sample, Trace, build_trace, summarise
from memlane.report import headline, render_worst, to_text
from memlane.report.html import render_page, write_report
from memlane.report.show import access_pictures
from memlane.report.transactions import with_ideal
from tests.report.html.conftest import with_pictures
from tests.report.html.reading import Element, columns_of, data_of, read
from tests.synthetic import transpose


def rows_of(root: Element) -> list[dict[str, str]]:
    """The operations in the listing: their cells by what these are of."""
    return [
        {cell.attributes["data-of"]: cell.text for cell in row.all("td") if "data-of" in cell.attributes} for row in root.all("tr", "op")
    ]


# -- numbers -----------------------------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_summary() -> None:
    trace = transpose()
    entries = summarise(trace)
    wanted = [
        {
            "accesses": f"{entry.accesses:,}",
            "p50": short(entry.cycles_p50),
            "p95": short(entry.cycles_p95),
            "p99": short(entry.cycles_p99),
            "sectors": with_ideal(entry.sectors_per_request, entry.ideal_sectors_per_request),
            "wavefronts": with_ideal(entry.wavefronts_per_request, entry.ideal_wavefronts_per_request),
        }
        for entry in entries
    ]
    assert rows_of(read(render_page(trace))) == wanted


def test_the_heat_is_the_share_of_all_cycles() -> None:
    trace = transpose()
    root = read(render_page(trace))
    lines = trace.table["line"].to_numpy()
    cycles = trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    heat = {row.all("td", "number")[0].text: row.all("td", "heat")[0].text for row in root.all("tr", "hot")}
    assert heat == {str(line): percent(float(cycles[lines == line].sum() / cycles.sum())) for line in (4, 8, 10)}


def test_the_hottest_lines_are_named_first() -> None:
    root = read(render_page(transpose()))
    (line,) = root.all("p", "hottest")
    heat = {row.attributes["id"]: row.all("td", "heat")[0].text for row in root.all("tr", "hot")}
    named = [one.attributes["href"].removeprefix("#") for one in line.all("a")]
    assert named == sorted(heat, key=lambda name: -float(heat[name].removesuffix(" %")))
    assert line.text == f"Hottest: {', '.join(f'{one.text} {heat[name]}' for one, name in zip(line.all('a'), named, strict=True))}"


def test_a_sampled_launch_counts_for_what_it_stands_for() -> None:
    trace = transpose()
    sampled = replace(trace.launches[0], sample=Sample(warps_in_window=40, warps_chosen=4, every=10))
    root = read(render_page(replace(trace, launches=(sampled, trace.launches[1]))))
    lines = trace.table["line"].to_numpy()
    cycles = (trace.table["end"].to_numpy() - trace.table["start"].to_numpy()) * np.where(lines == 4, 10, 1)
    (first, *_) = root.all("tr", "hot")
    assert first.all("td", "heat")[0].text == percent(float(cycles[lines == 4].sum() / cycles.sum()))


def test_the_histograms_hold_every_access_in_its_bin() -> None:
    trace = transpose()
    data = data_of(read(render_page(trace)))
    edges = data["bins"]
    assert edges == sorted(set(edges))
    for operation, entry in zip(data["operations"], summarise(trace), strict=True):
        rows = trace.table.filter(pa.compute.equal(trace.table["site"], operation["id"]))
        cycles = [end - start for start, end in zip(rows["start"].to_pylist(), rows["end"].to_pylist(), strict=True)]
        first, counts = operation["histogram"]["first"], operation["histogram"]["counts"]
        found = {edges[first + index]: count for index, count in enumerate(counts) if count}
        wanted: dict[int, int] = {}
        for each in cycles:
            low = max(edge for edge in edges if edge <= each)
            wanted[low] = wanted.get(low, 0) + 1
        assert found == wanted
        assert sum(counts) == entry.accesses


def test_levels_are_the_latencies_of_the_chip_behind_the_window_and_of_loads_alone() -> None:
    operations = data_of(read(render_page(transpose(chip="h200"))))["operations"]
    assert {one["op"]: [(level["name"], level["cycles"]) for level in one["levels"]] for one in operations} == {
        "ld.global.f32": [("L1", 40.3), ("L2", 289), ("DRAM", 667.9)],
        "st.global.f32": [],
        "st.shared.f32": [],
        "ld.shared.f32": [("shared", 29.7)],
    }


def test_without_a_file_of_the_chip_the_page_says_how_to_get_one() -> None:
    root = read(render_page(transpose(chip="sm_99")))
    assert all(not one["levels"] for one in data_of(root)["operations"])
    assert "there is no chip file for 'sm_99'. memlane lab latency measures the latencies of a GPU." in root.by_id("source").text


def test_findings_are_told_in_their_words_and_lead_to_their_lines() -> None:
    trace = transpose()
    root = read(render_page(trace))
    cards = root.by_id("findings").all("li")
    findings = explain(trace)
    assert len(cards) == len(findings) == 2
    for card, finding in zip(cards, findings, strict=True):
        for part in (finding.place, finding.source, finding.cost, headline(finding), finding.remedy.split(". ")[0].replace("`", "")):
            assert part in card.text
        assert [one.text for one in card.all("dl")[0].all("dt")] == ["Cause", "Fix"]
        for words in to_text(render_worst([finding]), 1000).splitlines()[2:4]:
            assert words.strip().partition(": ")[2][1:].replace("`", "").rstrip(".") in card.text, "the words of the terminal"
        (link,) = card.all("a")
        row = root.by_id(link.attributes["href"].removeprefix("#"))
        assert row.all("td", "number")[0].text == str(finding.line)
        assert f"#finding-{finding.rank}" in {one.attributes["href"] for one in row.all("a")}


def test_labels_of_the_ends_are_taken_as_they_come() -> None:
    trace = transpose()
    odd = tuple(replace(one, completeness="half-way") if one.id == 1 else one for one in trace.sites)
    root = read(render_page(replace(trace, sites=odd)))
    assert {"half-way", "complete", "issued"} == {cell.text for cell in root.all("td", "end")}


# -- the time line -----------------------------------------------------------------------------------------------------------------


def test_the_columns_give_back_every_access() -> None:
    trace = transpose()
    root = read(render_page(trace))
    columns, data = columns_of(root), data_of(root)
    table = trace.table.to_pydict()
    for number, line in enumerate(data["launches"]):
        lives = range(len(columns[f"{number}/life.sm"]))
        firsts = np.cumsum(columns[f"{number}/life.count"]) - columns[f"{number}/life.count"]
        drawn = []
        for life in lives:
            block, warp = int(columns[f"{number}/life.block"][life]), int(columns[f"{number}/life.warp"][life])
            for index in range(int(firsts[life]), int(firsts[life] + columns[f"{number}/life.count"][life])):
                operation = data["operations"][int(columns[f"{number}/access.operation"][index])]
                drawn.append((block, warp, operation["op"], int(columns[f"{number}/access.cycles"][index])))
        rows = zip(*(table[name] for name in ("launch", "block", "warp", "op", "start", "end")), strict=True)
        assert sorted(drawn) == sorted((block, warp, op, end - start) for own, block, warp, op, start, end in rows if own == line["launch"])
        assert line["accesses"] == line["accesses_kept"] == len(drawn)
        assert line["left_out"] == ""


def test_the_overview_holds_the_time_of_every_access() -> None:
    trace = transpose()
    root = read(render_page(trace))
    columns, data = columns_of(root), data_of(root)
    cycles = trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    for number, line in enumerate(data["launches"]):
        own = trace.table["launch"].to_numpy() == line["launch"]
        flight = columns[f"{number}/overview.flight"].reshape(len(line["sms"]), line["bins"])
        open_ns = flight.sum(axis=1) * line["span_ns"] / line["bins"]
        for index, sm in enumerate(line["sms"]):
            wanted = cycles[own & (trace.table["sm"].to_numpy() == sm)].sum() / line["ghz"]
            assert open_ns[index] == pytest.approx(wanted, rel=1e-3)


def test_means_by_multiprocessor_are_of_all_warps() -> None:
    trace = transpose()
    root = read(render_page(trace))
    columns, data = columns_of(root), data_of(root)
    rows = list(zip(*(trace.table[name].to_pylist() for name in ("launch", "sm", "block", "warp", "start", "end")), strict=True))
    for number, line in enumerate(data["launches"]):
        for index, sm in enumerate(line["sms"]):
            own: dict[tuple[int, int], list[int]] = {}
            for launch_id, at, block, warp, start, end in rows:
                if (launch_id, at) == (line["launch"], sm):
                    own.setdefault((block, warp), []).append(end - start)
            means = [sum(each) / len(each) for each in own.values()]
            assert columns[f"{number}/sm.warps"][index] == len(means)
            assert columns[f"{number}/sm.mean"][index] == pytest.approx(sum(means) / len(means))
            assert columns[f"{number}/sm.p50"][index] == pytest.approx(float(np.median(means)))


# -- what is missing ---------------------------------------------------------------------------------------------------------------


def without_counts() -> Trace:
    trace = transpose(modelled=False, target="cuda:0")
    table = trace.table
    for name in ("sectors", "wavefronts"):
        table = table.set_column(ACCESS_SCHEMA.get_field_index(name), ACCESS_SCHEMA.field(name), pa.nulls(table.num_rows, pa.uint16()))
    return replace(trace, table=table, launches=tuple(replace(one, counts=(), branches=()) for one in trace.launches))


def test_without_counts_the_page_says_how_to_get_them() -> None:
    root = read(render_page(without_counts()))
    assert "memlane trace --counts" in root.by_id("findings").text
    assert "transactions not counted" in root.by_id("about").text
    assert {row["sectors"] for row in rows_of(root)} == {"-"}


def test_where_one_launch_was_counted_the_others_are_named() -> None:
    trace = transpose()
    partly = replace(trace, launches=(trace.launches[0], replace(trace.launches[1], counts=())))
    text = read(render_page(partly)).by_id("findings").text
    assert "Transactions were not counted in 1 launch of tiled: record with memlane trace --counts." in text


def test_without_source_text_the_page_says_how_to_get_it() -> None:
    root = read(render_page(transpose(sources={})))
    assert "The text of this file is not in the trace" in root.by_id("source").text
    assert "record again with memlane trace" in root.by_id("source").text
    assert [row.all("td", "number")[0].text for row in root.all("tr", "line")] == ["4", "8", "10"]


def test_a_text_that_is_too_short_is_not_the_one_that_was_compiled() -> None:
    root = read(render_page(transpose(sources={"transpose.cu": "int a;\nint b;\n"})))
    assert "This file has 2 lines, but the trace names line 10, so the file changed after it was compiled." in root.by_id("source").text


def test_an_empty_trace_has_a_page() -> None:
    trace = transpose()
    columns = {name: np.zeros(0, np.int64) for name in ("launch", "site", "block", "warp", "sm", "mask", "start", "end")}
    empty = build_trace(columns, sites=(), launches=(), chip="h200", target="emulator:h200", modelled=True)
    root = read(render_page(empty))
    assert "There is no timeline, because the trace contains no accesses." in root.by_id("timeline").text
    assert "No kernel was launched while it was recorded." in root.by_id("source").text
    assert root.by_id("title").text == "no kernel"
    bare = replace(trace, warps=np.zeros(0, WARP_DTYPE))
    assert "because the trace does not contain the clocks of its warps" in read(render_page(bare)).by_id("timeline").text


def test_without_a_common_clock_there_is_no_time_line_and_all_else() -> None:
    trace = transpose(clock_mhz=0.0)
    warps = trace.warps.copy()
    warps["end_ns"] = warps["begin_ns"] = 0  # one anchor a warp, all alike: they tell no frequency
    root = read(render_page(replace(trace, warps=warps)))
    assert "There is no timeline: this trace does not contain the clock rate of its chip" in root.by_id("timeline").text
    assert len(rows_of(root)) == 6


def test_the_driver_is_told_as_it_was_recorded() -> None:
    for trace, wanted in (
        (transpose(modelled=False, driver="580.159.04, CUDA 13.0"), "580.159.04, CUDA 13.0"),
        (transpose(modelled=False), "its version is not in the trace"),
        (transpose(), "none: emulated"),
    ):
        about = read(render_page(trace)).by_id("about")
        terms = dict(zip((one.text for one in about.all("dt")), (one.text for one in about.all("dd")), strict=True))
        assert terms["driver"] == wanted


def test_what_was_lost_is_said() -> None:
    root = read(render_page(transpose()))
    (figure,) = [one for one in root.all("div") if one.text.startswith("records lost")]
    assert figure.all("dd")[0].text == "2"
    note = (
        "2 records did not fit into the buffer: times cover only the first records of each warp, and totals do not include the lost "
        "records."
    )
    assert note in [one.text for one in root.all("p", "missing")]
    assert "120 kept, 2 lost" in root.by_id("about").text


def test_what_broke_off_and_what_was_traced_in_part_is_said_first() -> None:
    trace = transpose()
    launches = (
        replace(trace.launches[0], failed="an access out of bounds"),
        replace(trace.launches[1], sample=Sample(warps_in_window=40, warps_chosen=4, every=10)),
    )
    notes = [one.text for one in read(render_page(replace(trace, launches=launches))).all("p", "missing")]
    assert notes[0] == "Launch 0 (naive) failed: an access out of bounds."
    assert notes[1].startswith("tiled: traced 1 in 10 warps (seed 0); 4 of 40 warps, so each access stands for 10.")


# -- size and time -----------------------------------------------------------------------------------------------------------------


def test_a_million_records_make_less_than_10_mb_in_less_than_20_seconds(million: tuple[Path, Trace, float]) -> None:
    path, _, seconds = million
    assert seconds < 20
    assert path.stat().st_size < 10_000_000
    root = read(path.read_text(encoding="utf-8"))
    (line,) = data_of(root)["launches"]
    assert line["accesses"] == 1_000_000
    assert sum(sum(one["histogram"]["counts"]) for one in data_of(root)["operations"]) == 1_000_000
    assert 0 < line["accesses_kept"] < 1_000_000
    kept = len(line["sms_kept"])
    assert f"the accesses of all warps of {kept} of 132 multiprocessors" in line["left_out"]
    assert f"{line['accesses_kept']:,} of 1,000,000 accesses" in line["left_out"]


def test_the_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    write_report(transpose(), tmp_path / "a.html")
    with pytest.raises(RecordError, match=r"a\.html exists; pass --force"):
        write_report(transpose(), tmp_path / "a.html")
    write_report(transpose(), tmp_path / "a.html", force=True)


def test_many_findings_are_folded_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlane.report.html.page.FINDINGS", 1)
    root = read(render_page(transpose()))
    section = root.by_id("findings")
    (folded,) = section.all("details", "more")
    assert folded.all("summary")[0].text == "1 more, which cost less"
    assert [one.attributes["id"] for one in section.all("li")] == ["finding-1", "finding-2"]
    assert [one.attributes["id"] for one in folded.all("li")] == ["finding-2"]


# -- exposed cycles ----------------------------------------------------------------------------------------------------------------


def half_exposed() -> Trace:
    """Of each access at the first site half of the cycles were waited for; of the others that is not known."""
    trace = transpose()
    cycles = trace.table["end"].to_numpy() - trace.table["start"].to_numpy()
    exposed = pa.array((cycles // 2).astype(np.uint32), pa.uint32(), mask=trace.table["site"].to_numpy() != 0)
    place = ACCESS_SCHEMA.get_field_index("exposed")
    return replace(trace, table=trace.table.set_column(place, ACCESS_SCHEMA.field("exposed"), exposed))


def test_exposed_cycles_are_told_and_heat_is_of_what_was_waited_for() -> None:
    trace = half_exposed()
    root = read(render_page(trace))
    lines, sites = (trace.table[name].to_numpy() for name in ("line", "site"))
    cycles = (trace.table["end"].to_numpy() - trace.table["start"].to_numpy()).astype(float)
    cycles[sites == 0] //= 2
    assert root.all("tr", "hot")[0].all("td", "heat")[0].text == percent(float(cycles[lines == 4].sum() / cycles.sum()))
    facts = dict(data_of(root)["operations"][0]["facts"])
    assert facts["exposed cycles"] == "p50 51, mean 50.8, 50 % of all: how long the first consumer waited"
    assert "exposed cycles" not in dict(data_of(root)["operations"][1]["facts"])


def test_exposed_and_hidden_cycles_have_columns_where_they_are_known() -> None:
    trace = half_exposed()
    root = read(render_page(trace))
    cycles = np.sort((trace.table["end"].to_numpy() - trace.table["start"].to_numpy())[trace.table["site"].to_numpy() == 0])
    middle = (len(cycles) - 1) // 2  # nearest rank
    first, *others = rows_of(root)
    assert (first["exposed"], first["hidden"]) == (str(cycles[middle] // 2), str(np.sort(cycles - cycles // 2)[middle]))
    assert {(row["exposed"], row["hidden"]) for row in others} == {("-", "-")}
    bar = next(cell for cell in root.all("td", "waited"))
    assert bar.attributes["style"] == f"--share:{(cycles // 2).sum() / cycles.sum():.3f}"
    widths = {sum(int(cell.attributes.get("colspan", 1)) for cell in row.inside if isinstance(cell, Element)) for row in listing_rows(root)}
    assert widths == {13}, "every row fills the table"
    plain = read(render_page(transpose()))
    assert not plain.all("td", "waited")
    assert {
        sum(int(one.attributes.get("colspan", 1)) for one in row.inside if isinstance(one, Element)) for row in listing_rows(plain)
    } == {11}


def listing_rows(root: Element) -> list[Element]:
    return [row for table in root.all("table", "listing") for row in table.all("tr")]


def test_why_a_load_was_not_followed_is_told_beside_its_distribution() -> None:
    trace = half_exposed()
    sites = [replace(one, fallback="too many", shared_waits=("0x0120 LDG.E",)) if one.id == 0 else one for one in trace.sites]
    facts = dict(data_of(read(render_page(replace(trace, sites=tuple(sites)))))["operations"][0]["facts"])
    assert (facts["why the consumer is not known"], facts["shares its wait with"]) == ("too many", "0x0120 LDG.E")


def test_the_time_line_has_exposed_cycles_where_they_are_known() -> None:
    columns = columns_of(read(render_page(half_exposed())))
    operation, cycles, exposed = (columns[f"0/access.{name}"] for name in ("operation", "cycles", "exposed"))
    assert np.array_equal(exposed, np.where(operation == 0, cycles // 2, 0xFFFFFFFF))
    assert "0/access.exposed" not in columns_of(read(render_page(transpose())))


# -- pictures ----------------------------------------------------------------------------------------------------------------------


def test_a_line_with_addresses_has_the_picture_that_show_draws() -> None:
    trace = with_pictures()
    root = read(render_page(trace))
    (figure,) = root.by_id("source").all("figure", "picture")
    (row,) = [one for one in root.all("tr", "detail") if figure in one.walk()]
    assert row.attributes["id"] == "f0d4"
    packed = columns_of(root)[figure.attributes["data-picture"]]
    assert packed.tobytes().decode() == access_pictures(trace)["transpose.cu", 4]
    assert "a drawing of one access" in root.by_id("source").text


def test_a_finding_has_the_drawing_of_its_own_access() -> None:
    trace = with_pictures()
    cards = read(render_page(trace)).by_id("findings").all("li")
    drawings = {card.attributes["id"]: [one.attributes["aria-label"] for one in card.all("svg")] for card in cards}
    (store,) = [one for one in explain(trace) if one.op == "st.global.f32"]
    assert drawings.pop(f"finding-{store.rank}") == [
        "32 lanes x 4 B touch 32 sectors where 4 would do. 1,024 bytes are moved, of which 128 (12 %) were requested."
    ]
    assert set(map(len, drawings.values())) == {0}, "no drawing without addresses"


def test_without_addresses_or_the_chip_there_are_no_pictures() -> None:
    for trace in (transpose(), replace(with_pictures(), chip="sm_99")):
        root = read(render_page(trace))
        assert not root.all("figure", "picture")
        assert "a drawing of one access" not in root.by_id("source").text

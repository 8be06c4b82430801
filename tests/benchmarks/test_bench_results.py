"""The committed results, the tables made of them, and the rules for both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import docs
import docs_trace
import pytest
from harness import RESULTS, ROOT, Row, median_ratio, problems
from keep import keep
from stale import sources_of, without_docstrings

BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "\nSOURCES = " in path.read_text())


def document(*rows: Row) -> dict[str, Any]:
    head = {"benchmark": "counts", "command": "python benchmarks/counts.py", "commit": "0" * 40, "chip": "h200", "driver": "580"}
    return {**head, "cuda": "13.0", "date": "2026-11-21", "rows": [row.as_json() for row in rows]}


def test_docstrings_and_comments_make_no_result_stale() -> None:
    code = 'class A:\n    """Says."""\n\n    def f(self, x):\n        """Return x."""\n        return [x, "text"]  # why\n'
    same = 'class A:\n    def f(self, x):\n        return [\n            x,\n            "text",\n        ]\n'
    assert without_docstrings(code) == without_docstrings(same)
    assert without_docstrings(code) != without_docstrings(same.replace('"text"', '"word"'))
    assert without_docstrings(code) != without_docstrings(same.replace("return", "yield"))


def test_a_row_holds_on_the_right_side_of_its_reach() -> None:
    assert Row("a", "b", 2.0, "s", 2.0).holds
    assert not Row("a", "b", 2.1, "s", 2.0).holds
    assert Row("a", "b", 2.1, "1/s", 2.0, "higher").holds
    assert not Row("a", "b", None, "s", 2.0).holds
    assert Row("a", "b", None, "s").holds


def test_the_ratio_is_that_of_the_pairs() -> None:
    assert median_ratio([2.0, 6.0, 12.0], [1.0, 2.0, 3.0]) == (3.0, 2.0, 4.0)


def test_what_is_wrong_with_a_result_file_is_said() -> None:
    good = document(Row("a", "b", 1.0, "s", 2.0), Row("c", "d", 3.0, "s", 2.0, note="slow"))
    assert problems(good) == []
    assert problems({**good, "commit": "unknown"}) == ["commit 'unknown' is no commit"]
    assert problems({key: value for key, value in good.items() if key != "driver"})[0].startswith("has the keys benchmark")
    wrong = {**good["rows"][0], "holds": False, "note": "?"}
    assert problems({**good, "rows": [wrong]}) == ["row 'a', 'b': holds is False, but the value is 1.0 and the reach 2.0"]
    silent = {**good["rows"][1], "note": ""}
    assert problems({**good, "rows": [silent]}) == ["row 'c', 'd': misses its reach and has no note that says why"]


def test_every_committed_result_fits_the_schema() -> None:
    for path in sorted(RESULTS.glob("*/*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        assert problems(stored) == [], path
        assert (stored["chip"], stored["benchmark"]) == (path.parent.name, path.stem), path


@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda path: path.stem)
def test_every_benchmark_names_the_sources_that_it_measures(script: Path) -> None:
    sources = sources_of(script)
    assert f"benchmarks/{script.name}" in sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_the_tables_of_the_docs_are_those_of_the_results() -> None:
    names = [
        "accuracy",
        "counts",
        "emulator",
        "export",
        "findings",
        "latency",
        "layouts",
        "overhead",
        "prediction",
        "programs",
        "reduction",
        "relayout",
        "remap",
        "scaling",
        "shift",
        "stamps",
        "stencils",
        "volume",
    ]
    assert [path.stem for path in docs.pages()] == names
    for path in docs.pages():
        text = path.read_text(encoding="utf-8")
        assert docs.rewritten(text) == text, f"{path.name} is out of date: python benchmarks/docs.py"


def test_every_table_stands_in_a_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in docs.pages())
    assert [name for name in docs.TABLES if f"<!-- table: {name} -->" not in text] == []


PEERS: dict[str, dict[str, float]] = {
    "accuracy": {"recorded": 42.0, "window": 6.5, "net": 35.5, "truth": 34.25, "error": 1.25, "error, half interval": 0.1, "error, %": 3.6},
}


def write_result(folder: Path, name: str, *rows: Row) -> None:
    path = folder / f"{docs.TABLES[name][0]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(*rows)))


def test_a_table_shows_numbers_reaches_and_where_they_come_from(tmp_path: Path) -> None:
    row = Row("dependent, L1", "error of the mean", 1.25, "cycles", 5.0, peer=PEERS["accuracy"])
    write_result(tmp_path, "accuracy", row)
    text = docs.content("accuracy", tmp_path)
    assert "| dependent, L1 | 42 | 6.5 | 35.5 | 34.25 | +1.25 ± 0.1 (+3.6 %) | at most 5 cycles: yes |" in text
    assert "Measured on h200, driver 580, CUDA 13.0, 2026-11-21, commit `000000000000`, by `python benchmarks/counts.py`." in text


SEEN = {"sites": 4.0, "exact": 3.0, "others that differ": 1.0, "sectors": 8.0, "sectors, profiler": 8.0}
"""The numbers of a launch whose sites were compared with the profiler."""


def test_a_miss_is_explained_below_its_table(tmp_path: Path) -> None:
    rows = (
        Row("naive", docs_trace.ROADS, 0.0, "sites", 0.0, peer={"sites": 4.0}),
        Row("naive", docs_trace.SITES, 1.0, "sites", 0.0, peer=SEEN, note="a bank too many"),
        Row("spmv", "not measured", None, "", 0.0, note="no room"),
    )
    write_result(tmp_path, "counts", *rows)
    text = docs.content("counts", tmp_path)
    assert "| naive | 4 | 3 | 0 | 1 | 1 | - | 8 | 8 | - | - | a bank too many |" in text
    assert f"- naive, {docs_trace.SITES}: a bank too many\n- spmv, not measured: no room\n" in text


def test_the_launches_are_added_up(tmp_path: Path) -> None:
    difference = "global load, sectors: difference"
    rows = [Row(case, docs_trace.ROADS, 0.0, "sites", 0.0, peer={"sites": 4.0}) for case in ("naive", "tiled", "padded")]
    rows += [Row(case, docs_trace.SITES, 0.0, "sites", 0.0, peer=SEEN) for case in ("naive", "tiled")]
    rows += [Row("naive", difference, 0.0, "", 0.0), Row("naive", difference.replace("load", "store"), 3.0, "", 0.0, note="?")]
    write_result(tmp_path, "counts", *rows)
    text = docs.content("counts", tmp_path)
    assert "| **all** | 12 | 6 | 0 | 0 | 2 | 1 | 16 | 16 | - | - |  |" in text
    assert "| padded | 4 | - | 0 | - | - | - | - | - | - | - |  |" in text


def test_the_shared_rule_shows_some_patterns_of_each_operation(tmp_path: Path) -> None:
    rows = (
        Row("st_8", "time", 1.0, "patterns", None, peer={"stride 1": 2.01, "stride 2": 4.0, "reversed": 2.0}),
        Row("st_8", "count", 2.0, "patterns", None),
        Row("atom_add_f32", "time", None, "", None, peer={"stride 1": 11.63}),
    )
    write_result(tmp_path, "shared-rule", *rows)
    text = docs.content("shared-rule", tmp_path)
    assert "| st_8 | 2.01 | 4 | - | - | - | - | - | 1 of 3 | 2 |" in text
    assert "| atom_add_f32 | 11.63 | - | - | - | - | - | - | - of 1 | - |" in text


def test_the_latencies_stand_beside_what_schemes_recorded(tmp_path: Path) -> None:
    said = {"recorded": 39.0, "median": 38.0, "window": 5.5, "net": 33.5, "truth": 34.0, "error": -0.5, "error, %": -1.5}
    rows = (
        Row("L1", "latency, chain average", 34.0, "cycles", peer={"least": 33.9}),
        Row("dependent, L1", "error of the mean", 0.5, "cycles", 5.0, peer=said),
        Row("paper, L1", "error of the mean", 20.0, "cycles", peer={**said, "recorded": 14.0, "window": 0.0, "error": -20.0}),
        Row("store", "from issue to issue", 2.0, "cycles"),
        Row("dependent, store", "recorded, issue only", 9.0, "cycles", peer={"recorded": 9.0, "window": 5.0}),
        Row(
            "membar.cta, L1", "between two clock reads", 14.0, "cycles", peer={"without a load": 13.0, "truth": 34.0}, note="does not wait"
        ),
        Row(
            "membar.cta, L2", "between two clock reads", 14.0, "cycles", peer={"without a load": 14.0, "truth": 280.0}, note="does not wait"
        ),
        Row("membar.gl, L1", "between two clock reads", 300.0, "cycles", peer={"without a load": 270.0, "truth": 34.0}, note="waits"),
        Row("membar.gl, L2", "between two clock reads", 530.0, "cycles", peer={"without a load": 270.0, "truth": 280.0}, note="waits"),
    )
    write_result(tmp_path, "latency", *rows)
    text = docs.content("latency", tmp_path)
    assert "| L1 | 34 | 39 - 5.5 | 14 - 0 | -0.5 | at most 5 cycles: yes |" in text
    assert "| store | 2 (from issue to issue) | 9 - 5 | - | - | compares |" in text
    text = docs.content("fences", tmp_path)
    assert "| **the load itself** | 34 | 280 |" in text
    assert "| `membar.cta` | 14 | 14 | 13 to 14 | **no** |" in text
    assert "| `membar.gl` | 300 | 530 | 270 | yes |" in text


def test_what_was_published_of_volume_rendering_stands_beside_what_was_found(tmp_path: Path) -> None:
    rows = (
        Row("(0, 0, 0), 8x16", "frame rate", 250.0, "frames/s"),
        Row("(0, 0, 0), 8x16", "hit rate of the texture cache", None, "share", note="unknown: ncu was not found on PATH"),
        Row(
            "(0, 0, 0), 8x16, dependent",
            "access frequency",
            2.0,
            "per 1000 cycles",
            peer={"access time, cycles": 500.0, "access time, half interval": 12.5},
        ),
        Row("(0, 0, 0), 8x16, dependent", "share of the warps' time in accesses", 0.8125, "share"),
        Row("(0, 0, 0), 8x16, simple", "access frequency", None, "", note="no fetch was recorded"),
        Row("seen from (0, 0, 0), dependent: a and b", "Pearson's r", 0.911, "", peer={"low": 0.5, "high": 0.99}),
        Row("seen from (0, 0, 0), dependent: a and b", "Spearman's rho", None, "", note="unknown"),
        Row("fig. 5: memory is the limit", "found in 2012", 0.3, "", note="no: 30 %: less"),
    )
    write_result(tmp_path, "volume-shapes", *rows)
    assert "| (0, 0, 0), 8x16 | 250 | - | - | 500 ± 12.5 | 81.2 % | - | - |" in docs.content("volume-shapes", tmp_path)
    assert "| +0.91 (+0.50 to +0.99) | - |" in docs.content("volume-correlations", tmp_path)
    assert "| fig. 5 | memory is the limit | 30 %: less | **no** |" in docs.content("volume-claims", tmp_path)


def test_what_was_published_of_stencils_stands_beside_what_was_found(tmp_path: Path) -> None:
    metric, peer = "time of a step, best k, predicted", {"k": 3.0, "gain %": 14.25, "k = 1 us": 521.0}
    rows = [
        Row(
            f"7-point, 8 x 8 x 8, 4 of m2050, tsubame2, model {model}",
            metric,
            value,
            "us",
            peer=peer,
            note="k = 1 is bound by communication",
        )
        for model, value in (("kawamura", 456.0), ("memlane", 430.0))
    ]
    rows += [
        Row("fig. 9: 3 steps are best; and gain; model kawamura, published machine", "found in 2012", 0.1, "", note="no: 7.0 % (k = 2)"),
        Row("fig. 11: 2 or 3 are best; modelled, 7-point, 4 devices, host", "found in 2012", 2.0, "", note="yes: k = 1 to 3: 3, 2, 4 us"),
    ]
    write_result(tmp_path, "stencil-scaling", *rows)
    cells = "| 7-point, 8 x 8 x 8 | 4 | 521 | 456 (k = 3) | 14.2 % | communication | 521 | 430 (k = 3) | 14.2 % | communication |"
    assert cells in docs.content("stencil-scaling", tmp_path)
    published, emulated = (docs.content(name, tmp_path) for name in ("stencil-published", "stencil-emulated"))
    assert "| fig. 9 | 3 steps are best; and gain | model kawamura | 7.0 % (k = 2) | **no** |" in published
    assert "| fig. 11 | 2 or 3 are best | 7-point, 4 devices, host | k = 1 to 3: 3, 2, 4 us | yes |" in emulated
    assert "fig. 11" not in published
    assert "fig. 9" not in emulated


def test_the_result_of_a_lab_is_kept_with_the_data_of_its_figures(tmp_path: Path) -> None:
    result, results = tmp_path / "out" / "result.json", tmp_path / "results"
    result.parent.mkdir()
    result.write_text(json.dumps(document(Row("a", "b", 1.0, "us"))))
    result.with_name("warps.csv").write_text("warp\n1\n")
    kept = keep(result, results, ["warps"])
    written = json.loads(result.read_text())
    assert (kept, json.loads(kept.read_text())) == (results / "h200" / "lab_counts.json", written | {"benchmark": "lab_counts"})
    assert (results / "h200" / "lab_counts" / "warps.csv").read_text() == "warp\n1\n"
    result.write_text(json.dumps(written | {"benchmark": "volume"}))  # there is no benchmarks/volume.py
    assert keep(result, results) == results / "h200" / "volume.json"
    with pytest.raises(SystemExit, match=r"out has no series\.csv"):
        keep(result, results, ["warps", "series"])


def test_only_what_stands_between_markers_changes(tmp_path: Path) -> None:
    page = "before\n<!-- table: perturbation -->\nold\n<!-- end of table -->\nafter\n"
    text = docs.rewritten(page, tmp_path)
    assert text.startswith("before\n<!-- table: perturbation -->\n\n*Not measured yet")
    assert text.endswith("\n<!-- end of table -->\nafter\n")
    assert docs.rewritten(text, tmp_path) == text


def test_the_page_of_tracing_has_the_times_of_launches_and_the_errors_of_records_in_tables_of_their_own(tmp_path: Path) -> None:
    rows = [
        Row("chase 0: k, every access", "records lost", 0.0, "records", 0.0),
        Row("chase 0: k, every access", "time with probes over time without", 1.25, "ratio", peer={"original, us": 8.0}),
        Row("dependent, every access, L1", "error of the mean", 0.6, "cycles", 1.0, peer={"truth": 34.6, "error": -0.6}),
    ]
    write_result(tmp_path, "perturbation", *rows)
    text = docs.content("perturbation", tmp_path)
    first, second = text.split("a load that is recorded")
    assert "| chase 0: k, every access |" in first
    assert "1.25" in first
    assert "| dependent, every access, L1 | 34.6 | -0.6 | at most 1 cycles: yes |" in second


def test_the_table_of_stencils_names_other_tools_once_and_says_what_was_to_be_reached(tmp_path: Path) -> None:
    peer = {"copy, Gcell/s": 520.0, "PyTorch slices, Gcell/s": 24.7}
    rows = [
        Row("7-point, one step a launch", "share of the copy", 0.942, "", None, "higher", peer),
        Row("7-point, one step a launch", "rate", 492.0, "Gcell/s", 505.0, "higher", peer),
        Row("7-point, 3 steps a launch", "share of the copy", 1.92, "", None, "higher", peer),
        Row("7-point, 3 steps a launch", "rate", 1004.4, "Gcell/s", 1000.0, "higher", peer),
    ]
    write_result(tmp_path, "stencils", *rows)
    text = docs.content("stencils", tmp_path)
    assert "| 7-point, one step a launch | 492 Gcell/s | 94 % | rate at least 505 Gcell/s: **no** | PyTorch slices 25 |" in text
    assert "| 7-point, 3 steps a launch | 1004 Gcell/s | 192 % | rate at least 1,000 Gcell/s: yes | - |" in text

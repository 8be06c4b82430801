"""`memlane banks` and `memlane layout`: what they print, and what they refuse."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from tests.cli.conftest import Command


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_banks_prints_a_table(memlane: Command) -> None:
    answer = memlane("banks", "--patterns", "row,column,antidiagonal,(t, 2*t + c)", "--layouts", "row-major,pad(1),Swizzle<5, 0, 5>")
    assert answer.code == 0
    assert answer.lines[0] == "loads of 4 bytes per lane, tile of 32x32, by the rules of h200"
    assert [cells(line) for line in answer.lines[1:6]] == [
        ["pattern", "ideal", "row-major", "pad(1)", "Swizzle<5, 0, 5>"],
        ["row", "1", "1", "1", "1"],
        ["column", "1", "32", "1", "1"],
        ["antidiagonal", "1", "1", "32", "13 / 32"],
        ["(t, 2*t + c)", "1", "2", "1", "1"],
    ]


def test_banks_of_widths_chips_and_stores(memlane: Command) -> None:
    answer = memlane("banks", "--patterns", "row,(r, t // 2),(0, t)", "--layouts", "row-major", "--width", "4,16", "--chip", "h200,gtx680",
                     "--access", "load,store", "--json")  # fmt: skip
    document = json.loads(answer.out)
    assert (document["memlane_json"], document["kind"], document["rows"]) == (1, "banks", 32)
    found = {(one["chip"], one["width"], one["kind"], one["pattern"]): (one["mean"], one["conflicts"]) for one in document["entries"]}
    assert len(found) == 24
    assert found["h200", 4, "load", "row"] == (1, 0)
    assert found["h200", 16, "load", "row"] == (4, 0)
    assert found["h200", 16, "load", "(r, t // 2)"] == (2, 0)
    assert found["h200", 16, "store", "(r, t // 2)"] == (4, 0)
    assert found["gtx680", 16, "load", "(0, t)"] == (2, 0)


def test_banks_draws_random_layouts(memlane: Command) -> None:
    document = json.loads(memlane("banks", "--patterns", "column", "--layouts", "ras,rap,ras(3)", "--draws", "60", "--json").out)
    ras, rap, one = document["entries"]
    assert (ras["layout"], ras["draws"], ras["accesses"]) == ("ras", 60, 60)
    assert 3 < ras["mean"] < 4.1
    assert (rap["mean"], rap["worst"]) == (1, 1)
    assert (one["draws"], one["accesses"]) == (1, 1024)


def test_search_prints_a_certificate_and_the_function(memlane: Command) -> None:
    answer = memlane("layout", "search", "--patterns", "row,column,diagonal,antidiagonal,block8x4", "--width", "4")
    assert answer.code == 0
    assert re.fullmatch(r"linear\([\d, ]+\) of 32x32", answer.lines[0])
    assert re.fullmatch(r"  address: \d operations more than row-major; space: none more", answer.lines[1])
    table = [cells(line)[:6] for line in answer.lines[4:9]]
    assert table == [
        ["row", "load 4 B", "1,024", "1", "1", "1"],
        ["column", "load 4 B", "1,024", "1", "1", "1"],
        ["diagonal", "load 4 B", "1,024", "2", "1", "2"],
        ["antidiagonal", "load 4 B", "1,024", "2", "1", "2"],
        ["block8x4", "load 4 B", "32", "1", "1", "1"],
    ]
    text = " ".join(answer.lines)
    assert "counted at every offset of each pattern" in text
    assert "all swizzles of up to 3 terms; 47,067 layouts." in text
    assert "Better than RAP: 7 wavefronts" in text
    assert "__host__ __device__ inline int place(int i, int j)" in answer.lines


def test_search_as_json(memlane: Command) -> None:
    answer = memlane("layout", "search", "--patterns", "row,column", "--width", "16", "--terms", "1", "--padding", "--json")
    document = json.loads(answer.out)
    assert document["kind"] == "layout"
    assert document["python"] == "Padded(rows=32, columns=32, pad=1)"
    assert (document["extra_operations"], document["extra_lookups"], document["size"]) == (0, 0, 1056)
    assert [(one["pattern"], one["kind"], one["worst"]) for one in document["entries"]] == [
        ("row", "load", 4), ("row", "store", 4), ("column", "load", 4), ("column", "store", 4),
    ]  # fmt: skip
    assert document["beats_rap"] is True  # whose 32 shifts are not different in the 8 banks of 16 bytes


def test_search_shows_its_progress_on_a_terminal(memlane: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    real = Console
    monkeypatch.setattr(
        "rich.console.Console", lambda **how: real(file=screen, force_terminal=True, width=100) if how else real(file=io.StringIO())
    )
    assert memlane("layout", "search", "--patterns", "row,column,diagonal,antidiagonal,block8x4").code == 0
    assert "searching" in screen.getvalue()
    assert "layouts" in screen.getvalue()


def test_show_draws_the_banks(memlane: Command) -> None:
    answer = memlane("layout", "show", "xor", "--rows", "4", "--columns", "4")
    assert answer.lines[0] == "XorSwizzle(4x4): the bank of each element of 4 bytes; size 64 bytes; address: 3 operations"
    assert answer.lines[2:8] == [
        "  |  0  1  2  3",
        "--+------------",
        "0 |  0  1  2  3",
        "1 |  5  4  7  6",
        "2 | 10 11  8  9",
        "3 | 15 14 13 12",
    ]
    assert answer.lines[-2] == "    return (i << 2) + (j ^ i);"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["banks", "--patterns", "rows"], "unknown pattern 'rows'; choose from contiguous (row), stride (column)"),
        (["banks", "--layouts", "xor,"], "'xor,' is not a list; write names separated by commas"),
        (["banks", "--layouts", "magic"], "unknown layout 'magic'; choose from row-major"),
        (["banks", "--width", "12"], "--width 12: a lane cannot access 12 bytes; choose one of 1, 2, 4, 8, 16"),
        (["banks", "--chip", "h2000"], "unknown chip 'h2000'; known chips:"),
        (["banks", "--access", "atomic"], "--access atomic: choose load, store or load,store"),
        (["banks", "--rows", "0"], "rows of RowMajor must be at least 1, got 0"),
        (["banks", "--columns", "24"], "the columns of an XOR swizzle must be a power of two, got 24"),
        (["banks", "--patterns", "(t, exit())"], "formula '(t, exit())': 'exit()' is not allowed; a formula may contain integers"),
        (["banks", "--patterns", "(lane)"], "formula '(lane)': unknown name 'lane'; choose from t, r, c, rows, columns"),
        (["layout", "search", "--patterns", "row", "--rows", "33"], "the rows of a tile to search for must be a power of two, got 33"),
        (["layout", "search", "--patterns", "row", "--width", "4,8"], "--width 4,8: give one width; to use another width for one pattern"),
        (["layout", "search", "--patterns", "random"], "random accesses cost the same under every fixed layout"),
        (["layout", "search", "--patterns", "row,row"], "the pattern row is named twice"),
        (["layout", "search", "--patterns", "row", "--chip", "s1070"], "the bank rule of s1070 is too slow to evaluate"),
        (["layout", "show", "Swizzle<3, 0, 2>"], "Swizzle<3, 0, 2>: the shift must be an integer of magnitude 3 or more"),
        (["layout", "show", "xor", "--element", "3"], "--element 3: an element has 1, 2, 4, 8 or 16 bytes"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(memlane: Command, words: list[str], message: str) -> None:
    answer = memlane(*words)
    assert answer.code in (1, 2)
    assert answer.out == ""
    assert answer.err.startswith(f"memlane: {message}")
    assert answer.err.count("\n") == 1

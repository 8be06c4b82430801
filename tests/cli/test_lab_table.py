"""Tables of labs on terminals of any width: words and numbers stay whole, and what has no room is named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from memlane.cli.lab_table import fitted, remarks
from memlane.lab import Table

LATENCIES = Table(
    ("access", "scheme", "truth_cycles", "mean_cycles", "median_cycles", "error_cycles", "claims"),
    (
        ("shared", "dependent", 24.359, 39.0, 39.0, -0.36, "complete"),
        ("constant miss of a far line", "exposed", 1234567.5, 49.0, None, None, "block-visible, device-visible"),
    ),
    spare=("median_cycles", "mean_cycles"),
)
VIEWS = Table(
    ("view", "time, us", "launches", "a word-that-cannot-be-broken", "remark"),
    (("(90, 0, 90)", 12.25, 1_048_576, "[0:4096]", "unknown: access times are the same with every shape, or there are too few shapes"),),
)


def printed(table: Table, width: int) -> tuple[list[str], tuple[str, ...]]:
    made = fitted(table, width)
    console = Console(file=io.StringIO(), width=max(width, made.width), color_system=None)
    console.print(made.grid)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines(), made.left_out


@pytest.mark.parametrize("table", [LATENCIES, VIEWS])
@pytest.mark.parametrize("width", [20, 50, 60, 70, 80, 100, 160])
def test_words_and_numbers_stay_whole(table: Table, width: int) -> None:
    lines, left_out = printed(table, width)
    texts = [
        text
        for number, name in enumerate(table.head)
        if name.replace("_cycles", "") not in left_out
        for text in (
            name.replace("_cycles", ""),
            *("-" if cell is None else cell if isinstance(cell, str) else f"{cell:,}" if isinstance(cell, int) else f"{cell:.1f}"
              for cell in (line[number] for line in table.lines)),
        )
    ]  # fmt: skip
    assert sorted(" ".join(lines).split()) == sorted(word for text in texts for word in text.split())
    if width >= 50:
        assert max(map(len, lines)) <= width


def test_what_a_table_can_spare_goes_first_and_then_the_last_columns() -> None:
    assert [printed(LATENCIES, width)[1] for width in (120, 74, 64, 50, 20)] == [
        (),
        (),
        ("median",),
        ("mean", "median", "claims"),
        ("mean", "median", "error", "claims"),
    ]


PAPER = Table(
    ("case", "kernel", "paper", "why"),
    (
        ("k-means, 512", 0.8, 3.1, "only the bytes are known."),
        ("particles, 512", 0.9, 1.2, None),
        ("rows, 16", 1.0, 1.4, "each row is a launch."),
    ),
    remarks=("why",),
)


def test_sentences_stand_below_the_table_and_need_no_column() -> None:
    lines, left_out = printed(PAPER, 40)
    assert left_out == ()
    assert [line.split() for line in lines] == [
        ["case", "kernel", "paper"],
        ["k-means,", "512", "0.8", "3.1"],
        ["particles,", "512", "0.9", "1.2"],
        ["rows,", "16", "1.0", "1.4"],
    ]
    assert remarks(PAPER) == ["k-means, 512: only the bytes are known.", "rows, 16: each row is a launch."]
    lines_alike = (("(0, 0)", "simple", "-", "unknown"), ("(0, 0)", "paper", "-", "unknown"))
    alike = Table(("view", "stamps", "r", "remark"), lines_alike, remarks=("remark",))
    assert remarks(alike) == ["unknown"]
    some = Table(alike.head, (*alike.lines, ("(9, 0)", "paper", "+0.5", "")), remarks=("remark",))
    assert remarks(some) == ["(0, 0), simple, -; (0, 0), paper, -: unknown"]
    assert remarks(LATENCIES) == []


def test_a_short_label_stays_on_one_line() -> None:
    lines, _ = printed(VIEWS, 80)
    assert any(line.startswith("(90, 0, 90) ") for line in lines)
    assert any("[0:4096]" in line for line in lines)


def test_a_table_that_fits_breaks_no_line() -> None:
    assert len(printed(LATENCIES, 160)[0]) == 3

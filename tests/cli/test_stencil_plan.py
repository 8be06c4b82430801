"""`memlane stencil plan`: what it prints, which files and rules it takes, and what it refuses in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlane.stencils.published import published_rule
from memlane.stencils.scaling import plan_scaling
from tests.cli.conftest import EXAMPLES, Command

TWO = """\
import memlane as ml


@ml.stencil
def slow(new, u):
    new[0, 0] = u[-1, 0] + u[1, 0]


@ml.stencil
def fast(new, u):
    new[0, 0] = u[0, -2]
"""


def test_a_plan_is_that_of_the_library(memlane: Command) -> None:
    options = ("--devices", "1,2", "-k", "1-2", "--network", "h200-nvlink", "--axes", "1", "--steps-per-launch", "1")
    answer = memlane("stencil", "plan", "7-point", "--shape", "64x96x128", *options, "--json")
    assert answer.code == 0
    document = json.loads(answer.out)
    expected = plan_scaling(published_rule("7-point"), (64, 96, 128), [1, 2], [1, 2], network="h200-nvlink", axes=1, steps_per_launch=1)
    assert (document["memlane_json"], document["kind"]) == (1, "stencil plan")
    assert document["rows"] == expected.to_rows()
    printed = memlane("stencil", "plan", "7-point", "--shape", "64x96x128", *options)
    assert printed.lines[0] == "seven_point on 64 x 96 x 128 cells of f4; h200, h200-nvlink"
    assert [line.split()[:3] for line in printed.lines[2:5]] == [["1", "1x1x1", "1"], ["2", "2x1x1", "1"], ["2", "2x1x1", "2"]]


def test_the_table_of_the_page_is_what_the_command_prints(memlane: Command) -> None:
    page = (EXAMPLES.parent / "docs" / "scaling.md").read_text(encoding="utf-8")
    command, _, table = page.partition("$ memlane ")[2].partition("```")[0].partition("\n")
    assert memlane(*command.split()).out == table


def test_no_column_is_cut_at_80(memlane: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = memlane("stencil", "plan", "7-point", "--shape", "256x256x256", "--devices", "1,16")
    assert "\N{HORIZONTAL ELLIPSIS}" not in answer.out
    assert max(map(len, answer.lines)) <= 80
    assert {"computation", "communication"} <= set(answer.out.split())


def test_the_experiment_of_the_paper(memlane: Command) -> None:
    """Himeno on 16 nodes of TSUBAME 2.0: two steps between exchanges are best by the model (figure 13)."""
    machine = ("--chip", "m2050", "--network", "tsubame2", "--model", "kawamura", "--flop-per-cell", 28, "--bytes-per-cell", 88)
    answer = memlane("stencil", "plan", "himeno", "-s", "256x128x128", "-n", "8,16", "-k", "1-4", "--axes", "1", *machine)
    best = [line.split()[:3] for line in answer.lines if " * " in line and line.split()[0].isdigit()]
    assert best == [["8", "8x1x1", "1"], ["16", "16x1x1", "2"]]
    assert "28 operations and 88 bytes a cell" in answer.out


def test_rules_of_files(memlane: Command) -> None:
    answer = memlane("stencil", "plan", EXAMPLES / "heat.py", "--shape", "64x64", "-n", "1", "--dtype", "f8,hole=u1", "--json")
    assert json.loads(answer.out)["title"] == "heat on 64 x 64 cells of f8; h200"
    Path("two.py").write_text(TWO)
    answer = memlane(
        "stencil", "plan", "two.py:fast", "--shape", "64x64", "-n", "2", "-k", "8", "--boundary", "fixed,periodic", "--axes", "1"
    )
    assert answer.lines[0].startswith("fast on 64 x 64")
    assert answer.lines[2].split()[6:8] == ["0.00", "0.00"]  # it reads nothing along the axis that is cut
    Path("loud.py").write_text(f"print('hello')\n{TWO}")
    answer = memlane("stencil", "plan", "loud.py:fast", "--shape", "8x8", "-n", "1", "--json")
    json.loads(answer.out)
    assert "hello" in answer.err


def test_user_files_of_chips_and_networks(memlane: Command) -> None:
    Path("mine.toml").write_text('like = "h200"\n[chip]\ncopy_gb_per_s = { value = 2000, unit = "GB/s", source = "measured: here" }\n')
    wires = """\
title = "wires"
devices_per_node = { value = 4, unit = "", source = "assumed: four" }
[inside.copies]
neighbours = "share the rate"
message_us = { value = 9, unit = "us", source = "measured: here" }
message_gb_per_s = { value = 10, unit = "GB/s", source = "measured: here" }
"""
    Path("wires.toml").write_text(wires)
    machine = ("--chip", "mine.toml", "--network", "wires.toml")
    answer = memlane("stencil", "plan", "7-point", "-s", "64x64x64", "-n", "4", "-k", "1", *machine, "--json")
    (row,) = [one for one in json.loads(answer.out)["rows"] if one["decomposition"] == [4, 1, 1]]
    assert row["exchange_us"] == pytest.approx(9 + 2 * 64 * 64 * 4 / 10e3, abs=0.001)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.py", "-s", "8x8"), "no file none.py"),
        (("9-point", "-s", "8x8"), "9-point is neither a Python file nor one of 7-point, himeno; write FILE.py:NAME"),
        (("two.py", "-s", "8x8"), "two.py has several stencils: slow, fast; choose one, as two.py:slow"),
        (("two.py:medium", "-s", "8x8"), "two.py has no stencil 'medium'; it has slow, fast"),
        (("empty.py", "-s", "8x8"), "empty.py has no stencil: mark a function of it with @ml.stencil"),
        (("broken.py", "-s", "8x8"), "broken.py cannot be loaded: NameError: name 'unknown' is not defined (line 2)"),
        (("torn.py", "-s", "8x8"), "torn.py cannot be loaded: SyntaxError: "),
        (("7-point", "-s", "8x8"), "--shape 8x8: seven_point has 3 dimensions; write 3 extents, such as 256x256x256"),
        (("7-point", "-s", "4"), "--shape 4: seven_point has 3 dimensions; write 3 extents, such as 256x256x256"),
        (("two.py:slow", "-s", "8x8x8"), "--shape 8x8x8: slow has 2 dimensions; write 2 extents, such as 4096x4096"),
        (("7-point", "-s", "0x4x4"), "--shape 0x4x4: write whole numbers of 1 or more, such as 256x256x256"),
        (("7-point", "-s", "8x8x8", "-n", "0"), "--devices 0: write whole numbers from 1 to 4,096, such as 1,2,4 or 1-8"),
        (("7-point", "-s", "8x8x8", "-n", "0-2"), "--devices 0-2: write whole numbers from 1 to 4,096, such as 1,2,4 or 1-8"),
        (("7-point", "-s", "8x8x8", "-n", "1-99999"), "--devices 1-99999: write whole numbers from 1 to 4,096, such as 1,2,4 or 1-8"),
        (("7-point", "-s", "8x8x8", "-n", "2", "--axes", "0"), "--axes 0: write whole numbers from 1 to 3, such as 1,2"),
        (("7-point", "-s", "8x8xeight"), "--shape 8x8xeight: eight is not a whole number; write 256x256x256"),
        (("7-point", "-s", "8x8x8", "-n", "1,,2"), "--devices 1,,2: an empty entry is not a whole number; write 1,2,4 or 1-8"),
        (("7-point", "-s", "8x8x8", "-n", "4-2"), "--devices 4-2: 4-2 is an empty range; write the smaller number first, as in 2-4"),
        (("7-point", "-s", "8x8x8", "-n", "1", "-k", "0"),
         "--steps-per-exchange 0: write whole numbers from 1 to 64, such as 1,2,4 or 1-8"),
        (("7-point", "-s", "8x8x8", "-n", "16", "--axes", "1"),
         "16 devices cannot share a grid of 8 planes along axis 0: use 8 or fewer"),
        (("7-point", "-s", "8x8x8", "-n", "4", "-k", "3", "--axes", "1"),
         "3 steps between exchanges reach 3 cells along axis 0, and a device has only 2 of its 8 cells there: exchange every 2 steps or"),
        (("7-point", "-s", "8x8x8", "--network", "lan"), "no network is called 'lan'; known: h200-nvlink, h200-nvlink-ring, tsubame2"),
        (("7-point", "-s", "8x8x8", "--model", "guess"), "no model is called 'guess'; known: memlane, kawamura"),
        (("7-point", "-s", "8x8x8", "--flop-per-cell", "5"), "pass --flop-per-cell and --bytes-per-cell together, or neither"),
        (("7-point", "-s", "8x8x8", "--dtype", "i4"), "a grid has elements of type f2, f4 or f8, not i4"),
        (("7-point", "-s", "8x8x8", "--dtype", "f4,u"), "--dtype f4,u: write the default type first, then the exceptions"),
        (("7-point", "-s", "8x8x8", "--boundary", "open"), "'open' is not a boundary: use 'fixed', 'periodic', 'reflecting'"),
        (("7-point",), "missing option '--shape'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(memlane: Command, words: tuple[str, ...], message: str) -> None:
    Path("two.py").write_text(TWO)
    Path("empty.py").write_text("x = 1\n")
    Path("broken.py").write_text("import memlane as ml\nunknown\n")
    Path("torn.py").write_text("def f(:\n")
    answer = memlane("stencil", "plan", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith(f"memlane: {message}")
    assert len(answer.err.splitlines()) == 1

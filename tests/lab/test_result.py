"""What a lab leaves behind: files, and the user's chip file."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from memlane import chip
from memlane.errors import CommandError
from memlane.lab import Machine, Result, Row, Table
from memlane.lab.chip_file import chip_file, latency_facts, write_chip
from memlane.lab.figures import Bars
from memlane.lab.result import problems, reached_on
from memlane.launch import Target
from memlane.packages import install_command

SOURCE = "measured: 2026-11-21, driver 580.1, CUDA 13.0, memlane lab latency"
RESULT = Result(
    "latency",
    (Row("L1", "latency", 34.5, "cycles"), Row("L2", "latency", 300.0, "cycles", 290.0, note="far")),
    {"latency": Table(("access", "truth_cycles"), (("L1", 34.5), ("L2", None)))},
    {"latency": Bars("Latency", "cycles", ("L1", "L2"), {"truth": [34.5, None], "simple": [3.0, 3.0]})},
)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the user's own chips."""
    monkeypatch.setenv("MEMLANE_CHIPS", str(tmp_path / "chips"))
    return tmp_path / "chips"


@pytest.mark.parametrize(("name", "modelled", "reach"), [("h200", False, 290.0), ("h200", True, None), ("gtx680", False, None)])
def test_a_reach_is_asked_of_the_gpu_that_it_was_stated_for(name: str, modelled: bool, reach: float | None) -> None:
    where = cast("Target", SimpleNamespace(chip=chip.load(name), modelled=modelled))
    near, far = reached_on("h200", where, RESULT.rows)
    assert (near, far.value, far.note) == (RESULT.rows[0], 300.0, "far")
    assert (far.reach, far.holds) == (reach, reach is None)


def test_a_result_is_json_csv_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMLANE_COMMIT", "a" * 40)
    paths, left_out = RESULT.save(tmp_path / "out", Machine("h200", "580.1", "13.0"), ["memlane", "lab", "latency"])
    assert [path.name for path in paths] == ["result.json", "latency.csv", "latency.png"]
    assert left_out == ""
    stored = json.loads(paths[0].read_text())
    assert problems(stored) == []
    assert (stored["benchmark"], stored["command"], stored["chip"]) == ("latency", "memlane lab latency", "h200")
    assert [row["holds"] for row in stored["rows"]] == [True, False]
    with paths[1].open() as file:
        assert list(csv.reader(file)) == [["access", "truth_cycles"], ["L1", "34.5"], ["L2", ""]]
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_figures_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    paths, left_out = RESULT.save(tmp_path, Machine("h200"), ["memlane"])
    assert [path.name for path in paths] == ["result.json", "latency.csv"]
    assert left_out == f"Figures are left out: they need matplotlib; install it with: {install_command('lab')}"


def test_the_file_of_a_shipped_chip_holds_what_was_measured(mine: Path) -> None:
    shipped = chip.load("h200")
    path = write_chip(shipped, chip_file(shipped, latency_facts({"l2": 281.8, "texture": 93.0}, SOURCE)), force=False)
    assert path == mine / "h200.toml"
    own = chip.load("h200")
    assert (own.latency.l2, own.latency.texture, own.latency.l1) == (281.8, 93.0, shipped.latency.l1)
    assert str(own.fact("latency.l2").source) == SOURCE.removeprefix("measured: ")
    assert own.fact("latency.l2").kind == "measured"
    assert own.banks == shipped.banks


def test_the_file_of_a_gpu_that_has_none_holds_everything(mine: Path) -> None:
    stranger = chip.nearest((9, 7), {"multiprocessor_count": 77, "clock_rate": 1_500_000}, "NVIDIA X1")
    assert not stranger.calibrated
    write_chip(stranger, chip_file(stranger, latency_facts({"shared": 22.5}, SOURCE)), force=False)
    own = chip.nearest((9, 7), {"multiprocessor_count": 77}, "NVIDIA X1")
    assert (own.name, own.sm_count, own.latency.shared, own.latency.l1) == (stranger.name, 77, 22.5, stranger.latency.l1)
    assert own.banks == stranger.banks
    assert own.atomic_banks == stranger.atomic_banks
    assert own.max_block_dim == stranger.max_block_dim


def test_a_file_that_exists_is_not_overwritten(mine: Path) -> None:
    shipped = chip.load("h200")
    text = chip_file(shipped, latency_facts({"l2": 281.8}, SOURCE))
    path = write_chip(shipped, text, force=False)
    with pytest.raises(CommandError, match=r"h200\.toml exists and may hold other measurements; pass --force to overwrite it"):
        write_chip(shipped, text, force=False)
    assert write_chip(shipped, chip_file(shipped, latency_facts({"l2": 300.0}, SOURCE)), force=True) == path
    assert chip.load("h200").latency.l2 == 300

"""Every benchmark runs, small, on the emulator, and leaves a result file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Quick = Callable[..., list[dict[str, Any]]]


def test_accuracy_alone(quick: Quick) -> None:
    rows = {row["case"]: row for row in quick("accuracy", "alone, L2")}
    assert rows["dependent, L2"]["holds"], rows["dependent, L2"]
    assert rows["simple, L2"]["peer"]["net"] < rows["simple, L2"]["peer"]["truth"] - 20


def test_accuracy_under_load(quick: Quick) -> None:
    little, _ = quick("accuracy", "under load, shared")
    assert little["holds"], little


def test_counts(quick: Quick) -> None:
    rows = quick("counts", "transpose")
    assert [row["case"] for row in rows] == ["transpose 0: naive", "transpose 1: tiled", "transpose 2: padded"]
    assert all(row["holds"] for row in rows)


def test_outputs(quick: Quick) -> None:
    rows = quick("outputs", "transpose")
    assert [row["case"].partition(", ")[2] for row in rows] == ["dependent", "consume", "simple", "paper", "counting"]
    assert all(row["holds"] and row["peer"]["compared"] == 3 * 2 * 64 * 64 * 4 for row in rows), rows


def test_overhead(quick: Quick) -> None:
    rows = quick("overhead", "copies")
    assert [row["metric"] for row in rows] == ["records lost", "traced time over original time"] * 4
    assert all(row["holds"] for row in rows), rows


def test_emulator_speeds(quick: Quick) -> None:
    assert quick("emulator", "matrix product")[0]["value"] > 1e6
    assert quick("emulator", "parsing")[0]["value"] < 5
    assert quick("emulator", "importing")[0]["value"] < 5

"""Every benchmark runs, small, on the emulator, and leaves a result file."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

Quick = Callable[..., list[dict[str, Any]]]


@pytest.mark.slow
def test_accuracy_alone(quick: Quick) -> None:
    rows = {row["case"]: row for row in quick("accuracy", "alone, L2")}
    assert rows["dependent, L2"]["holds"], rows["dependent, L2"]
    assert rows["simple, L2"]["peer"]["net"] < rows["simple, L2"]["peer"]["truth"] - 20


@pytest.mark.slow
def test_accuracy_under_load(quick: Quick) -> None:
    little, _ = quick("accuracy", "under load, shared")
    assert little["holds"], little


@pytest.mark.slow
def test_counts(quick: Quick) -> None:
    rows = quick("counts", "transpose")
    assert [row["case"] for row in rows] == ["transpose 0: naive", "transpose 1: tiled", "transpose 2: padded"]
    assert all(row["holds"] for row in rows)


@pytest.mark.slow
def test_outputs(quick: Quick) -> None:
    rows = quick("outputs", "transpose")
    assert [row["case"].partition(", ")[2] for row in rows] == ["dependent", "exposed", "consume", "simple", "paper", "counting"]
    assert all(row["holds"] and row["peer"]["compared"] == 3 * 2 * 64 * 64 * 4 for row in rows), rows


@pytest.mark.slow
def test_perturbation(quick: Quick) -> None:
    rows = quick("perturbation", "transpose")
    each, medians = rows[:18], rows[18:]
    assert [row["metric"] for row in each] == ["records lost", "time with probes over time without"] * 9
    ways = ["every access", "one warp of 32", "one block of 32"]
    assert [row["case"].partition(", ")[2] for row in each] == [way for way in ways for _ in range(2)] * 3
    assert all(row["holds"] for row in each)
    assert [row["peer"]["records"] for row in each[::6]] == [2 * 128, 4 * 128, 4 * 128]
    assert [row["peer"]["records"] for row in each[2::6]] == [2 * 4, 4 * 4, 4 * 4], "one of 32 warps"
    assert medians[0]["value"] == statistics.median(row["value"] for row in each[1::6])
    of_all = [row["case"] for row in medians if row["case"].startswith("median of the examples")]
    assert of_all == [f"median of the examples, {way}" for way in ways]
    assert {row["metric"] for row in medians} == {"time with probes over time without"}


@pytest.mark.slow
def test_what_tracing_does_to_recorded_times(quick: Quick) -> None:
    """A sample of the only warp records what a trace of it all does."""
    rows = quick("perturbation", "bias")
    ways = ["every access", "one warp of 32"]
    assert [row["case"] for row in rows] == [f"dependent, {way}, {level}" for level in ("shared", "L1", "L2", "DRAM") for way in ways]
    for whole, sampled in list(zip(rows[::2], rows[1::2], strict=True))[:3]:
        assert whole["value"] == sampled["value"] < 2


@pytest.mark.slow
def test_emulator_speeds(quick: Quick) -> None:
    ways = ["function only", "with counts", "with counts and clock", "with checker"]
    rows = quick("emulator", "matrix product")
    assert [row["metric"] for row in rows] == [f"thread-instructions, {way}" for way in ways]
    assert all(row["value"] > 1e5 for row in rows), rows
    assert quick("emulator", "parsing")[0]["value"] < 5
    assert quick("emulator", "importing")[0]["value"] < 5


@pytest.mark.slow
def test_a_stored_first_launch_is_quicker_than_a_compiled_one(quick: Quick) -> None:
    for _ in range(3):  # others may have the processor for as long as a compilation takes
        compiled, stored = quick("emulator", "compiling")
        if stored["value"] < compiled["value"] / 2:
            break
    assert (compiled["metric"], stored["metric"]) == ("first launch, compiled", "first launch, from the store")
    assert stored["value"] < compiled["value"] / 2


@pytest.mark.slow
def test_more_blocks_need_no_more_memory(quick: Quick) -> None:
    (row,) = quick("emulator", "memory")
    assert row["value"] is None or abs(row["value"]) < 8, row


@pytest.mark.slow
def test_peers_compute_the_same_product_or_say_what_they_need(quick: Quick) -> None:
    rows = quick("emulator", "peers")
    assert [row["metric"].rpartition(" of ")[2] for row in rows] == ["Numba's simulator", "Triton's interpreter", "NumPy"]
    for row, package in zip(rows, ("numba_cuda", "triton", ""), strict=True):
        assert row["value"] or row["note"].startswith(f"{package} is not installed; pip install 'memlane["), row
    assert rows[-1]["value"] > 0


@pytest.mark.slow
def test_size_from_the_buffer_to_every_file(quick: Quick) -> None:
    rows = quick("size", "chain")
    assert [row["case"] for row in rows if row["unit"] == "GB"] == ["collect", "csv", "clog2", "perfetto"]
    assert all(row["peer"]["file, MB"] > 0 for row in rows if row["peer"]), rows
    chains = [row for row in rows if row["metric"] == "seconds of the chain"]
    assert [row["case"] for row in chains] == [f"40,000 records, to {name}" for name in ("csv", "clog2", "perfetto")]
    assert all(row["value"] > 0 for row in chains)


@pytest.mark.slow
def test_relayout(quick: Quick) -> None:
    """The transpose's tile: no byte differs, and wavefronts are those of the layouts."""
    rows = quick("relayout", "transpose")
    *layouts, same = rows
    assert (same["metric"], same["value"], same["holds"]) == ("layouts whose output differs", 0, True)
    after = {row["case"].rpartition(", ")[2]: row["peer"]["wavefronts, after"] / row["peer"]["ideal"] for row in layouts}
    assert after["pad"] == after["XOR"] == after["RAP"] == 1
    assert all(row["peer"]["wavefronts, before"] / row["peer"]["ideal"] == 33 / 2 for row in layouts)


@pytest.mark.slow
def test_stalls(quick: Quick) -> None:
    rows = quick("stalls", "waits")
    assert [row["case"] for row in rows] == [
        "a chain",
        "eight independent loads",
        "50 operations behind a load",
        "600 operations behind a load",
        "fetched a turn of 600 ahead",
        "the same, copied",
        "fetched a turn of 50 ahead",
        "the same",
    ]
    assert all(row["holds"] for row in rows), rows


@pytest.mark.slow
def test_cluster_latency(quick: Quick) -> None:
    far, near = quick("cluster_latency", "load, generic")
    assert far["value"] > 4 * near["value"] > 0


@pytest.mark.slow
def test_fuzz(quick: Quick) -> None:
    failures, inputs = quick("fuzz", "name")
    assert (failures["metric"], failures["value"], failures["holds"]) == ("ways to fail", 0, True)
    assert (inputs["metric"], inputs["value"], inputs["reach"]) == ("inputs", 200, None)


@pytest.mark.slow
def test_transfers(quick: Quick) -> None:
    rows = {row["metric"]: row for row in quick("transfers", "upload")}
    assert rows["equal to NumPy"]["holds"]
    assert rows["chosen chunks over the best of the sweep"]["value"] > 0

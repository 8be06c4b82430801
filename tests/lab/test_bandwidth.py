"""The lab of bandwidths: on the emulator, whose engine is made of the numbers of its chip file, and on a device whose times are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from memlane import chip
from memlane.chip import Bandwidth, Links, load
from memlane.emulate import Emulator
from memlane.lab import LABS, Request
from memlane.lab.bandwidth.lab import CASES, chip_facts
from memlane.lab.chip_file import chip_file, latency_facts, write_chip
from memlane.lab.result import NOT_MEASURED, Row
from memlane.launch import BoundCopy, BoundStep, Launch
from memlane.model import predicted
from memlane.plan import PlanBuilder
from tests.targets.graphing import GraphingEmulator, ShuffledGraph

SOURCE = "measured: 2026-11-22, driver 580.159.04, CUDA 13.0, memlane lab bandwidth"
LINKS = Links(
    host_gb_per_s=31,
    host_us=1.75,
    to_host_gb_per_s=27,
    to_host_us=2.5,
    pageable_gb_per_s=9.5,
    pageable_us=7.5,
    pageable_to_host_gb_per_s=6.25,
    peer_gb_per_s=222,
    peer_us=3.125,
    flag_us=0.625,
    device_us=0.875,
    launch_us=1.25,
)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEMLANE_CHIPS", str(tmp_path / "chips"))
    return tmp_path / "chips"


def entry(of: chip.Chip, name: str) -> float:
    table, _, own = name.rpartition(".")
    return float(getattr(getattr(of, table) if table else of, own))


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="accesses wait in queues for DRAM and L2, so the lab's kernels reach 94 % of the rates of the file")
def test_the_emulator_gives_back_the_rates_of_its_chip_file() -> None:
    h200 = load("h200")
    rates = replace(h200.bandwidth, dram_read=3333.0, dram_write=2222.0, l2_read=99.0)
    own = replace(h200, links=LINKS, copy_gb_per_s=3000.0, bandwidth=rates)
    found = chip_facts(LABS["bandwidth"].run(Emulator(own), Request()).rows, own, SOURCE)
    for name in ("bandwidth.dram_read", "bandwidth.dram_write", "bandwidth.l2_read"):
        assert found[name].value == pytest.approx(entry(own, name), rel=1e-3), name


@pytest.mark.slow
def test_the_emulator_gives_back_the_numbers_of_its_chip_file() -> None:
    """Other ones than those of any shipped file, so that nothing can come from elsewhere."""
    h200 = load("h200")
    rates = replace(h200.bandwidth, dram_read=3333.0, dram_write=2222.0, l2_read=99.0)
    own = replace(h200, links=LINKS, copy_gb_per_s=3000.0, bandwidth=rates)
    result = LABS["bandwidth"].run(Emulator(own), Request())
    found = chip_facts(result.rows, own, SOURCE)
    expected = {f"links.{one.name}" for one in fields(Links)} - {
        "links.event_us",  # which predictions of launches are fitted to
        *(f"links.{one}_order_us" for one in ("peer", "host", "flag")),  # and whole steps of stencils on two devices
    }
    assert found.keys() == {*expected, "copy_gb_per_s", "bandwidth.dram_read", "bandwidth.dram_write", "bandwidth.l2_read"}
    for name, fact in found.items():
        if name.startswith("bandwidth."):  # see the test above
            continue
        # A kernel without instructions takes some cycles, which the time between two kernels has in it.
        near = 4 / h200.clock_mhz if name == "links.launch_us" else 1e-3 * entry(own, name)
        assert fact.value == pytest.approx(entry(own, name), abs=near), name
    values = {(row.case, row.metric): row.value for row in result.rows}
    assert values["pinned both ways", "rate"] == pytest.approx(27)  # the slower way is that which ends last
    assert values["to two peers at once", "rate"] == pytest.approx(111)
    assert values["peers both ways", "rate"] == pytest.approx(222)
    assert values["events around a step", "time"] == pytest.approx(0, abs=1e-9)
    # Latencies of two chains of kernels pass side by side; copies of two chains take turns.
    assert values["kernel to kernel, two chains", "time"] == pytest.approx(LINKS.launch_us, abs=0.01)
    assert values["small copies, two chains", "time"] == pytest.approx(2 * values["small copies, one chain", "time"], rel=0.01)
    assert {row.case for row in result.rows} == set(CASES)


def test_what_was_measured_becomes_a_chip_file_with_its_units_and_spread(mine: Path) -> None:
    h200 = load("h200")
    rows = [
        Row("pinned to device", "rate", 50.0, "GB/s", peer={"least": 49.0, "most": 51.5}, note="median of 10"),
        Row("inside the device", "rate", 2000.0, "GB/s", peer={"least": 1990.0, "most": 2010.0}, note="median of 10"),
        Row("reads of L2", "rate", 6336.0, "GB/s", peer={"least": 6336.0, "most": 6336.0}, note="median of 10"),
        Row("kernel to kernel", "time", 0.75, "us", peer={"least": 0.7, "most": 0.8}, note="median of 10"),
        Row("to a peer", NOT_MEASURED, None, "", note="takes 2 devices, and there are 1"),
        Row("pinned both ways", "rate", 44.0, "GB/s", peer={"least": 44.0, "most": 44.0}, note="each way, median of 10"),
    ]
    write_chip(h200, chip_file(h200, chip_facts(rows, h200, SOURCE)), force=False)
    own = load("h200")
    assert (own.links.host_gb_per_s, own.copy_gb_per_s, own.bandwidth.l2_read, own.links.launch_us) == (50, 4000, 100, 0.75)
    assert own.links.peer_gb_per_s == h200.links.peer_gb_per_s
    assert str(own.fact("links.host_gb_per_s")) == f"50.0 GB/s ({SOURCE}, median of 10, least 49, most 51.5)"
    assert str(own.fact("bandwidth.l2_read")).startswith("100.0 sectors/clock (measured: 2026-11-22")
    # Predictions take them, and what another lab measures goes beside them.
    b = PlanBuilder()
    b.copy(b.array("to", 1 << 20, "u1", 0), b.array("of", 1 << 20, "u1", "pinned"))
    assert predicted(b.plan(), [own], lambda launch, device: 0.0).elapsed_ns == pytest.approx(2370 + (1 << 20) / 50)
    write_chip(own, chip_file(own, latency_facts({"l2": 281.8}, SOURCE)), force=True)
    both = load("h200")
    assert (both.latency.l2, both.links.host_gb_per_s, both.bandwidth.l2_read) == (281.8, 50, 100)


class Timed(GraphingEmulator):
    """It takes itself for a GPU: a graph takes 5 us, and each of its steps in turn a time that is known."""

    def elapsed_ns(self, run: Callable[[], object]) -> float:
        run()
        return 5000.0 + sum(map(self.step_ns, self.started.steps))

    def step_ns(self, step: BoundStep) -> float:
        action = step.action
        if isinstance(action, BoundCopy):
            rate = 40 if action.source.is_on_host else 30 if action.destination.is_on_host else 1000
            return 1500.0 + action.itemsize * int(action.shape[0]) / rate
        return 600.0 if isinstance(action, Launch) else 100_000.0

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> ShuffledGraph:
        graph = super().graph_of_steps(steps, timed=timed)
        target = self

        class Noted(ShuffledGraph):
            def replay(self, stream: object = None) -> None:
                target.started = graph
                graph.replay()

            def times_ns(self) -> list[tuple[float, float]]:
                return [(800.0 * number, 800.0 * number + 700) for number in range(len(steps))]

        return Noted(target, graph.steps)


def test_on_a_device_what_a_graph_costs_is_told_from_what_its_steps_do() -> None:
    cases: tuple[str, ...] = (
        "pinned to device",
        "device to pinned",
        "inside the device",
        "to a peer",
        "kernel to kernel",
        "graph of one kernel",
    )
    result = LABS["bandwidth"].run(Timed(), Request(quick=True, only=(*cases, "events around a step")))
    values = {(row.case, row.metric): row.value for row in result.rows}
    assert values["pinned to device", "rate"] == pytest.approx(40)
    assert values["pinned to device", "time"] == pytest.approx(1.5)
    assert values["device to pinned", "rate"] == pytest.approx(30)
    assert values["inside the device", "rate"] == pytest.approx(1000)
    assert values["kernel to kernel", "time"] == pytest.approx(0.6)
    assert values["graph of one kernel", "time"] == pytest.approx(5)
    assert values["events around a step", "time"] == pytest.approx(0.2)
    (missing,) = [row for row in result.rows if row.metric == NOT_MEASURED]
    assert (missing.case, missing.note) == ("to a peer", "takes 2 devices, and there are 1")


def test_a_chip_without_links_has_what_does_not_need_them_measured() -> None:
    """The reads are timed as plans of one launch, which need one number too: the message names it."""
    plain = replace(load("h200"), links=Links(), bandwidth=Bandwidth())
    result = LABS["bandwidth"].run(Emulator(plain), Request(only=("pinned to device", "reads of DRAM")))
    assert [row.metric for row in result.rows] == [NOT_MEASURED] * 2
    assert result.rows[0].note.startswith("the chip file of h200 has no [links] host_us, which a prediction of the plan needs")

"""The lab of bandwidths on a device: orders of magnitude, and that plans take what it measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlane.chip import Links
from memlane.driver import Device
from memlane.lab import LABS, Request, Result
from memlane.lab.bandwidth.lab import chip_facts
from memlane.model import predicted
from memlane.plan import PlanBuilder
from memlane.targets import BoundPlan

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found(gpu: Device) -> Result:
    return LABS["bandwidth"].run(gpu, Request(quick=True))


def test_everything_is_measured_that_there_are_devices_for(found: Result) -> None:
    missing = [row.note for row in found.rows if row.value is None]
    assert all(note.startswith("takes ") for note in missing), missing
    assert all(row.value > 0 for row in found.rows if row.value is not None and row.case != "events around a step")


def test_rates_are_in_their_order(found: Result) -> None:
    rates = {row.case: row.value or 0.0 for row in found.rows if row.metric == "rate"}
    assert 1 < rates["ordinary memory to device"] <= 1.2 * rates["pinned to device"] < rates["inside the device"]
    assert rates["writes of DRAM"] <= 1.2 * rates["reads of DRAM"] < rates["reads of L2"]
    assert rates["pinned both ways"] <= 1.1 * min(rates["pinned to device"], rates["device to pinned"])
    times = {row.case: row.value or 0.0 for row in found.rows if row.metric == "time"}
    assert 0.2 < times["kernel to kernel"] < 20


def test_a_chain_of_copies_takes_what_was_measured(gpu: Device, found: Result) -> None:
    facts = chip_facts(found.rows, gpu.chip, "measured: here")
    links = Links(**{name.removeprefix("links."): fact.value for name, fact in facts.items() if name.startswith("links.")})  # type: ignore[arg-type]
    b = PlanBuilder()
    device, host = b.array("device", 1 << 24, "u1", 0), b.array("host", 1 << 24, "u1", "pinned")
    for _ in range(8):
        b.copy(device, host)
    plan = b.plan()
    bound = BoundPlan(plan, {"host": gpu.pinned(1 << 24, "u1")}, targets=[gpu])
    foretold = predicted(plan, [replace(gpu.chip, links=links)], lambda launch, device: 0.0)
    bound.run()
    assert bound.time().elapsed_ns == pytest.approx(foretold.elapsed_ns, rel=0.15)

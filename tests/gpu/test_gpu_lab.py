"""The lab of latencies on a device: orders of magnitude, and what every GPU since Volta has in common."""

from __future__ import annotations

import pytest

from memlane.driver import Device
from memlane.lab import LABS, Request, Result

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found(gpu: Device) -> Result:
    return LABS["latency"].run(gpu, Request(quick=True))


def test_everything_is_measured(found: Result) -> None:
    assert [row for row in found.rows if row.metric == "not measured"] == []


def test_latencies_grow_with_the_distance(found: Result) -> None:
    truth = {row.case: row.value or 0.0 for row in found.rows if row.metric == "latency, chain average"}
    assert 10 < truth["shared"] < truth["L1"] < truth["L2"] < truth["DRAM"] < 2000
    assert truth["constant"] < truth["constant miss"]
    assert truth["global atomic"] > truth["L1"]
    assert truth["global store then load"] > truth["L1"]  # volatile accesses go past L1


def test_dependent_waits_and_a_fence_of_the_block_does_not_wait_for_far_loads(found: Result) -> None:
    recorded = {row.case: row.peer["recorded"] for row in found.rows if "recorded" in row.peer}
    truth = {row.case: row.value or 0.0 for row in found.rows if row.metric == "latency, chain average"}
    for place in ("shared", "L1", "L2", "DRAM", "texture", "constant", "global atomic"):
        assert recorded[f"dependent, {place}"] > 0.8 * truth[place], place
    notes = {row.case: row.note for row in found.rows if row.metric == "between two clock reads"}
    assert notes["a predicate on the value, L2"] == "waits for the load"
    assert notes["nothing, L2"] == "does not wait for the load"

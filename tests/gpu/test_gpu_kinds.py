"""Kinds of access beside plain ones on a device: matrices, surfaces, asynchronous copies and the waits for them, stores that others see."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from memlane.driver import Device
from memlane.launch import LoadedModule, Target
from memlane.measure import count, trace
from memlane.record import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE, ISSUE_ONLY, PROVED, Trace
from tests.instrument.kernels import kernel
from tests.instrument.test_kinds import BARRIER, COPIES, FRAGMENTS, MATRICES, OUTWARD, SURFACES, module
from tests.instrument.test_visibility import BODY

pytestmark = pytest.mark.gpu

BODIES = {
    "matrices": (MATRICES, 32),
    "copies": (COPIES, 32),
    "barrier": (BARRIER, 128),
    "barrier with a time limit": (BARRIER.replace("%p3, [gate], 0;", "%p3, [gate], 0, 1000;"), 128),
    "outward": (OUTWARD, 32),
    "fragments": (FRAGMENTS, 32),
}


@cache
def data() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1 << 32, 4096, dtype=np.uint32)


def both(name: str, where: Target, stride: int = 16) -> tuple[list[int], list[int], Trace]:
    """What the plain and the traced kernel give, and the trace."""
    body, block = BODIES[name]
    call = where.load(module(body))["k"][1, block]
    plain, traced, source = where.zeros(512, np.uint32), where.zeros(512, np.uint32), where.array(data())
    call(plain, source, np.uint32(stride))
    made = trace(call, traced, source, np.uint32(stride))
    return plain.numpy().tolist(), traced.numpy().tolist(), made


@pytest.mark.parametrize("name", BODIES)
def test_traced_kernels_compute_what_they_did_and_what_the_emulator_does(name: str, gpu: Device, emulator: Target) -> None:
    plain, traced, made = both(name, gpu)
    assert plain == traced
    if name != "fragments":  # Tensor cores round on the way.
        assert plain == both(name, emulator)[0]
    assert made.lost == 0
    assert {site.evidence for site in made.sites} == {PROVED}
    for site in made.sites:
        if site.op.startswith("wmma.load"):
            continue  # Where the assembler works out its addresses is not the test's to say.
        wanted = COMPLETE if site.kind in ("load", "wait") else ISSUE_ONLY
        assert site.completeness == wanted, f"{site.op}: {site.reason}"


def cycles(made: Trace, op: str) -> list[int]:
    return [row["end"] - row["start"] for row in made.table.to_pylist() if row["op"].startswith(op)]


def test_the_time_of_copies_is_in_their_wait(gpu: Device) -> None:
    """A copy that comes from L2 or beyond takes some 250 cycles at least; it is issued in some 30."""
    _, _, made = both("copies", gpu, stride=64)
    assert max(cycles(made, "cp.async.c")) < 100
    first = min(row["start"] for row in made.table.to_pylist() if row["op"].startswith("cp.async.c"))
    last = next(row["end"] for row in made.table.to_pylist() if row["op"] == "cp.async.wait_all")
    assert last - first > 150


def test_a_barrier_has_one_record_for_each_lane_and_lasts_until_the_copy(gpu: Device) -> None:
    _, _, made = both("barrier", gpu)
    rows = made.table.to_pylist()
    waits = [row for row in rows if row["op"].startswith("mbarrier.try_wait")]
    (copy,) = (row for row in rows if row["op"].startswith("cp.async.bulk"))
    assert sum(row["active_mask"].bit_count() for row in waits) == 128
    assert all(row["end"] > copy["start"] for row in waits), "warps of one block share a clock"
    assert min(row["start"] for row in waits) < copy["start"]


def test_matrices_take_the_time_of_shared_memory(gpu: Device) -> None:
    _, _, made = both("matrices", gpu)
    (four, one) = cycles(made, "ldmatrix")
    assert 20 < one <= four < 100


@pytest.mark.parametrize("name", ["matrices", "copies"])
@pytest.mark.parametrize("stride", [16, 48, 128])
def test_counts_equal_those_of_the_emulator(name: str, stride: int, gpu: Device, emulator: Target) -> None:
    body, block = BODIES[name]
    found = []
    for where in (gpu, emulator):
        source, out = where.array(data()), where.zeros(4 * block, np.uint32)
        found.append(count(where.load(module(body))["k"][1, block], out, source, np.uint32(stride)))
    assert found[0].sites == found[1].sites


def test_surfaces(gpu: Device) -> None:
    call = gpu.load(module(SURFACES))["k"][1, 32]
    image, out = gpu.surface(np.arange(100, 132, dtype=np.uint32)), gpu.zeros(32, np.uint32)
    made = trace(call, out, image, np.uint32(3))
    assert out.numpy().tolist() == list(range(103, 135))
    assert image.numpy().tolist() == [8 * lane for lane in range(32)]
    assert [(site.space, site.completeness, site.evidence) for site in made.sites][:3] == [
        ("surf", COMPLETE, PROVED),
        ("surf", ISSUE_ONLY, PROVED),
        ("surf", ISSUE_ONLY, PROVED),
    ]


# -- stores ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(gpu: Device) -> LoadedModule:
    return gpu.load(kernel(BODY, ".param .u64 out", ".shared .align 16 .b8 words[128];"))


def test_stores_are_seen_later_by_more(stores: LoadedModule, gpu: Device) -> None:
    """Handed over, some ten cycles; seen by the block, behind a fence of some twenty; by the device, behind a load from L2."""
    plain = gpu.zeros(32 * 16, np.uint32)
    stores["k"][1, 32](plain)
    medians, labels = {}, {}
    for until in ("issued", "block", "device"):
        out = gpu.zeros(32 * 16, np.uint32)
        made = trace(stores["k"][1, 32], out, stores=until)
        assert out.numpy().tolist() == plain.numpy().tolist()
        medians[until] = float(np.median(cycles(made, "st.global")))
        labels[until] = {site.completeness for site in made.sites if site.op.startswith("st.global")}
    assert labels == {"issued": {ISSUE_ONLY}, "block": {BLOCK_VISIBLE}, "device": {DEVICE_VISIBLE}}
    assert medians["issued"] < medians["block"] < medians["device"]
    assert medians["device"] > 200

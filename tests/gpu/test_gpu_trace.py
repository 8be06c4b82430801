"""Tracing and counting on a device."""

from __future__ import annotations

from collections import Counter as Multiset
from itertools import pairwise

import numpy as np
import pytest

from memlane.driver import Device
from memlane.instrument import SCHEMES, TraceOptions
from memlane.launch import LoadedModule, Target, observing
from memlane.measure import Tracer, count, trace
from memlane.record import COMPLETE, EXACT, ISSUE_ONLY, PROVED
from tests.measure.test_merged_accesses import ROWS

pytestmark = pytest.mark.gpu
BLOCK = 128
WARPS = BLOCK // 32


def test_two_streams_and_a_replayed_graph_at_once(gpu: Device, on_gpu: LoadedModule) -> None:
    add_one = on_gpu["add_one"]
    source, target = gpu.array(np.arange(64 * BLOCK, dtype=np.float32)), gpu.zeros(64 * BLOCK)
    first, second = gpu.stream(), gpu.stream()
    tracer = Tracer()
    with observing(tracer):
        graph = gpu.graph([add_one[grid, BLOCK].bind(target, source, grid * BLOCK) for grid in (4, 5)])
        for grid in (8, 16):
            add_one[grid, BLOCK, first](target, source, grid * BLOCK)
            graph.replay(second)
            add_one[2 * grid, BLOCK, second](target, source, 2 * grid * BLOCK)
        graph.replay(first)
    recorded = tracer.finish()
    assert Multiset(launch.grid[0] for launch in recorded.launches) == {8: 1, 16: 2, 32: 1, 4: 3, 5: 3}
    assert recorded.lost == 0
    rows = recorded.table.to_pydict()
    per_launch: dict[int, Multiset[tuple[int, int]]] = {}
    for launch, block, warp in zip(rows["launch"], rows["block"], rows["warp"], strict=True):
        per_launch.setdefault(launch, Multiset())[block, warp] += 1
    for launch in recorded.launches:
        everywhere = {(block, warp): 2 for block in range(launch.grid[0]) for warp in range(WARPS)}
        assert per_launch[launch.id] == everywhere


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_a_traced_launch_computes_what_the_plain_one_does(scheme: str, gpu: Device, on_gpu: LoadedModule) -> None:
    source, out = gpu.array(np.arange(1000, dtype=np.uint32)), gpu.zeros(1000, "u4")
    recorded = trace(on_gpu["add_one"][8, BLOCK], out, source, 1000, scheme=scheme)
    assert np.array_equal(out.numpy(), np.arange(1000) + 1)
    assert len(recorded.table) == 2 * 32
    assert recorded.launches[0].scheme == scheme == TraceOptions(scheme).scheme


def test_warps_of_one_multiprocessor_share_a_clock(gpu: Device, on_gpu: LoadedModule) -> None:
    """Per SM, warps that began later on the global timer, by more than its resolution, began later on the clock."""
    source, out = gpu.array(np.zeros(1 << 16, np.uint32)), gpu.zeros(1 << 16, "u4")
    warps = trace(on_gpu["add_one"][512, BLOCK], out, source, 1 << 16).warps
    for sm in np.unique(warps["sm"]):
        own = np.sort(warps[warps["sm"] == sm], order="begin_ns")
        for before, after in pairwise(own):
            if after["begin_ns"] - before["begin_ns"] > 64:
                assert after["begin_cycles"] > before["begin_cycles"]


def test_counting_equals_the_emulator(on_gpu: LoadedModule, on_emulator: LoadedModule) -> None:
    found = []
    for kernels in (on_gpu, on_emulator):
        target: Target = kernels.target
        source, out = target.zeros(1000, "u4"), target.zeros(1000, "u4")
        found.append(count(kernels["add_one"][8, BLOCK], out, source, 1000))
    measured, emulated = found
    assert measured.how == "counted on the device"
    assert measured.sites == emulated.sites
    assert measured.branches == emulated.branches


def test_counts_with_a_trace_leave_memory_as_one_launch_does(gpu: Device, on_gpu: LoadedModule) -> None:
    values = gpu.array(np.arange(1000, dtype=np.uint32))
    recorded = trace(on_gpu["add_one"][8, BLOCK], values, values, 1000, counts=True)
    assert np.array_equal(values.numpy(), np.arange(1000) + 1)
    assert [(one.site.kind, one.sectors) for one in recorded.launches[0].counts] == [("load", 125), ("store", 125)]


@pytest.mark.parametrize("scheme", ["dependent", "consume"])
def test_completeness_is_proved_on_the_code_that_ran(scheme: str, gpu: Device, on_gpu: LoadedModule) -> None:
    source, target = gpu.array(np.arange(8 * BLOCK, dtype=np.float32)), gpu.zeros(8 * BLOCK)
    recorded = trace(on_gpu["add_one"][8, BLOCK], target, source, 8 * BLOCK, scheme=scheme)
    assert {site.evidence for site in recorded.sites} == {PROVED}
    assert {site.kind: site.completeness for site in recorded.sites} == {"load": COMPLETE, "store": ISSUE_ONLY}
    assert all(site.copies == 1 for site in recorded.sites)
    by_site = dict(zip(recorded.table["site"].to_pylist(), recorded.table["completeness"].to_pylist(), strict=True))
    assert by_site == {site.id: site.completeness for site in recorded.sites}


def test_counts_are_exact_by_the_code_that_is_loaded(gpu: Device, on_gpu: LoadedModule) -> None:
    source, target = gpu.array(np.arange(8 * BLOCK, dtype=np.float32)), gpu.zeros(8 * BLOCK)
    counts = count(on_gpu["add_one"][8, BLOCK], target, source, 8 * BLOCK, merged=True)
    assert counts.exact_share == 1.0
    assert counts.merged == ()
    recorded = trace(on_gpu["add_one"][8, BLOCK], target, source, 8 * BLOCK, counts=True).launches[0]
    assert {entry.exactness for entry in recorded.counts} == {EXACT}
    assert recorded.branches == counts.branches


def test_merged_loads_are_counted_as_on_the_emulator(gpu: Device, emulator: Target) -> None:
    counted = [count(where.load(ROWS)["k"][1, 64], where.zeros(64, np.uint32), merged=True) for where in (gpu, emulator)]
    assert [entry.exactness for entry in counted[0].checked.sites] == [entry.exactness for entry in counted[1].checked.sites]
    assert counted[0].merged == counted[1].merged
    assert len(counted[0].merged) == 1


def test_what_the_probes_changed_is_told(gpu: Device, on_gpu: LoadedModule) -> None:
    source, out = gpu.array(np.arange(1000, dtype=np.uint32)), gpu.zeros(1000, "u4")
    recorded = trace(on_gpu["add_one"][8, BLOCK], out, source, 1000, perturbation=True)
    found = recorded.launches[0].perturbation
    assert found is not None
    assert found.plain is not None, found.unknown
    assert found.probed is not None
    assert 0 < found.plain.registers < found.probed.registers
    assert found.plain.resident_blocks == gpu.resident_blocks(on_gpu["add_one"], BLOCK, 0) >= found.probed.resident_blocks > 0
    assert found.slowdown is not None
    assert found.slowdown > 0.5
    assert (found.rounds, recorded.table.num_rows, recorded.lost) == (5, 64, 0)
    assert np.array_equal(out.numpy(), np.arange(1000) + 1)

"""Windows and samples on a device: which warps leave rows, that barriers meet across the bodies, and what the proof says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.driver import Device
from memlane.instrument import Sampling, TraceOptions
from memlane.launch import LoadedModule, observing
from memlane.measure import Tracer, trace
from memlane.ptx import parse
from memlane.record import PROVED, Trace
from tests.measure.test_sampled import BARRIERS, BLOCKS, THREADS, TURNS, UNEVEN, WINDOWS, keys

pytestmark = pytest.mark.gpu

WARPS = THREADS // 32


@pytest.fixture(scope="module")
def meeting(gpu: Device) -> LoadedModule:
    return gpu.load(parse(BARRIERS, "meet.ptx"))


def traced(meeting: LoadedModule, **window: Any) -> tuple[Trace, npt.NDArray[Any]]:
    """The trace of one launch, and what it computed."""
    out = meeting.target.array(np.arange(BLOCKS * THREADS, dtype=np.uint32))
    return trace(meeting["meet"][BLOCKS, THREADS], out, TURNS, **window), out.numpy()


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_keeps_the_rows_of_the_whole_trace_that_lie_in_it(meeting: LoadedModule, name: str) -> None:
    """Warps of both bodies meet at barriers of three kinds, in a loop: a barrier that waits for the others of its own body would hang."""
    window, inside = WINDOWS[name]
    whole, expected = traced(meeting)
    part, computed = traced(meeting, **window)
    assert np.array_equal(computed, expected)
    assert keys(part) == [key for key in keys(whole) if inside(key[0], key[1], key[3])]
    assert part.lost == 0


@pytest.mark.parametrize("whole_blocks", [False, True])
@pytest.mark.parametrize(("every", "seed"), [(2, 0), (3, 1), (7, 99), (32, 5)])
def test_the_device_takes_the_warps_that_the_host_knows(
    gpu: Device, on_gpu: LoadedModule, every: int, seed: int, whole_blocks: bool
) -> None:
    """Over a grid of three dimensions and blocks of an odd number of threads."""
    grid, block = (5, 7, 3), (9, 5, 2)
    source, out = gpu.array(np.arange(1000, dtype=np.uint32)), gpu.zeros(1000, "u4")
    sampling = Sampling.of(every=every, seed=seed, whole_blocks=whole_blocks)
    made = trace(on_gpu["add_one"][grid, block], out, source, 1000, every=every, seed=seed, whole_blocks=whole_blocks)
    blocks, warps = int(np.prod(grid)), -(-int(np.prod(block)) // 32)
    expected = [
        (number, warp)
        for number in range(blocks)
        for warp in range(warps)
        if Sampling.of(blocks=number, warps=warp, every=every, seed=seed, whole_blocks=whole_blocks).chosen(blocks, warps).warps
    ]
    assert sorted((int(row["block"]), int(row["warp"])) for row in made.warps) == expected
    assert len(expected) == sampling.chosen(blocks, warps).warps


def test_chosen_sms(gpu: Device, on_gpu: LoadedModule) -> None:
    source, out = gpu.array(np.zeros(1 << 16, np.uint32)), gpu.zeros(1 << 16, "u4")
    made = trace(on_gpu["add_one"][512, 128], out, source, 1 << 16, sms="0-7,20")
    assert set(made.warps["sm"].tolist()) <= {*range(8), 20}
    assert 0 < len(made.warps) < 512 * 4
    assert np.array_equal(out.numpy(), np.ones(1 << 16))


def test_executions_are_those_of_the_lane_that_leads(gpu: Device) -> None:
    kernel, data = gpu.load(parse(UNEVEN, "uneven.ptx"))["uneven"], gpu.zeros(32, "u4")
    made = trace(kernel[1, 32], data, executions="5-9")
    loads = [key for key in keys(made) if key[2] == 0]
    assert [execution for *_, execution, _ in loads] == [5, 6, 7, 8, 9]
    assert [mask for *_, mask in loads] == [(0xFFFFFFFF << number) & 0xFFFFFFFF for number in range(5, 10)]


def test_the_instrumented_body_is_proved(meeting: LoadedModule) -> None:
    whole, _ = traced(meeting)
    part, _ = traced(meeting, every=2, executions="0-1")
    assert {site.evidence for site in part.sites} == {PROVED}
    assert [site.completeness for site in part.sites] == [site.completeness for site in whole.sites]


def test_graphs_and_streams_keep_their_window(gpu: Device, on_gpu: LoadedModule) -> None:
    source, out, stream = gpu.array(np.zeros(4096, np.uint32)), gpu.zeros(4096, "u4"), gpu.stream()
    tracer = Tracer(TraceOptions(sampling=Sampling.of(blocks="1-2", every=2)))
    with observing(tracer):
        graph = gpu.graph([on_gpu["add_one"][8, 128].bind(out, source, 1024)])
        on_gpu["add_one"][32, 128, stream](out, source, 4096)
        graph.replay()
        graph.replay(stream)
    made = tracer.finish()
    assert sorted(launch.grid[0] for launch in made.launches) == [8, 8, 32]
    for launch in made.launches:
        rows = made.warps[made.warps["launch"] == launch.id]
        assert launch.sample is not None
        assert len(rows) == launch.sample.warps_chosen == launch.sample.warps_in_window // 2
        assert set(rows["block"].tolist()) <= {1, 2}

"""Order and time: streams, plans, graphs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from memlane.driver import Device
from memlane.launch import LoadedModule
from memlane.plan import PlanBuilder, StepRef
from memlane.targets import BoundPlan

pytestmark = pytest.mark.gpu

BUSY_CYCLES = 20_000_000
"""About ten milliseconds."""


@pytest.fixture(autouse=True, scope="module")
def awake(gpu: Device, on_gpu: LoadedModule) -> None:
    """Work for a tenth of a second, so that the clocks are up."""
    on_gpu["spin"][1, 32](10 * BUSY_CYCLES)
    gpu.sync()


def busy_ns(gpu: Device, cycles: int = BUSY_CYCLES) -> float:
    """The least time that so many cycles take."""
    return cycles * 1e3 / gpu.chip.clock_mhz


def test_launches_are_asynchronous_and_sync_waits(gpu: Device, on_gpu: LoadedModule) -> None:
    gpu.sync()
    before = time.perf_counter_ns()
    on_gpu["spin"][1, 32](10 * BUSY_CYCLES)
    launched = time.perf_counter_ns() - before
    gpu.sync()
    waited = time.perf_counter_ns() - before
    assert launched < busy_ns(gpu)
    assert waited > 0.9 * busy_ns(gpu, 10 * BUSY_CYCLES)


@pytest.mark.parametrize("own_stream", [False, True])
def test_reading_waits_for_every_launch(gpu: Device, on_gpu: LoadedModule, own_stream: bool) -> None:
    stream = gpu.stream() if own_stream else gpu.default_stream
    array = gpu.zeros(1000, "i4")
    on_gpu["spin"][1, 32, stream](BUSY_CYCLES)
    for _ in range(50):
        on_gpu["add_one"][4, 256, stream](array, array, 1000)
    assert (array.numpy() == 50).all()


def test_the_default_stream_is_ordered_with_the_others(gpu: Device, on_gpu: LoadedModule) -> None:
    first, second = gpu.stream(), gpu.stream()
    array = gpu.zeros(1, "i4")
    results = []
    for stream in (first, gpu.default_stream, second, gpu.default_stream, first):
        on_gpu["spin"][1, 32, stream](BUSY_CYCLES // 10)
        on_gpu["add_one"][1, 32, stream](array, array, 1)
        if stream is gpu.default_stream:
            copy = gpu.empty(1, "i4")
            on_gpu["add_one"][1, 32](copy, array, 1)
            results.append(copy)
    assert [int(copy.numpy()[0]) for copy in results] == [3, 5]
    assert array.numpy()[0] == 5


def test_writing_waits_for_launches_that_read(gpu: Device, on_gpu: LoadedModule) -> None:
    source, out, stream = gpu.zeros(1, "i4"), gpu.zeros(1, "i4"), gpu.stream()
    on_gpu["spin"][1, 32, stream](BUSY_CYCLES)
    on_gpu["add_one"][1, 32, stream](out, source, 1)
    source.copy_from([100])
    assert out.numpy()[0] == 1


def test_arrays_may_be_dropped_while_kernels_use_them(gpu: Device, on_gpu: LoadedModule) -> None:
    stream, out = gpu.stream(), gpu.zeros(1 << 20, "i4")
    source = gpu.array(np.arange(1 << 20, dtype="i4"))
    on_gpu["spin"][1, 32, stream](BUSY_CYCLES)
    on_gpu["add_one"][4096, 256, stream](out, source, 1 << 20)
    del source
    others = [gpu.empty(1 << 20, "i4") for _ in range(4)]
    for other in others:
        gpu.clear(other.address, other.nbytes)
    assert np.array_equal(out.numpy(), np.arange(1, (1 << 20) + 1))


def test_each_launch_is_timed(gpu: Device, on_gpu: LoadedModule) -> None:
    short, long = gpu.time_launches([on_gpu["spin"][1, 32].bind(cycles) for cycles in (BUSY_CYCLES, 3 * BUSY_CYCLES)])
    assert short.elapsed_ns >= 0.95 * busy_ns(gpu)
    assert 2 < long.elapsed_ns / short.elapsed_ns < 4
    assert short.model is None
    assert gpu.time_launches([]) == ()


def test_queues_overlap_and_after_orders_them(gpu: Device, on_gpu: LoadedModule) -> None:
    def elapsed(waits: Callable[[int], Sequence[int]]) -> tuple[float, float]:
        """Of a plan of three equal launches on queues of their own: of the first one, and of all."""
        b, steps = PlanBuilder(), list[StepRef]()
        for queue in range(3):
            after = [steps[number] for number in waits(queue)]
            steps.append(b.launch(on_gpu["spin"], 1, 32, BUSY_CYCLES, queue=queue, after=after))
        line = BoundPlan(b.plan(), targets=[gpu], modules=[on_gpu]).time()
        return line.spans[0].end_ns - line.spans[0].start_ns, line.elapsed_ns

    first, beside = elapsed(lambda queue: ())
    assert beside < 1.5 * first
    first, behind = elapsed(range)
    assert behind > 2 * first


def diamond(kernels: LoadedModule) -> tuple[BoundPlan, list[np.ndarray]]:
    """a + 1 into b and, beside it, into c; both end up side by side in d, and a takes d's first half."""
    target, n = kernels.target, 1000
    build, add_one = PlanBuilder(), kernels["add_one"]
    a, b, c, d = (build.array(name, 2 * n if name == "d" else n, "i4") for name in "abcd")
    build.launch(add_one, 4, 256, b, a, n, reads=[a], writes=[b])
    other = build.launch(add_one, 4, 256, c, a, n, queue=1, reads=[a], writes=[c])
    build.copy(d[:n], b)
    both = build.copy(d[n:], c, queue=1)
    build.copy(a, d[:n], after=[other, both])
    arrays = {name: target.zeros(2 * n if name == "d" else n, "i4") for name in "abcd"}
    return BoundPlan(build.plan(), arrays, targets=[target], modules=[kernels]), list(arrays.values())


def test_a_plan_gives_the_same_on_both_roads(on_gpu: LoadedModule, on_emulator: LoadedModule) -> None:
    for kernels in (on_gpu, on_emulator):
        bound, arrays = diamond(kernels)
        for expected in (1, 2):
            bound.run()
            assert all((array.numpy() == expected).all() for array in arrays)


def test_a_graph_is_replayed(on_gpu: LoadedModule, on_emulator: LoadedModule) -> None:
    for kernels in (on_gpu, on_emulator):
        bound, arrays = diamond(kernels)
        graph = bound.graph()
        assert not arrays[3].numpy().any()
        for stream in (None, kernels.target.stream(), None):
            graph.replay(stream)
            graph.replay(stream)
        assert all((array.numpy() == 6).all() for array in arrays)


def test_a_graph_keeps_what_it_uses(gpu: Device, on_gpu: LoadedModule) -> None:
    out = gpu.zeros(1 << 20, "i4")
    kernels = gpu.load(on_gpu.module)
    graph = gpu.graph([kernels["add_one"][4096, 256].bind(out, gpu.array(np.full(1 << 20, 8, "i4")), 1 << 20)])
    del kernels
    others = [gpu.zeros(1 << 20, "i4") for _ in range(4)]
    graph.replay()
    del graph
    assert (out.numpy() == 9).all()
    assert not any(other.numpy().any() for other in others)


def test_a_replay_is_asynchronous(gpu: Device, on_gpu: LoadedModule) -> None:
    graph = gpu.graph([on_gpu["spin"][1, 32].bind(5 * BUSY_CYCLES)] * 2)
    gpu.sync()
    before = time.perf_counter_ns()
    graph.replay()
    launched = time.perf_counter_ns() - before
    gpu.sync()
    assert launched < busy_ns(gpu, 5 * BUSY_CYCLES)
    assert time.perf_counter_ns() - before > 0.9 * busy_ns(gpu, 10 * BUSY_CYCLES)

"""Streams and events of other libraries, what the host waits for, and what it does not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from memlane.driver import Device
from memlane.errors import BadLaunch
from memlane.launch import LoadedModule
from memlane.plan import PlanBuilder
from memlane.targets import BoundPlan

pytestmark = pytest.mark.gpu

BUSY_CYCLES = 200_000_000
"""About a tenth of a second."""
N = 1 << 16


@pytest.fixture(params=["cuda.core", "handle", "PyTorch", "CuPy"])
def stream(request: pytest.FixtureRequest, gpu: Device) -> Any:
    """A stream of another library that CUDA does not order with the default stream."""
    if request.param == "PyTorch":
        torch = pytest.importorskip("torch")
        return torch.cuda.Stream()
    if request.param == "CuPy":
        cupy = pytest.importorskip("cupy")
        return cupy.cuda.Stream(non_blocking=True)
    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    made = device.create_stream(options=core.StreamOptions(nonblocking=True))
    if request.param == "handle":
        KEPT.append(made)
        return int(made.handle)
    return made


KEPT: list[object] = []
"""Streams whose handles are used."""


def busy_s(gpu: Device) -> float:
    """The least time that the busy kernel takes."""
    return BUSY_CYCLES / gpu.chip.clock_mhz / 1e6


def test_launches_on_it_are_ordered_with_the_default_stream(gpu: Device, on_gpu: LoadedModule, stream: Any) -> None:
    """Behind what was launched before on the default stream, and in front of what is launched there later."""
    first, second, third = gpu.array(np.zeros(N, "i4")), gpu.zeros(N, "i4"), gpu.zeros(N, "i4")
    gpu.sync()
    on_gpu["spin"][1, 32](BUSY_CYCLES)
    on_gpu["add_one"][N // 256, 256](second, first, N)
    on_gpu["spin"][1, 32, stream](BUSY_CYCLES)
    on_gpu["add_one"][N // 256, 256, stream](third, second, N)
    on_gpu["add_one"][N // 256, 256](first, third, N)
    assert (first.numpy() == 3).all()


def test_a_launch_is_captured_by_another_library(gpu: Device, on_gpu: LoadedModule) -> None:
    torch = pytest.importorskip("torch")
    stream, graph, numbers = torch.cuda.Stream(), torch.cuda.CUDAGraph(), gpu.array(np.arange(N, dtype=np.int32))
    on_gpu["add_one"][N // 256, 256](numbers, numbers, N)
    gpu.sync()
    with torch.cuda.graph(graph, stream=stream):
        on_gpu["add_one"][N // 256, 256, stream](numbers, numbers, N)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert np.array_equal(numbers.numpy(), np.arange(N) + 4)


def test_memory_may_be_dropped_while_it_is_used_there(gpu: Device, on_gpu: LoadedModule, stream: Any) -> None:
    source, out = gpu.array(np.full(N, 8, "i4")), gpu.zeros(N, "i4")
    on_gpu["spin"][1, 32, stream](BUSY_CYCLES)
    on_gpu["add_one"][N // 256, 256, stream](out, source, N)
    del source
    others = [gpu.zeros(N, "i4") for _ in range(4)]
    assert (out.numpy() == 9).all()
    assert not any(other.numpy().any() for other in others)


def test_a_graph_goes_there_too(gpu: Device, on_gpu: LoadedModule, stream: Any) -> None:
    b = PlanBuilder()
    given, out = b.array("given", N, "i4", 0), b.array("out", N, "i4", 0)
    b.launch(on_gpu["add_one"], N // 256, 256, out, given, N, reads=[given], writes=[out])
    arrays = {"given": gpu.array(np.full(N, 5, "i4")), "out": gpu.zeros(N, "i4")}
    bound = BoundPlan(b.plan(), arrays, targets=[gpu], modules=[on_gpu])
    graph = bound.graph()
    for turn in range(4):
        graph.replay(stream if turn % 2 else None)
        graph.rebind({"given": graph.memory["out"], "out": graph.memory["given"]})
    graph.wait()
    assert {int(array.numpy()[0]) for array in arrays.values()} == {8, 9}
    assert np.array_equal(bound.start(stream).wait()["out"].numpy(), arrays["given"].numpy() + 1)


def test_reading_does_not_wait_for_work_of_others(gpu: Device, on_gpu: LoadedModule) -> None:
    """Work that memlane did not launch, on a stream that CUDA does not order with the default stream."""
    torch = pytest.importorskip("torch")
    array, side = gpu.array(np.arange(N, dtype="i4")), torch.cuda.Stream()
    gpu.sync()
    before = time.perf_counter()
    with torch.cuda.stream(side):
        torch.cuda._sleep(BUSY_CYCLES)
    assert np.array_equal(array.numpy(), np.arange(N))
    assert time.perf_counter() - before < 0.5 * busy_s(gpu)
    side.synchronize()
    assert time.perf_counter() - before > 0.9 * busy_s(gpu)


def test_events_of_other_libraries_are_waited_for(gpu: Device, on_gpu: LoadedModule) -> None:
    torch = pytest.importorskip("torch")
    tensor, out, side = torch.zeros(N, dtype=torch.int32, device="cuda:0"), gpu.zeros(N, "i4"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(BUSY_CYCLES)
        tensor += 6
        event = torch.cuda.Event()
        event.record()
    mine = gpu.stream()
    gpu.wait_for(event, mine)
    on_gpu["add_one"][N // 256, 256, mine](out, gpu.adopt(tensor), N)
    assert (out.numpy() == 7).all()
    with pytest.raises(BadLaunch, match=r"^a str is not an event for cuda:0: pass one of target.record\(\)"):
        gpu.wait_for("event")


def test_an_event_says_when_the_work_is_done(gpu: Device, on_gpu: LoadedModule) -> None:
    stream = gpu.stream()
    gpu.sync()
    on_gpu["spin"][1, 32, stream](BUSY_CYCLES)
    event = gpu.record(stream)
    assert not event.done()
    event.wait()
    assert event.done()


def test_waiting_in_a_task_takes_no_processor_time(gpu: Device, on_gpu: LoadedModule) -> None:
    """Another task goes on meanwhile; the processor works on neither."""
    b = PlanBuilder()
    for _ in range(3):
        b.launch(on_gpu["spin"], 1, 32, BUSY_CYCLES, device=0)
    bound = BoundPlan(b.plan(), targets=[gpu], modules=[on_gpu])
    bound.run()
    ticks = []

    async def ticking() -> None:
        while True:
            ticks.append(time.perf_counter())
            await asyncio.sleep(busy_s(gpu) / 20)

    async def both() -> tuple[float, float]:
        other = asyncio.create_task(ticking())
        wall, processor = time.perf_counter(), time.process_time()
        await bound.start()
        other.cancel()
        return time.perf_counter() - wall, time.process_time() - processor

    wall, processor = asyncio.run(both())
    assert wall > 2.5 * busy_s(gpu)
    assert len(ticks) > 20
    assert processor < 0.2 * wall


def test_copies_from_pinned_memory_go_beside_a_kernel(gpu: Device, on_gpu: LoadedModule) -> None:
    size = 1 << 24
    pinned, array = gpu.pinned(size, "u1"), gpu.empty(size, "u1")
    pinned[...] = np.arange(size, dtype=np.uint32).astype("u1")
    compute, copies = gpu.stream(), gpu.stream()
    gpu.sync()
    on_gpu["spin"][1, 32, compute](BUSY_CYCLES)
    copied, computed = gpu.start_copy(array, pinned, copies), gpu.record(compute)
    copied.wait()
    assert not computed.done()
    computed.wait()
    assert np.array_equal(array.numpy(), pinned)
    with pytest.raises(BadLaunch, match=r"^cuda:0 copies asynchronously only from and to pinned memory: allocate the array "):
        gpu.start_copy(array, np.zeros(size, "u1"))


def test_the_short_way_launches_the_same(gpu: Device, on_gpu: LoadedModule) -> None:
    """The first launch of a configuration goes the usual way, later ones are one packed call."""
    values, out = gpu.array(np.zeros(N, "i4")), gpu.zeros(N, "i4")
    for _ in range(10):
        on_gpu["add_one"][N // 256, 256](out, values, N)
        on_gpu["add_one"][N // 256, 256](values, out, N)
    assert (values.numpy() == 20).all()
    on_gpu["add_one"][N // 256, 256](out, values, 3)
    on_gpu["add_one"][N // 256, 256](out, values, 0)
    assert out.numpy()[:4].tolist() == [21, 21, 21, 19]

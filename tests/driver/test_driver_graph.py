"""What a GPU's driver is asked for when graphs are rebound and streams of others are used, without a GPU."""

from __future__ import annotations

import ctypes
import gc
import struct
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.core")

from memlane.checks import Check, checking
from memlane.driver.graph import DeviceGraph
from memlane.errors import BadLaunch, DeviceError, MemlaneError
from memlane.launch import DeviceArray, Launch, observing
from memlane.plan import PlanBuilder
from memlane.ptx import parse
from memlane.targets import BoundPlan, PlanGraph
from tests.driver.stubbed import StubbedDevice

COPY = parse("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 of, .param .u32 more) { ret; }
""")
FOREIGN, BLOCKING = 1 << 20, (1 << 20) + 1
"""Handles of streams of another library: one that is not ordered with the default stream, and one that is."""


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubbedDevice:
    return StubbedDevice(monkeypatch)


def bound(stub: StubbedDevice, old: DeviceArray, new: DeviceArray, out: Any) -> PlanGraph:
    """A launch, a copy to the host, and a host function."""
    b, kernels = PlanBuilder(), stub.load(COPY)
    a, c, back = b.array("old", 64, "u4", 0), b.array("new", 64, "u4", 0), b.array("back", 64, "u4", "pinned")
    b.launch(kernels["copy"], 2, 32, c, a, 5, reads=[a], writes=[c])
    done = b.copy(back, c)
    b.call("builtins:len", back, after=[done], reads=[back], writes=())
    memory = {"old": old, "new": new, "back": out}
    return BoundPlan(b.plan(), memory, targets=[stub.device], modules=[kernels]).graph()


def arguments_of(node: Any, sizes: tuple[int, ...]) -> list[int]:
    pointers = ctypes.cast(int(node.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    return [int.from_bytes(ctypes.string_at(pointers[number], size), "little") for number, size in enumerate(sizes)]


def test_a_graph_is_rebound_in_place(stub: StubbedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node each of a kernel, a copy and a host function gets other parameters; nothing is instantiated."""
    one, other = (stub.device.empty(64, "u4") for _ in range(2))
    graph = bound(stub, one, other, np.zeros(64, "u4"))
    added = [name for name, _ in stub.driver.calls if name.startswith("cuGraphAdd")]
    assert added == ["cuGraphAddKernelNode", "cuGraphAddMemcpyNode", "cuGraphAddHostNode"]
    seen = []
    monkeypatch.setattr(
        type(stub.driver),
        "cuGraphExecKernelNodeSetParams",
        lambda self, executable, node, given: (
            seen.append((executable, node, arguments_of(given, (8, 8, 4)))) or (self.CUresult.CUDA_SUCCESS,)
        ),
        raising=False,
    )
    out = np.zeros(64, "u4")
    graph.rebind({"old": other, "new": one, "back": out})
    assert seen == [(1, 100, [one.address, other.address, 5])]
    [(executable, node, copied, context)] = stub.driver.named("cuGraphExecMemcpyNodeSetParams")
    assert (executable, node, context) == (1, 101, 9)
    assert (int(copied.srcDevice), int(copied.dstHost), copied.WidthInBytes, copied.Height) == (one.address, out.ctypes.data, 256, 1)
    assert [args[:2] for args in stub.driver.named("cuGraphExecHostNodeSetParams")] == [(1, 102)]
    graph.replay()
    assert stub.notes == ["graph 1 on 1"]


def test_what_did_not_change_is_left_alone(stub: StubbedDevice) -> None:
    one, other = (stub.device.empty(64, "u4") for _ in range(2))
    graph = bound(stub, one, other, np.zeros(64, "u4"))
    graph.rebind({"old": stub.device.empty(64, "u4")})
    assert len(stub.driver.named("cuGraphExecKernelNodeSetParams")) == 1
    assert stub.driver.named("cuGraphExecMemcpyNodeSetParams") == []


@pytest.mark.parametrize("refused", ["cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams"])
def test_a_node_that_the_driver_cannot_change_makes_a_new_graph(stub: StubbedDevice, refused: str) -> None:
    graph = bound(stub, stub.device.empty(64, "u4"), stub.device.empty(64, "u4"), np.zeros(64, "u4"))
    stub.driver.refused.add(refused)
    graph.rebind({"new": stub.device.empty(64, "u4")})
    graph.replay()
    assert stub.notes == ["graph 2 on 1"]


def test_copies_with_gaps_make_a_new_graph(stub: StubbedDevice) -> None:
    b = PlanBuilder()
    wide, tall = b.array("wide", (8, 16), "u4", 0), b.array("tall", (8, 8), "u4", 0)
    b.copy(tall, wide[:, :8])
    first = {"wide": stub.device.empty((8, 16), "u4"), "tall": stub.device.empty((8, 8), "u4")}
    graph = BoundPlan(b.plan(), first, targets=[stub.device]).graph()
    graph.rebind({"wide": stub.device.empty((8, 16), "u4")})
    graph.replay()
    assert stub.notes == ["graph 2 on 1"]
    assert stub.driver.named("cuGraphExecMemcpyNodeSetParams") == []


def test_memory_stays_until_the_replay_is_done_that_uses_it(stub: StubbedDevice) -> None:
    """Whether the graph is bound to other memory, or dropped."""
    pinned = [np.zeros(64, "u4") for _ in range(2)]
    watched = [weakref.ref(one) for one in pinned]
    graph: PlanGraph | None = bound(stub, stub.device.empty(64, "u4"), stub.device.empty(64, "u4"), pinned.pop(0))
    assert graph is not None
    graph.replay()
    graph.rebind({"back": pinned.pop()})
    graph.replay()
    del graph
    gc.collect()
    assert [one() is not None for one in watched] == [True, True]
    assert [kept[0].sync() for kept in stub.device.streams.kept] == [None, None]
    stub.device.streams.release()
    gc.collect()
    assert [one() is None for one in watched] == [True, True]


def test_a_graph_that_was_waited_for_leaves_nothing_behind(stub: StubbedDevice) -> None:
    graph = bound(stub, stub.device.empty(64, "u4"), stub.device.empty(64, "u4"), np.zeros(64, "u4"))
    assert isinstance(graph.prepared, DeviceGraph)
    graph.replay()
    graph.wait()
    del graph
    gc.collect()
    assert not stub.device.streams.kept


def test_a_launch_on_a_stream_that_is_kept_apart_is_put_into_order(stub: StubbedDevice) -> None:
    """It comes behind the default stream, whose later work comes behind it; its memory stays until then."""
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    kernel[1, 32, FOREIGN](array, array, 1)
    assert stub.notes == [f"{FOREIGN} waits for 1", f"event on {FOREIGN}"]
    [(function, *shape, stream, _, _)] = stub.driver.named("cuLaunchKernel")
    assert (function, shape, stream) == (1000, [1, 1, 1, 32, 1, 1, 0], FOREIGN)
    owner = weakref.ref(array.owner)
    del array
    gc.collect()
    assert owner() is not None
    other = stub.device.empty(64, "u4")
    kernel[1, 32](other, other, 1)
    kernel[1, 32](other, other, 1)
    assert stub.notes[2:] == [f"1 waits for {FOREIGN}"]
    assert [kept[0].sync() for kept in stub.device.streams.kept] == [None]
    kernel[1, 32](other, other, 1)
    gc.collect()
    assert owner() is None


def test_a_launch_on_a_stream_that_is_captured_waits_for_nothing(stub: StubbedDevice) -> None:
    """The graph of the other library orders it; once the capture is over, the stream is put into order again."""
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    stub.driver.captured.add(FOREIGN)
    kernel[1, 32, FOREIGN](array, array, 1)
    assert len(stub.driver.named("cuLaunchKernel")) + len(stub.quick.launches) == 1
    assert stub.notes == []
    stub.driver.captured.clear()
    kernel[1, 32, FOREIGN](array, array, 1)
    assert stub.notes == [f"{FOREIGN} waits for 1", f"event on {FOREIGN}"]


def test_reading_waits_for_the_default_stream_and_not_for_the_context(stub: StubbedDevice) -> None:
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    kernel[1, 32, FOREIGN](array, array, 1)
    stub.driver.calls.clear()
    array.numpy()
    assert stub.notes[-1] == f"1 waits for {FOREIGN}"
    names = [name for name, _ in stub.driver.calls]
    assert names == ["cuCtxPushCurrent", "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuCtxPopCurrent"]


def test_streams_that_cuda_orders_need_no_events(stub: StubbedDevice) -> None:
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    kernel[1, 32, BLOCKING](array, array, 1)
    kernel[1, 32, 0](array, array, 1)
    assert [args[8] for args in stub.driver.named("cuLaunchKernel")] == [BLOCKING, 1]
    assert stub.notes == []


def test_a_refusal_of_the_driver_is_an_error_with_what_was_refused(stub: StubbedDevice) -> None:
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    stub.driver.refused.add("cuLaunchKernel")
    with pytest.raises(DeviceError, match=r"^cuda:0 refused the launch of copy: CUDA_ERROR_INVALID_VALUE"):
        kernel[1, 32](array, array, 1)
    stub.driver.refused = {"cuCtxPushCurrent"}
    with pytest.raises(DeviceError, match=r"^cuda:0 refused the launch of copy: CUDA_ERROR_INVALID_VALUE"):
        kernel[1, 32](array, array, 1)


def test_arguments_reach_the_driver_as_they_are(stub: StubbedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    array, seen = stub.device.empty(64, "u4"), []

    def launch(self: object, function: int, *rest: Any) -> tuple[Any, ...]:
        pointers = ctypes.cast(rest[8], ctypes.POINTER(ctypes.c_void_p))
        seen.append([ctypes.string_at(pointers[number], size) for number, size in enumerate((8, 8, 4))])
        return (stub.driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(type(stub.driver), "cuLaunchKernel", launch, raising=False)
    stub.load(COPY)["copy"][1, 32](array, array, 77)
    assert seen == [[struct.pack("<Q", array.address)] * 2 + [struct.pack("<I", 77)]]


# -- the short way ---------------------------------------------------------------------------------------------------------------------


def launched(stub: StubbedDevice) -> tuple[int, int]:
    """How many launches went the usual way, and how many the short one."""
    return len(stub.driver.named("cuLaunchKernel")), len(stub.quick.launches)


def test_a_configuration_that_was_launched_once_goes_the_short_way(stub: StubbedDevice) -> None:
    kernels, array = stub.load(COPY), stub.device.empty(64, "u4")
    for more in (1, 77, -1):
        kernels["copy"][(2, 3), 32](array, array, more)
    assert launched(stub) == (1, 2)
    address = struct.pack("<Q", array.address)
    assert stub.quick.launches == [
        ([1000, 2, 3, 1, 32, 1, 1, 0, 1], [address, address, struct.pack("<I", 77)]),
        ([1000, 2, 3, 1, 32, 1, 1, 0, 1], [address, address, b"\xff" * 4]),
    ]
    assert stub.device.context.running == {"copy": None}


@pytest.mark.parametrize("more", [True, 1 << 32, 1.0, np.uint32(1), "1"])
def test_arguments_that_need_a_closer_look_go_the_usual_way(stub: StubbedDevice, more: Any) -> None:
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    kernel[1, 32](array, array, 1)
    if isinstance(more, bool | np.uint32):
        kernel[1, 32](array, array, more)
    else:
        with pytest.raises(BadLaunch, match=r"^argument 3 of copy"):
            kernel[1, 32](array, array, more)
    with pytest.raises(BadLaunch, match=r"^argument 2 of copy"):
        kernel[1, 32](array, np.zeros(4), 1)
    with pytest.raises(BadLaunch, match="takes 3 arguments"):
        kernel[1, 32](array, array)
    assert launched(stub)[1] == 0


def test_memory_of_others_goes_the_usual_way(stub: StubbedDevice) -> None:
    """What holds it until the launch is over is there."""
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    kernel[1, 32](array, array, 1)
    held = DeviceArray(stub.device, array.address, (64,), array.dtype, object())
    kernel[1, 32](array, held, 1)
    assert launched(stub) == (2, 0)
    assert len(stub.device.streams.kept) == 1


def test_observers_and_checks_see_every_launch(stub: StubbedDevice) -> None:
    class Seeing:
        seen = 0

        def launching(self, launch: Launch) -> Launch:
            self.seen += 1
            return launch

    kernel, array, observer = stub.load(COPY)["copy"], stub.device.empty(64, "u4"), Seeing()
    kernel[1, 32](array, array, 1)
    with observing(observer):
        kernel[1, 32](array, array, 1)
    with checking(Check(insist=True)), pytest.raises(MemlaneError, match="cannot check a launch"):
        kernel[1, 32](array, array, 1)
    assert (observer.seen, launched(stub)) == (1, (2, 0))


@pytest.mark.parametrize("what", ["context", "code"])
def test_what_the_short_way_cannot_do_is_done_the_usual_way(stub: StubbedDevice, what: str) -> None:
    """Another context is current, or the driver refuses: then the usual way says why, or launches."""
    kernel, array = stub.load(COPY)["copy"], stub.device.empty(64, "u4")
    kernel[1, 32](array, array, 1)
    setattr(stub.quick, what, 700)
    kernel[1, 32](array, array, 1)
    assert launched(stub)[0] == 2


def test_a_configuration_is_checked_once_and_kept_apart_from_what_equals_it(stub: StubbedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, array, checks = stub.load(COPY)["copy"], stub.device.empty(64, "u4"), []
    monkeypatch.setattr(stub.device, "check_configuration", lambda *given: checks.append(given[1:]))
    for _ in range(3):
        kernel[(2, 1), 32].bind(array, array, 1)
        kernel[1, 32].bind(array, array, 1)
    assert checks == [((2, 1, 1), (32, 1, 1), 0), ((1, 1, 1), (32, 1, 1), 0)]
    for grid in (1.0, True, (2.0, 1)):
        with pytest.raises(BadLaunch, match="the grid must be an int or a tuple of up to 3 ints"):
            kernel[grid, 32]
    assert kernel[1, 32, BLOCKING] is not kernel[1, 32, BLOCKING]
    assert kernel[1, 32] is kernel[1, 32]


CLUSTERED = parse("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 of, .param .u32 more) .reqnctapercluster 4, 1, 1 { ret; }
""")


def test_clusters_that_the_code_names_go_the_short_way_and_others_do_not(stub: StubbedDevice) -> None:
    array = stub.device.empty(64, "u4")
    for module, configuration in ((CLUSTERED, (8, 32)), (COPY, (8, 32, None, 0, 4))):
        kernel = stub.load(module)["copy"]
        for _ in range(3):
            kernel[configuration](array, array, 1)
    assert launched(stub) == (1, 2)
    assert len(stub.driver.named("cuLaunchKernelEx")) == 3


def test_copies_beside_the_host_are_kept_until_they_are_done(stub: StubbedDevice) -> None:
    """One call for elements side by side; one for rows with gaps."""
    array, host = stub.device.empty((4, 8), "u4"), np.zeros((4, 16), "u4")
    stub.device.start_copy(array, host[:, :8], stub.device.adopt_stream(FOREIGN))
    [(node, stream)] = stub.driver.named("cuMemcpy3DAsync")
    assert (node.Height, node.WidthInBytes, node.srcPitch, node.dstPitch, int(stream)) == (4, 32, 64, 32, FOREIGN)
    event = stub.device.start_copy(host[:2], stub.device.empty((2, 16), "u4"))
    [(to, _of, nbytes, stream)] = stub.driver.named("cuMemcpyAsync")
    assert (to, nbytes, int(stream)) == (host.ctypes.data, 128, 1)
    assert len(stub.device.streams.kept) == 2
    assert not event.done()
    event.wait()
    assert event.done()


def test_a_copy_to_another_device_is_ordered_with_its_default_stream(stub: StubbedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind what it did before; what it does later, such as being read, comes behind the copy."""
    other = StubbedDevice(monkeypatch, notes=stub.notes).device
    there, here = other.empty(64, "u4"), stub.device.empty(64, "u4")
    stub.device.start_copy(there, here)
    assert stub.notes[:3] == ["event on 1", "1 waits for stream 1", "event on 1"]
    assert len(other.streams.others) == 1
    there.numpy()
    assert stub.notes[-1] == "1 waits for stream 1"
    assert other.streams.others == []

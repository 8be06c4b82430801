"""Graphs of plans: replayed, bound to other memory, and what keeps memory alive; the same on every target."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch, BadPlan
from memlane.launch import BoundCopy, BoundStep, DeviceArray, End, Target
from memlane.plan import Plan, PlanBuilder
from memlane.ptx import parse
from memlane.targets import BoundPlan, PlanGraph
from tests.launch.fake_target import FakeTarget

ADD = parse("""
.version 8.0
.target sm_90
.address_size 64

.visible .entry add(.param .u64 to, .param .u64 of, .param .u32 more)
{
  .reg .b64 t, o, i8; .reg .b32 i, x, m;
  ld.param.u64 t, [to]; ld.param.u64 o, [of]; ld.param.u32 m, [more];
  mov.u32 i, %tid.x; mul.wide.u32 i8, i, 4; add.s64 t, t, i8; add.s64 o, o, i8;
  ld.global.u32 x, [o]; add.u32 x, x, m; st.global.u32 [t], x; ret;
}
""")
N = 64
FIRST, SECOND = np.arange(N, dtype="u4"), np.arange(N, dtype="u4")[::-1] * 3


def through_the_device(middle: str = "pinned") -> Plan:
    """From the host to the device and back, with a host function at the end: what every target runs."""
    b = PlanBuilder()
    given, here = b.array("given", N, "u4", middle), b.array("here", N, "u4", 0)
    back, halves = b.array("back", N, "u4", "pinned"), b.array("halves", (2, N // 2), "u4", "pinned")
    b.copy(here, given)
    b.copy(back, here)
    b.copy(halves[0], here[: N // 2])
    b.copy(halves[1], here[N // 2 :])
    return b.plan()


def pinned(target: Target, values: Any) -> Any:
    array = target.pinned(np.shape(values), "u4")
    array[...] = values
    return array


def finished(target: Target) -> None:
    """Nothing is under way, and nothing that was given up is still remembered."""
    target.sync()
    if isinstance(target, FakeTarget):
        target.graphs.clear()
    gc.collect()


def bound_to(target: Target, plan: Plan, values: Any) -> PlanGraph:
    return BoundPlan(plan, {"given": pinned(target, values), "here": target.zeros(N, "u4")}, targets=[target]).graph()


def test_a_graph_is_replayed_with_what_its_memory_holds_then(any_target: Target) -> None:
    graph = bound_to(any_target, through_the_device(), FIRST)
    for values in (FIRST, SECOND):
        graph.memory["given"][...] = values
        graph.replay()
        graph.wait()
        assert np.array_equal(graph.memory["back"], values)
        assert np.array_equal(np.ravel(graph.memory["halves"]), values)


@pytest.mark.parametrize("home", ["pinned", "host"])
def test_a_graph_is_rebound_to_and_fro(any_target: Target, home: str) -> None:
    plan = through_the_device(home)
    one, other = pinned(any_target, FIRST), pinned(any_target, SECOND)
    there, elsewhere = any_target.zeros(N, "u4"), any_target.zeros(N, "u4")
    graph = BoundPlan(plan, {"given": one, "here": there}, targets=[any_target]).graph()
    outs = [pinned(any_target, np.zeros(N)) for _ in range(4)]
    for turn, out in enumerate(outs):
        graph.rebind({"given": (one, other)[turn % 2], "here": (there, elsewhere)[turn % 2], "back": out})
        graph.replay()
    graph.wait()
    assert [np.array_equal(out, (FIRST, SECOND)[turn % 2]) for turn, out in enumerate(outs)] == [True] * 4
    assert np.array_equal(there.numpy(), FIRST)
    assert np.array_equal(elsewhere.numpy(), SECOND)


def test_copies_with_gaps_are_rebound_too(any_target: Target) -> None:
    """No CUDA graph takes up another place for these; the result is the same."""
    b = PlanBuilder()
    wide, tall = b.array("wide", (8, 16), "u4", "pinned"), b.array("tall", (16, 8), "u4", 0)
    b.copy(tall[:8], wide[:, 3:11])
    first, second = (np.arange(128, dtype="u4").reshape(8, 16) + start for start in (0, 1000))
    one, other = any_target.zeros((16, 8), "u4"), any_target.zeros((16, 8), "u4")
    graph = BoundPlan(b.plan(), {"wide": pinned(any_target, first), "tall": one}, targets=[any_target]).graph()
    graph.replay()
    graph.rebind({"wide": pinned(any_target, second), "tall": other})
    graph.replay()
    graph.wait()
    assert np.array_equal(one.numpy()[:8], first[:, 3:11])
    assert np.array_equal(other.numpy()[:8], second[:, 3:11])


@pytest.mark.parametrize("any_target", ["emulator", "graphing", pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
def test_kernels_ping_pong(any_target: Target) -> None:
    b = PlanBuilder()
    old, new = b.array("old", N, "u4", 0), b.array("new", N, "u4", 0)
    kernels = any_target.load(ADD)
    b.launch(kernels["add"], 1, N, new, old, 5, reads=[old], writes=[new])
    here, there = any_target.array(FIRST), any_target.zeros(N, "u4")
    graph = BoundPlan(b.plan(), {"old": here, "new": there}, targets=[any_target], modules=[kernels]).graph()
    for turn in range(7):
        if turn:
            graph.rebind({"old": graph.memory["new"], "new": graph.memory["old"]})
        graph.replay()
    graph.wait()
    assert np.array_equal(there.numpy(), FIRST + 35)
    assert np.array_equal(here.numpy(), FIRST + 30)


def test_a_graph_keeps_memory_and_lets_go_of_what_it_was_bound_to(any_target: Target) -> None:
    graph = bound_to(any_target, through_the_device(), FIRST)
    before = graph.memory["here"]
    assert isinstance(before, DeviceArray)
    watched = weakref.ref(before)
    del before
    gc.collect()
    assert watched() is not None
    graph.replay()
    graph.rebind({"here": any_target.zeros(N, "u4")})
    graph.replay()
    graph.wait()
    finished(any_target)
    assert watched() is None
    assert np.array_equal(graph.memory["back"], FIRST)


def test_steps_of_a_graph_keep_what_they_copy(any_target: Target) -> None:
    """Also without the plan that they are from."""
    source, out = any_target.array(FIRST), pinned(any_target, np.zeros(N))
    b = PlanBuilder()
    here, back = b.array("here", N, "u4", 0), b.array("back", N, "u4", "pinned")
    b.copy(back, here)
    prepared = BoundPlan(b.plan(), {"here": source, "back": out}, targets=[any_target]).graph().prepared
    watched = weakref.ref(source)
    del source
    gc.collect()
    others = [any_target.zeros(N, "u4") for _ in range(4)]
    prepared.replay()
    prepared.wait()
    assert np.array_equal(out, FIRST)
    assert len(others) == 4
    del prepared
    finished(any_target)
    assert watched() is None


Rebind = Callable[[PlanGraph, Target], object]


@pytest.mark.parametrize(
    ("rebind", "message"),
    [
        (lambda g, t: g.rebind({"there": t.zeros(N, "u4")}), r"^the plan has no buffer 'there' to bind; it has back, given, halves, here$"),
        (
            lambda g, t: g.rebind({"here": t.zeros(N // 2, "u4")}),
            r"^buffer 'here' has 256 bytes, but is bound to an array of 128$",
        ),
        (
            lambda g, t: g.rebind({"here": t.zeros((2, N), "u4")}),
            r"^buffer 'here' is bound to uint32\[64\] and cannot be rebound to uint32\[2, 64\]: bind an array of the same shape and type$",
        ),
        (
            lambda g, t: g.rebind({"here": t.zeros(N, "f4")}),
            r"^buffer 'here' is bound to uint32\[64\] and cannot be rebound to float32\[64\]",
        ),
        (
            lambda g, t: g.rebind({"here": Emulator(load("h200"), name="the other").zeros(N, "u4")}),
            r"^buffer 'here' belongs to device 0, .*, but is bound to an array on the other$",
        ),
        (
            lambda g, t: g.rebind({"here": np.zeros(N, "u4")}),
            r"^buffer 'here' belongs to device 0: bind an array of .*, not a nd",
        ),
    ],
)
def test_memory_that_does_not_fit_is_refused_by_name(any_target: Target, rebind: Rebind, message: str) -> None:
    graph = bound_to(any_target, through_the_device(), FIRST)
    with pytest.raises(BadPlan, match=message):
        rebind(graph, any_target)
    graph.replay()
    graph.wait()
    assert np.array_equal(graph.memory["back"], FIRST)


def test_other_steps_are_refused(any_target: Target) -> None:
    a, b = any_target.zeros(N, "u4"), any_target.zeros(N, "u4")
    copy = BoundCopy(End(a.address, (4,), any_target, a), End(b.address, (4,), any_target, b), (N,), 4)
    graph = Emulator(load("h200")).graph_of_steps([BoundStep(copy, any_target)])
    with pytest.raises(
        BadLaunch, match=r"^a graph can be updated only with steps of the same kinds in the same order: prepare another graph$"
    ):
        graph.update([])


def test_waiting_without_stopping_the_host(any_target: Target) -> None:
    """A task of asyncio waits for two plans, while another goes on."""
    plan = through_the_device()
    bound = [
        BoundPlan(plan, {"given": pinned(any_target, values), "here": any_target.zeros(N, "u4")}, targets=[any_target])
        for values in (FIRST, SECOND)
    ]

    async def both() -> list[Any]:
        started = [one.start() for one in bound]
        found = [(await one)["back"] for one in started]
        assert all(one.done() for one in started)
        return found

    backs = asyncio.run(both())
    assert np.array_equal(backs[0], FIRST)
    assert np.array_equal(backs[1], SECOND)
    assert np.array_equal(bound[0].start().wait()["back"], FIRST)


def test_an_event_is_done_behind_its_stream(any_target: Target) -> None:
    stream, out = any_target.stream(), pinned(any_target, np.zeros(N))
    array = any_target.array(FIRST)
    copied = any_target.start_copy(out, array, stream)
    any_target.wait_for(copied)
    copied.wait()
    assert copied.done()
    assert np.array_equal(out, FIRST)
    any_target.start_copy(array, pinned(any_target, SECOND)).wait()
    assert np.array_equal(array.numpy(), SECOND)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda t: t.start_copy(t.zeros(4), t.zeros(5)),
            r"^cannot copy float32\[5\] to float32\[4\]: their shapes ",
        ),
        (
            lambda t: t.adopt_stream("s"),
            r"^a str is not a stream for .*: pass one of target.stream\(\), an object with ",
        ),
        (lambda t: t.adopt_stream(77), r"^the number 77 is not a stream for "),
        (
            lambda t: t.wait_for("e"),
            r"^a str is not an event for .*|cannot use events of other libraries: wait on the host",
        ),
    ],
)
def test_what_is_no_stream_and_no_copy_is_refused(any_target: Target, act: Callable[[Target], object], message: str) -> None:
    with pytest.raises(BadLaunch, match=message):
        act(any_target)


class Foreign:
    """A stream of another library."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_streams_of_other_libraries_on_targets_without_streams() -> None:
    target = Emulator(load("h200"))
    kernels, out = target.load(ADD), target.zeros(N, "u4")
    for stream in (Foreign(1 << 20), 1 << 20, Foreign(0), None):
        kernels["add"][1, N, stream](out, out, 1)
    assert np.array_equal(out.numpy(), np.full(N, 4))
    numbers = [target.adopt_stream(one).number for one in (Foreign(1 << 20), 1 << 20, 1 << 21)]
    assert numbers == [1, 1, 2]
    assert target.stream().number == 3
    assert target.adopt_stream(Foreign(0)) is target.adopt_stream(1) is target.default_stream

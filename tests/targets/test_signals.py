"""Puts and waits on targets: what arrives, how often it counts, devices that run side by side, and waits that would never end."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.errors import BadPlan, LaunchError
from memlane.launch import BoundStep, Stream, Target
from memlane.plan import PlanBuilder
from memlane.targets import BoundPlan, signals
from memlane.targets.plan_graphs import steps_of_device
from tests.plan.test_signals import ring
from tests.targets.graphing import GraphingEmulator, ShuffledGraph


@st.composite
def pieces(draw):
    """Parts of two arrays of one shape, with steps between their elements, and the size of these."""
    dtype = draw(st.sampled_from(["u1", "u2", "f4", "f8", "c16"]))
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    cuts = [tuple(slice(draw(st.integers(0, 2)), None, draw(st.sampled_from([1, 1, 2, 3]))) for _ in shape) for _ in range(2)]
    return dtype, shape, cuts


@settings(max_examples=15, deadline=None)
@given(st.lists(pieces(), min_size=1, max_size=3))
def test_a_put_stores_what_copies_would(drawn):
    b = PlanBuilder()
    pairs, memory, expected = [], {}, {}
    targets = ml.devices("emulator:h200", 2)
    for number, (dtype, shape, cuts) in enumerate(drawn):
        extents = tuple(3 * extent + 3 for extent in shape)
        views = [b.array(f"{name}{number}", extents, dtype, at) for at, name in enumerate(("of", "to"))]
        (of, of_cut), (to, to_cut) = zip(views, cuts, strict=True)
        parts = [tuple(slice(cut.start, cut.start + cut.step * extent, cut.step) for cut, extent in zip(one, shape, strict=True))
                 for one in (of_cut, to_cut)]  # fmt: skip
        pairs.append((to[parts[1]], of[parts[0]]))
        rng = np.random.default_rng(number)
        values = [rng.integers(0, 256, (*extents, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0] for _ in range(2)]
        memory |= {view.buffer.name: targets[at].array(value) for at, (view, value) in enumerate(zip(views, values, strict=True))}
        values[1][parts[1]] = values[0][parts[0]]
        expected[to.buffer.name] = values[1]
    flag = b.flag("flag", 1)
    put = b.put(pairs, [flag], device=0)
    b.wait([flag], device=1, after=[put])
    done = ml.run(b.plan(), memory, targets=targets)
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(done[name].numpy()).view("u1"), value.view("u1"))
    assert done["flag"].numpy()[0] == 1


def rows(targets: Sequence[Target]) -> dict[str, Any]:
    return {f"rows{at}": target.array(np.arange(32, dtype="f4").reshape(4, 8) + 100 * at) for at, target in enumerate(targets)}


def test_flags_count_on_from_run_to_run():
    targets = ml.devices("emulator:h200", 2)
    bound = BoundPlan(ring(5), rows(targets), targets=targets)
    for runs in (1, 2):
        done = bound.run()
        assert [done[f"flag{at}"].numpy()[0] for at in range(2)] == [5 * runs] * 2
    assert done["rows0"].numpy()[3].tolist() == [116.0 + at for at in range(8)]
    graph = bound.graph()
    graph.replay()
    graph.wait()
    assert graph.memory["flag0"].numpy()[0] == 15
    with pytest.raises(BadPlan, match=r"buffer 'flag0' is a flag, whose memory is made with the plan: leave it out"):
        BoundPlan(ring(), rows(targets) | {"flag0": targets[0].zeros(32, "u4")}, targets=targets)
    with pytest.raises(BadPlan, match=r"buffer 'flag0' is a flag"):
        graph.rebind({"flag0": targets[0].zeros(32, "u4")})


def test_times_are_modelled_as_messages():
    """A put takes a launch and its bytes at the rate between devices, a wait the time of a flag."""
    targets = ml.devices("emulator:h200", 2)
    links = targets[0].chip.links
    line = BoundPlan(ring(1), rows(targets), targets=targets).time()
    by_kind = {span.kind: span for span in line.spans}
    assert by_kind["wait"].elapsed_ns == pytest.approx(1e3 * links.flag_us)
    assert by_kind["put"].elapsed_ns == pytest.approx(1e3 * links.launch_us + 32 / links.peer_gb_per_s)
    text = str(ml.predicted(ring(1), [targets[0].chip] * 2, lambda launch, device: 0.0))
    assert "device 0 queue 0: put 32 B to rows1, raise flag1" in text


def test_a_wait_that_nobody_ends_is_an_error_that_names_it():
    targets = ml.devices("emulator:h200", 2)
    bound = BoundPlan(ring(), rows(targets), targets=targets)
    bound.run()
    with pytest.raises(
        LaunchError,
        match=r"device 1 \(emulator:h200:1\) waited at step 0\.8 \(wait for flag1\) for flag 'flag1', which device 0 \(emulator:h200\) "
        r"raises at step 0\.4 \(put 32 B to rows1, raise flag1\): it was raised 1 times, but 4 were expected\. "
        r"The results in memory are incomplete; set MEMLANE_WAIT_LIMIT_S",
    ):
        _raised_never(bound)
    assert bound.run()["flag1"].numpy()[0] == 3  # counts begin anew


def _raised_never(bound: BoundPlan) -> None:
    """Run the plan with a put that counts from 0 again, so that the flag never gets as far as its wait is."""
    flags = bound._actions.flags
    for (waits, flag), count in flags._counts.items():
        if not waits and flag.buffer.name == "flag1":
            count.copy_from(np.zeros(2, "u4"))
    bound.run()


@pytest.mark.parametrize("limit", ["0", "soon", "nan"])
def test_the_limit_of_waits_is_seconds(limit, monkeypatch):
    monkeypatch.setenv(signals.LIMIT, limit)
    with pytest.raises(BadPlan, match=rf"MEMLANE_WAIT_LIMIT_S is '{limit}': give the seconds after which a device stops waiting"):
        signals.wait_limit_s()


def test_what_one_put_cannot_do():
    b = PlanBuilder()
    of, to = b.array("of", (70, 8), "f4", 0), b.array("to", (70, 8), "f4", 1)
    flag = b.flag("flag", 1)
    put = b.put([(to[at], of[at]) for at in range(40)], [flag], device=0)
    b.wait([flag], device=1, after=[put])
    targets = ml.devices("emulator:h200", 2)
    with pytest.raises(BadPlan, match=r"a put moves at most 32 blocks of three axes and raises 32 flags, not 40 and 1: use several puts"):
        BoundPlan(b.plan(), {"of": targets[0].zeros((70, 8))}, targets=targets)


class SideBySide(GraphingEmulator):
    """Takes itself for a GPU whose graphs run while the host goes on: the devices wait for each other by flags alone.

    How often a device polls before a flag is raised says nothing: it polls while the host compiles kernels of the others, and while it does
    other things. So the emulator never calls a wait endless; `patient` lets waits themselves give up as late as their counts allow.
    """

    def __init__(self, device: int, seed: int) -> None:
        super().__init__(device, seed)
        self.patience = 1 << 50

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> ShuffledGraph:
        return StartedGraph(self, tuple(steps))


@dataclass
class StartedGraph(ShuffledGraph):
    under_way: list[Future[None]] = field(default_factory=list)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def replay(self, stream: Stream | None = None) -> None:
        assert {step.target for step in self.steps} == {self.target}
        self.under_way.append(self.pool.submit(super().replay))

    def wait(self) -> None:
        while self.under_way:
            self.under_way.pop(0).result()


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setenv(signals.LIMIT, "900000")
    most = (1 << 32) - 1 - signals._POLLS  # naps are no pauses on emulated devices, only polls, which a kernel counts in 32 bits
    monkeypatch.setattr(signals, "_PAUSES_PER_SECOND", most / signals.wait_limit_s())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("patient")
def test_devices_that_replay_graphs_of_their_own_wait_by_flags_alone(seed):
    targets = [SideBySide(at, seed + at) for at in range(2)]
    bound = BoundPlan(ring(10), rows(targets), targets=targets)
    for runs in (1, 2):
        done = bound.run()
        assert [done[f"flag{at}"].numpy()[0] for at in range(2)] == [10 * runs] * 2
    assert done["rows0"].numpy()[0].tolist() == [116.0 + at for at in range(8)]
    assert done["rows1"].numpy()[3].tolist() == [16.0 + at for at in range(8)]


def test_a_plan_with_another_order_between_devices_is_one_graph():
    b = PlanBuilder()
    of, to, back = b.array("of", 32, "u4", 0), b.array("to", 32, "u4", 1), b.array("back", 32, "u4", 0)
    flag = b.flag("flag", 1)
    put = b.put([(to, of)], [flag], device=0)
    wait = b.wait([flag], device=1, after=[put])
    b.copy(back, to, device=0, after=[wait])
    targets = [GraphingEmulator(at) for at in range(2)]
    targets[0].enable_peer(targets[1])
    bound = BoundPlan(b.plan(), {"of": targets[0].array(np.arange(32, dtype="u4"))}, targets=targets)
    assert not bound._is_separable
    steps, _ = bound._actions.steps(bound.order)
    assert [step.waits for step in steps] == [(), (), (0, 1)]  # the wait does not stand behind the put
    assert [step.waits for step in steps_of_device(steps[:2], targets[1])] == [()]


@pytest.mark.usefixtures("patient")
def test_every_device_begins_behind_what_is_under_way_on_all_of_them(monkeypatch):
    """Flags are cleared on the device that waits for them; a put of another one must not come before that."""
    targets = [SideBySide(at, at) for at in range(2)]
    bound = BoundPlan(ring(2), rows(targets), targets=targets)
    recorded, waited = [], []
    for target in targets:
        event = object()
        monkeypatch.setattr(target, "record", lambda stream=None, event=event: recorded.append(event) or event)
        monkeypatch.setattr(target, "wait_for", lambda event, stream=None, target=target: waited.append((target, stream.number, event)))
    bound._start_separately(bound._segment_graphs(), targets[0].default_stream)
    begins, ends = recorded[:2], recorded[2:]
    numbers = [stream.number for stream in bound._streams]
    assert waited[:4] == [(target, number, event) for target, number in zip(targets, numbers, strict=True) for event in begins]
    assert waited[4:] == [(targets[0], 0, event) for event in ends]
    for _, graph in bound._segment_graphs():
        graph.wait()


@pytest.mark.usefixtures("patient")
def test_a_device_without_a_step_in_a_piece_of_a_plan_has_no_graph_there():
    """A repeat that may end early is a piece of its own, behind which the host looks."""
    b = PlanBuilder()
    x, y, there = b.array("x", 32, "u4", 0), b.array("y", 32, "u4", 0), b.array("there", 32, "u4", 1)
    flag, end = b.flag("flag", 1), b.array("end", (), "i4", "host")
    with b.repeat(4, rotate=[(x, y)], until=end, every=2) as loop:
        loop.copy(y, x)
    put = b.put([(there, y)], [flag], device=0, after=[loop])
    b.wait([flag], device=1, after=[put])
    targets = [SideBySide(at, at) for at in range(2)]
    bound = BoundPlan(b.plan(), {"x": targets[0].array(np.arange(32, dtype="u4")), "end": np.ones((), "i4")}, targets=targets)
    done = bound.run()
    assert done["there"].numpy().tolist() == list(range(32))
    assert done.turns == {(0,): 2}
    assert [len(graph._graphs) for _, graph in bound._segment_graphs()] == [1, 2]

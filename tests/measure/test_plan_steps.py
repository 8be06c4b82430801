"""Whole plans counted and checked: one result for each launch, with its step, turn and device, and the copies between them."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.errors import CheckFailed
from memlane.launch import BoundStep, Launch, module_digest, observing
from memlane.measure import Counter
from memlane.plan import Buffer, KernelRef, Plan, PlanBuilder, planned
from memlane.ptx import parse
from memlane.targets import BoundPlan, devices
from tests.targets.test_plans import SIGNALS

N = 64
MODULE = parse("""
.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 sum, .param .u64 one, .param .u32 step)
{
  .reg .b64 s, o, a, b, far; .reg .b32 i, v, w, t;
  ld.param.u64 s, [sum]; ld.param.u64 o, [one]; ld.param.u32 t, [step]; mov.u32 i, %tid.x; mul.lo.u32 i, i, t;
  mul.wide.u32 far, i, 4; add.s64 a, s, far; add.s64 b, o, far;
  ld.global.u32 v, [b]; add.u32 v, v, 1; st.global.u32 [a], v; ret;
}
""")


def stepping() -> Plan:
    """A kernel on each of two devices in three turns, with strides that differ, and a copy between them; then one to the host."""
    add = devices("emulator:h200", 1)[0].load(MODULE)["add"]
    b = PlanBuilder()
    arrays = [(b.array(f"one{device}", 4 * N, "u4", device), b.array(f"two{device}", 4 * N, "u4", device)) for device in range(2)]
    with b.repeat(3, rotate=arrays) as loop:
        ran = [loop.launch(add, 1, 32, two, one, 1 + device, device=device) for device, (one, two) in enumerate(arrays)]
        moved = loop.copy(arrays[1][1][:8], arrays[0][1][:8], queue=1, after=ran, label="edge")
        loop.carry(moved, to=ran)
    b.copy(b.array("back", 4 * N, "u4", "host"), arrays[0][1], after=[loop])
    return b.plan()


def bound() -> BoundPlan:
    targets = devices("emulator:h200", 2)
    memory = {f"{name}{device}": targets[device].zeros(4 * N, "u4") for device in range(2) for name in ("one", "two")}
    return BoundPlan(stepping(), memory, targets=targets, modules=[MODULE])


def test_each_launch_of_a_plan_has_its_counts_and_says_where_it_ran() -> None:
    found = ml.count(bound())
    names = [target.name for target in devices("emulator:h200", 2)]
    assert [(one.path, one.turns, one.device, one.name) for one in found.launches] == [
        ((0, device), (turn,), names[device], "add") for turn in range(3) for device in range(2)
    ]
    # 32 lanes of 4 bytes: 4 sectors side by side, 8 where every other word is touched.
    assert [one.result.total().sectors for one in found.launches if one.result] == [8, 16] * 3
    assert found.launches[1].place == "0.1 turn 0"


def test_copies_appear_with_their_bytes_and_ends() -> None:
    found = ml.count(bound())
    names = [target.name for target in devices("emulator:h200", 2)]
    assert [(one.path, one.turns, one.nbytes, one.source, one.destination) for one in found.copies] == [
        *(((0, 2), (turn,), 32, names[0], names[1]) for turn in range(3)),
        ((1,), (), 16 * N, names[0], "host"),
    ]
    assert len(found) == 10
    assert str(found[2]) == f"0.2 turn 0  {names[0]}  copy 32 B {names[0]} -> {names[1]}"
    assert str(found).count("\n") == 9


def test_a_plan_leaves_the_memory_that_it_leaves_by_itself() -> None:
    counted, ran = bound(), bound()
    ml.count(counted)
    ran.run()
    for buffer, memory in ran.memory.items():
        np.testing.assert_array_equal(np.asarray(counted.memory[buffer]), np.asarray(memory))


def test_checking_a_plan_gives_the_reports_of_each_launch() -> None:
    add = devices("emulator:h200", 1)[0].load(MODULE)["add"]
    b = PlanBuilder()
    one, two = b.array("one", N, "u4"), b.array("two", N, "u4")
    b.launch(add, 1, 32, two, one, 1)
    b.launch(add, 1, 32, one, two, 1, reads=[two], writes=[one[:16]])
    target = devices("emulator:h200", 1)[0]
    memory = {"one": target.zeros(N, "u4"), "two": target.zeros(N, "u4")}
    plain, strict = ml.check(BoundPlan(b.plan(), memory, targets=[target], modules=[MODULE]))
    assert plain.result == ()
    assert strict.result is not None
    assert [report.what.partition(" (")[0] for report in strict.result] == ["step 1 wrote byte 64 of buffer 'one'"]
    with pytest.raises(CheckFailed, match="sectors"):
        ml.check(bound(), max_sectors_per_request=4)
    assert len(ml.check(bound(), max_sectors_per_request=8).launches) == 6


class Recorder:
    """Sees what happens, and changes nothing."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def launching(self, launch: Launch) -> Launch:
        self.seen.append("launch" if launch.origin is None else launch.origin.name)
        return launch

    def passing(self, step: BoundStep) -> None:
        assert step.origin is not None
        self.seen.append(step.origin.name)


def test_observers_see_the_steps_of_a_plan_in_their_order() -> None:
    recorder = Recorder()
    with observing(recorder):
        bound().run()
    inner = [f"step 0.{step}{label} in turn {turn}" for turn in range(3) for step, label in enumerate(["", "", " (edge)"])]
    assert recorder.seen == [*inner, "step 1"]


def test_a_plan_that_is_counted_under_an_observer_is_seen_by_it_once() -> None:
    """The measurement is not theirs to see, nor does the plan run twice."""
    recorder, counter = Recorder(), Counter()
    plan = bound()
    with observing(recorder), counter:
        inner = ml.count(plan)
    assert len(recorder.seen) == 10
    assert [one.total() for one in counter.finish()] == [one.result.total() for one in inner.launches if one.result]
    expected = bound()
    expected.run()
    for buffer, memory in expected.memory.items():
        np.testing.assert_array_equal(np.asarray(plan.memory[buffer]), np.asarray(memory))


def test_plans_without_observers_carry_no_origins() -> None:
    """Which would cost time at each launch."""
    plan = bound()
    plan.run()
    assert all(launch.origin is None for launch in plan._actions.launches)


def test_a_trace_of_a_plan_holds_all_its_devices() -> None:
    trace = ml.trace(bound())
    names = [target.name for target in devices("emulator:h200", 2)]
    assert sorted((one.path, one.turns, one.device) for one in trace.launches) == sorted(
        ((0, device), (turn,), names[device]) for turn in range(3) for device in range(2)
    )
    assert sorted(trace.devices) == names
    rows = trace.table.to_pylist()
    assert {(row["launch"], row["device"]) for row in rows} == {(one.id, one.device) for one in trace.launches}
    assert len(rows) == 2 * len(trace.launches)
    # Which is told by the transactions: those of the second device touch every other word.
    assert {(row["device"], row["sectors"]) for row in rows if row["op"] == "ld.global.u32"} == {(names[0], 4), (names[1], 8)}
    assert [(one.path, one.turns, one.nbytes, one.source, one.destination) for one in trace.copies] == [
        *(((0, 2), (turn,), 32, names[0], names[1]) for turn in range(3)),
        ((1,), (), 16 * N, names[0], "host"),
    ]


def test_a_traced_plan_leaves_the_memory_that_it_leaves_by_itself() -> None:
    traced, ran = bound(), bound()
    ml.trace(traced)
    ran.run()
    for buffer, memory in ran.memory.items():
        np.testing.assert_array_equal(np.asarray(traced.memory[buffer]), np.asarray(memory))


def test_equal_launches_on_many_queues_have_their_own_records() -> None:
    """Each reads elsewhere; only the number that the host gave it tells it from the others."""
    add = devices("emulator:h200", 1)[0].load(MODULE)["add"]
    b = PlanBuilder()
    to, of = b.array("to", 8 * N, "u4"), b.array("of", 8 * N, "u4")
    for queue in range(6):
        part = slice(queue * N, (queue + 1) * N)
        b.launch(add, 1, 32, to[part], of[part], 1 + queue % 2, queue=queue, reads=[of[part]], writes=[to[part]])
    target = devices("emulator:h200", 1)[0]
    memory = {"to": target.zeros(8 * N, "u4"), "of": target.zeros(8 * N, "u4")}
    trace = ml.trace(BoundPlan(b.plan(), memory, targets=[target], modules=[MODULE]))
    loads = [row for row in trace.table.to_pylist() if row["op"] == "ld.global.u32"]
    found = {(trace.launches[row["launch"]].path[0], row["sectors"]) for row in loads}
    assert found == {(queue, 4 if queue % 2 == 0 else 8) for queue in range(6)}


def together() -> BoundPlan:
    """Two kernels that wait for each other, on a device each."""
    targets = devices("emulator:h200", 2)
    flags = [Buffer(f"flag{device}", 4, device).view("u4", 1) for device in range(2)]
    b = PlanBuilder()
    ping = KernelRef(module_digest(SIGNALS), "ping")
    with b.repeat(1) as loop:
        loop.together((device, planned(ping, 1, 1, flags[device], flags[1 - device], int(device == 0))) for device in range(2))
    memory = {f"flag{device}": targets[device].zeros(1, "u4") for device in range(2)}
    return BoundPlan(b.plan(), memory, targets=targets, modules=[SIGNALS])


def test_launches_that_run_together_have_a_result_each() -> None:
    names = [target.name for target in devices("emulator:h200", 2)]
    counted = ml.count(together())
    assert [(one.path, one.turns, one.device) for one in counted.launches] == [
        ((0, 0), (turn,), name) for turn in range(1) for name in names
    ]
    assert all(one.result is not None and one.result.total().sectors for one in counted.launches)
    trace = ml.trace(together())
    assert sorted((one.turns, one.device) for one in trace.launches) == sorted(((turn,), name) for turn in range(1) for name in names)
    rows = trace.table.to_pylist()
    assert {(row["launch"], row["device"]) for row in rows} == {(one.id, one.device) for one in trace.launches}

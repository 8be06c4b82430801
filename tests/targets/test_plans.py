"""Plans that run on emulated devices, against an interpreter of plain bytes; and what cannot be bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import Links, load
from memlane.emulate import Emulator
from memlane.errors import BadAccess, BadLaunch, BadPlan, Deadlock
from memlane.launch import BoundStep, StepGraph, Target, module_digest, observing
from memlane.plan import Buffer, Copy, HostCall, KernelRef, Launch, Plan, PlanBuilder, Repeat, Step, View, planned, races
from memlane.ptx import parse
from memlane.targets import BoundPlan, devices, run
from tests.plan.random_plans import views
from tests.targets.graphing import GraphingEmulator

MIX = parse("""
.version 8.0
.target sm_90
.address_size 64

.visible .entry nothing() { ret; }
.visible .entry mix(.param .u64 to, .param .s64 to_step, .param .u64 of, .param .s64 of_step, .param .u32 count, .param .u32 add)
{
  .reg .b64 t, ts, o, os; .reg .b32 i, n, a, x, y; .reg .pred p; .reg .b16 h;
  ld.param.u64 t, [to]; ld.param.s64 ts, [to_step]; ld.param.u64 o, [of]; ld.param.s64 os, [of_step];
  ld.param.u32 n, [count]; ld.param.u32 a, [add]; mov.u32 i, 0;
LOOP:
  setp.ge.u32 p, i, n; @p bra DONE;
  ld.global.u16 h, [t]; cvt.u32.u16 x, h; ld.global.u16 h, [o]; cvt.u32.u16 y, h;
  mad.lo.u32 x, x, 3, y; add.u32 x, x, a; cvt.u16.u32 h, x; st.global.u16 [t], h;
  add.s64 t, t, ts; add.s64 o, o, os; add.u32 i, i, 1; bra LOOP;
DONE:
  ret;
}
""")
H200 = Emulator(load("h200"))
EIGHT = np.zeros(8, "u2")
KERNEL, NOTHING = KernelRef(module_digest(MIX), "mix"), KernelRef(module_digest(MIX), "nothing")


def mixed(to: View, of: View, add: Any) -> Launch:
    """One thread: `to[i] = 3 * to[i] + of[i] + add`, element after element, in 16 bits."""
    return planned(KERNEL, 1, 1, to, to.strides[0], of, of.strides[0], to.size, add, reads=[to, of], writes=[to])


def mix_on_host(to: npt.NDArray[Any], of: npt.NDArray[Any], add: int) -> None:
    for index in range(len(to)):
        to[index] = (3 * int(to[index]) + int(of[index]) + add) % (1 << 16)


@st.composite
def ordered_plans(draw: st.DrawFn, count: int) -> Plan:
    """Plans in which every step waits for some before it, often for all of them, so that many have no race."""
    homes = [draw(st.sampled_from([*range(count), "host", "pinned"])) for _ in range(draw(st.integers(2, 3)))]
    buffers = [Buffer(f"b{number}", 16, home) for number, home in enumerate(homes)]
    strict = draw(st.sampled_from([True, False]))

    def unsigned(view: View) -> View:
        return View(view.buffer, "u2", view.shape, view.strides, view.offset)

    def step(position: int, total: int, in_repeat: bool) -> Step:
        after = tuple(range(position)) if strict else tuple(draw(st.sets(st.integers(0, position - 1), max_size=1))) if position else ()
        carried = tuple(range(total)) if in_repeat and strict else ()
        size, queue = draw(st.integers(1, 3)), draw(st.integers(0, 2))
        to, of = unsigned(draw(views(buffers, size))), unsigned(draw(views(buffers, size)))
        device = to.buffer.home if isinstance(to.buffer.home, int) else None
        if draw(st.booleans()) and not to.overlaps(of):
            mover = device if device is not None else of.buffer.home if isinstance(of.buffer.home, int) else None
            return Step(Copy(to, of), mover, queue, after, carried)
        if device is not None and isinstance(of.buffer.home, int):
            return Step(mixed(to, of, draw(st.integers(0, 5))), device, queue, after, carried)
        if device is None and of.buffer.is_on_host:
            call = HostCall("tests.targets.test_plans:mix_on_host", (to, of, 7), (to, of), (to,))
            return Step(call, None, queue, after, carried)
        return Step(planned(NOTHING, 1, 1), 0, queue, after, carried)

    def some(depth: int, in_repeat: bool) -> tuple[Step | Repeat, ...]:
        total = draw(st.integers(2, 5))
        items: list[Step | Repeat] = []
        for position in range(total):
            if depth and draw(st.integers(0, 3)) == 0:
                alike = [[one for one in buffers if one.home == home] for home in dict.fromkeys(homes)]
                groups = [tuple(group) for group in alike if len(group) > 1 and draw(st.booleans())]
                items.append(Repeat(some(depth - 1, True), draw(st.integers(0, 5)), tuple(groups), after=tuple(range(position))))
            else:
                items.append(step(position, total, in_repeat))
        return tuple(items)

    return Plan(some(1, False))


def interpreted(plan: Plan, memory: dict[str, npt.NDArray[np.uint8]]) -> None:
    """Run a plan step by step on plain bytes, in the order of the text."""

    def elements(view: View, names: dict[str, str]) -> npt.NDArray[Any]:
        data = memory[names.get(view.buffer.name, view.buffer.name)]
        places = view.offset + np.arange(view.shape[0]) * view.strides[0]
        return np.array([data[place : place + 2].view("u2") for place in places]).reshape(-1)

    def store(view: View, names: dict[str, str], values: npt.NDArray[Any]) -> None:
        data = memory[names.get(view.buffer.name, view.buffer.name)]
        for index, value in enumerate(values):
            place = view.offset + index * view.strides[0]
            data[place : place + 2] = np.array([value], "u2").view(np.uint8)

    def execute(items: Sequence[Step | Repeat], names: dict[str, str]) -> None:
        for item in items:
            if isinstance(item, Repeat):
                for turn in range(item.count):
                    inner = dict(names)
                    for group in item.rotate:
                        for place, buffer in enumerate(group):
                            other = group[(place + turn) % len(group)].name
                            inner[buffer.name] = names.get(other, other)
                    execute(item.steps, inner)
                continue
            action = item.action
            if isinstance(action, Copy):
                store(action.destination, names, elements(action.source, names))
                continue
            assert isinstance(action, Launch | HostCall)
            given = [one for one in action.arguments if isinstance(one, View)]
            if given:
                # A thread that writes what it reads next sees it.
                to, of = given
                for index in range(to.size):
                    value = 3 * int(elements(to, names)[index]) + int(elements(of, names)[index]) + int(action.arguments[-1])  # type: ignore[arg-type]
                    changed = elements(to, names)
                    changed[index] = value % (1 << 16)
                    store(View(to.buffer, "u2", (1,), (2,), to.offset + index * to.strides[0]), names, changed[index : index + 1])

    execute(plan.steps, {})


def compared(plan: Plan, targets: Sequence[Target], *, as_graph: bool = False) -> None:
    """Run a plan on the targets, at once or as a graph, and compare every byte with what the interpreter leaves."""
    start = {buffer.name: np.arange(buffer.nbytes, dtype=np.uint8) * 7 + number for number, buffer in enumerate(plan.buffers)}
    expected = {name: one.copy() for name, one in start.items()}
    interpreted(plan, expected)
    bound: dict[str, Any] = {}
    for buffer in plan.buffers:
        if isinstance(buffer.home, int):
            bound[buffer.name] = targets[buffer.home].array(start[buffer.name])
            continue
        bound[buffer.name] = targets[0].pinned(buffer.nbytes, "u1") if buffer.home == "pinned" else np.empty(buffer.nbytes, "u1")
        bound[buffer.name][...] = start[buffer.name]
    if as_graph:
        graph = BoundPlan(plan, bound, targets=targets, modules=[MIX]).graph()
        graph.replay()
        graph.wait()
        done = graph.memory
    else:
        done = run(plan, bound, targets=targets, modules=[MIX]).memory
    for buffer in plan.buffers:
        np.testing.assert_array_equal(np.asarray(done[buffer.name]), expected[buffer.name], err_msg=f"{buffer}\n{plan}")


@given(st.data())
@settings(max_examples=60)
def test_a_plan_leaves_the_bytes_of_an_interpreter_or_has_a_race(data: st.DataObject) -> None:
    """On one to four emulated devices. What has a race is refused; what is not refused has the one result."""
    count = data.draw(st.integers(1, 4))
    plan = data.draw(ordered_plans(count))
    targets = devices("emulator:h200", 4)[:count]
    if races(plan):
        with pytest.raises(BadPlan, match="the same bytes of buffer"):
            run(plan, targets=targets, modules=[MIX])
        return
    compared(plan, targets)


@given(st.data())
@settings(max_examples=60)
def test_graphs_in_any_order_leave_the_same_bytes(data: st.DataObject) -> None:
    """Of plans without a race; what is pinned lies in memory of the target, and only that is copied by a graph."""
    count = data.draw(st.integers(1, 3))
    plan = data.draw(ordered_plans(count))
    if races(plan):
        return
    targets = [GraphingEmulator(device, data.draw(st.integers(0, 99))) for device in range(count)]
    compared(plan, targets)


@given(st.data())
@settings(max_examples=30)
def test_a_plan_as_one_graph_leaves_the_same_bytes(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 4))
    plan = data.draw(ordered_plans(count))
    if not races(plan):
        compared(plan, devices("emulator:h200", 4)[:count], as_graph=True)


def test_times_of_a_graph_belong_to_the_steps_of_the_plan() -> None:
    """A copy from ordinary memory is two steps of the graph, and one of the plan."""
    b = PlanBuilder()
    host, device = b.array("host", 8, "u2", "host"), b.array("device", 8, "u2", 0)
    arrived = b.copy(device, host)
    b.launch(KERNEL, 1, 1, device, 2, device, 2, 8, 1, after=[arrived], reads=[device], writes=[device])
    line = BoundPlan(b.plan(), {"host": EIGHT}, targets=[GraphingEmulator()], modules=[MIX]).time()
    assert [(span.kind, span.start_ns, span.end_ns) for span in line.spans] == [("copy", 0, 2), ("launch", 2, 3)]
    assert not line.is_modelled


def test_random_plans_are_of_both_sorts() -> None:
    """The test above would say nothing if every plan had a race, or none had one."""
    sorts = {True: 0, False: 0}

    @given(ordered_plans(2))
    @settings(max_examples=40, database=None)
    def look(plan: Plan) -> None:
        sorts[bool(races(plan))] += 1

    look()
    assert min(sorts.values()) >= 8


SIGNALS = parse("""
.version 8.0
.target sm_90
.address_size 64

.visible .entry ping(.param .u64 own, .param .u64 other, .param .u32 first)
{
  .reg .b64 a, b; .reg .b32 i, f, x, w; .reg .pred p, q;
  ld.param.u64 a, [own]; ld.param.u64 b, [other]; ld.param.u32 f, [first]; mov.u32 i, 0;
  setp.eq.u32 q, f, 0; @q bra WAIT;
SEND:
  add.u32 i, i, 1; setp.gt.u32 p, i, 100; @p bra DONE;
  st.release.sys.global.u32 [b], i;
WAIT:
  ld.acquire.sys.global.u32 x, [a]; add.u32 w, i, 1; sub.u32 w, w, f; setp.lt.u32 p, x, w; @p bra WAIT;
  @!q bra SEND;
  mov.u32 i, x; st.release.sys.global.u32 [b], i; setp.lt.u32 p, i, 100; @p bra WAIT;
DONE:
  ret;
}
""")


def test_kernels_that_run_together_signal_each_other_through_memory() -> None:
    """One hundred times there and back between two devices; one after another they would wait for ever."""
    b = PlanBuilder()
    flags = [b.array(f"flag{device}", 1, "u4", device) for device in range(2)]
    kernel = KernelRef(module_digest(SIGNALS), "ping")
    b.together((device, planned(kernel, 1, 1, flags[device], flags[1 - device], int(device == 0))) for device in range(2))
    plan = b.plan()
    assert plan.peers == ((0, 1), (1, 0))
    targets = devices("emulator:h200", 2)
    bound = {f"flag{device}": target.zeros(1, "u4") for device, target in enumerate(targets)}
    done = run(plan, bound, targets=targets, modules=[SIGNALS])
    assert [int(np.asarray(done[f"flag{device}"])[0]) for device in range(2)] == [100, 100]
    for array in bound.values():
        array.copy_from(np.zeros(1, "u4"))
    BoundPlan(plan, bound, targets=targets, modules=[SIGNALS]).graph().replay()
    assert [int(bound[f"flag{device}"].item()) for device in range(2)] == [100, 100]


def halve(value: npt.NDArray[Any], flag: npt.NDArray[Any]) -> None:
    value //= 2
    flag[...] = value.max() < 10


@pytest.mark.parametrize(("every", "turns", "left"), [(1, 5, 6), (2, 6, 3), (4, 8, 0)])
def test_a_repeat_ends_when_its_value_is_not_zero(every: int, turns: int, left: int) -> None:
    """200 is below 10 after five halvings; looked at every 2 or 4 turns, the repeat runs some more."""
    b = PlanBuilder()
    value, flag = b.array("value", 1, "i4", "host"), b.array("flag", (), "i4", "host")
    with b.repeat(1000, until=flag, every=every) as loop:
        loop.call("tests.targets.test_plans:halve", value, flag, reads=[value], writes=[value, flag])
    host = np.array([200], "i4")
    done = run(b.plan(), {"value": host}, targets=[Emulator(load("h200"))])
    assert done.turns == {(0,): turns}
    assert host[0] == left


def count_turn(counted: npt.NDArray[Any]) -> None:
    counted += 1


def test_graphs_of_a_plan_with_very_many_turns_are_made_from_a_few_of_them() -> None:
    """A repeat that may run 2^20 times and ends after 12; another of 5,003 turns, whose buffers rotate."""
    b = PlanBuilder()
    value, flag = b.array("value", 1, "i4", "pinned"), b.array("flag", (), "i4", "pinned")
    counted = b.array("counted", 1, "i4", "pinned")
    near, far = b.array("near", 2, "i4", 0), b.array("far", 2, "i4", 0)
    with b.repeat(1 << 20, until=flag, every=4) as loop:
        loop.call("tests.targets.test_plans:halve", value, flag, reads=[value], writes=[value, flag])
    with b.repeat(5003, rotate=[(near, far)]) as loop:
        loop.copy(far[:1], near[1:])
        loop.call("tests.targets.test_plans:count_turn", counted, reads=[counted], writes=[counted])
    target = GraphingEmulator()
    host = {name: target.pinned(shape, "i4") for name, shape in (("value", 1), ("flag", ()), ("counted", 1))}
    host["value"][:], host["flag"][...], host["counted"][:] = 10_000, 0, 0
    arrays = {"near": target.array(np.array([1, 2], "i4")), "far": target.array(np.array([3, 4], "i4"))}
    bound = BoundPlan(b.plan(), {**host, **arrays}, targets=[target])
    assert len(bound._replayed) < 3000  # of a million
    done = bound.run()
    assert done.turns == {(0,): 12}
    assert (host["value"][0], host["counted"][0]) == (10_000 >> 12, 5003)
    assert (arrays["near"].numpy().tolist(), arrays["far"].numpy().tolist()) == ([4, 2], [2, 4])


class Counted:
    """An observer of steps that counts the turns it is told."""

    def __init__(self) -> None:
        self.turns: list[tuple[int, ...]] = []

    def launching(self, launch: object) -> NoReturn:
        raise AssertionError("the plan has no launches")

    def passing(self, step: BoundStep) -> None:
        assert step.origin is not None
        self.turns.append(step.origin.turns)


def long_plan(turns: int) -> tuple[Plan, GraphingEmulator, dict[str, Any]]:
    """Return a plan whose buffers rotate, its target, and memory for it."""
    b = PlanBuilder()
    near, far, counted = b.array("near", 2, "i4", 0), b.array("far", 2, "i4", 0), b.array("counted", 1, "i4", "pinned")
    with b.repeat(turns, rotate=[(near, far)]) as loop:
        loop.copy(far[:1], near[1:])
        loop.call("tests.targets.test_plans:count_turn", counted, reads=[counted], writes=[counted])
    target = GraphingEmulator()
    memory = {name: target.array(np.array(values, "i4")) for name, values in (("near", [1, 2]), ("far", [3, 4]))}
    memory["counted"] = target.pinned(1, "i4")
    memory["counted"][:] = 0
    return b.plan(), target, memory


def test_a_plan_of_many_turns_is_timed_observed_and_prepared_turn_by_turn() -> None:
    turns = 2501
    plan, target, memory = long_plan(turns)
    bound = BoundPlan(plan, memory, targets=[target])
    assert len(bound._replayed) < len(bound.order) == 2 * turns
    assert len(bound.time().spans) == 2 * turns
    assert memory["counted"][0] == turns
    observer = Counted()
    with observing(observer):
        bound.run_observed()
    assert memory["counted"][0] == 2 * turns
    assert observer.turns == [(turn,) for turn in range(turns) for _ in range(2)]
    observer.turns.clear()
    with observing(observer):
        bound.run()  # of each graph the steps are shown once, with their own turns
    assert memory["counted"][0] == 3 * turns
    together = next(turn for turn in range(turns) if (turn + 1,) not in observer.turns) + 1
    assert observer.turns == [(turn,) for turn in (*range(together), *range(turns - turns % together, turns)) for _ in range(2)]
    assert (memory["near"].numpy().tolist(), memory["far"].numpy().tolist()) == ([4, 2], [2, 4])
    graph = bound.graph()
    other = {name: target.array(np.array(values, "i4")) for name, values in (("near", [5, 6]), ("far", [7, 8]))}
    graph.rebind(other)
    graph.replay()
    graph.wait()
    assert memory["counted"][0] == 4 * turns
    assert (other["near"].numpy().tolist(), other["far"].numpy().tolist()) == ([8, 6], [6, 8])


def test_strided_copies_leave_what_lies_between_alone() -> None:
    """A column of a matrix on the host into a column of a transposed matrix on a device, and back."""
    b = PlanBuilder()
    host, device = b.array("host", (4, 6), "i4", "pinned"), b.array("device", (5, 4), "i4", 0)
    b.copy(device[1:, 2], host[:, 3])
    b.copy(host[::-1, 0], device[1:, 2])
    target = Emulator(load("h200"))
    matrix, other = np.arange(24, dtype="i4").reshape(4, 6), np.full((5, 4), -1, "i4")
    array = target.array(other)
    expected = matrix.copy()
    other[1:, 2] = expected[:, 3]
    expected[::-1, 0] = other[1:, 2]
    run(b.plan(), {"host": matrix, "device": array}, targets=[target])
    np.testing.assert_array_equal(array.numpy(), other)
    np.testing.assert_array_equal(matrix, expected)


def test_memory_is_made_for_what_the_plan_writes_first_and_kept_while_the_plan_is_bound() -> None:
    b = PlanBuilder()
    given, between, out = b.array("given", 8, "u2", "host"), b.array("between", 8, "u2", 0), b.array("out", 8, "u2", "host")
    b.copy(between, given)
    b.launch(KERNEL, 1, 1, between, 2, between, 2, 8, 1, reads=[between], writes=[between])
    b.copy(out, between)
    bound = BoundPlan(b.plan(), {"given": np.arange(8, dtype="u2")}, targets=[Emulator(load("h200"))], modules=[MIX])
    for _ in range(2):
        assert np.asarray(bound.run()["out"]).view("u2").tolist() == [4 * number + 1 for number in range(8)]


def one_step(**homes: Any) -> Plan:
    b = PlanBuilder()
    arrays = {name: b.array(name, 8, "u2", home) for name, home in homes.items()}
    b.copy(arrays["b"], arrays["a"])
    return b.plan()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: run(one_step(a="host", b=0), targets=[H200]),
            "buffer 'a' is not bound, and step 0 reads it before anything is written there",
        ),
        (
            lambda: run(one_step(a="host", b=1), targets=[H200]),
            "the plan uses device 1, but there are targets for only 1: pass `targets`",
        ),
        (
            lambda: run(one_step(a="host", b=1), targets=[H200, H200]),
            "two devices of a plan cannot be the same target: ml.devices makes several",
        ),
        (lambda: run(one_step(a="host", b=0), {"c": EIGHT}, targets=[H200]), "the plan has no buffer 'c' to bind; it has a, b"),
        (lambda: run(one_step(a=0, b="host"), {"a": EIGHT}, targets=[H200]), "bind an array of emulator:h200 to it, not a ndarray"),
        (
            lambda: run(one_step(a=0, b="host"), {"a": Emulator(load("h200")).zeros(8, "u2")}, targets=[H200]),
            "buffer 'a' belongs to device 0, emulator:h200, but is bound to an array on another emulator:h200",
        ),
        (
            lambda: run(one_step(a="host", b=0), {"a": H200.zeros(8, "u2")}, targets=[H200]),
            "belongs to the host: bind a NumPy array to it",
        ),
        (
            lambda: run(one_step(a="host", b=0), {"a": np.zeros((8, 2), "u2")[:, 0]}, targets=[H200]),
            "not C-contiguous: bind a contiguous copy, np.ascontiguousarray(x)",
        ),
        (lambda: run(one_step(a="host", b=0), {"a": EIGHT[:7]}, targets=[H200]), "buffer 'a' has 16 bytes, but is bound to an array of 14"),
        (
            lambda: run(one_step(a="host", b="host"), {"a": EIGHT, "b": np.frombuffer(bytes(16), "u2")}, targets=[H200]),
            "buffer 'b' is written by the plan, but is bound to a read-only array: bind a copy",
        ),
        (
            lambda: run(one_step(a="pinned", b=0), {"a": EIGHT}, targets=[GraphingEmulator()]),
            "buffer 'a' is pinned, but is bound to pageable memory: make the array with target.pinned(shape, dtype), or",
        ),
        (
            lambda: run(Plan((Step(planned(NOTHING, 1, 1), 0),)), targets=[H200]),
            "the module of kernel nothing was not given: pass it in `modules`",
        ),
        (
            lambda: run(Plan((Step(planned(KernelRef(KERNEL.module, "other"), 1, 1), 0),)), targets=[H200], modules=[MIX]),
            "the module of kernel other has no kernel of that name",
        ),
        (
            lambda: run(Plan((Step(HostCall("no.such:thing")),)), targets=[H200]),
            "host function no.such:thing cannot be imported: No module named 'no'",
        ),
        (
            lambda: run(
                Plan((Step(planned(NOTHING, 1, 1, Buffer("far", 8, 1).view()), 0),)),
                targets=[H200, Emulator(load("h200"))],
                modules=[MIX],
            ),
            "kernels on device 0 access memory of device 1, but another emulator:h200 and emulator:h200 are not peers",
        ),
        (lambda: run(one_step(a="host", b="host"), {"a": EIGHT}, targets=[H200])["c"], "the plan has no buffer 'c'; it has a, b"),
    ],
)
def test_what_cannot_be_bound_is_said_in_a_sentence(make: Any, message: str) -> None:
    with pytest.raises(BadPlan) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def waiting(flags: Sequence[View]) -> Plan:
    """Two kernels that both wait for the other to begin."""
    kernel = KernelRef(module_digest(SIGNALS), "ping")
    b = PlanBuilder()
    b.together((device, planned(kernel, 1, 1, flags[device], flags[1 - device], 0)) for device in range(2))
    return b.plan()


def test_kernels_that_wait_for_each_other_for_ever_are_a_deadlock() -> None:
    flags = [Buffer(f"flag{device}", 4, device).view("u4") for device in range(2)]
    targets = [Emulator(load("h200"), device=device, patience=64) for device in range(2)]
    bound = {f"flag{device}": target.zeros(1, "u4") for device, target in enumerate(targets)}
    with pytest.raises(Deadlock, match=r"kernel ping, <ptx>:15:3: block .* has been looping here for 64 iterations"):
        run(waiting(flags), bound, targets=targets, modules=[SIGNALS])


def test_a_kernel_whose_partner_failed_does_not_wait_for_ever() -> None:
    """The first writes to memory that is not there; the second would wait for its signal."""
    kernel = KernelRef(module_digest(SIGNALS), "ping")
    b = PlanBuilder()
    flags = [b.array(f"flag{device}", 1, "u4", device) for device in range(2)]
    b.together([(0, planned(kernel, 1, 1, flags[0], 4096, 1)), (1, planned(kernel, 1, 1, flags[1], flags[0], 0))])
    targets = [Emulator(load("h200"), device=device, patience=64) for device in range(2)]
    bound = {f"flag{device}": target.zeros(1, "u4") for device, target in enumerate(targets)}
    with pytest.raises(BadAccess, match="0x1000"):
        run(b.plan(), bound, targets=targets, modules=[SIGNALS])


LINKED = replace(load("h200"), links=Links(host_gb_per_s=50, host_us=2, peer_gb_per_s=400, peer_us=3, device_us=1, launch_us=0.5))


def test_times_of_emulated_devices_are_one_clock_over_copies_and_kernels() -> None:
    """A kernel on each of two devices behind its copy: the copies use two links, so nothing waits for anything else."""
    b = PlanBuilder()
    for device in range(2):
        host, array = b.array(f"host{device}", 4096, "u2", "pinned"), b.array(f"array{device}", 4096, "u2", device)
        arrived = b.copy(array, host, queue=1)
        b.launch(KERNEL, 1, 1, array, 2, array, 2, 16, 1, after=[arrived], reads=[array], writes=[array])
    targets = [Emulator(LINKED, device=device) for device in range(2)]
    bound = BoundPlan(b.plan(), {f"host{device}": np.arange(4096, dtype="u2") for device in range(2)}, targets=targets, modules=[MIX])
    line = bound.time()
    copy = 2000 + 8192 / 50
    assert [span.start_ns for span in line.spans] == [0, copy, 0, copy]
    kernel = line.spans[1].elapsed_ns - 500
    assert kernel > 100
    assert line.elapsed_ns == copy + 500 + kernel
    assert bound.time() == line
    first = np.asarray(bound.run()["array0"]).view("u2")
    assert first[:16].tolist() == [4 * number + 1 for number in range(16)]


def test_a_plan_that_may_end_early_has_no_times() -> None:
    b = PlanBuilder()
    value, flag = b.array("value", 1, "i4", "host"), b.array("flag", (), "i4", "host")
    with b.repeat(10, until=flag) as loop:
        loop.call("tests.targets.test_plans:halve", value, flag, reads=[value], writes=[value, flag])
    with pytest.raises(BadPlan, match="a plan with a repeat that may end early cannot be timed in advance"):
        BoundPlan(b.plan(), {"value": np.array([200], "i4")}, targets=[H200]).time()


class Graphless(Emulator):
    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> StepGraph:
        return Target.graph_of_steps(self, steps, timed=timed)


def test_what_is_no_single_graph_is_said() -> None:
    with pytest.raises(BadLaunch, match=r"^emulator:h200 does not support graphs of steps; it runs the steps one after another$"):
        BoundPlan(one_step(a="host", b=0), {"a": EIGHT}, targets=[Graphless(load("h200"))]).graph()
    b = PlanBuilder()
    with b.repeat(10, until=b.array("flag", (), "i4", "host")):
        pass
    with pytest.raises(BadPlan, match=r"^a plan with a repeat that may end early cannot be a single graph: run it$"):
        BoundPlan(b.plan(), {"flag": EIGHT}, targets=[H200]).graph()


def test_devices_need_not_be_peers_for_a_copy() -> None:
    """The driver copies between any two devices; only kernels need peers."""
    b = PlanBuilder()
    near, far, back = b.array("near", 8, "u2", 0), b.array("far", 8, "u2", 1), b.array("back", 8, "u2", "host")
    there = b.copy(far[::-1], near)
    b.copy(back, far, after=[there])
    targets = [Emulator(load("h200"), device=device) for device in range(2)]
    done = run(b.plan(), {"near": targets[0].array(np.arange(8, dtype="u2"))}, targets=targets)
    assert np.asarray(done["back"]).view("u2").tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_arguments_are_checked_before_anything_runs() -> None:
    """The message names the step; a copy in front of it has not run."""
    b = PlanBuilder()
    near, far = b.array("near", 8, "u2", "host"), b.array("far", 8, "u2", 0)
    b.copy(far, near)
    b.launch(H200.load(MIX)["mix"], 1, 1, far, 2, reads=[far], writes=[far], label="half")
    array = H200.zeros(8, "u2")
    with pytest.raises(BadPlan, match=r"^step 1 \(half\): kernel mix takes 6 arguments \(.*\), got 2$"):
        run(b.plan(), {"near": EIGHT + 1, "far": array}, targets=[H200], modules=[MIX])
    assert not array.numpy().any()


def test_memory_that_is_made_has_the_type_and_the_shape_of_its_views() -> None:
    b = PlanBuilder()
    given, whole, parts = b.array("given", (2, 4), "u2", "host"), b.array("whole", (2, 4), "u2", 0), b.array("parts", (2, 4), "u2", "host")
    b.copy(whole, given)
    b.copy(parts[0], whole[0])
    b.copy(parts[1], whole[1])
    done = run(b.plan(), {"given": np.arange(8, dtype="u2")}, targets=[H200])
    assert (done["whole"].shape, done["whole"].dtype) == ((2, 4), np.dtype("u2"))
    assert np.asarray(done["parts"]).tolist() == list(range(8))

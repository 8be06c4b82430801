"""The order of a plan, and what has none, against what the definition says for every execution and every byte."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.errors import BadPlan
from memlane.plan import (
    Buffer,
    Copy,
    KernelRef,
    Plan,
    PlanBuilder,
    Repeat,
    Step,
    ancestors,
    check,
    executions,
    from_json,
    lifetimes,
    races,
    to_json,
)
from tests.plan.random_plans import ended_before, plans, races_by_definition, runs


@given(plans())
def test_executions_follow_the_definition(plan: Plan) -> None:
    """Only what ends before an execution starts is compared: the waits themselves leave out what others imply."""
    expected, order = runs(plan), executions(plan)
    assert [(one.path, one.queues[0], one.action.touches) for one in order] == [(run.path, run.queue, run.touches) for run in expected]
    bits = [{number for number in range(len(order)) if before >> number & 1} for before in ancestors(order)]
    assert bits == ended_before(expected)


@given(plans(most_turns=14))
def test_races_are_those_of_every_pair_of_executions(plan: Plan) -> None:
    """None missing and none invented, although `races` looks at a few turns only."""
    found = {(race.first.path, race.second.path) for race in races(plan)}
    assert found == races_by_definition(plan)


@given(plans())
def test_a_plan_survives_json_and_pickle(plan: Plan) -> None:
    assert from_json(to_json(plan)) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert hash(from_json(to_json(plan))) == hash(plan)


@given(plans(), st.data())
def test_lifetimes_cover_every_touch(plan: Plan, data: st.DataObject) -> None:
    order = executions(plan)
    kept = lifetimes(order)
    for number, execution in enumerate(order):
        for touch in execution.action.touches:
            life = kept[touch.view.buffer]
            assert life.first <= number <= life.last
            assert life.is_written or not touch.writes
            if number == life.first and touch.reads:
                assert life.is_input


def halo_exchange(turns: int, devices: int, carried: bool) -> Plan:
    """A time loop: each device updates its two edge rows and its inner rows, and copies the edges to its neighbours' ghost rows. A copy
    waits for the neighbour's edges too: they read, a turn ago, the ghost row that it overwrites."""
    b = PlanBuilder()
    rows = 64
    u, v = ([b.array(f"{name}{device}", (rows + 2, 32), "f4", device) for device in range(devices)] for name in "uv")
    kernel = KernelRef("stencil", "update")
    with b.repeat(turns, rotate=list(zip(u, v, strict=True))) as loop:
        edges, inner = [], []
        for old, new in zip(u, v, strict=True):
            near = [(old[:3], new[1:2]), (old[rows - 1 :], new[rows : rows + 1])]
            edges.append([loop.launch(kernel, 1, 32, new, old, reads=[read], writes=[written]) for read, written in near])
            inner.append(loop.launch(kernel, rows, 32, new, old, reads=[old[1:-1]], writes=[new[2:rows]]))
        for device in range(devices):
            for other, ghost, row in ((device - 1, rows + 1, 1), (device + 1, 0, rows)):
                if 0 <= other < devices:
                    source, target = v[device][row : row + 1], v[other][ghost : ghost + 1]
                    sent = loop.copy(target, source, queue=1 + (other > device), after=[*edges[device], edges[other][0]])
                    if carried:
                        loop.carry(sent, to=[edges[other][0]])
    return b.plan()


def test_a_time_loop_over_devices_has_an_order_only_with_what_it_carries() -> None:
    """Also over 10,000 turns, of which a few are looked at."""
    check(halo_exchange(10_000, 4, carried=True))
    found = races(halo_exchange(10_000, 4, carried=False))
    assert any("in turn 0" in str(race) and "in turn 1" in str(race) for race in found)
    with pytest.raises(
        BadPlan, match=r"(?s)step 0\.\d+ in turn 0 writes and step 0\.\d+ in turn 1 reads the same bytes of buffer 'v\d' without"
    ):
        check(halo_exchange(10_000, 4, carried=False))


def test_ten_thousand_steps_over_eight_devices_are_checked_and_ordered_in_half_a_second() -> None:
    plan = halo_exchange(264, 8, carried=True)
    start = time.process_time()
    check(plan)
    order = executions(plan)
    before = ancestors(order)
    took = time.process_time() - start
    assert len(order) >= 10_000
    assert len(before) == len(order)
    assert took < 0.5


def test_steps_of_one_queue_follow_each_other_and_others_do_not() -> None:
    a, b = Buffer("a", 8), Buffer("b", 8)
    copy = Copy(b.view(), a.view())
    same = Plan((Step(copy, 0), Step(copy, 0)))
    apart = Plan((Step(copy, 0), Step(copy, 0, queue=1)))
    waiting = Plan((Step(copy, 0), Step(copy, 0, queue=1, after=(0,))))
    assert not races(same)
    assert not races(waiting)
    (race,) = races(apart)
    assert str(race) == (
        "step 0 writes and step 1 writes the same bytes of buffer 'b' without an order (b u1[8] and b u1[8]): "
        "make one wait for the other, or put both on the same queue"
    )


def test_a_repeat_without_turns_hands_on_what_it_waits_for() -> None:
    a, b, c = (Buffer(name, 8) for name in "abc")
    plan = Plan(
        (
            Step(Copy(b.view(), a.view()), 0),
            Repeat((Step(Copy(c.view(), b.view()), 0, queue=1),), 0, after=(0,)),
            Step(Copy(b.view(), c.view()), 0, queue=2, after=(1,)),
        )
    )
    assert executions(plan)[1].waits == (0,)


def test_a_repeat_that_looks_at_its_end_lets_the_next_turn_wait_for_all() -> None:
    flag, a, b = Buffer("flag", 4, "host"), Buffer("a", 8), Buffer("b", 8)
    steps = (Step(Copy(b.view(), a.view()), 0), Step(Copy(a.view(), b.view()), 0, queue=1))
    assert races(Plan((Repeat(steps, 100),)))
    ordered = Repeat((steps[0], Step(steps[1].action, 0, queue=1, after=(0,))), 100, until=flag.view("i4")[0], every=1)
    assert not races(Plan((ordered,)))
    assert len(races(Plan((Repeat(ordered.steps, 100, until=flag.view("i4")[0], every=2),)))) == 1

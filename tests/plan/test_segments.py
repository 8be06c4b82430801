"""Pieces of plans: run as often as they say, they are all executions of the plan in its order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.plan import Buffer, Copy, Execution, KernelRef, Launch, Plan, Repeat, Scalar, Step, executions, replayed_turns, segments
from tests.plan.random_plans import plans


@given(plans(), st.integers(1, 12))
def test_pieces_make_up_the_plan(plan: Plan, most: int) -> None:
    order = executions(plan)
    found = [execution for piece in segments(plan, order, most) for _ in range(piece.times) for execution in piece.order]
    assert [(one.path, one.action) for one in found] == [(one.path, one.action) for one in order]


@given(plans(), st.integers(1, 12))
def test_pieces_need_only_the_turns_that_are_replayed(plan: Plan, most: int) -> None:
    order = executions(plan, replayed_turns(plan, most))
    found = [execution for piece in segments(plan, order, most) for _ in range(piece.times) for execution in piece.order]
    assert [(one.path, one.action) for one in found] == [(one.path, one.action) for one in executions(plan)]


@given(plans())
def test_the_turns_that_are_replayed_show_every_dependency(plan: Plan) -> None:
    """Between the same steps, with the same actions, as the turns of the whole plan."""

    def edges(order: Sequence[Execution]) -> set[object]:
        pairs = ((order[number], one) for one in order for number in one.waits)
        return {(before.path, before.step, one.path, one.step) for before, one in pairs}

    assert edges(executions(plan, replayed_turns(plan, 1))) == edges(executions(plan))


@pytest.mark.parametrize(("every", "count"), [(1, 8), (2, 8), (4, 8), (2, 7)])
def test_turns_after_a_look_at_the_end_wait_for_all_before_it(every: int, count: int) -> None:
    """Two devices that depend on each other only by the look, of which one more turn than is replayed shows the order."""
    flag = Buffer("flag", 4, "host").view("i4")[0]
    near, far = ((Buffer(f"to {home}", 8, home), Buffer(f"of {home}", 8, home)) for home in (0, 1))
    steps = (Step(Copy(near[0].view(), near[1].view()), 0), Step(Copy(far[0].view(), far[1].view()), 1))
    plan = Plan((Repeat(steps, count, until=flag, every=every),))

    def between_devices(order: Sequence[Execution]) -> set[object]:
        pairs = ((order[number], one) for one in order for number in one.waits)
        return {(before.path, one.path) for before, one in pairs if before.step.device != one.step.device}

    assert between_devices(executions(plan)) == {((0, 0), (0, 1)), ((0, 1), (0, 0))}
    assert between_devices(executions(plan, replayed_turns(plan))) == between_devices(executions(plan))


def test_a_long_repeat_is_not_enumerated() -> None:
    """Of 100,004 turns, which neither 10 nor 8 nor 6 divide, those of one piece of 6 and the rest of 2, the smallest."""
    plan = copies(100_004)
    order = executions(plan, replayed_turns(plan, most=10))
    assert len(order) == 1 + 6 + 2
    found = segments(plan, order, most=10)
    assert [(len(piece.order), piece.times, piece.turns) for piece in found] == [(1, 1, 0), (6, 16_667, 6), (2, 1, 2)]


def test_pieces_of_a_repeat_leave_no_rest_where_some_turns_fewer_do() -> None:
    plan = copies(2048)
    found = segments(plan, executions(plan), most=700)
    assert [(len(piece.order), piece.times, piece.turns) for piece in found] == [(1, 1, 0), (512, 4, 512)]


def copies(count: int, **more: object) -> Plan:
    a, b = Buffer("a", 8), Buffer("b", 8)
    return Plan((Step(Copy(b.view(), a.view()), 0), Repeat((Step(Copy(b.view(), a.view()), 0),), count, ((a, b),), **more)))  # type: ignore[arg-type]


def test_a_long_repeat_is_a_few_pieces_that_run_many_times() -> None:
    plan = copies(1001)
    found = segments(plan, executions(plan), most=10)
    assert [(len(piece.order), piece.times, piece.turns) for piece in found] == [(1, 1, 0), (10, 100, 10), (1, 1, 1)]


def test_a_repeat_that_may_end_is_looked_at_where_it_says() -> None:
    flag = Buffer("flag", 4, "host").view("i4")[0]
    plan = copies(20, until=flag, every=6)
    found = segments(plan, executions(plan))
    assert [(len(piece.order), piece.times, piece.until) for piece in found] == [(1, 1, None), (6, 3, flag), (2, 1, flag)]


def test_turns_that_count_are_pieces_of_their_own() -> None:
    launch = Launch(KernelRef("m", "k"), (1, 1, 1), (1, 1, 1), (Scalar(0, 1),), reads=(), writes=())
    plan = Plan((Repeat((Step(launch, 0),), 25),))
    found = segments(plan, executions(plan), most=10)
    assert [piece.times for piece in found] == [1, 1, 1]
    assert [one.action.arguments for piece in found for one in piece.order] == [(turn,) for turn in range(25)]  # type: ignore[union-attr]

"""Pieces of plans: run as often as they say, they are all executions of the plan in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memlane.plan import Buffer, Copy, KernelRef, Launch, Plan, Repeat, Scalar, Step, executions, segments
from tests.plan.random_plans import plans


@given(plans(), st.integers(1, 12))
def test_pieces_make_up_the_plan(plan: Plan, most: int) -> None:
    order = executions(plan)
    found = [execution for piece in segments(plan, order, most) for _ in range(piece.times) for execution in piece.order]
    assert [(one.path, one.action) for one in found] == [(one.path, one.action) for one in order]


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

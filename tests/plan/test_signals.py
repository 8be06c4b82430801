"""Puts and waits as data: what a flag may be, and which order they give."""

from dataclasses import replace

import pytest

from memlane.errors import BadPlan
from memlane.plan import KernelRef, Plan, PlanBuilder, Repeat, Step, from_json, races, to_json
from memlane.plan.actions import Put, Wait


def ring(turns: int = 3, waits: bool = True) -> Plan:
    """Two devices that store a row into each other's halo in each turn, and read their own."""
    b = PlanBuilder()
    rows = [b.array(f"rows{at}", (4, 8), "f4", at) for at in range(2)]
    flags = [b.flag(f"flag{at}", at) for at in range(2)]
    with b.repeat(turns) as loop:
        free = [loop.put([], [b.flag(f"free{at}", 1 - at)], device=at, label="free") for at in range(2)]
        for at in range(2):
            loop.wait([_flag(loop, free[1 - at])], device=at, after=[free[1 - at]])
        puts = [loop.put([(rows[1 - at][0], rows[at][2])], [flags[1 - at]], device=at) for at in range(2)]
        for at in range(2):
            loop.wait([flags[at]], device=at, queue=0 if waits else 1, after=[puts[1 - at]])
            loop.copy(rows[at][3], rows[at][0])
    return b.plan()


def _flag(loop, put):
    return loop.action(put).flags[0]


def test_a_wait_orders_what_stands_behind_it_after_what_was_put():
    assert races(ring()) == []
    found = races(ring(waits=False))
    assert [race.touched[0].view.buffer.name for race in found] == ["rows0", "rows1"]
    assert str(found[0]).startswith(
        "step 0.5 in turn 0 writes and step 0.7 in turn 0 reads the same bytes of buffer 'rows0' without an order"
    )


def test_the_plan_says_it():
    plan = ring()
    assert from_json(to_json(plan)) == plan
    assert [buffer.name for buffer in plan.flags] == ["free0", "free1", "flag1", "flag0"]
    assert plan.peers == ((0, 1), (1, 0))
    text = str(plan)
    assert "free: raise free0" in text
    assert "put 32 B to rows1, raise flag1" in text
    assert "wait for flag0  after 5" in text


def with_steps(plan: Plan, change) -> Plan:
    (loop,) = plan.steps
    assert isinstance(loop, Repeat)
    return Plan((replace(loop, steps=tuple(change(list(loop.steps)))),))


def test_a_launch_may_raise_a_flag_itself():
    b = PlanBuilder()
    row, there, flag = b.array("row", 8, "f4", 0), b.array("there", 8, "f4", 1), b.flag("flag", 1)
    step = b.launch(KernelRef("0" * 64, "send"), 1, 32, row, there, device=0, reads=[row], writes=[there], raises=[flag])
    b.wait([flag], device=1, after=[step])
    b.copy(b.array("kept", 8, "f4", 1), there, device=1)
    plan = b.plan()
    assert races(plan) == []
    assert from_json(to_json(plan)) == plan
    assert [buffer.name for buffer in plan.flags] == ["flag"]
    assert str(plan).splitlines()[0].endswith("send grid 1 block 32, raise flag")
    behind = Step(replace(plan.steps[1].action), 1, 1, ())
    with pytest.raises(BadPlan, match=r"does not wait for the put that raises flag: add that put to its `after`"):
        Plan((plan.steps[0], behind))
    with pytest.raises(BadPlan, match=r"flag flag is raised by 1 step and awaited by 0"):
        Plan(plan.steps[:1])


def test_each_flag_has_one_put_and_one_wait_behind_it():
    with pytest.raises(BadPlan, match=r"flag flag1 is raised by 1 step and awaited by 0: give each pair of a put and a wait its own flag"):
        with_steps(ring(), lambda steps: steps[:6])
    with pytest.raises(BadPlan, match=r"'wait for flag0' does not wait for the put that raises flag0: add that put to its `after`"):
        with_steps(ring(), lambda steps: [replace(one, after=()) if "wait for flag0" in one.name else one for one in steps])
    b = PlanBuilder()
    flag = b.flag("flag", 1)
    put = b.put([], [flag], device=0)
    with b.repeat(3, after=[put]) as loop:
        loop.wait([flag], device=1)
    with pytest.raises(BadPlan, match=r"does not wait for the put that raises flag"):
        b.plan()


def test_a_flag_is_for_signals_alone():
    b = PlanBuilder()
    flag, other = b.flag("flag", 1), b.flag("other", 1)
    put = b.put([(other, b.array("x", 32, "u4", 0)), (flag, b.array("y", 32, "u4", 0))], [flag], device=0)
    b.wait([flag], device=1, after=[put])
    with pytest.raises(BadPlan, match=r"buffer flag is a flag and cannot hold data: use another buffer"):
        b.plan()
    with pytest.raises(BadPlan, match=r"device 0 cannot wait for flag flag, whose home is 1: make the waiting device the home of the flag"):
        Step(Wait((flag,)), 0)
    with pytest.raises(BadPlan, match=r"needs a device to run on"):
        Step(Wait((flag,)))
    with pytest.raises(BadPlan, match=r"a put needs a flag that signals its completion"):
        Put((), ())
    with pytest.raises(BadPlan, match=r"a wait needs a flag to wait for"):
        Wait(())
    c = PlanBuilder()
    one, two = c.flag("one", 1), c.flag("two", 1)
    with c.repeat(2, rotate=[(one, two)]) as loop:
        raised = loop.put([], [one], device=0)
        loop.wait([one], device=1, after=[raised])
    with pytest.raises(BadPlan, match=r"flag one cannot rotate: a put raises the same flag in each turn"):
        c.plan()

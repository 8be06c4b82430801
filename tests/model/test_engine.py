"""The clock over all devices, against a simulation in small ticks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memlane.model import Work, simulate
from memlane.plan import Execution, executions
from tests.plan.random_plans import plans


def in_ticks(order: list[Execution], work: list[Work]) -> list[tuple[float, float]]:
    """Start and end of each execution, by looking at every tick of 1 ns at what is ready and free."""
    starts: dict[int, int] = {}
    ready_at: dict[int, int] = {}
    tick = 0
    while len(starts) < len(order):

        def ended(number: int, tick: int = tick) -> bool:
            return number in starts and starts[number] + work[number].elapsed_ns <= tick

        progress = True
        while progress:  # what takes no time ends in the tick in which it starts
            progress = False
            for number, one in enumerate(order):
                if number not in ready_at and all(map(ended, one.waits)):
                    ready_at[number] = tick
            waiting = sorted((at, number) for number, at in ready_at.items() if number not in starts)
            for _, number in waiting:
                busy = {resource for other in starts if not ended(other) for resource in work[other].resources}
                before = {
                    resource
                    for _, other in waiting[: waiting.index((ready_at[number], number))]
                    if other not in starts
                    for resource in work[other].resources
                }
                if not busy.union(before).intersection(work[number].resources):
                    starts[number] = tick
                    progress = True
                    break
        tick += 1
    return [(float(starts[number]), starts[number] + work[number].elapsed_ns) for number in range(len(order))]


@given(plans(most_turns=3), st.data())
def test_times_are_those_of_a_simulation_in_ticks(plan: object, data: st.DataObject) -> None:
    order = executions(plan)  # type: ignore[arg-type]
    resources = [(), ("engine",), ("link",)]
    work = [Work(float(data.draw(st.integers(0, 4))), data.draw(st.sampled_from(resources))) for _ in order]
    line = simulate(order, work)
    assert [(span.start_ns, span.end_ns) for span in line.spans] == in_ticks(order, work)
    assert line.is_modelled


@given(plans(most_turns=3), st.data())
def test_the_critical_path_leads_from_the_start_to_the_end_without_a_gap(plan: object, data: st.DataObject) -> None:
    order = executions(plan)  # type: ignore[arg-type]
    work = [Work(float(data.draw(st.integers(1, 4))), data.draw(st.sampled_from([(), ("engine",)]))) for _ in order]
    line = simulate(order, work)
    path = [line.spans[number] for number in line.critical_path()]
    if path:
        assert path[0].start_ns == 0
        assert path[-1].end_ns == line.elapsed_ns
        assert all(one.end_ns == other.start_ns for one, other in pairwise(path))

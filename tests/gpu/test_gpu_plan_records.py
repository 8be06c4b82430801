"""Plans counted and traced on GPUs: each launch has its own records, in graphs, on many streams and on two devices."""

from __future__ import annotations

import numpy as np
import pytest

import memlane as ml
from memlane.driver import Device, probe
from memlane.launch import Target
from memlane.measure import Counter, Tracer
from memlane.plan import Plan, PlanBuilder
from memlane.targets import BoundPlan, devices
from tests.measure.test_plan_steps import MODULE, N

pytestmark = pytest.mark.gpu

needs_two = pytest.mark.skipif(len(probe().devices) < 2, reason="this machine has no second GPU")
QUEUES = 8


@pytest.fixture(scope="module")
def gpus(gpu: Device) -> tuple[Target, ...]:
    return devices("cuda")


def equal_launches(turns: int = 1) -> Plan:
    """Equal grids on many queues, which may run in any order; those of odd queues touch every other word."""
    add = devices("cuda")[0].load(MODULE)["add"]
    b = PlanBuilder()
    to, of = b.array("to", QUEUES * N, "u4"), b.array("of", QUEUES * N, "u4")
    with b.repeat(turns) as loop:
        for queue in range(QUEUES):
            part = slice(queue * N, (queue + 1) * N)
            loop.launch(add, 1, 32, to[part], of[part], 1 + queue % 2, queue=queue, reads=[of[part]], writes=[to[part]])
    return b.plan()


def bound(plan: Plan, gpus: tuple[Target, ...]) -> BoundPlan:
    memory = {name: gpus[0].zeros(QUEUES * N, "u4") for name in ("to", "of")}
    return BoundPlan(plan, memory, targets=gpus[:1], modules=[MODULE])


def test_each_launch_of_a_graph_on_many_streams_is_traced_as_itself(gpus: tuple[Target, ...]) -> None:
    """With the counts of that very launch beside it, which only the number that the host gave it can match."""
    trace = ml.trace(bound(equal_launches(3), gpus), counts=True)
    assert sorted((one.path, one.turns) for one in trace.launches) == sorted(
        ((0, queue), (turn,)) for turn in range(3) for queue in range(QUEUES)
    )
    for launch in trace.launches:
        assert {one.sectors for one in launch.counts} == {4 if launch.path[1] % 2 == 0 else 8}
    assert trace.table.num_rows == 2 * len(trace.launches)


def test_a_plan_counts_on_a_gpu_as_on_the_emulator(gpus: tuple[Target, ...]) -> None:
    found = ml.count(bound(equal_launches(2), gpus))
    assert [(one.path, one.turns, one.device) for one in found.launches] == [
        ((0, queue), (turn,), gpus[0].name) for turn in range(2) for queue in range(QUEUES)
    ]
    assert [one.result.total().sectors for one in found.launches if one.result] == [8, 16] * QUEUES


def test_a_graph_that_starts_again_has_the_records_of_each_start(gpus: tuple[Target, ...]) -> None:
    plan = bound(equal_launches(), gpus)
    with Tracer() as tracer:
        graph = plan.graph()
    for _ in range(3):
        graph.replay()
    graph.wait()
    trace = tracer.finish()
    assert sorted(one.path[1] for one in trace.launches) == sorted(list(range(QUEUES)) * 3)
    assert np.unique(trace.table["launch"].to_numpy(), return_counts=True)[1].tolist() == [2] * 3 * QUEUES


def test_a_run_that_nobody_observes_is_not_the_one_that_was_observed(gpus: tuple[Target, ...]) -> None:
    """What observers made of the launches of a graph is not kept for later runs."""
    plan = bound(equal_launches(), gpus)
    with Counter() as counter:
        plan.run()
    assert len(counter.finish()) == QUEUES
    plan.run()
    with Counter() as again:
        plan.run()
    assert [one.total().sectors for one in again.finish()] == [8, 16] * (QUEUES // 2)


@needs_two
def test_a_trace_of_a_plan_over_two_gpus_names_them(gpus: tuple[Target, ...]) -> None:
    add = gpus[0].load(MODULE)["add"]
    b = PlanBuilder()
    arrays = [(b.array(f"one{device}", 4 * N, "u4", device), b.array(f"two{device}", 4 * N, "u4", device)) for device in range(2)]
    with b.repeat(3, rotate=arrays) as loop:
        ran = [loop.launch(add, 1, 32, two, one, 1 + device, device=device) for device, (one, two) in enumerate(arrays)]
        loop.carry(loop.copy(arrays[1][1][:8], arrays[0][1][:8], queue=1, after=ran), to=ran)
    memory = {f"{name}{device}": gpus[device].zeros(4 * N, "u4") for device in range(2) for name in ("one", "two")}
    trace = ml.trace(BoundPlan(b.plan(), memory, targets=gpus[:2], modules=[MODULE]))
    assert sorted((one.path, one.turns, one.device) for one in trace.launches) == sorted(
        ((0, device), (turn,), gpus[device].name) for turn in range(3) for device in range(2)
    )
    assert set(trace.table["device"].to_pylist()) == {gpus[0].name, gpus[1].name}
    assert [(one.nbytes, one.source, one.destination) for one in trace.copies] == [(32, gpus[0].name, gpus[1].name)] * 3

"""The clock over all devices, against a simulation in small ticks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memlane.chip import Links, load
from memlane.model import Work, predicted, simulate
from memlane.plan import Execution, Home, KernelRef, PlanBuilder, Span, executions, from_json, to_json
from tests.plan.random_plans import plans


def in_ticks(order: list[Execution], work: list[Work]) -> list[tuple[float, float]]:
    """When each execution begins to use its resources, and its end, by looking at every tick of 1 ns at what is ready and free."""
    begins: dict[int, int] = {}
    asked_at: dict[int, int] = {}
    tick = 0
    while len(begins) < len(order):

        def ended(number: int, tick: int = tick) -> bool:
            return number in begins and begins[number] + work[number].elapsed_ns <= tick

        progress = True
        while progress:  # what takes no time ends in the tick in which it begins
            progress = False
            for number, one in enumerate(order):
                if number not in asked_at and all(map(ended, one.waits)):
                    asked_at[number] = tick + int(work[number].latency_ns)
            for _, number in sorted((at, number) for number, at in asked_at.items() if number not in begins and at <= tick):
                busy = {resource for other in begins if not ended(other) for resource in work[other].resources}
                if not busy.intersection(work[number].resources):
                    begins[number] = tick
                    progress = True
                    break
        tick += 1
    return [(float(begins[number]), begins[number] + work[number].elapsed_ns) for number in range(len(order))]


RESOURCES = st.sampled_from([(), ("engine",), ("link",), ("engine", "link"), ("other", "link")])


@given(plans(most_turns=3), st.data())
def test_times_are_those_of_a_simulation_in_ticks(plan: object, data: st.DataObject) -> None:
    order = executions(plan)  # type: ignore[arg-type]
    work = [Work(float(data.draw(st.integers(0, 4))), data.draw(RESOURCES), float(data.draw(st.integers(0, 3)))) for _ in order]
    line = simulate(order, work)
    assert [span.latency_ns for span in line.spans] == [one.latency_ns for one in work]
    assert [(span.start_ns + span.latency_ns, span.end_ns) for span in line.spans] == in_ticks(order, work)
    assert line.is_modelled


@given(plans(most_turns=3), st.data())
def test_the_critical_path_leads_from_the_start_to_the_end_without_a_gap(plan: object, data: st.DataObject) -> None:
    """Behind what held a resource a step goes on at once, with its latency over."""
    order = executions(plan)  # type: ignore[arg-type]
    work = [Work(float(data.draw(st.integers(1, 4))), data.draw(RESOURCES), float(data.draw(st.integers(0, 3)))) for _ in order]
    line = simulate(order, work)
    path = [line.spans[number] for number in line.critical_path()]
    if path:
        assert path[0].start_ns == 0
        assert path[-1].end_ns == line.elapsed_ns
        for number, (one, other) in zip(line.critical_path(), pairwise(path), strict=False):
            held = other.held_by == number
            assert one.end_ns == (other.start_ns + other.latency_ns if held else other.start_ns)


def test_neighbours_that_exchange_both_ways_take_two_turns_however_many_they_are() -> None:
    """Who cannot begin lets others pass: links that were reserved would make a chain of waits along all devices."""
    b, count = PlanBuilder(), 8
    halos = [[b.array(f"halo{device}{side}", 400, "u1", device) for side in range(2)] for device in range(count)]
    edges = [b.array(f"edge{device}", 400, "u1", device) for device in range(count)]
    for device in range(count):
        for other, side in ((device - 1, 1), (device + 1, 0)):
            if 0 <= other < count:
                b.copy(halos[other][side], edges[device], queue=1 + side)
    chip = replace(load("h200"), links=Links(peer_gb_per_s=400, peer_us=2))
    assert predicted(b.plan(), [chip] * count, lambda launch, device: 0.0).elapsed_ns == 2000 + 2 * 1


def test_latencies_of_other_queues_pass_while_an_engine_works() -> None:
    """Two copies of 10 us to a peer, behind a latency of 2 us: the second has its latency behind it when the first ends. Copies from the
    host keep their engine for the latency, too."""
    chip = replace(load("h200"), links=Links(host_gb_per_s=50, host_us=2, peer_gb_per_s=50, peer_us=2))

    def two(home: Home) -> tuple[Span, ...]:
        b = PlanBuilder()
        for queue in range(2):
            b.copy(b.array(f"to{queue}", 500_000, "u1", 0), b.array(f"of{queue}", 500_000, "u1", home), device=0, queue=queue)
        return predicted(b.plan(), [chip] * 2, lambda launch, device: 0.0).spans

    cases: tuple[tuple[Home, int], ...] = ((1, 10_000), ("pinned", 12_000))
    for home, begin in cases:
        first, second = two(home)
        assert (first.start_ns, first.end_ns) == (0, 12_000)
        assert (second.start_ns, second.end_ns, second.held_by) == (begin, begin + 12_000, 0)


def test_urgent_launches_begin_before_others_that_wait_for_the_device() -> None:
    """While a kernel works, two others ask for the device: the urgent one comes first, though it stands last and asked last."""
    b = PlanBuilder()
    kernel, views = KernelRef("0" * 64, "work"), [b.array(f"a{queue}", 4, "u1", 0) for queue in range(3)]
    for queue, view in enumerate(views):
        b.launch(kernel, 1, 1, view, queue=queue, is_urgent=queue == 2)
    assert "2  device 0  queue 2  work grid 1 block 1, urgent" in str(b.plan())
    assert from_json(to_json(b.plan())) == b.plan()
    chip = replace(load("h200"), links=Links(launch_us=1))
    spans = predicted(b.plan(), [chip], lambda launch, device: 5000.0).spans
    assert [span.end_ns for span in spans] == [11_000, 16_000, 6000]

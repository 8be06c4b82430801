"""The clock over all devices of a plan: what `%globaltimer` reads in kernels against the timeline, and laws that any schedule obeys."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import Links, load
from memlane.emulate import Emulator
from memlane.errors import BadAccess, ChipError
from memlane.launch import module_digest, observing
from memlane.measure import Counter, Tracer
from memlane.model import predicted
from memlane.plan import Copy, KernelRef, Launch, Plan, PlanBuilder, Timeline, executions, planned, races
from memlane.ptx import parse
from memlane.targets import BoundPlan
from tests.targets.test_plans import MIX, ordered_plans

STAMP = parse("""
.version 8.0
.target sm_90
.address_size 64

.visible .entry stamp(.param .u64 to, .param .u32 turns)
{
  .reg .b64 t, first, last; .reg .b32 n; .reg .pred p;
  mov.u64 first, %globaltimer;
  ld.param.u64 t, [to]; ld.param.u32 n, [turns];
LOOP:
  st.global.u64 [t], first;
  sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra LOOP;
  mov.u64 last, %globaltimer; st.global.u64 [t+8], last;
  ret;
}
.visible .entry quiet(.param .u64 to) { .reg .b64 t; ld.param.u64 t, [to]; st.global.u64 [t], 5; ret; }
.visible .entry wild() { st.global.u32 [64], 1; ret; }
""")
STAMPING, QUIET, WILD = (KernelRef(module_digest(STAMP), name) for name in ("stamp", "quiet", "wild"))
LINKS = Links(host_gb_per_s=50, host_us=2, pageable_gb_per_s=20, peer_gb_per_s=400, peer_us=3, device_us=1, launch_us=0.5)
CHIP = replace(load("h200"), links=LINKS, copy_gb_per_s=4000.0)


def devices(count: int) -> list[Emulator]:
    return [Emulator(CHIP, device=device) for device in range(count)]


def stamped(b: PlanBuilder, name: str, device: int, turns: int, **more: object) -> object:
    out = b.array(name, 2, "u8", device)
    return b.launch(STAMPING, 1, 1, out, turns, reads=[], writes=[out], label=name, **more)  # type: ignore[arg-type]


def check_stamps(line: Timeline, bound: BoundPlan) -> None:
    """Every kernel's first look at the clock is as far behind the start of its span, and its last lies within the span."""
    assert line.globaltimer_ns is not None
    for span in line.spans:
        if span.kind != "copy":
            first, last = (int(value) - line.globaltimer_ns for value in np.asarray(bound.memory[buffer_of(bound, span.name)].numpy()))  # type: ignore[union-attr]
            assert first == pytest.approx(span.start_ns + 500, abs=25), span
            assert first < last <= math.ceil(span.end_ns)


def buffer_of(bound: BoundPlan, name: str) -> object:
    return next(buffer for buffer in bound.memory if buffer.name == name)


def two_devices(b: PlanBuilder) -> None:
    """Kernels on two queues of device 0, one on device 1 beside them, and one behind a copy between the two."""
    stamped(b, "one", 0, 40, queue=0)
    stamped(b, "two", 0, 10, queue=1)
    other = stamped(b, "other", 1, 25)
    copied = b.copy(b.array("far", 4096, "u8", 0), b.array("near", 4096, "u8", 1), queue=3, after=[other])  # type: ignore[list-item]
    stamped(b, "behind", 0, 5, queue=2, after=[copied])


def bound_to(plan: Plan, targets: list[Emulator]) -> BoundPlan:
    memory = {"near": targets[1].zeros(4096, "u8")} if len(targets) > 1 else {}
    return BoundPlan(plan, memory, targets=targets, modules=[STAMP])


def test_the_global_timer_of_all_devices_reads_the_clock_of_the_plan() -> None:
    b = PlanBuilder()
    two_devices(b)
    bound = bound_to(b.plan(), devices(2))
    line = bound.time()
    check_stamps(line, bound)
    one, two, other, copied, behind = line.spans
    assert one.start_ns == other.start_ns == 0
    assert two.start_ns + 500 == pytest.approx(one.end_ns)  # kernels of one device follow each other, whatever their queues
    assert copied.elapsed_ns == 3000 + 8 * 4096 / 400
    assert behind.start_ns + 500 == pytest.approx(max(copied.end_ns + 500, two.end_ns))
    # Again, later on the timer: the same times.
    again = bound.time()
    assert again == line
    assert again.globaltimer_ns is not None
    assert line.globaltimer_ns is not None
    assert again.globaltimer_ns >= line.globaltimer_ns + line.elapsed_ns
    check_stamps(again, bound)


def test_a_plan_that_is_run_has_the_times_that_are_predicted() -> None:
    """`run` and replays of a graph give no timeline: the kernels themselves tell when they ran."""
    b = PlanBuilder()
    two_devices(b)
    bound = bound_to(b.plan(), devices(2))
    line = bound.time()
    kernels = iter([span.elapsed_ns - 500 for span in line.spans if span.kind == "launch"])
    foretold = predicted(bound.plan, [CHIP, CHIP], lambda launch, device: next(kernels))
    starts = {span.name: span.start_ns for span in foretold.spans}
    graph = bound.graph()
    for start in (bound.run, graph.replay, graph.replay):
        start()
        stamps = {name: int(bound.memory[buffer_of(bound, name)].numpy()[0]) for name in ("one", "two", "other", "behind")}  # type: ignore[union-attr]
        for name, stamp in stamps.items():
            assert stamp - stamps["one"] == pytest.approx(starts[name] - starts["one"], abs=1)


def test_launches_together_begin_at_one_time() -> None:
    targets = devices(2)
    b = PlanBuilder()
    outs = [b.array(f"out{device}", 2, "u8", device) for device in range(2)]
    stamped(b, "before", 0, 30)
    b.together([(device, planned(STAMPING, 1, 1, out, 3 + 20 * device, reads=[], writes=[out])) for device, out in enumerate(outs)])
    bound = BoundPlan(b.plan(), targets=targets, modules=[STAMP])
    line = bound.time()
    firsts = [int(bound.memory[buffer_of(bound, f"out{device}")].numpy()[0]) for device in range(2)]  # type: ignore[union-attr]
    assert firsts[0] == firsts[1]
    assert firsts[0] - (line.globaltimer_ns or 0) == pytest.approx(line.spans[1].start_ns + 500, abs=25)
    assert line.spans[1].start_ns == line.spans[0].end_ns


def test_behind_a_plan_the_devices_go_on_from_its_end() -> None:
    targets = devices(2)
    b = PlanBuilder()
    two_devices(b)
    line = bound_to(b.plan(), targets).time()
    assert line.globaltimer_ns is not None
    for target in targets:
        out = target.zeros(2, "u8")
        target.load(STAMP)["stamp"][1, 1](out, 1)
        assert int(out.numpy()[0]) == pytest.approx(line.globaltimer_ns + line.elapsed_ns, abs=25)


@pytest.mark.parametrize("until", [True, False])
def test_turns_of_a_repeat_follow_each_other_on_the_timer(until: bool) -> None:
    """A repeat that finds its value set behind the fifth turn takes as long as one of five turns."""
    (target,) = devices(1)
    b = PlanBuilder()
    stamps, flag, after = b.array("stamps", 2, "u8", 0), b.array("flag", 1, "u8", "host"), b.array("after", 2, "u8", 0)
    with b.repeat(50 if until else 5, until=flag if until else None, every=5 if until else 1) as loop:
        done = loop.launch(STAMPING, 1, 1, stamps, 3, reads=[], writes=[stamps])
        ended = loop.copy(flag, stamps[:1], after=[done])
        loop.carry(ended, to=[done])
    b.launch(STAMPING, 1, 1, after, 1, reads=[], writes=[after], after=[loop])
    done_run = BoundPlan(b.plan(), {"flag": np.zeros(1, "u8")}, targets=[target], modules=[STAMP]).run()
    assert dict(done_run.turns) == ({(0,): 5} if until else {})
    last, behind = (int(np.asarray(done_run[name].numpy())[0]) for name in ("stamps", "after"))  # type: ignore[union-attr]
    copy, kernels = 2000 + 8 / 20, behind - last - 500 - (2000 + 8 / 20)
    # The first turn finds nothing in L2, so it takes some more; the others take what the last does.
    assert 0 < kernels < 400
    assert 4 * (500 + kernels + copy) < last < 4 * (500 + kernels + copy) + 500 + 600


def test_without_numbers_of_links_kernels_read_the_time_of_their_device() -> None:
    target = Emulator(replace(load("gtx480"), links=Links()))
    b = PlanBuilder()
    out = stamped(b, "out", 0, 1)
    stamped(b, "next", 0, 1, after=[out])
    bound = BoundPlan(b.plan(), targets=[target], modules=[STAMP])
    run = bound.run()
    assert 0 < int(run["out"].numpy()[1]) < int(run["next"].numpy()[0])  # type: ignore[union-attr]
    with pytest.raises(ChipError, match=r"^the chip file of gtx480 has no \[links\] launch_us, which a prediction of the plan needs"):
        bound.time()


def test_kernels_that_read_no_clock_are_run_without_one() -> None:
    (target,) = devices(1)
    b = PlanBuilder()
    out = b.array("out", 2, "u8", 0)
    b.launch(QUIET, 1, 1, out, reads=[], writes=[out])
    bound = BoundPlan(b.plan(), targets=[target], modules=[STAMP])
    with observing(counter := Counter()):  # nor does one who only counts need it
        bound.run()
    (counts,) = counter.finish()
    assert sum(site.requests for site in counts.sites) == 1
    assert target.clock.now_ns == 0
    line = bound.time()
    assert line.elapsed_ns > 500
    with observing(counter := Counter()):
        assert bound.time() == line
    assert len(counter.finish()) == 1
    assert target.clock.now_ns > 500


def test_a_plan_that_breaks_off_leaves_a_clock_that_goes_on() -> None:
    (target,) = devices(1)
    b = PlanBuilder()
    stamped(b, "out", 0, 10)
    b.launch(WILD, 1, 1, device=0)
    with pytest.raises(BadAccess):
        BoundPlan(b.plan(), targets=[target], modules=[STAMP]).time()
    out = target.zeros(2, "u8")
    before = target.clock.now_ns
    assert before > 500
    target.load(STAMP)["stamp"][1, 1](out, 1)
    assert int(out.numpy()[0]) >= before


def test_a_tracer_sees_the_clock_of_the_plan() -> None:
    """The kernel reads no clock by itself; its probes do."""
    (target,) = devices(1)
    b = PlanBuilder()
    out, back = b.array("out", 4096, "u8", 0), b.array("back", 4096, "u8", "host")
    first = b.launch(QUIET, 1, 1, out, reads=[], writes=[out])
    copied = b.copy(back, out, after=[first])
    b.launch(QUIET, 1, 1, out, reads=[], writes=[out], after=[copied])
    bound = BoundPlan(b.plan(), targets=[target], modules=[STAMP])
    with observing(tracer := Tracer()):
        bound.run()
    begins = sorted(tracer.finish().warps["begin_ns"].tolist())
    assert len(begins) == 2
    assert begins[1] - begins[0] > 2000 + 8 * 4096 / 20  # the copy lies between the two


# -- laws ------------------------------------------------------------------------------------------------------------------------------


POOL = devices(3)


@settings(max_examples=60)
@given(st.integers(1, 3), st.data())
def test_times_of_random_plans_obey_the_laws_of_any_schedule(count: int, data: st.DataObject) -> None:
    plan = data.draw(ordered_plans(count))
    if races(plan) or any(of == to == "host" or {of, to} <= {"host", "pinned"} for of, to in copies(plan)):
        return
    start = {buffer.name: np.zeros(buffer.nbytes, "u1") for buffer in plan.buffers}
    memory = {
        buffer.name: start[buffer.name] if buffer.is_on_host else POOL[int(buffer.home)].array(start[buffer.name])
        for buffer in plan.buffers
    }
    line = BoundPlan(plan, memory, targets=POOL[:count], modules=[MIX]).time()
    order = executions(plan)
    for number, one in enumerate(order):
        assert all(line.spans[other].end_ns <= line.spans[number].start_ns for other in one.waits)
    check_queues(line)
    check_links(plan, line)
    assert line.elapsed_ns >= longest_path(plan, line) - 1e-6
    path = [line.spans[number] for number in line.critical_path()]
    assert all(other.start_ns <= one.end_ns + 1e-6 <= other.start_ns + other.latency_ns + 2e-6 for one, other in pairwise(path))
    kernels = iter([span.elapsed_ns - 500 for span in line.spans if span.kind == "launch"])
    foretold = predicted(plan, [CHIP] * count, lambda launch, device: next(kernels))
    assert [span.start_ns for span in foretold.spans] == pytest.approx([span.start_ns for span in line.spans])
    assert [span.waits for span in foretold.spans] == [span.waits for span in line.spans]


def copies(plan: Plan) -> list[tuple[object, object]]:
    return [(one.action.source.buffer.home, one.action.destination.buffer.home) for one in executions(plan) if isinstance(one.action, Copy)]


def check_queues(line: Timeline) -> None:
    """Steps of one queue, and kernels of one device, follow each other."""
    for lanes in ({queue for span in line.spans for queue in span.queues}, {("kernels", device) for device in range(3)}):
        for lane in lanes:
            mine = [
                span for span in line.spans if lane in span.queues or (span.kind == "launch" and lane == ("kernels", span.queues[0][0]))
            ]
            mine.sort(key=lambda span: (span.start_ns, span.end_ns))
            assert all(one.end_ns <= other.start_ns for one, other in pairwise(mine)), lane


def check_links(plan: Plan, line: Timeline) -> None:
    """In no stretch of time more bytes are copied over a link, either way, than its rate allows."""
    rates: dict[str, float] = {"up": 50, "down": 50, "out": 400, "in": 400}
    moved: dict[tuple[str, object], list[tuple[float, float, int]]] = {}
    for one, span in zip(executions(plan), line.spans, strict=True):
        if not isinstance(one.action, Copy):
            continue
        of, to = one.action.source.buffer.home, one.action.destination.buffer.home
        if isinstance(of, int) and isinstance(to, int):
            lanes: list[tuple[str, object]] = [] if of == to else [("out", of), ("in", to)]
        else:
            lanes = [("up", to)] if isinstance(to, int) else [("down", of)]
        for lane in lanes:
            moved.setdefault(lane, []).append((span.start_ns + span.latency_ns, span.end_ns, one.action.source.nbytes))
    for (kind, _), found in moved.items():
        for first, last in combinations_with_replacement(range(len(found)), 2):
            begin, end = min(found[first][0], found[last][0]), max(found[first][1], found[last][1])
            inside = sum(nbytes for start, stop, nbytes in found if start >= begin and stop <= end)
            assert inside <= rates[kind] * (end - begin) + 1e-6


def longest_path(plan: Plan, line: Timeline) -> float:
    """The time that the steps would take if every device and link were free at once."""
    ends: list[float] = []
    for one, span in zip(executions(plan), line.spans, strict=True):
        ends.append(max((ends[other] for other in one.waits), default=0.0) + span.elapsed_ns)
    return max(ends, default=0.0)


def test_what_a_device_sends_to_two_others_shares_its_links() -> None:
    b = PlanBuilder()
    data = b.array("data", 1 << 20, "u1", 0)
    for other in (1, 2):
        b.copy(b.array(f"to{other}", 1 << 20, "u1", other), data, queue=other)
    b.copy(b.array("back", 1 << 20, "u1", 0), b.array("of1", 1 << 20, "u1", 1), queue=0)
    one = (1 << 20) / 400

    def nothing(launch: Launch, device: int) -> float:
        raise AssertionError

    line = predicted(b.plan(), [CHIP] * 3, nothing)
    assert [span.start_ns for span in line.spans] == pytest.approx([0, one, 0])
    assert [span.end_ns for span in line.spans] == pytest.approx([3000 + one, 3000 + 2 * one, 3000 + one])

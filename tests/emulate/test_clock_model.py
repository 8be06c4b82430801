"""Issue slots, pipes and the load-store unit against a slow model; latencies by instruction."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import Chip, load, names
from memlane.emulate.clock.issue import PIPES, Clock, interval_of
from memlane.emulate.clock.latency import Timing, timing_of
from memlane.emulate.clock.rings import SLOTS
from tests.emulate.machine import callable_of

H200 = load("h200")


class Slots:
    """A resource that takes one thing at a time, for ever."""

    def __init__(self) -> None:
        self.taken: set[int] = set()

    def take(self, slot: int) -> int:
        while slot in self.taken:
            slot += 1
        self.taken.add(slot)
        return slot


class SlowSm:
    """The clock layer's multiprocessor, in Python."""

    def __init__(self, chip: Chip = H200) -> None:
        self.chip = chip
        self.rings: dict[object, Slots] = {}

    def ring(self, *name: object) -> Slots:
        return self.rings.setdefault(name, Slots())

    def issue(self, subcore: int, pipe: str, time: int) -> int:
        port = interval_of(self.chip, "issue")
        start = max(time, port * self.ring(subcore).take(time // port))
        interval = interval_of(self.chip, pipe) if pipe else 1
        return start if interval == 1 else max(start, interval * self.ring(subcore, pipe).take(start // interval))

    def lsu(self, time: int, wavefronts: int) -> int:
        last = [self.ring("lsu").take(time) for _ in range(wavefronts)]
        return last[-1] - wavefronts + 1 if last else time


requests = st.lists(
    st.one_of(
        st.tuples(st.just("issue"), st.integers(0, 3), st.sampled_from(("", *PIPES)), st.integers(0, 400)),
        st.tuples(st.just("lsu"), st.integers(0, 400), st.sampled_from([0, 1, 1, 2, 4, 32, 200])),
    ),
    max_size=150,
)


@pytest.mark.parametrize("name", ["gtx480", "s1070"])
def test_a_scheduler_may_take_several_cycles_for_each_instruction(name: str) -> None:
    """Four on the S1070 and two on Fermi, by the programming guide: 32 lanes over 8 and 16 cores."""
    chip = load(name)
    clock, slow = Clock(chip), SlowSm(chip)
    sm = clock.fresh(1)
    requests = [
        (subcore, pipe, time) for time in (0, 1, 7, 30) for subcore in range(chip.schedulers) for pipe in ("", "alu", "sfu", "") * 3
    ]
    assert interval_of(chip, "issue") == {"gtx480": 2, "s1070": 4}[name]
    for subcore, pipe, time in requests:
        assert callable_of(clock.issue(pipe))(sm.ctypes.data, subcore, time) == slow.issue(subcore, pipe, time)
    port, fresh = interval_of(chip, "issue"), clock.fresh(1)
    passing = callable_of(clock.pass_over())
    assert [passing(fresh.ctypes.data, 0, *rest) for rest in ((8, 0), (8, 3), (8, 1))] == [8, 8 + 3 * port, 8 + 4 * port]


@settings(max_examples=150, deadline=None)
@given(requests=requests, start=st.sampled_from([0, 61, SLOTS - 30, 10**12]))
def test_requests_in_any_order_equal_the_slow_model(requests: list[tuple], start: int) -> None:  # type: ignore[type-arg]
    clock, slow = Clock(H200), SlowSm()
    sms = clock.fresh(2)
    sm = sms[1].ctypes.data
    for kind, *rest in requests:
        if kind == "issue":
            subcore, pipe, time = rest
            assert callable_of(clock.issue(pipe))(sm, subcore, start + time) == slow.issue(subcore, pipe, start + time)
        else:
            time, wavefronts = rest
            assert callable_of(clock.lsu)(sm, start + time, wavefronts) == slow.lsu(start + time, wavefronts)
    assert not sms[0].any()


def test_a_warp_that_ran_ahead_leaves_earlier_cycles_free() -> None:
    clock = Clock(H200)
    sm = clock.fresh(1).ctypes
    issue = callable_of(clock.issue())
    assert [issue(sm.data, 0, 5000), issue(sm.data, 0, 3), issue(sm.data, 0, 3), issue(sm.data, 0, 5000)] == [5000, 3, 4, 5001]


def test_the_state_is_reused_after_a_ring_of_cycles() -> None:
    clock = Clock(H200)
    sm = clock.fresh(1)
    issue = callable_of(clock.issue())
    for turn in range(5):
        base = turn * SLOTS
        assert [issue(sm.ctypes.data, 2, base + 7) for _ in range(70)] == list(range(base + 7, base + 77))


def test_a_request_from_before_the_ring_takes_the_next_slot_that_is_known_to_be_free() -> None:
    clock = Clock(H200)
    sm = clock.fresh(1)
    issue = callable_of(clock.issue())
    issue(sm.ctypes.data, 0, 3 * SLOTS)  # the word that holds it once held the cycles from 0 to 63
    assert issue(sm.ctypes.data, 0, 5) == 64


def test_a_full_pipe_delivers_what_the_chip_says() -> None:
    clock = Clock(H200)
    sm = clock.fresh(1)
    for pipe in PIPES:
        starts = [callable_of(clock.issue(pipe))(sm.ctypes.data, subcore, 0) for subcore in range(4) for _ in range(100)]
        busy = max(starts) + interval_of(H200, pipe)
        assert 400 * 32 / busy == pytest.approx(getattr(H200.throughput, pipe), rel=0.25)
        sm[:] = 0


@pytest.mark.parametrize("name", names())
def test_each_shipped_chip_has_whole_intervals(name: str) -> None:
    """The model issues at most one instruction a cycle, also for schedulers that issue two."""
    chip = load(name)
    assert [interval_of(chip, pipe) for pipe in PIPES] == [pytest.approx(max(1, chip.issue_interval(pipe))) for pipe in PIPES]


@pytest.mark.parametrize(
    ("opcode", "type", "field"),
    [
        ("add.s32", "s32", "alu"),
        ("mad.lo.s32", "s32", "imul"),
        ("mul.wide.u32", "u64", "imul"),
        ("fma.rn.f32", "f32", "fma"),
        ("add.f64", "f64", "fp64"),
        ("setp.lt.s32", "s32", "predicate"),
        ("ex2.approx.ftz.f32", "f32", "sfu"),
        ("cvt.rn.f32.s32", "f32", "convert"),
        ("cvt.u64.u32", "u64", "alu"),
        ("shfl.sync.bfly.b32", "b32", "shuffle"),
        ("bra", "", "branch"),
        ("mov.b32", "b32", "alu"),
        ("prmt.b32", "b32", "alu"),
    ],
)
def test_plain_instructions_have_the_latency_of_their_class(opcode: str, type: str, field: str) -> None:
    assert timing_of(H200, opcode, type).latency == round(getattr(H200.latency, field))


def test_memory_special_registers_and_fences() -> None:
    latency = H200.latency

    def latency_of(opcode: str, type: str = "", space: str = "", special: str = "") -> int:
        return timing_of(H200, opcode, type, space, special).latency

    assert latency_of("ld.shared.f32", "f32", space="shared") == round(latency.shared)
    assert latency_of("ld.param.u64", "u64", space="param") == round(latency.constant)
    assert latency_of("atom.global.add.u32", "u32", space="global") == round(latency.global_atomic)
    assert latency_of("red.shared.add.u32", "u32", space="shared") == round(latency.shared_atomic)
    assert latency_of("mov.u64", "u64", special="%clock64") == round(latency.clock)
    assert latency_of("mov.u32", "u32", special="%tid.x") == round(latency.special)
    assert latency_of("membar.gl") == latency_of("fence.acq_rel.sys") == round(latency.fence_device)
    assert latency_of("fence.acq_rel.cta") == round(latency.fence_block)


def test_what_the_assembler_expands_takes_the_sum_of_its_parts() -> None:
    latency = H200.latency
    assert timing_of(H200, "div.rn.f32", "f32") == Timing(round(latency.sfu) + 6 * round(latency.fma), "sfu", 7)
    assert timing_of(H200, "add.s64", "s64") == Timing(2 * round(latency.alu), "alu", 2)
    assert timing_of(H200, "and.b64", "b64") == Timing(round(latency.alu) + 1, "alu", 2)
    assert timing_of(H200, "rcp.approx.ftz.f32", "f32").issues == 1 < timing_of(H200, "rcp.rn.f32", "f32").issues

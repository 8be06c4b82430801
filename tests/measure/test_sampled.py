"""Traces of a part of a launch: which rows they keep, what the others leave alone, and what is told before the launch."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.checks import Check, checking
from memlane.chip import load as load_chip
from memlane.emulate import Emulator
from memlane.instrument import Sampling, TraceOptions
from memlane.launch import DeviceArray, LoadedModule, observing
from memlane.measure import Tracer, count, trace
from memlane.measure.instrumented_module import instrumented_pool
from memlane.ptx import parse
from memlane.record import Trace, load

BARRIERS = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry meet(.param .u64 data, .param .u32 turns)
{
    .reg .pred %p, %q;
    .reg .b32 %r<12>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 words[1024];
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r9, [turns];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mad.wide.u32 %rd2, %r4, 4, %rd1;
    mov.u32 %r8, 0;
AGAIN:
    {
    .reg .b32 word;
    .reg .b64 place, base;
    ld.global.u32 word, [%rd2];
    mov.u64 base, words;
    mad.wide.u32 place, %r1, 4, base;
    st.shared.u32 [place], word;
    }
    bar.sync 0;
    sub.u32 %r5, %r3, %r1;
    sub.u32 %r5, %r5, 1;
    shl.b32 %r5, %r5, 2;
    mov.u32 %r6, words;
    add.u32 %r6, %r6, %r5;
    ld.shared.u32 %r7, [%r6];
    setp.gt.u32 %p, %r7, 50;
    bar.red.popc.u32 %r10, 1, %p;
    barrier.sync 2;
    shfl.sync.bfly.b32 %r11, %r7, 5, 31, 0xffffffff;
    add.u32 %r10, %r10, %r11;
    st.global.u32 [%rd2], %r10;
    bar.sync 0;
    add.u32 %r8, %r8, 1;
    setp.lt.u32 %q, %r8, %r9;
    @%q bra AGAIN;
    setp.gt.u32 %p, %r10, 60;
    @%p exit;
    st.global.u32 [%rd2], 7;
}
"""
"""Warps of a block exchange words through barriers of every kind, in a loop, then leave by an exit or by the end of the text."""

BLOCKS, THREADS, TURNS = 7, 96, 3
Key = tuple[int, ...]
Whole = tuple[Trace, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def meeting() -> LoadedModule:
    return Emulator(load_chip("h200")).load(parse(BARRIERS, "meet.ptx"))


@pytest.fixture(scope="module")
def whole(meeting: LoadedModule) -> tuple[Trace, npt.NDArray[Any]]:
    """The trace of the whole launch, and what it computed."""
    return traced(meeting)


def traced(meeting: LoadedModule, **window: Any) -> tuple[Trace, npt.NDArray[Any]]:
    """The trace of one launch, and what it computed."""
    out = meeting.target.array(np.arange(BLOCKS * THREADS, dtype=np.uint32))
    return trace(meeting["meet"][BLOCKS, THREADS], out, TURNS, **window), out.numpy()


def keys(made: Trace, *more: str) -> list[Key]:
    names = ("block", "warp", "site", "execution", "active_mask", *more)
    return sorted(zip(*(made.table[name].to_pylist() for name in names), strict=True))


WINDOWS: dict[str, tuple[dict[str, Any], Any]] = {
    "blocks": ({"blocks": "0-1,5"}, lambda block, warp, execution: block in (0, 1, 5)),
    "warps": ({"warps": [0, 2]}, lambda block, warp, execution: warp in (0, 2)),
    "both": ({"blocks": range(2, 6), "warps": 1}, lambda block, warp, execution: 2 <= block < 6 and warp == 1),
    "executions": ({"executions": "1-2"}, lambda block, warp, execution: execution >= 1),
    "all three": (
        {"blocks": 3, "warps": "1-2", "executions": 0},
        lambda block, warp, execution: (block, execution) == (3, 0) and warp >= 1,
    ),
    "beyond the grid": ({"blocks": "6-1000"}, lambda block, warp, execution: block == 6),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_keeps_the_rows_of_the_whole_trace_that_lie_in_it(meeting: LoadedModule, whole: Whole, name: str) -> None:
    window, inside = WINDOWS[name]
    everything, expected = whole
    part, computed = traced(meeting, **window)
    assert np.array_equal(computed, expected)
    assert keys(part, "sectors", "wavefronts") == [
        key for key in keys(everything, "sectors", "wavefronts") if inside(key[0], key[1], key[3])
    ]
    assert 0 < part.table.num_rows < everything.table.num_rows
    assert part.lost == 0


@pytest.mark.parametrize(("every", "seed"), [(2, 0), (3, 1), (4, 99), (7, 2**40)])
def test_a_sample_has_one_of_each_group_of_warps_and_the_host_knows_which(
    meeting: LoadedModule, whole: Whole, every: int, seed: int
) -> None:
    everything, expected = whole
    part, computed = traced(meeting, every=every, seed=seed)
    assert np.array_equal(computed, expected)
    numbers = part.warps["block"].astype(int) * 3 + part.warps["warp"]
    groups = (numbers // every).tolist()
    assert sorted(set(groups)) == sorted(groups)
    assert set(range(BLOCKS * 3 // every)) <= set(groups), "every whole group has one"
    recorded = {(int(row["block"]), int(row["warp"])) for row in part.warps}
    assert keys(part) == [key for key in keys(everything) if key[:2] in recorded]
    assert part.launches[0].sample is not None
    assert part.launches[0].sample.warps_chosen == len(recorded)


@pytest.mark.parametrize(("every", "seed"), [(2, 0), (3, 9)])
def test_whole_blocks_are_traced_with_all_their_warps(meeting: LoadedModule, whole: Whole, every: int, seed: int) -> None:
    everything, expected = whole
    part, computed = traced(meeting, every=every, seed=seed, whole_blocks=True)
    assert np.array_equal(computed, expected)
    blocks = sorted(set(part.warps["block"].tolist()))
    assert [block // every for block in blocks][: BLOCKS // every] == list(range(BLOCKS // every))
    assert len(blocks) <= BLOCKS // every + 1
    assert keys(part) == [key for key in keys(everything) if key[0] in blocks]
    assert part.launches[0].sample is not None
    assert part.launches[0].sample.warps_chosen == 3 * len(blocks)
    assert str(part.launches[0].sample) == f"1 in {every} blocks (seed {seed})"


@pytest.mark.slow
def test_other_seeds_take_other_warps(meeting: LoadedModule) -> None:
    taken = {tuple(sorted({key[:2] for key in keys(traced(meeting, every=3, seed=seed)[0])})) for seed in range(6)}
    assert len(taken) > 3


UNEVEN = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry uneven(.param .u64 data)
{
    .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 0;
AGAIN:
    ld.global.u32 %r3, [%rd1];
    add.u32 %r4, %r4, %r3;
    add.u32 %r2, %r2, 1;
    setp.le.u32 %p, %r2, %r1;
    @%p bra AGAIN;
    st.global.u32 [%rd1], %r4;
    ret;
}
"""
"""Lane i goes round i + 1 times, so that another lane leads each time."""


def test_executions_are_those_of_the_lane_that_leads(target: Emulator) -> None:
    kernel, data = target.load(parse(UNEVEN, "uneven.ptx"))["uneven"], target.zeros(32, "u4")
    everything, part = trace(kernel[1, 32], data), trace(kernel[1, 32], data, executions="5-9")
    loads = [key for key in keys(everything) if key[2] == 0]
    assert len(loads) == 32
    assert keys(part) == loads[5:10]


def test_barriers_that_meet_across_the_bodies_are_no_fault(meeting: LoadedModule) -> None:
    """They are two copies of one barrier; threads at different barriers of the kernel are told as ever (`tests/emulate`)."""
    with checking(Check(insist=True)):
        made, _ = traced(meeting, warps=1)
    assert set(made.table["warp"].to_pylist()) == {1}


def test_chosen_sms(meeting: LoadedModule, whole: Whole) -> None:
    """The emulator puts a block on the same SM each time."""
    everything, expected = whole
    sms = sorted(set(everything.table["sm"].to_pylist()))[1:3]
    part, computed = traced(meeting, sms=sms)
    assert np.array_equal(computed, expected)
    assert keys(part, "sm") == [key for key in keys(everything, "sm") if key[-1] in sms]
    assert len(sms) == 2


def test_counts_are_of_the_whole_launch(meeting: LoadedModule, whole: Whole) -> None:
    everything, _ = whole
    part, _ = traced(meeting, every=3)
    assert [(one.site.line, one.requests, one.bytes) for one in part.launches[0].counts] == [
        (one.site.line, one.requests, one.bytes) for one in everything.launches[0].counts
    ]
    assert part.launches[0].branches == everything.launches[0].branches
    data = meeting.target.array(np.arange(BLOCKS * THREADS, dtype=np.uint32))
    counted = count(meeting["meet"][BLOCKS, THREADS], data, TURNS)
    assert [one.requests for one in part.launches[0].counts] == [one.requests for one in counted.sites]


def test_a_sample_and_its_weight_are_in_the_file(meeting: LoadedModule, whole: Whole, tmp_path: Path) -> None:
    made, _ = traced(meeting, blocks="0-3", every=3, executions="1-2", seed=5)
    made.save(tmp_path / "part.parquet")
    sample = load(tmp_path / "part.parquet").launches[0].sample
    assert sample == made.launches[0].sample
    assert sample is not None
    assert str(sample) == "1 in 3 warps (seed 5) of blocks 0-3, executions 1-2"
    assert (sample.warps_in_window, sample.warps_chosen, sample.weight) == (12, 4, 3.0)
    assert whole[0].launches[0].sample is None


def test_launches_are_told_apart_by_the_warps_that_they_leave(kernels: LoadedModule, data: DeviceArray) -> None:
    """The middle launch has no block 1, so that nothing of it is traced."""
    tracer = Tracer(TraceOptions(sampling=Sampling.of(blocks=1)))
    with observing(tracer):
        for blocks, value in ((2, 5), (1, 6), (3, 7)):
            kernels["add"][blocks, 32](data, value)
    made = tracer.finish()
    assert [(launch.grid[0], launch.arguments[1]) for launch in made.launches] == [(2, "5"), (3, "7")]
    assert set(made.table["block"].to_pylist()) == {1}


def test_graphs_are_sampled_too(target: Emulator, kernels: LoadedModule, data: DeviceArray) -> None:
    tracer = Tracer(TraceOptions(sampling=Sampling.of(warps=1)))
    with observing(tracer):
        graph = target.graph([kernels["add"][2, 64].bind(data, 1)])
        graph.replay()
        graph.replay()
    made = tracer.finish()
    assert [len(made.warps[made.warps["launch"] == number]) for number in (0, 1)] == [2, 2]
    assert set(made.table["warp"].to_pylist()) == {1}


def test_another_window_of_the_same_kind_is_not_compiled_again(kernels: LoadedModule, data: DeviceArray) -> None:
    trace(kernels["add"][4, 32], data, 1, blocks=1)
    (first,) = instrumented_pool(kernels)
    made = trace(kernels["add"][4, 32], data, 1, blocks="2-3")
    (second,) = instrumented_pool(kernels)
    assert second.loaded is first.loaded
    assert set(made.table["block"].to_pylist()) == {2, 3}
    trace(kernels["add"][4, 32], data, 1, warps=0)
    assert len(instrumented_pool(kernels)) == 2


# -- what is told before the launch ----------------------------------------------------------------------------------------------


def test_limited_room_is_told_before_the_launch(kernels: LoadedModule, data: DeviceArray, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "memlane.measure")
    made = trace(kernels["sum"][1, 32], data, 9, records_per_warp=4)
    assert caplog.messages == ["sum: the buffer holds 4 records per warp, and a warp may make more; the report says how many were lost"]
    assert (made.lost, made.warps["lost"].tolist()) == (6, [6])


def test_a_window_of_executions_fits(kernels: LoadedModule, data: DeviceArray, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "memlane.measure")
    tracer = Tracer(TraceOptions.of(executions="3-4"))
    with observing(tracer):
        kernels["sum"][1, 32](data, 9)
    assert [(plan.chosen, plan.records_per_warp, plan.limited) for plan in tracer.plans] == [(1, 4, False)]
    assert caplog.messages == []
    made = tracer.finish()
    assert (made.table["execution"].to_pylist(), made.lost) == ([3, 4], 0)


def test_a_window_beside_the_launch_is_told(kernels: LoadedModule, data: DeviceArray, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "memlane.measure")
    made = trace(kernels["add"][1, 64], data, 9, blocks="5-9")
    assert caplog.messages == [
        "add: no warp of a launch of 2 warps is traced, because none is in blocks 5-9; it has blocks 0 to 0 with warps 0 to 1"
    ]
    assert made.table.num_rows == 0
    assert np.array_equal(data.numpy()[:64], np.arange(64) + 9)

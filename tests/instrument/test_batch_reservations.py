"""Probes that reserve their places together record what probes by themselves record, and lose as much."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

from memlane.instrument import BufferLayout, Decoded, TraceOptions, buffer_layout, trace, tracing
from memlane.instrument.probe import Draft
from memlane.ptx import Module, print_module
from memlane.sass import disassemble
from tests.instrument.kernels import instructions, kernel
from tests.instrument.running import Run
from tests.sass.code import cubin_of

BODY = """
.reg .b64 %rd<8>; .reg .b32 %r<40>; .reg .pred %p<4>;
ld.param.u64 %rd1, [p];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd2, %r1, 4;
add.u64 %rd3, %rd1, %rd2;
mov.u32 %r5, %ctaid.x;
mul.wide.u32 %rd4, %r5, 512;
add.u64 %rd4, %rd4, %rd3;
"""
SOME = "setp.{test}.u32 %p1, %r1, {lane}; @%p1 bra $skip; {inside} $skip: st.global.u32 [%rd4+8192], %r2; ret;"


def loads(count: int) -> str:
    return "\n".join(f"ld.global.u32 %r{10 + at}, [%rd3+{128 * at}]; add.u32 %r2, %r2, %r{10 + at};" for at in range(count))


def looped(inside: str, turns: int) -> str:
    return f"mov.u32 %r3, 0; $loop: {inside} add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, {turns}; @%p2 bra $loop;"


KERNELS = {
    "all lanes": f"mov.u32 %r2, 0; {loads(20)} st.global.u32 [%rd4+8192], %r2; ret;",
    "without lane 0": f"mov.u32 %r2, 0; {SOME.format(test='lt', lane=5, inside=looped(loads(3), 7))}",
    "two parts": f"mov.u32 %r2, 0; setp.lt.u32 %p1, %r1, 9; @%p1 bra $low; {looped(loads(5), 4)} bra $both; $low: {loads(18)} $both: "
    f"{loads(2)} st.global.u32 [%rd4+8192], %r2; ret;",
    "runs of one and of many": "mov.u32 %r2, 0; mov.u32 %r4, 0xFFFFFFF8; "
    + SOME.format(test="lt", lane=3, inside=looped(loads(1) + " bar.warp.sync %r4; " + loads(6), 9)),
    "guarded": f"mov.u32 %r2, 0; setp.lt.u32 %p3, %r1, 8; {loads(2)} @%p3 ld.global.u32 %r30, [%rd3]; @!%p3 mov.u32 %r30, 1; "
    f"add.u32 %r2, %r2, %r30; {loads(3)} st.global.u32 [%rd4+8192], %r2; ret;",
}
LAYOUTS = [buffer_layout(3, 400, 800), buffer_layout(3, 5, 9), buffer_layout(3, 0, 33), buffer_layout(2, 17, 3)]


@cache
def run(name: str) -> Run:
    return fresh(KERNELS[name])


def fresh(body: str) -> Run:
    return Run(kernel(BODY + body), "k", 3, 32, (np.arange(4096, dtype=np.uint32),))


def rows(decoded: Decoded) -> Counter[tuple[int, ...]]:
    names = ("block", "warp", "site", "active_mask", "execution")
    return Counter(zip(*(decoded.records[name].tolist() for name in names), strict=True))


def by_themselves(draft: Draft, staged: bool) -> Draft:
    return draft


@pytest.mark.parametrize("name", KERNELS)
def test_the_same_records_with_room_for_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, found, _ = run(name).traced(layout=LAYOUTS[0])
    monkeypatch.setattr(tracing, "batch_reservations", by_themselves)
    expected_result, expected, _ = fresh(KERNELS[name]).traced(layout=LAYOUTS[0])
    assert found.lost == expected.lost == 0
    assert len(expected.records) > 20
    assert rows(found) == rows(expected)
    assert np.array_equal(result, expected_result)
    assert np.array_equal(result, run(name).plain())


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("name", KERNELS)
def test_kept_and_lost_are_all_there_is(name: str, layout: BufferLayout) -> None:
    """Places taken together are filled one by one, as far as there are any."""
    everything = len(run(name).traced(layout=LAYOUTS[0])[1].records)
    found = run(name).traced(layout=layout)[1]
    assert len(found.records) + found.lost == everything
    assert found.lost > 0
    assert found.warps["kept"].sum() == len(found.records)


def test_half_of_the_places_that_others_take_are_filled_at_least() -> None:
    places: list[int] = []
    _, found, _ = run("runs of one and of many").traced(layout=LAYOUTS[0], places=places)
    kept = int((found.records["block"] == 0).sum()) - 1  # Lane 0 led the store at the end.
    assert kept <= places[0] <= 2 * kept + 16


def votes(module: Module) -> int:
    return sum(one.opcode == "activemask" for one in instructions(trace(module).module))


def test_a_run_votes_once_and_ends_where_lanes_part_or_meet() -> None:
    outside = 2  # at the entry and at the exit
    assert votes(kernel(BODY + loads(4) + "ret;")) == outside + 1
    assert votes(kernel(BODY + loads(20) + "ret;")) == outside + 2
    assert votes(kernel(BODY + loads(2) + "bar.sync 0;" + loads(2) + "ret;")) == outside + 2
    assert votes(kernel(BODY + loads(2) + "$here: " + loads(2) + "ret;")) == outside + 2
    assert votes(kernel(BODY + loads(2) + "shfl.sync.idx.b32 %r9, %r1, 0, 31, -1;" + loads(2) + "ret;")) == outside + 2


def test_executions_that_are_counted_stand_by_themselves() -> None:
    module = kernel(BODY + loads(4) + "ret;")
    text = print_module(trace(module, TraceOptions.of(executions="1-2")).module)
    assert text.count("activemask.b32") == 2 + 4


def assembled_run(count: int) -> str:
    """What the assembler made of a run of so many loads, a letter for each instruction that counts: c reads the clock, L loads, S stores a
    record, d is another."""
    program = disassemble(cubin_of(trace(kernel(BODY + loads(count) + "st.global.u32 [%rd4+8192], %r2; ret;")).module))
    letters = {"CS2R": "c", "LDG": "L", "STG.E.EF.128": "S"}
    return "".join(letters.get(one.opcode, letters.get(one.name, "d")) for one in program.functions["k"].instructions)


def test_no_record_is_stored_in_a_window_or_right_in_front_of_the_next() -> None:
    """By the assembled code: a window is from a clock read over the load to the next clock read; at least four other
    instructions come between a store and the clock read that begins the next."""
    between = re.split(r"cd*Ld*c", assembled_run(6))[1:-1]
    assert ["S" in part for part in between] == [False, True, True, True, True], "six windows, and no record of the first before the second"
    assert all(len(part.rpartition("S")[2]) >= 4 for part in between[1:])

"""Windows and samples: how they are written, which warps they take, and the kernels that decide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlane.audit import prove
from memlane.errors import BadLaunch, MemlaneError
from memlane.instrument import Sampling, Selection, Traced, TraceOptions, trace
from memlane.instrument.sampling import Draw, _division
from memlane.ptx import Block, Label, Variable, parse, print_module, verify
from tests.instrument.kernels import EXAMPLES, SCALE, example, instructions, is_access, kernel
from tests.sass.code import cubin_of

HALVES = Sampling.of(every=4)
ALL_KINDS = Sampling.of(blocks="0-3,17", warps=0, sms="0-7", executions="10-20", every=32)
BY_NAME = {path.stem: path for path in EXAMPLES}


@cache
def traced(name: str, sampling: Sampling = HALVES) -> Traced:
    return trace(example(BY_NAME[name]), TraceOptions(sampling=sampling))


# -- how they are written --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "spans"),
    [
        ("0-3,17", ((0, 4), (17, 18))),
        (" 5 , 1-2", ((1, 3), (5, 6))),
        ("0-3,4-7", ((0, 8),)),
        (9, ((9, 10),)),
        (range(2, 6), ((2, 6),)),
        ([7, range(3), 3], ((0, 4), (7, 8))),
    ],
)
def test_windows_as_people_write_them(said: Any, spans: object) -> None:
    assert Sampling.of(blocks=said).blocks == Sampling.of(warps=said).warps == Sampling.of(sms=said).sms == spans


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"blocks": "0-3,2-5"}, r"the block windows 0-3 and 2-5 overlap; write 0-5 instead"),
        ({"warps": "4,1,4"}, r"the warp windows 4 and 4 overlap; write 4 instead"),
        ({"sms": [range(8), 3]}, r"the SM windows 0-7 and 3 overlap; write 0-7 instead"),
        ({"blocks": "7-3"}, r"the block window 7-3 is empty, because it ends before it begins; write 3-7"),
        ({"blocks": range(4, 4)}, r"the block window range\(4, 4\) is empty or leaves numbers out; give a range of consecutive numbers"),
        ({"warps": []}, r"the list of warps to trace is empty; leave it out to trace all"),
        ({"blocks": ""}, r"'' is not a block window; write numbers and ranges with both ends, such as 0-3,17"),
        ({"blocks": "a-b"}, r"'a-b' is not a block window; write numbers and ranges with both ends, such as 0-3,17"),
        ({"blocks": "0,2,4,6,8"}, r"a trace has at most 4 windows of blocks, got 5: 0,2,4,6,8; trace them one after another"),
        ({"blocks": 1 << 32}, r"the block window from 4294967296 to below 4294967297 is empty or not within 0 to 2\^32 - 2"),
        ({"executions": "0-3,9"}, r"the executions to trace are one window, such as 10-20, got 0-3,9"),
        ({"every": 0}, r"a sample takes 1 in N warps or blocks, with N from 1 to 2\^31, got 0"),
        ({"whole_blocks": True}, r"whole blocks were requested without a sample; pass `every` to trace one block in N"),
        ({"seed": -1}, r"the seed of a sample is a number from 0 to below 2\^64, got -1"),
    ],
)
def test_windows_that_make_no_sense(window: dict[str, Any], message: str) -> None:
    with pytest.raises(MemlaneError, match=f"^{message}$"):
        Sampling.of(**window)


def test_a_launch_too_large_to_be_numbered() -> None:
    with pytest.raises(BadLaunch, match=r"a launch of 8,589,934,592 warps is too large for a sample, which supports up to 2\^32 warps"):
        Sampling.of(every=2).chosen(1 << 28, 32)
    assert Sampling().chosen(1 << 28, 32).warps == 1 << 33


# -- which warps they take -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [2, 3, 32, 1000])
@pytest.mark.parametrize("seed", [0, 12345])
def test_exactly_one_of_each_group_is_taken(every: int, seed: int) -> None:
    """One block for each warp, asked one by one: the sum must be what a window of all of them gives."""
    sampling, warps = Sampling.of(every=every, seed=seed), 4 * every
    taken = [block for block in range(warps) if Sampling.of(every=every, seed=seed, blocks=block).chosen(warps, 1).warps]
    assert [block // every for block in taken] == [0, 1, 2, 3]
    assert sampling.chosen(warps, 1).warps == 4
    assert sampling.chosen(warps, 1).extent == (taken[-1] + 1, 1)
    assert sampling.chosen(warps + 1000 * every, 1).warps == 1004


def test_samples_do_not_fall_into_step() -> None:
    """Each place in a group is taken about as often as any other, and after each other place, one group or one row of a grid later: within
    five standard deviations of a fair draw."""
    every, groups = 8, 40_000
    draw = Draw(every, 0, whole_blocks=False)
    place = draw.place(np.arange(groups, dtype=np.uint64))
    assert np.all(np.abs(np.bincount(place, minlength=every) - groups / every) < 5 * np.sqrt(groups / every))
    for row in (1, 2, 16, 55, 128, 144, 987, 1024):  # Powers of two, and the widths that multiples of the golden ratio fall into step with.
        pairs = np.bincount(place[row:] * every + place[:-row], minlength=every * every)
        expected = (groups - row) / every**2
        assert np.all(np.abs(pairs - expected) < 5 * np.sqrt(expected))


def test_whole_blocks() -> None:
    """All chosen warps of exactly one block of each group."""
    sampling = Sampling.of(every=8, whole_blocks=True, warps="1-2", blocks="3-90")
    taken = [block for block in range(100) if Sampling.of(every=8, whole_blocks=True, blocks=block).chosen(100, 4).warps == 4]
    assert [block // 8 for block in taken] == [*range(12), *([12] if len(taken) == 13 else [])]
    inside = [block for block in taken if 3 <= block <= 90]
    chosen = sampling.chosen(100, 4)
    assert (chosen.in_window, chosen.warps, chosen.extent) == (88 * 2, 2 * len(inside), (inside[-1] + 1, 3))
    sample = sampling.sample(chosen)
    assert str(sample) == "1 in 8 blocks (seed 0) of blocks 3-90, warps 1-2"


def test_weights_make_up_for_what_is_left_out() -> None:
    sampling = Sampling.of(blocks="10-29", warps="0-3", every=4)
    sample = sampling.sample(sampling.chosen(100, 8))
    assert sample is not None
    assert sample.warps_in_window == 20 * 4
    assert sample.weight * sample.warps_chosen == pytest.approx(80)


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 31, 32, 33, 641, 1 << 16, (1 << 31) - 1, 1 << 31])
def test_division_by_multiplication(divisor: int) -> None:
    magic, first, second = _division(divisor)
    assert magic < 1 << 32
    edges = {0, 1, divisor - 1, divisor, divisor + 1, 2 * divisor - 1, 2 * divisor, (1 << 32) - 1, (1 << 31), (1 << 31) - 1}
    multiples = {k * divisor + d for k in (3, 1000, (1 << 32) // divisor) for d in (-1, 0, 1)}
    for number in sorted(one for one in edges | multiples if 0 <= one < 1 << 32):
        high = number * magic >> 32
        assert (((number - high) >> first) + high) >> second == number // divisor


# -- the kernels that decide it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("every", HALVES),
        ("whole_blocks", Sampling.of(every=7, seed=1, whole_blocks=True)),
        ("blocks", Sampling.of(blocks=3)),
        ("warps_of_sms", Sampling.of(warps=0, sms=0)),
        ("all", ALL_KINDS),
    ],
)
def test_the_text_around_the_instrumented_body(name: str, sampling: Sampling, golden: Callable[[str, str], None]) -> None:
    """The decision and the original body; what is between them has goldens of its own."""
    made = trace(parse(SCALE, "scale.ptx"), TraceOptions(sampling=sampling)).module
    scale = made.kernels["scale"]
    assert scale.body is not None
    *_, instrumented = (one for one in scale.body.statements if isinstance(one, Block))
    outline = replace(scale, body=Block(tuple(Block(()) if one is instrumented else one for one in scale.body.statements)))
    golden(f"sampled_{name}.ptx", print_module(replace(made, items=tuple(outline if one is scale else one for one in made.items))))


def test_executions_are_counted_by_each_thread_and_the_leader_decides() -> None:
    text = print_module(trace(parse(SCALE, "scale.ptx"), TraceOptions(sampling=Sampling.of(executions=7))).module)
    assert text.count("mov.u32 %ml_seen_1, 0;") == text.count("add.u32 %ml_seen_1, %ml_seen_1, 1;") == 1
    assert "setp.lt.and.u32 %ml_leads, %ml_since, %ml_length, %ml_leads;" in text
    assert "bra.uni" not in text, "there is one body"


def test_windows_of_the_same_kinds_make_the_same_kernel() -> None:
    one, other, third = Sampling.of(blocks=1, every=2), Sampling.of(blocks="5,7-9", every=2), Sampling.of(blocks=1)
    made = [print_module(trace(parse(SCALE, "scale.ptx"), TraceOptions(sampling=sampling)).module) for sampling in (one, other, third)]
    assert made[0] == made[1] != made[2]
    assert TraceOptions(sampling=one).makes_the_same(TraceOptions(sampling=other))
    assert not TraceOptions(sampling=one).makes_the_same(TraceOptions(sampling=third))
    assert not TraceOptions(sampling=one).makes_the_same(TraceOptions("simple", sampling=other))
    for draw in ({"every": 3}, {"every": 2, "seed": 1}, {"every": 2, "whole_blocks": True}):
        assert not one.makes_the_same(Sampling.of(blocks=1, **draw)), "what is drawn stands in the code"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_positions_lead_to_the_accesses_of_both_bodies(path: Path) -> None:
    original, found = example(path), trace(example(path), TraceOptions(sampling=ALL_KINDS))
    verify(found.module)
    assert parse(print_module(found.module), path.name) == found.module
    for name, positions in found.positions.items():
        now, before = instructions(found.module, name), instructions(original, name)
        first = min(found.plain[name].values()) - min(found.sites[number].instruction for number in positions)
        assert now[first : first + len(before)] == before, "the original body stands in front, as it was"
        for number, position in positions.items():
            plain = found.plain[name][number]
            assert now[plain] == before[found.sites[number].instruction]
            assert is_access(now[position], now[plain])
            assert position > plain


def test_kernels_without_a_chosen_site_have_one_body() -> None:
    original = example(BY_NAME["transpose"])
    name = next(iter(original.kernels))
    found = trace(original, TraceOptions(selection=Selection(kernels={name}), sampling=HALVES))
    assert {one for one in original.kernels if found.module.kernels[one] != original.kernels[one]} == {name}


NESTED = """
    .reg .b32 %r<4>; .reg .b64 %rd<3>; .shared .b32 outer[8];
    ld.param.u64 %rd1, [p];
    { .shared .b32 inner[8]; .reg .b32 own; ld.global.u32 own, [%rd1]; st.shared.u32 [inner], own; ld.shared.u32 %r1, [outer]; }
    { .shared .b32 inner[8]; st.shared.u32 [inner], %r1; }
    ret;
"""


def test_variables_in_memory_are_declared_once() -> None:
    found = trace(kernel(NESTED), TraceOptions(sampling=HALVES))
    verify(found.module)
    body = found.module.kernels["k"].body
    assert body is not None
    assert [one.name for one in body.statements if isinstance(one, Variable)] == ["outer", "inner", "inner__1"]

    assert body.statements[-1] != Label("$ml_original")


def test_a_module_that_fills_constant_memory() -> None:
    full = kernel(".reg .b32 %r<2>; ld.global.u32 %r1, [0]; ret;", before=".const .b8 table[65500];")
    with pytest.raises(
        MemlaneError, match="windows need 104 bytes of constant memory, but k\\.ptx leaves only 36 of 65536; trace it without"
    ):
        trace(full, TraceOptions(sampling=Sampling.of(blocks=1)))
    trace(full)
    trace(full, TraceOptions(sampling=HALVES))


# -- what the assembler makes of them --------------------------------------------------------------------------------------------

TABLE = """
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %ctaid.x;
    ld.global.u32 %r2, [%rd1];
cases: .branchtargets ONE, TWO;
    brx.idx %r1, cases;
ONE:
    add.u32 %r2, %r2, 1;
    bra.uni DONE;
TWO:
    ld.global.u32 %r2, [%rd1+4];
    { .reg .pred %p; .reg .b32 tries; mov.u32 tries, %r2;
DONE: add.u32 tries, tries, 1; setp.lt.u32 %p, tries, 9; @%p bra DONE; add.u32 %r2, %r2, tries; }
DONE:
    st.global.u32 [%rd1], %r2;
"""
"""A table of branches, and a label that an inner scope uses again."""


@cache
def verdicts(name: str, sampling: Sampling) -> list[tuple[int, str, bool]]:
    """Site, completeness, and whether the assembled code has it."""
    found = traced(name, sampling) if name in BY_NAME else trace(kernel(TABLE), TraceOptions(sampling=sampling))
    verify(found.module)
    return [(proof.site, proof.completeness, proof.copies > 0) for proof in prove(found, cubin_of(found.module))]


@pytest.mark.parametrize("name", ["histogram", "table"])
def test_the_proof_holds_in_the_instrumented_body(name: str) -> None:
    assert verdicts(name, ALL_KINDS) == verdicts(name, HALVES) == verdicts(name, Sampling())
    assert all(there for _, _, there in verdicts(name, HALVES))

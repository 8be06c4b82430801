"""Counts of whole launches on the emulator: each field by hand, and the lessons that old chips taught."""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from pathlib import Path

import numpy as np
import pytest

from memlane.chip import load
from memlane.diagnose import explain
from memlane.emulate import Emulator
from memlane.measure import count, trace
from memlane.ptx import parse
from memlane.record import Counts
from memlane.report import counts_document, render_counts, render_trace, to_text
from memlane.report.html import render_page

EXAMPLES = Path(__file__).parents[2] / "examples" / "ptx"

KERNEL = """\
.version 8.0
.target sm_90
.address_size 64

.visible .entry mixed(.param .u64 data)
{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .local .align 8 .b8 own[64];
    .shared .align 16 .b8 tile[4096];
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 256;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    ld.global.cg.u32 %r3, [%rd3];
    st.global.u32 [%rd3], %r2;
    mov.u64 %rd4, own;
    st.local.u64 [%rd4+8], %rd2;
    mov.u64 %rd5, tile;
    and.b32 %r4, %r1, 3;
    mul.wide.u32 %rd6, %r4, 4;
    add.u64 %rd7, %rd5, %rd6;
    atom.shared.add.u32 %r5, [%rd7], %r3;
    red.shared.add.u32 [%rd7], 1;
    atom.shared.cas.b32 %r6, [%rd7], %r3, %r5;
    setp.lt.u32 %p1, %r1, 8;
    @%p1 bra SOME;
    ret;
SOME:
    st.global.u32 [%rd3+4], %r6;
    ret;
}
"""


def counted(chip_name: str) -> Counts:
    emulator = Emulator(load(chip_name))
    return count(emulator.load(parse(KERNEL, "mixed.ptx"))["mixed"][2, 32], emulator.zeros(2048, "u4"))


def by_op(counts: Counts, field: str) -> dict[str, int | None]:
    return {one.site.op: getattr(one, field) for one in counts.sites}


def test_every_field_by_hand() -> None:
    counts = counted("h200")
    sectors = {"ld.global.u32": 64, "ld.global.cg.u32": 64, "st.local.u64": 16}
    assert {op: number for op, number in by_op(counts, "sectors").items() if op in sectors} == sectors
    assert [one.sectors for one in counts.sites if one.site.op == "st.global.u32"] == [64, 16]
    assert [one.lanes_per_request for one in counts.sites if one.site.op == "st.global.u32"] == [32, 8]
    # Four addresses in four banks, eight lanes at each.
    wavefronts = {"atom.shared.add.u32": 2 * 8, "red.shared.add.u32": 2 * 1, "atom.shared.cas.b32": 2 * 16}
    assert {op: number for op, number in by_op(counts, "wavefronts").items() if op in wavefronts} == wavefronts
    for field, expected in (("addresses", 2 * 4), ("most_lanes_at_address", 8), ("lanes_per_address", 8.0)):
        assert {op: number for op, number in by_op(counts, field).items() if number is not None} == dict.fromkeys(wavefronts, expected)
    total = counts.total()
    assert (total.local_requests, total.local_sectors, total.sectors) == (2, 16, 3 * 64 + 16)
    assert (total.branches, total.divergent_branches) == (2, 2)


@pytest.mark.parametrize(("name", "load_sectors", "past_l1"), [("gtx480", 4 * 64, 64), ("gtx680", 64, 64)])
def test_lines_move_for_the_loads_of_fermi(name: str, load_sectors: int, past_l1: int) -> None:
    found = by_op(counted(name), "bytes_moved")
    assert (found["ld.global.u32"], found["ld.global.cg.u32"]) == (32 * load_sectors, 32 * past_l1)


def test_todays_blocks_run_on_a_chip_that_could_not_hold_them() -> None:
    emulator = Emulator(load("s1070"))
    kernel = emulator.load(parse((EXAMPLES / "transpose.ptx").read_text(), "transpose.ptx"))["naive"]
    values = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out = emulator.zeros((64, 64))
    counts = count(kernel[(2, 2), (32, 32)], out, emulator.array(values), 64)
    assert {one.site.kind: one.sectors for one in counts.sites} == {"load": 2 * 64 * 4, "store": 2 * 64 * 32}
    kernel[(2, 2), (32, 32)](out, emulator.array(values), 64)
    assert np.array_equal(out.numpy(), values.T)


def reduction(name: str, kernel: str) -> int:
    """Conflicts of one block of 256 that adds 256 integers."""
    emulator = Emulator(load(name))
    values, out = np.arange(256, dtype=np.int32), emulator.zeros(1, "i4")
    call = emulator.load(parse((EXAMPLES / "reduction.ptx").read_text(), "reduction.ptx"))[kernel][1, 256]
    conflicts = count(call, out, emulator.array(values), 256).total().conflicts
    assert conflicts is not None
    return conflicts


@pytest.mark.parametrize(("name", "lanes"), [("s1070", 16), ("gtx480", 32)])
def test_the_second_step_of_the_reduction_conflicts_and_the_third_does_not(name: str, lanes: int) -> None:
    """Threads t < 128 / s each load two words and store one, 2 s words apart: in a group of `lanes` lanes at as many banks, those whose
    distance is a multiple of the banks meet."""
    expected = 0
    for step in (1, 2, 4, 8, 16, 32, 64, 128):
        threads = 128 // step
        for first in range(0, threads, lanes):
            active = min(lanes, threads - first)
            banks = lanes // gcd(lanes, 2 * step)
            expected += 3 * (-(-active // banks) - 1)
    assert reduction(name, "interleaved<int>") == expected > 0
    assert reduction(name, "block_sum<int>") == 0


def test_counts_bring_the_text_of_their_lines() -> None:
    emulator = Emulator(load("h200"))
    module = replace(parse(KERNEL, "mixed.ptx"), sources={"mixed.ptx": KERNEL, "other.cu": "int a;"})
    seen = count(emulator.load(module)["mixed"][2, 32], emulator.zeros(2048, "u4"))
    assert seen.sources == {"mixed.ptx": KERNEL}, "those that its sites name"
    rows = {row["op"]: row["source"] for row in seen.to_table()}
    assert rows["ld.global.cg.u32"] == "ld.global.cg.u32 %r3, [%rd3];"
    assert "ld.global.cg.u32 %r3, [%rd3];" in to_text(render_counts(seen))
    assert all(finding.source in KERNEL and finding.source for finding in explain(seen))


TICKETS = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 slot, .param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [slot];
    ld.param.u64 %rd2, [out];
    atom.global.add.u32 %r1, [%rd1], 1;
    mad.wide.u32 %rd3, %r1, 64, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""


def test_counts_that_depend_on_the_order_of_threads_say_so() -> None:
    emulator = Emulator(load("h200"))
    seen = count(emulator.load(parse(TICKETS, "tickets.ptx"))["k"][1, 32], emulator.zeros(1, "u4"), emulator.zeros(512, "u4"))
    assert [one.site.op for one in seen.sites if one.site.id in seen.order_dependent] == ["st.global.u32"]
    assert "Counts that may depend on the order in which threads run: tickets.ptx:11 st.global.u32." in to_text(render_counts(seen), 200)
    assert counts_document(seen)["launches"][0]["order_dependent"] == sorted(seen.order_dependent)


def test_a_trace_and_its_page_name_the_counts_that_depend_on_the_order_of_threads() -> None:
    emulator = Emulator(load("h200"))
    kernel = emulator.load(parse(TICKETS, "tickets.ptx"))["k"][1, 32]
    traced = trace(kernel, *traced_arrays(emulator))
    said = "Counts that may depend on the order in which threads run: tickets.ptx:11 st.global.u32. Their addresses or"
    assert said in to_text(render_trace(traced), 200)
    assert said in render_page(traced)
    plain = trace(
        emulator.load(parse(TICKETS.replace("%r1, 64, %rd2", "%r2, 64, %rd2"), "plain.ptx"))["k"][1, 32], *traced_arrays(emulator)
    )
    assert "depend on the order in which threads run" not in to_text(render_trace(plain), 200) + render_page(plain)


def traced_arrays(emulator: Emulator) -> tuple[object, object]:
    return emulator.zeros(1, "u4"), emulator.zeros(512, "u4")


COPIES = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u32 bytes)
{
    .reg .b32 %r<6>; .reg .b64 %rd<4>;
    .shared .align 16 .b8 tile[512];
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r2, [bytes];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 16, %rd1;
    ld.global.u32 %r5, [%rd2];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, 16, %r3;
    cp.async.cg.shared.global [%r4], [%rd2], 16, %r2;
    ret;
}
"""
"""A warp loads 16 sectors, 4 bytes in each half of one, and copies 512 bytes, or fills these with zeros."""


@pytest.mark.parametrize(("nbytes", "moved", "explained"), [(16, 2 * 512, False), (0, 512, True)])
def test_copies_that_fill_with_zeros_explain_what_did_not_move(nbytes: int, moved: int, explained: bool) -> None:
    emulator = Emulator(load("h200"))
    seen = count(emulator.load(parse(COPIES, "copies.ptx"))["k"][1, 32], emulator.zeros(1024, "u4"), np.uint32(nbytes))
    text = to_text(render_counts(seen), 200)
    assert f"Global memory: 640 bytes requested, {moved:,} moved" in text
    assert (
        "; fewer bytes are moved than requested where copies fill part of their destination with zeros instead of reading it." in text
    ) is explained


def test_lanes_that_share_an_address_explain_what_did_not_move() -> None:
    emulator = Emulator(load("h200"))
    text = KERNEL_OF_ONE_ADDRESS
    seen = count(emulator.load(parse(text, "one.ptx"))["k"][1, 32], emulator.zeros(8, "u4"))
    assert (
        "128 bytes requested, 32 moved (1 sector, ideal 1); fewer bytes are moved than requested where lanes of a request access the same"
        in (to_text(render_counts(seen), 200))
    )


KERNEL_OF_ONE_ADDRESS = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [data];
    ld.global.u32 %r1, [%rd1];
    ret;
}
"""

"""The kinds of access beside plain ones: fragments of matrices, surfaces, asynchronous copies, and the waits for these."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from memlane import chip
from memlane.audit import exactness, prove
from memlane.chip.access import sectors, wavefronts
from memlane.chip.copies import copy_cost
from memlane.emulate import Emulator
from memlane.instrument import Selection, Traced, TraceOptions, buffer_layout, trace
from memlane.launch import Surface, Target
from memlane.measure import count
from memlane.measure import trace as trace_call
from memlane.ptx import Module
from memlane.record import COMPLETE, EXACT, ISSUE_ONLY
from memlane.report import render_trace, to_text
from memlane.sass import disassemble
from tests.instrument.kernels import kernel
from tests.instrument.running import CHIP, Run
from tests.sass.code import cubin_of, mutated, nop_of, with_write_scoreboard, without_wait

OUT = ".param .u64 out, .param .u64 in, .param .u32 stride"
START = """
    .reg .pred %p<4>; .reg .b16 %h<3>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];
    mov.u32 %r1, %tid.x; mov.u32 %r2, words;
    mul.wide.u32 %rd3, %r1, 16; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
"""
SHARED = ".shared .align 128 .b8 words[8192];"

MATRICES = f"""{START}
    ld.param.u32 %r3, [stride];
    mad.lo.u32 %r4, %r1, %r3, %r2;
    ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd5];
    st.shared.v4.u32 [%r4], {{%r5, %r6, %r7, %r8}};
    bar.warp.sync 0xffffffff;
    ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%r5, %r6, %r7, %r8}}, [%r4];
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r9}}, [%r4];
    bar.warp.sync 0xffffffff;
    stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r4], {{%r6, %r9}};
    bar.warp.sync 0xffffffff;
    ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r4];
    xor.b32 %r10, %r10, %r5; xor.b32 %r11, %r11, %r7; xor.b32 %r12, %r12, %r8;
    st.global.v4.u32 [%rd4], {{%r10, %r11, %r12, %r13}};
    ret;
"""
"""Lane i names the row that begins at i * stride."""

COPIES = f"""{START}
    mad.lo.u32 %r4, %r1, 16, %r2;
    ld.param.u32 %r3, [stride];
    mul.wide.u32 %rd6, %r1, %r3; add.u64 %rd7, %rd2, %rd6;
    cp.async.ca.shared.global [%r4], [%rd7], 4;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r4+4096], [%rd5], 16;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.u32 %r5, [%r4];
    cp.async.wait_all;
    ld.shared.v2.u32 {{%r6, %r7}}, [%r4+4096];
    st.global.v4.u32 [%rd4], {{%r5, %r6, %r7, %r1}};
    ret;
"""

FETCH = f"""{START}
    .shared .align 8 .b64 gate;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MADE;
    mbarrier.init.shared.b64 [gate], 1;
    fence.proxy.async.shared::cta;
MADE:
    bar.sync 0;
    setp.eq.u32 %p1, %r1, {{late}};
    @%p1 bra LATE;
ASK:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [gate], 0;
    @%p3 bra COME;
    bra ASK;
LATE:
    mov.u32 %r4, 0;
SLOW:
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, 3000;
    @%p2 bra SLOW;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd2], 2048, [gate];
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [gate], 2048;
AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p3, [gate], 0;
    @!%p3 bra AGAIN;
COME:
    mad.lo.u32 %r5, %r1, 16, %r2;
    ld.shared.u32 %r6, [%r5];
    st.global.u32 [%rd4], %r6;
    ret;
"""
"""One thread fetches 2048 bytes, late; everybody asks for them again and again."""
BARRIER = FETCH.replace("{late}", "96")

OUTWARD = f"""{START}
    mad.lo.u32 %r4, %r1, 16, %r2;
    st.shared.v4.u32 [%r4], {{%r1, %r1, %r1, %r1}};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 exit;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    cp.async.bulk.wait_group 0;
    ret;
"""


REGISTERS_OF = {letter: ", ".join(f"%{letter}{number}" for number in range(8)) for letter in "abc"}
FRAGMENTS = f"""{START}
    .reg .b32 %a<8>, %b<8>; .reg .f32 %c<8>;
    mad.lo.u32 %r4, %r1, 16, %r2;
    ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd5];
    and.b32 %r5, %r5, 0x3bff3bff; and.b32 %r6, %r6, 0x3bff3bff; and.b32 %r7, %r7, 0x3bff3bff; and.b32 %r8, %r8, 0x3bff3bff;
    st.shared.v4.u32 [%r4], {{%r5, %r6, %r7, %r8}};
    st.global.v4.u32 [%rd4], {{%r8, %r6, %r7, %r5}};
    bar.sync 0;
    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {{{REGISTERS_OF["a"]}}}, [%r2], 16;
    wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {{{REGISTERS_OF["b"]}}}, [%rd1], 16;
    wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {{{REGISTERS_OF["c"]}}}, [%rd1+1024], 16;
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {{{REGISTERS_OF["c"]}}},
        {{{REGISTERS_OF["a"]}}}, {{{REGISTERS_OF["b"]}}}, {{{REGISTERS_OF["c"]}}};
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1+1024], {{{REGISTERS_OF["c"]}}}, 16;
    ret;
"""
"""A product of matrices of 16 by 16, whose fragments come by as many accesses as the assembler likes."""


@cache
def module(body: str) -> Module:
    return kernel(body, OUT, SHARED)


@cache
def run(body: str, block: int = 32, stride: int = 16) -> Run:
    threads = np.random.default_rng(5).integers(0, 1 << 32, 4096, dtype=np.uint32)
    return Run(module(body), "k", 1, block, (np.zeros(max(512, 4 * block), np.uint32), threads, stride))


BODIES = {
    "matrices": (MATRICES, 32),
    "copies": (COPIES, 32),
    "barrier": (BARRIER, 128),
    "outward": (OUTWARD, 32),
    "fragments": (FRAGMENTS, 32),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_outcome_is_that_of_the_plain_kernel(name: str) -> None:
    launch = run(*BODIES[name])
    expected = launch.plain()
    result, decoded, _ = launch.traced(layout=buffer_layout(4, 100))
    assert np.array_equal(result, expected)
    assert (decoded.lost, len(np.unique(expected)) > 10) == (0, True)
    assert np.array_equal(launch.traced(layout=None)[0], expected), "without a buffer"


def sites_of(body: str, scheme: str = "dependent") -> list[tuple[str, str, str, int, str]]:
    found = trace(module(body), TraceOptions(scheme))
    assert not found.skipped
    words = ("ldmatrix", "stmatrix", "copy", "wait", "bulk", "async")
    return [
        (one.op.split(".m8n8")[0], one.kind, one.space, one.nbytes, one.completeness)
        for one in found.sites
        if one.kind in words or any(word in one.op for word in words)
    ]


def test_sites_and_what_complete_means_of_each() -> None:
    assert sites_of(MATRICES) == [
        ("ldmatrix.sync.aligned", "load", "shared", 16, COMPLETE),
        ("ldmatrix.sync.aligned", "load", "shared", 16, COMPLETE),
        ("stmatrix.sync.aligned", "store", "shared", 16, ISSUE_ONLY),
    ]
    assert sites_of(COPIES) == sites_of(COPIES, "simple") == [
        ("cp.async.ca.shared.global", "copy", "global", 4, ISSUE_ONLY),
        ("cp.async.cg.shared.global", "copy", "global", 16, ISSUE_ONLY),
        ("cp.async.wait_group", "wait", "shared", 0, COMPLETE),
        ("cp.async.wait_all", "wait", "shared", 0, COMPLETE),
    ]  # fmt: skip
    assert [(kind, space, ends) for _, kind, space, _, ends in sites_of(BARRIER)] == [
        ("wait", "shared", COMPLETE),
        ("copy", "global", ISSUE_ONLY),
        ("wait", "shared", COMPLETE),
    ]
    assert sites_of(BARRIER, "simple")[0][-1] == ISSUE_ONLY, "its end is not ordered behind the answer"
    assert [(op, kind, ends) for op, kind, _, _, ends in sites_of(OUTWARD)] == [
        ("cp.async.bulk.global.shared::cta.bulk_group", "copy", ISSUE_ONLY),
        ("cp.async.bulk.wait_group.read", "wait", COMPLETE),
        ("cp.async.bulk.wait_group", "wait", COMPLETE),
    ]


def test_copies_name_their_waits() -> None:
    reasons = [site.reason for site in trace(module(COPIES)).sites if site.kind == "copy"]
    lines = [number for number, line in enumerate(text_of(COPIES), 1) if "wait_" in line]
    assert reasons == [f"a copy completes at its wait: line {lines[0]}, {lines[1]}"] * 2
    lost = [site.reason for site in trace(module(COPIES.replace("cp.async.wait_all;", "").replace("cp.async.wait_group 1;", ""))).sites]
    assert "a copy completes at its wait, and this kernel has no wait for it" in lost
    tracked = COPIES.replace(
        "cp.async.wait_all;", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4]; TRY: mbarrier.test_wait.shared.b64 %p1, [%r4], %rd9;"
    )
    assert next(site.reason for site in trace(module(tracked)).sites).endswith(f"line {lines[0]}, {lines[1]}")


def text_of(body: str) -> list[str]:
    return f".version 8.0\n.target sm_90\n.address_size 64\n{SHARED}\n.visible .entry k({OUT})\n{{\n{body}\n}}\n".splitlines()


def test_a_question_with_a_time_limit_and_a_reduction_in_bulk() -> None:
    """The assembler asks twice, and sleeps in between."""
    body = BARRIER.replace("%p3, [gate], 0;", "%p3, [gate], 0, 1000;").replace(
        "COME:", "COME:\n cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r2], 64;"
    )
    found = trace(module(body))
    proofs = {proof.site: proof for proof in prove(found, cubin_of(found.module))}
    waits = [proofs[site.id] for site in found.sites if site.kind == "wait"]
    assert [(one.completeness, one.reason, one.copies) for one in waits] == [(COMPLETE, "", 2)] * 2
    (reduction,) = (proofs[site.id] for site in found.sites if site.op.startswith("cp.reduce"))
    assert (reduction.copies, reduction.reason) == (1, "a copy completes at its wait, and this kernel has no wait for it")


# -- waits in time ----------------------------------------------------------------------------------------------------------------


def test_a_wait_lasts_until_the_copies_are_there() -> None:
    """All of the latency of a copy that is waited for at once lies in the wait, none in the copy."""
    _, decoded, traced = run(COPIES, stride=512).traced(layout=buffer_layout(1, 50))
    rows = {traced.sites[row["site"]].op: row for row in decoded.records}
    copies = [row for op, row in rows.items() if traced.sites[row["site"]].kind == "copy"]
    everything = rows["cp.async.wait_all"]
    assert max(int(row["end"] - row["start"]) for row in copies) < CHIP.latency.l1
    assert everything["end"] - copies[0]["start"] > CHIP.latency.l2
    assert everything["start"] >= rows["cp.async.wait_group"]["end"]
    assert rows["cp.async.wait_group"]["end"] - copies[0]["start"] > CHIP.latency.l2, "the older of the two groups"


def test_a_wait_lets_as_many_groups_go_on_as_it_says() -> None:
    """Seven groups under way: a wait for all but seven returns at once, for all but six with the first of them."""
    copies = "".join(f"cp.async.cg.shared.global [%r4+{512 * n}], [%rd5+{512 * n}], 16; cp.async.commit_group;\n" for n in range(7))
    waits = "".join(f"cp.async.wait_group {left};\n" for left in (7, 6, 0))
    body = f"{START} mad.lo.u32 %r4, %r1, 16, %r2;\n{copies}{waits}{copies}cp.async.wait_group 7;\nst.global.u32 [%rd4], %r1; ret;"
    _, decoded, _ = run(body).traced(layout=buffer_layout(1, 50), selection=Selection(kinds={"wait"}))
    none, first, all_of_them, again = (int(row["end"] - row["start"]) for row in decoded.records)
    assert max(none, again) < CHIP.latency.l1 < CHIP.latency.l2 < first
    assert all_of_them < first, "the others were started some cycles later only"


def test_a_barrier_that_is_asked_often_has_one_record_for_each_lane() -> None:
    """From the first question to the answer: the other lanes wait for the one that is late."""
    _, decoded, traced = run(FETCH.replace("{late}", "31")).traced(layout=buffer_layout(1, 50))
    kinds = np.array([one.kind for one in traced.sites])[decoded.records["site"]]
    waits, (issued,) = decoded.records[kinds == "wait"], decoded.records[kinds == "copy"]
    assert sum(int(mask).bit_count() for mask in waits["active_mask"]) == 32
    assert int(np.bitwise_or.reduce(waits["active_mask"])) == 0xFFFFFFFF
    early = waits[waits["active_mask"] & 1 != 0][0]
    assert early["start"] < issued["start"] < early["end"]
    assert early["end"] - early["start"] > 3000, "as many turns as the late lane counts"
    assert early["execution"] == 0


def test_only_waits_can_be_chosen() -> None:
    _, decoded, traced = run(COPIES).traced(layout=buffer_layout(1, 50), selection=Selection(kinds={"wait"}))
    assert [traced.sites[number].op for number in decoded.records["site"]] == ["cp.async.wait_group", "cp.async.wait_all"]


# -- transactions -------------------------------------------------------------------------------------------------------------------


def by_lane(step: int, lanes: int = 32) -> tuple[list[int], list[bool]]:
    return [step * lane for lane in range(32)], [lane < lanes for lane in range(32)]


@pytest.mark.parametrize("stride", [128])
def test_wavefronts_of_matrices_by_the_rows_that_lanes_name(stride: int) -> None:
    """Eight rows of 16 bytes fill one wavefront if they fall on different banks."""
    launch = run(MATRICES, stride=stride)
    result, counted, _ = launch.counted()
    assert np.array_equal(result, launch.plain())
    found = {one.site.instruction: one for one in counted}
    loads = [one for one in counted if "matrix" in one.site.op]
    for one, lanes in zip(loads, (32, 8, 16), strict=True):
        seen = launch.observed()[one.site.instruction]
        wanted = wavefronts(CHIP, *by_lane(stride, lanes), 16, "store" if one.site.kind == "store" else "load")
        assert (one.requests, one.lanes, one.bytes, one.wavefronts) == (1, lanes, 16 * lanes, wanted)
        assert (one.sectors, one.ideal_wavefronts) == (None, lanes // 8)
        assert [seen[name] for name in ("requests", "lanes", "bytes", "wavefronts", "ideal_wavefronts")] == [
            one.requests, one.lanes, one.bytes, one.wavefronts, one.ideal_wavefronts,
        ]  # fmt: skip
        assert one.wavefronts == lanes if stride == 128 else one.wavefronts == lanes // 8
    assert len(found) == len(counted)


@pytest.mark.parametrize("stride", [64])
def test_a_copy_has_the_sectors_of_its_load_and_the_wavefronts_of_its_store(stride: int) -> None:
    launch = run(COPIES, stride=stride)
    result, counted, _ = launch.counted()
    assert np.array_equal(result, launch.plain())
    first, second = (one for one in counted if one.site.kind == "copy")
    assert [one.site.kind for one in counted if one.site.kind == "wait"] == []
    assert (first.sectors, first.ideal_sectors) == (sectors(CHIP, *by_lane(stride), 4), 4)
    (places, active), (targets, _) = by_lane(stride), by_lane(16)
    cost = copy_cost(CHIP, places, targets, sum(1 << lane for lane in np.flatnonzero(active)), 4)
    assert (first.wavefronts, first.ideal_wavefronts) == (cost.wavefronts, cost.ideal_wavefronts)
    assert (second.sectors, second.wavefronts, second.lanes, second.bytes) == (16, 4, 32, 512)
    for one in (first, second):
        seen = launch.observed()[one.site.instruction]
        assert (one.sectors, one.wavefronts, one.ideal_sectors) == tuple(seen[name] for name in ("sectors", "wavefronts", "ideal_sectors"))


@pytest.fixture(scope="module")
def target() -> Target:
    return Emulator(chip.load("h200"))


def test_rows_of_copies_have_their_sectors_and_counts_say_what_has_none(target: Target) -> None:
    data = np.zeros(512, np.uint32)
    copies, bulk = (target.load(module(body))["k"] for body in (COPIES, BARRIER))
    made = trace_call(copies[1, 32], target.array(data), target.array(data), np.uint32(64))
    rows = {row["op"]: row for row in made.table.to_pylist()}
    assert (rows["cp.async.ca.shared.global"]["sectors"], rows["cp.async.cg.shared.global"]["sectors"]) == (32, 16)
    assert (rows["cp.async.wait_all"]["sectors"], rows["cp.async.wait_all"]["bytes"]) == (None, 0)
    told = " ".join(to_text(render_trace(made), 200).split())
    assert "A wait is complete when it has returned; a copy is timed from its start until its wait has returned." in told
    counts = count(bulk[1, 128], target.array(data), target.array(data), np.uint32(0))
    assert {one.site.kind for one in counts.sites} == {"load", "store"}
    ((op, reason),) = [(one.op.split(".shared")[0], one.reason) for one in counts.skipped]
    assert (op, reason) == ("cp.async.bulk", "the transactions of a bulk copy do not follow from its lanes, so they are not counted")


# -- surfaces ---------------------------------------------------------------------------------------------------------------------------

SURFACES = f"""{START}
    suld.b.1d.b32.trap %r5, [%rd2, {{%r6}}];
    sust.b.1d.b32.trap [%rd2, {{%r6}}], %r7;
    sured.b.add.1d.u32.trap [%rd2, {{%r6}}], %r1;
    ld.param.u32 %r8, [stride]; add.u32 %r5, %r5, %r8;
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; st.global.u32 [%rd4], %r5;
    ret;
""".replace("    suld", "    shl.b32 %r6, %r1, 2; mul.lo.u32 %r7, %r1, 7;\n    suld")


def test_surfaces_are_traced_and_counted_without_sectors(target: Target) -> None:
    call = target.load(module(SURFACES))["k"][1, 32]

    def surface() -> Surface:
        return target.surface(np.arange(100, 132, dtype=np.uint32))

    image, out = surface(), target.zeros(32, np.uint32)
    call(out, image, np.uint32(3))
    again, traced = surface(), target.zeros(32, np.uint32)
    made = trace_call(call, traced, again, np.uint32(3))
    assert again.numpy().tolist() == image.numpy().tolist() == [8 * lane for lane in range(32)]
    assert traced.numpy().tolist() == out.numpy().tolist() == list(range(103, 135))
    assert [(one.kind, one.space, one.completeness) for one in made.sites] == [
        ("load", "surf", COMPLETE),
        ("store", "surf", ISSUE_ONLY),
        ("reduction", "surf", ISSUE_ONLY),
        ("store", "global", ISSUE_ONLY),
    ]
    counts = count(call, out, surface(), np.uint32(3))
    assert [(one.site.space, one.requests, one.lanes, one.sectors, one.addresses) for one in counts.sites][:3] == [
        ("surf", 1, 32, None, None)
    ] * 3


# -- assembled code -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [MATRICES, COPIES, BARRIER, OUTWARD, SURFACES], ids=["matrices", "copies", "barrier", "outward", "surfaces"]
)
def test_what_is_said_is_proved(body: str) -> None:
    found = trace(module(body))
    proofs = {proof.site: proof for proof in prove(found, cubin_of(found.module))}
    assert [proofs[site.id].completeness for site in found.sites] == [site.completeness for site in found.sites]
    assert all(proof.copies for proof in proofs.values())


def reason_of_wait(found: Traced, data: bytes) -> str:
    """Of the first wait."""
    site = next(one.id for one in found.sites if one.kind == "wait")
    return next(proof.reason for proof in prove(found, data) if proof.site == site)


def test_waits_that_do_not_wait_are_caught() -> None:
    groups, barrier = (trace(module(body)) for body in (COPIES, BARRIER))
    data, asked = cubin_of(groups.module), cubin_of(barrier.module)
    (function,) = disassemble(data).functions.values()
    code = function.instructions
    wait = next(index for index, one in enumerate(code) if one.opcode == "DEPBAR" and one.operands[1].value == 1)
    later = next(index for index, one in enumerate(code) if one.opcode == "DEPBAR" and one.operands[1].value == 0)
    closes = [index for index, one in enumerate(code) if one.opcode == "LDGDEPBAR"]
    gone = mutated(data, function, {wait: nop_of(function)})
    assert "has no such access" in reason_of_wait(groups, gone)
    elsewhere = mutated(data, function, {index: with_write_scoreboard(code[index], 4) for index in closes})
    assert reason_of_wait(groups, elsewhere).endswith("is for scoreboard 0, which no group of copies sets")
    weaker = prove(groups, mutated(data, function, {later: code[wait].encoding}))
    (reason,) = (proof.reason for proof in weaker if groups.sites[proof.site].op == "cp.async.wait_all")
    assert reason.endswith("leaves 1 of the groups of copies pending, but the kernel leaves 0")

    (function,) = disassemble(asked).functions.values()
    code = function.instructions
    question = next(index for index, one in enumerate(code) if one.opcode == "SYNCS" and "TRYWAIT" in one.modifiers)
    board = code[question].control.write_scoreboard
    assert board is not None
    answered = next(index for index in range(question + 1, len(code)) if board in code[index].control.waits)
    assert reason_of_wait(barrier, mutated(asked, function, {answered: without_wait(code[answered], board)}))


def test_a_fragment_is_there_when_all_of_its_accesses_are() -> None:
    found = trace(module(FRAGMENTS))
    assert [site.completeness for site in found.sites if site.op.startswith("wmma")] == [COMPLETE] * 3 + [ISSUE_ONLY]
    proofs = {found.sites[proof.site].op[:11]: proof for proof in prove(found, cubin_of(found.module))}
    of_global = [proofs["wmma.load.b"], proofs["wmma.load.c"]]
    assert [(one.completeness, one.copies > 1) for one in of_global] == [(COMPLETE, True)] * 2


def test_counts_of_matrices_and_copies_are_exact() -> None:
    for body, words in ((MATRICES, ("matrix",)), (COPIES, ("cp.async.c",))):
        sites = [site.id for site in trace(module(body)).sites if any(word in site.op for word in words)]
        verdicts = {one.site: one.verdict for one in exactness(module(body), cubin_of(module(body)))}
        assert [verdicts[site] for site in sites] == [EXACT] * len(sites)
        assert not {site.id for site in trace(module(body)).sites if site.kind == "wait"} & verdicts.keys()

"""Instructions that change no value: hints to caches and to the scheduler, fences between proxies; and old forms without `.sync`."""

from __future__ import annotations

import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import KernelTrap, PtxTypeError, UnsupportedPtx
from memlane.ptx import parse
from tests.emulate.running import HEAD, program, run

HINTS = """
    prefetch.global.L1 [%mine];
    prefetch.L2 [%mine];
    prefetchu.L1 [%mine];
    prefetch.global.L2::evict_last [%mine];
    applypriority.global.L2::evict_normal [%mine], 128;
    createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F000000;
    createpolicy.range.global.L2::evict_first.L2::evict_unchanged.b64 %rd2, [%out], 128, 256;
    createpolicy.cvt.L2.b64 %rd3, %rd4;
    pmevent 1;
    pmevent.mask 3;
    nanosleep.u32 100;
    setmaxnreg.inc.sync.aligned.u32 32;
    fence.proxy.alias;
    fence.proxy.async;
    fence.proxy.async.global;
    fence.acq_rel.gpu;
    fence.sc.sys;
    fence.mbarrier_init.release.cluster;
    fence.acquire.sync_restrict::shared::cluster.cluster;
    fence.release.sync_restrict::shared::cta.cluster;
    fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;
    fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
    membar.cta;
    membar.proxy.alias;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    cp.async.wait_all;
    cp.async.bulk.prefetch.L2.global [%out], 16;
"""


def test_hints_and_fences_change_no_value() -> None:
    body = f"add.u32 %r1, %tid, 5; st.global.u32 [%mine], %r1; {HINTS} ld.global.u32 %r2, [%mine]; add.u32 %r2, %r2, %r1;"
    assert run(f"{body} st.global.u32 [%mine], %r2; ret;").tolist() == [2 * (lane + 5) for lane in range(32)]


def test_a_policy_for_caches_is_no_count_and_no_mask() -> None:
    """The last operand of copies whose other optional operands are left out."""
    body = """
        .shared .align 16 .b32 data[128];
        .shared .align 8 .b64 word;
        createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;
        setp.ne.u32 %p1, %tid, 0;
        @!%p1 mbarrier.init.shared.b64 [word], 32;
        add.u32 %r1, %tid, 7;
        st.global.u32 [%mine], %r1;
        bar.sync 0;
        @!%p1 mbarrier.expect_tx.shared.b64 [word], 256;
        @!%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [data], [%out], 256, [word], %rd1;
        shl.b32 %r3, %tid, 3;
        mov.u32 %r2, data;
        add.u32 %r2, %r2, %r3;
        cp.async.ca.shared.global.L2::cache_hint.L2::128B [%r2+256], [%mine], 4, %rd1;
        cp.async.wait_all;
        mbarrier.arrive.shared.b64 _, [word];
    again:
        mbarrier.test_wait.parity.shared.b64 %p2, [word], 0;
        @!%p2 bra again;
        ld.shared.u32 %r1, [%r2];
        ld.shared.u32 %r3, [%r2+256];
        mad.lo.u32 %r1, %r3, 1000, %r1;
        st.global.u32 [%mine], %r1;
        ret;
    """
    assert run(body).tolist() == [1001 * (lane + 7) for lane in range(32)]


@pytest.mark.parametrize(
    "line",
    [
        "cp.async.ca.shared.global.L2::cache_hint [%rd1], [%rd2], 16;",
        "cp.async.ca.shared.global [%rd1], [%rd2], 16, 16, %rd3;",
        "ld.global.u32 %r1, [%rd1], %rd2;",
        "ld.global.L2::cache_hint.u32 %r1, [%rd1];",
    ],
)
def test_a_policy_stands_where_the_hint_says(line: str) -> None:
    with pytest.raises(PtxTypeError, match=r"the operands of `.*` do not match"):
        parse(program(line))


def test_a_load_that_all_threads_share() -> None:
    body = "st.global.u32 [%mine], %tid; ldu.global.u32 %r1, [%out+8]; st.global.u32 [%mine], %r1; ret;"
    assert run(body).tolist() == [1] * 32


def test_threads_that_only_arrive_do_not_wait() -> None:
    """The second warp arrives and goes; the first finds what it stored before."""
    body = """
        .shared .align 4 .b32 word;
        setp.ge.u32 %p1, %tid, 32;
        @!%p1 bra first;
        st.shared.u32 [word], 7;
        barrier.arrive 1, 64;
        exit;
    first:
        barrier.sync 1, 64;
        ld.shared.u32 %r1, [word];
        st.global.u32 [%mine], %r1;
        exit;
    """
    assert run(body, threads=64).tolist() == [7] * 32 + [0] * 32


def test_exchange_without_sync_is_among_the_lanes_that_run() -> None:
    """As chips before sm_70 have it."""
    body = """
        setp.lt.u32 %p1, %tid, 16;
        @!%p1 bra done;
        and.b32 %r1, %tid, 1; setp.ne.u32 %p2, %r1, 0;
        vote.ballot.b32 %r2, %p2;
        vote.any.pred %p3, %p2;
        shfl.down.b32 %r3, %tid, 1, 31;
        add.u32 %r2, %r2, %r3;
        @%p3 st.global.u32 [%mine], %r2;
    done:
        ret;
    """
    assert run(body).tolist()[:15] == [0xAAAA + lane + 1 for lane in range(15)]


@pytest.mark.parametrize("instruction", ["trap", "brkpt"])
def test_a_trap_ends_the_launch_with_its_line(instruction: str) -> None:
    text = program(f"setp.eq.u32 %p1, %tid, 5;\n@%p1 {instruction};\nret;")
    line = next(number for number, one in enumerate(text.splitlines(), 1) if instruction in one)
    target = Emulator(load("h200"))
    with pytest.raises(KernelTrap) as caught:
        target.load(parse(text, "test.ptx"))["k"][1, 32](target.zeros(32, "u8"))
    assert f"test.ptx:{line}" in str(caught.value)
    assert "5" in str(caught.value)


UNSUPPORTED = {
    "cvta.shared.u32 %r1, %r2;": "cvta.shared.u32",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.u64 [%rd1], [%rd2], 16;": "cp.reduce.async.bulk.global.shared::cta",
    "redux.sync.min.f32 %f1, %f2, -1;": "redux.sync.min.f32",
    "add.rn.f32x2 %rd1, %rd2, %rd3;": "add.rn.f32x2",
    "istypep.texref %p1, %rd1;": "istypep.texref",
}


@pytest.mark.parametrize("instruction", UNSUPPORTED)
def test_what_is_not_emulated_is_refused_by_name_and_line(instruction: str) -> None:
    text = program(f"mov.b64 %rd1, 0;\n    {instruction}\n    ret;")
    line = next(number for number, one in enumerate(text.splitlines(), 1) if one.strip() == instruction)
    target = Emulator(load("h200"))
    with pytest.raises(UnsupportedPtx) as caught:
        target.load(parse(text, "test.ptx"))["k"][1, 32](target.zeros(32, "u8"))
    assert f"the emulator does not model {UNSUPPORTED[instruction]}" in str(caught.value)
    assert caught.value.span is not None
    assert caught.value.span.line == line
    assert HEAD in text

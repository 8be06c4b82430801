"""Divergence, loops, barriers, and threads that wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.emulate.lower.order import nested_order
from memlane.ptx import parse
from tests.emulate.running import LOCK, emulator, program, run

LANES = np.arange(32)


def test_both_sides_of_a_branch_meet_again() -> None:
    """The mask behind the branch is full: the lanes ran together again."""
    body = """
        and.b32 %r1, %tid, 1;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra EVEN;
        mov.u32 %r2, 100;
        activemask.b32 %r3;
        bra MEET;
    EVEN:
        mov.u32 %r2, 200;
        activemask.b32 %r3;
    MEET:
        activemask.b32 %r4;
        popc.b32 %r4, %r4;
        popc.b32 %r3, %r3;
        add.u32 %r2, %r2, %r4;
        mad.lo.u32 %r2, %r3, 1000, %r2;
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body).tolist() == [16232 if lane % 2 == 0 else 16132 for lane in range(32)]


def test_lanes_leave_a_loop_one_by_one_and_meet_behind_it() -> None:
    body = """
        mov.u32 %r1, 0; mov.u32 %r2, 0;
    LOOP:
        add.u32 %r2, %r2, %r1;
        add.u32 %r1, %r1, 1;
        setp.le.u32 %p1, %r1, %tid;
        @%p1 bra LOOP;
        activemask.b32 %r3;
        popc.b32 %r3, %r3;
        mad.lo.u32 %r2, %r3, 1000, %r2;
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body).tolist() == [32000 + lane * (lane + 1) // 2 for lane in range(32)]


def test_nested_loops_with_breaks() -> None:
    """Counts pairs (i, j) below the lane's number with i * j odd, leaving the inner loop early when j passes i."""
    body = """
        mov.u32 %r1, 0; mov.u32 %r9, 0;
    OUTER:
        setp.ge.u32 %p1, %r1, %tid;
        @%p1 bra DONE;
        mov.u32 %r2, 0;
    INNER:
        setp.gt.u32 %p2, %r2, %r1;
        @%p2 bra NEXT;
        mul.lo.u32 %r3, %r1, %r2;
        and.b32 %r3, %r3, 1;
        add.u32 %r9, %r9, %r3;
        add.u32 %r2, %r2, 1;
        bra INNER;
    NEXT:
        add.u32 %r1, %r1, 1;
        bra OUTER;
    DONE:
        st.global.u32 [%mine], %r9;
        ret;"""
    expected = [sum(i * j % 2 for i in range(lane) for j in range(i + 1)) for lane in range(32)]
    assert run(body).tolist() == expected


def test_lanes_that_exit_early_take_no_further_part() -> None:
    body = """
        st.global.u32 [%mine], 1;
        setp.ge.u32 %p1, %tid, 20;
        @%p1 exit;
        activemask.b32 %r1;
        st.global.u32 [%mine], %r1;
        ret;"""
    assert run(body).tolist() == [(1 << 20) - 1] * 20 + [1] * 12


def test_indirect_branches() -> None:
    body = """
        and.b32 %r1, %tid, 3;
        mov.u32 %r2, 9;
        TABLE: .branchtargets A, B, C;
        setp.eq.u32 %p1, %r1, 3;
        @%p1 bra END;
        brx.idx %r1, TABLE;
    A:  mov.u32 %r2, 10; bra END;
    B:  mov.u32 %r2, 11; bra END;
    C:  mov.u32 %r2, 12;
    END:
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body).tolist() == [(10, 11, 12, 9)[lane % 4] for lane in range(32)]


def test_a_program_without_ret_ends() -> None:
    assert run("st.global.u32 [%mine], 7;").tolist() == [7] * 32


def test_a_lock_between_the_lanes_of_a_warp() -> None:
    """The critical section lies behind the loop: the lane that has the lock must overtake those that wait for it."""
    target = emulator()
    out = target.zeros(2, np.uint32)
    target.load(parse(program(LOCK)))["k"][3, 96](out)
    assert out.numpy().tolist() == [0, 288]


@pytest.mark.parametrize("producer", [0, 3])
def test_a_flag_between_the_warps_of_a_block(producer: int) -> None:
    body = f"""
        shr.u32 %r1, %tid, 5;
        setp.eq.u32 %p1, %r1, {producer};
        @%p1 bra PRODUCE;
    WAIT:
        ld.volatile.global.u32 %r2, [%out];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra WAIT;
        ld.volatile.global.u32 %r3, [%out+4];
        st.global.u32 [%mine+8], %r3;
        ret;
    PRODUCE:
        st.volatile.global.u32 [%out+4], 77;
        membar.cta;
        st.volatile.global.u32 [%out], 1;
        ret;"""
    target = emulator()
    out = target.zeros(129, np.uint64)
    target.load(parse(program(body)))["k"][1, 128](out)
    written = out.numpy()[1:] & 0xFFFFFFFF
    assert written.tolist() == [0 if thread // 32 == producer else 77 for thread in range(128)]


def test_the_first_block_waits_for_the_last() -> None:
    body = """
        mov.u32 %r1, %ctaid.x;
        mov.u32 %r2, %nctaid.x;
        sub.u32 %r2, %r2, 1;
        setp.eq.u32 %p1, %r1, %r2;
        @%p1 bra LAST;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra END;
    WAIT:
        ld.acquire.gpu.global.u32 %r3, [%out];
        setp.eq.u32 %p2, %r3, 0;
        @%p2 bra WAIT;
        st.global.u32 [%out+4], 5;
        ret;
    LAST:
        st.release.gpu.global.u32 [%out], 1;
    END:
        ret;"""
    target = emulator()
    out = target.zeros(2, np.uint32)
    target.load(parse(program(body)))["k"][500, 32](out)
    assert out.numpy().tolist() == [1, 5]


def test_a_barrier_orders_shared_memory() -> None:
    body = """
        mov.u64 %rd1, s;
        mul.wide.u32 %rd2, %tid, 4;
        add.u64 %rd3, %rd1, %rd2;
        st.shared.u32 [%rd3], %tid;
        bar.sync 0;
        xor.b32 %r1, %tid, 127;
        mul.wide.u32 %rd2, %r1, 4;
        add.u64 %rd3, %rd1, %rd2;
        ld.shared.u32 %r2, [%rd3];
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body, threads=128, before=".shared .align 4 .b8 s[512];").tolist() == [127 - thread for thread in range(128)]


def test_threads_that_have_exited_hold_no_barrier_back() -> None:
    body = """
        setp.ge.u32 %p1, %tid, 70;
        @%p1 bra OUT;
        bar.sync 0;
        st.global.u32 [%mine], 3;
    OUT:
        ret;"""
    assert run(body, threads=128).tolist() == [3] * 70 + [0] * 58


def test_the_lanes_of_a_warp_may_reach_a_barrier_one_after_the_other() -> None:
    """Per-thread arrival: two instructions of one barrier, reached on two paths."""
    body = """
        setp.lt.u32 %p1, %tid, 10;
        @%p1 bra FEW;
        barrier.sync 1;
        bra MEET;
    FEW:
        barrier.sync 1;
    MEET:
        st.global.u32 [%mine], 4;
        ret;"""
    assert run(body, threads=64).tolist() == [4] * 64


def test_a_barrier_with_a_count_and_arrival_without_waiting() -> None:
    """The first warp waits for the second, which does not wait; a third one has no part in it."""
    body = """
        mov.u64 %rd1, s;
        shr.u32 %r1, %tid, 5;
        setp.eq.u32 %p1, %r1, 0;
        setp.eq.u32 %p2, %r1, 1;
        @%p1 bra FIRST;
        @%p2 bra SECOND;
        ret;
    SECOND:
        st.shared.u32 [%rd1], 99;
        bar.arrive 3, 64;
        ret;
    FIRST:
        bar.sync 3, 64;
        ld.shared.u32 %r2, [%rd1];
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body, threads=96, before=".shared .align 4 .b8 s[4];").tolist() == [99] * 32 + [0] * 64


def test_barriers_that_count_and_combine() -> None:
    body = """
        setp.lt.u32 %p1, %tid, 50;
        setp.lt.u32 %p5, %tid, 64;
        bar.red.popc.u32 %r1, 0, %p1;
        bar.red.and.pred %p2, 0, %p1;
        bar.red.or.pred %p3, 0, !%p1;
        bar.red.and.pred %p4, 0, %p5;
        selp.u32 %r2, 1000, 0, %p2;
        selp.u32 %r3, 2000, 0, %p3;
        selp.u32 %r4, 4000, 0, %p4;
        add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
        st.global.u32 [%mine], %r1;
        ret;"""
    assert run(body, threads=64).tolist() == [6050] * 64


def test_a_barrier_of_a_warp_on_two_paths() -> None:
    """Lanes write, meet, and read what lanes of the other path wrote."""
    body = """
        mov.u64 %rd1, s;
        mul.wide.u32 %rd2, %tid, 4;
        add.u64 %rd3, %rd1, %rd2;
        xor.b32 %r1, %tid, 1;
        mul.wide.u32 %rd2, %r1, 4;
        add.u64 %rd4, %rd1, %rd2;
        and.b32 %r1, %tid, 1;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra EVEN;
        st.shared.u32 [%rd3], %tid;
        bar.warp.sync -1;
        ld.shared.u32 %r5, [%rd4];
        bra MEET;
    EVEN:
        mul.lo.u32 %r2, %tid, 10;
        st.shared.u32 [%rd3], %r2;
        bar.warp.sync -1;
        ld.shared.u32 %r5, [%rd4];
    MEET:
        st.global.u32 [%mine], %r5;
        ret;"""
    expected = [lane + 1 if lane % 2 == 0 else 10 * (lane - 1) for lane in range(32)]
    assert run(body, before=".shared .align 4 .b8 s[128];").tolist() == expected


def test_a_shuffle_waits_for_lanes_that_come_later() -> None:
    """Only some lanes take the detour; all of them are there when the shuffle is done."""
    body = """
        mov.u32 %r1, %tid;
        setp.lt.u32 %p1, %tid, 7;
        @!%p1 bra SHUFFLE;
        mov.u32 %r2, 0;
    DETOUR:
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 50;
        @%p2 bra DETOUR;
        add.u32 %r1, %r1, 100;
    SHUFFLE:
        shfl.sync.bfly.b32 %r3, %r1, 31, 31, -1;
        st.global.u32 [%mine], %r3;
        ret;"""
    values = np.where(LANES < 7, LANES + 100, LANES)
    assert run(body).tolist() == values[::-1].tolist()


def test_loops_come_before_what_follows_them() -> None:
    # 0 -> 1 -> (5 leaves | 2 -> (3 | 4) -> 1), given with the exit first
    successors = [[1], [5, 2], [3, 4], [1], [1], []]
    order = nested_order(successors, 0)
    assert order[0] == 0
    assert order[-1] == 5
    assert set(order[1:5]) == {1, 2, 3, 4}


def test_a_branch_into_the_middle_of_a_loop_runs() -> None:
    body = """
        mov.u32 %r1, 0; mov.u32 %r2, 0;
        setp.lt.u32 %p1, %tid, 16;
        @%p1 bra MIDDLE;
    HEAD:
        add.u32 %r2, %r2, 100;
    MIDDLE:
        add.u32 %r2, %r2, 1;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 5;
        @%p2 bra HEAD;
        st.global.u32 [%mine], %r2;
        ret;"""
    assert run(body).tolist() == [405] * 16 + [505] * 16

"""Barriers in shared memory, and the bulk copies that they track."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from memlane.errors import LaunchError
from memlane.ptx import parse
from tests.emulate.checking import check, kinds
from tests.emulate.running import HEAD, emulator, program, run


@dataclass
class Barrier:
    """The manual's words about a barrier object, in Python."""

    count: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0

    def __post_init__(self) -> None:
        self.pending = self.count

    def change(self, arrivals: int = 0, nbytes: int = 0, drop: int = 0) -> int:
        """Expect or complete bytes, then arrive; gives the arrivals that were pending before."""
        before = self.pending
        self.bytes += nbytes
        self.count -= drop
        self.pending -= arrivals + drop
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.count
        return before


def kernel(body: str) -> str:
    """A program that the assembler takes too: tests on a GPU run it there."""
    return program(body).replace("%tid", "%thread").replace("%thread.x", "%tid.x")


def test_one_thread_walks_through_phases_as_the_manual_says() -> None:
    """Arrivals by ones and more, bytes expected before and after they come, arrivals dropped; after each step the parities are asked."""
    model = Barrier(3)
    steps = [
        ("mbarrier.arrive.shared.b64 %rd4, [word];", {"arrivals": 1}),
        ("mbarrier.expect_tx.shared.b64 [word], 32;", {"nbytes": 32}),
        ("mbarrier.arrive.shared::cta.b64 %rd4, [word], 2;", {"arrivals": 2}),
        ("mbarrier.complete_tx.shared.b64 [word], 16;", {"nbytes": -16}),
        ("mbarrier.complete_tx.shared.b64 [word], 16;", {"nbytes": -16}),
        ("mbarrier.complete_tx.relaxed.cta.shared.b64 [word], 8;", {"nbytes": -8}),
        ("mbarrier.arrive.expect_tx.release.cta.shared.b64 %rd4, [word], 8;", {"arrivals": 1, "nbytes": 8}),
        ("mbarrier.arrive_drop.shared.b64 %rd4, [word];", {"drop": 1}),
        ("mbarrier.arrive.noComplete.release.cta.shared.b64 %rd4, [word], 1;", {"arrivals": 1}),
        ("mbarrier.arrive.b64 %rd4, [%rd8];", {"arrivals": 1}),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [word];", {"arrivals": 1}),
        ("cp.async.mbarrier.arrive.shared.b64 [word];", {}),
        ("mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64 %rd4, [word], 24;", {"drop": 1, "nbytes": 24}),
        ("mbarrier.complete_tx.shared.b64 [word], 24;", {"nbytes": -24}),
        ("mbarrier.arrive_drop.noComplete.release.cta.shared.b64 %rd4, [word], 1;", {"drop": 1}),
    ]
    code, wanted = [], []
    for number, (line, change) in enumerate(steps):
        before = model.change(**change) if change else model.pending
        gives = "%rd4" in line
        code.append(line)
        for parity in (0, 1):
            code.append(f"mbarrier.test_wait.parity.shared.b64 %p1, [word], {parity}; selp.u32 %r{2 + parity}, 1, 0, %p1;")
        if gives:
            code.append("mbarrier.pending_count.b64 %r4, %rd4; mbarrier.test_wait.shared.b64 %p2, [word], %rd4; selp.u32 %r5, 1, 0, %p2;")
        else:
            code.append("mov.u32 %r4, 0; mov.u32 %r5, 0;")
        code.append(f"st.global.v4.u32 [%out+{16 * number}], {{%r2, %r3, %r4, %r5}};")
        over = before - change.get("arrivals", 0) - change.get("drop", 0) == 0 and model.bytes == 0
        wanted.append([int(model.phase % 2 != 0), int(model.phase % 2 != 1), before if gives else 0, int(over) if gives else 0])
    body = f"""
        .shared .align 8 .b64 word;
        setp.ne.u32 %p3, %tid, 0;
        @%p3 exit;
        mov.u64 %rd8, word; cvta.shared.u64 %rd8, %rd8;
        mbarrier.init.shared.b64 [word], 3;
        {" ".join(code)}
        mbarrier.inval.shared.b64 [word];
        ret;
    """
    target = emulator()
    out = target.zeros((len(steps), 4), np.uint32)
    target.load(parse(kernel(body), "walk.ptx"))["k"][1, 32](out)
    assert out.numpy().tolist() == wanted
    assert model.phase >= 3


PIPELINE = """
    .shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 4 .b32 slot;
    setp.eq.u32 %p1, %tid, 0;
    @%p1 mbarrier.init.shared.b64 [full], 1;
    @%p1 mbarrier.init.shared.b64 [empty], 32;
    bar.sync 0;
    mov.u32 %r1, 0; mov.u32 %r9, 0;
    setp.ge.u32 %p2, %tid, 32;
    @%p2 bra consume;
produce:
    xor.b32 %r2, %r1, 1; and.b32 %r2, %r2, 1;
wait_empty:
    mbarrier.try_wait.parity.shared.b64 %p3, [empty], %r2, 1000;
    @!%p3 bra wait_empty;
    @!%p1 bra next;
    mad.lo.u32 %r3, %r1, %r1, 5; st.shared.u32 [slot], %r3;
    mbarrier.arrive.shared.b64 _, [full];
next:
    add.u32 %r1, %r1, 1; setp.lt.u32 %p4, %r1, 6; @%p4 bra produce;
    exit;
consume:
    and.b32 %r2, %r1, 1;
wait_full:
    mbarrier.test_wait.parity.acquire.cta.shared.b64 %p3, [full], %r2;
    @!%p3 bra wait_full;
    ld.shared.u32 %r3, [slot]; add.u32 %r9, %r9, %r3;
    mbarrier.arrive.shared.b64 %rd1, [empty];
    add.u32 %r1, %r1, 1; setp.lt.u32 %p4, %r1, 6; @%p4 bra consume;
    st.global.u32 [%mine], %r9;
    exit;
"""
TOTAL = sum(turn * turn + 5 for turn in range(6))


def test_one_warp_hands_to_another_through_two_barriers() -> None:
    target = emulator()
    out = target.zeros(64, np.uint64)
    target.load(parse(kernel(PIPELINE), "pipeline.ptx"))["k"][1, 64](out)
    assert out.numpy().tolist() == [0] * 32 + [TOTAL] * 32


def test_the_checker_knows_that_arriving_and_waiting_order_accesses() -> None:
    target = emulator()
    out = target.zeros(64, np.uint64)
    loaded = target.load(parse(program(PIPELINE), "pipeline.ptx"))["k"]
    assert check(loaded[1, 64], out) == ()
    assert out.numpy().tolist() == [0] * 32 + [TOTAL] * 32
    store, arrive = "st.shared.u32 [slot], %r3;", "mbarrier.arrive.shared.b64 _, [full];"
    late = PIPELINE.replace(store, "").replace(arrive, f"{arrive} {store}")
    loaded = target.load(parse(program(late), "late.ptx"))["k"]
    assert ("data race", "shared") in kinds(check(loaded[1, 64], out))


def bulk(size: int = 512, from_bytes: int = 0) -> str:
    """Each block fetches 512 bytes, adds one to each word and sends them back."""
    return f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u64 from) {{
    .reg .pred p, q; .reg .b32 t, b, v, a; .reg .b64 o, f, s, i;
    .shared .align 128 .b8 tile[512]; .shared .align 8 .b64 full;
    ld.param.u64 o, [out]; ld.param.u64 f, [from];
    mov.u32 t, %tid.x; mov.u32 b, %ctaid.x;
    mad.wide.u32 f, b, 512, f; mad.wide.u32 o, b, 512, o; add.u64 f, f, {from_bytes};
    setp.ne.u32 p, t, 0;
    @!p mbarrier.init.shared::cta.b64 [full], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @p bra wait;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], {size};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [f], {size}, [full];
wait:
    mbarrier.try_wait.parity.shared::cta.b64 q, [full], 0;
    @!q bra wait;
    mov.u32 a, tile; mad.lo.u32 a, t, 4, a;
    ld.shared.u32 v, [a]; add.u32 v, v, 1; st.shared.u32 [a], v;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @p exit;
    cp.async.bulk.global.shared::cta.bulk_group [o], [tile], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    ret;
}}
"""


def test_bulk_copies_come_and_go() -> None:
    target = emulator()
    values = np.arange(4 * 128, dtype=np.uint32) * 7
    source, out = target.array(values), target.zeros(4 * 128, np.uint32)
    target.load(parse(bulk(), "bulk.ptx"))["k"][4, 128](out, source)
    assert (out.numpy() == values + 1).all()


@pytest.mark.parametrize(
    ("size", "ahead", "message"),
    [
        (24, 0, "18 .*not a multiple of 16"),
        (512, 8, "08 .*not a multiple of 16"),
        (512, 16, "just past the end of the 512-byte allocation"),
    ],
)
def test_bulk_copies_stay_aligned_and_inside(size: int, ahead: int, message: str) -> None:
    target = emulator()
    source, out = target.zeros(128, np.uint32), target.zeros(128, np.uint32)
    with pytest.raises(LaunchError, match=f"(?i){message}") as caught:
        target.load(parse(bulk(size, ahead), "bulk.ptx"))["k"][1, 128](out, source)
    assert "bulk.ptx:" in str(caught.value)


def test_the_checker_follows_bulk_copies() -> None:
    target = emulator()
    source, out = target.array(np.arange(128, dtype=np.uint32)), target.zeros(128, np.uint32)
    loaded = target.load(parse(bulk(), "bulk.ptx"))["k"]
    assert check(loaded[1, 128], out, source) == ()
    assert (out.numpy() == np.arange(128) + 1).all()
    behind = target.load(parse(bulk(from_bytes=16), "bulk.ptx"))["k"]
    assert ("out of bounds", "global") in kinds(check(behind[1, 128], out, source))


def test_a_phase_that_never_ends_is_reported_and_not_waited_for() -> None:
    body = """
        .shared .align 8 .b64 word;
        mbarrier.init.shared.b64 [word], 33;
        mbarrier.arrive.shared.b64 %rd1, [word];
    wait:
        mbarrier.try_wait.shared.b64 %p1, [word], %rd1;
        @!%p1 bra wait;
        ret;
    """
    with pytest.raises(LaunchError):
        run(body, patience=64)

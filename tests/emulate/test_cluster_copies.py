"""What blocks of a cluster bring into each other's shared memory behind a thread's back, and the barriers there that count it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from memlane.errors import BadAccess
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.checking import check
from tests.emulate.running import emulator, program

LAYERS = [Layers(), Layers(check=True)]

HEADING = """
    .shared .align 128 .b8 tile[512]; .shared .align 128 .b8 inbox[512]; .shared .align 8 .b64 full;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, tile; mov.u32 %r4, inbox; mov.u32 %r5, full;
    shl.b32 %r6, %tid, 2; add.u32 %r7, %r3, %r6; add.u32 %r8, %r4, %r6;
    mul.wide.u32 %rd1, %r1, 512; mul.wide.u32 %rd2, %tid, 4; add.u64 %rd1, %rd1, %out; add.u64 %rd1, %rd1, %rd2;
    setp.eq.u32 %p1, %tid, 0; mov.u32 %r10, 0; st.shared.u32 [%r8], %r10;
    @%p1 mbarrier.init.shared::cta.b64 [full], ARRIVALS;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
"""
"""Block and rank in %r1 and %r2, addresses in shared memory in %r3 to %r5, of the own words in %r7, %r8 and, of the output, %rd1."""
WAIT = "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [full], 0; @!%p5 bra wait;"
END = "ld.shared.u32 %r30, [%r8]; st.global.u32 [%rd1], %r30; barrier.cluster.arrive; barrier.cluster.wait; ret;"


def sent(body: str, layers: Layers, *, cluster: int, blocks: int, arrivals: int = 1) -> npt.NDArray[np.uint32]:
    """What 128 threads of each block leave; under the checker, without a finding."""
    target = emulator()
    out, given, seen = target.zeros((blocks, 128), np.uint32), target.array(np.arange(4096, dtype=np.uint32)), []
    text = program(f"ld.param.u64 %rd9, [given]; {HEADING} {body}", params=".param .u64 out, .param .u64 given")
    kernel = target.load(parse(text.replace("ARRIVALS", str(arrivals)), "sent.ptx"))["k"]
    launch = kernel[blocks, 128, None, 0, cluster].bind(out, given)
    target.launch(replace(launch, layers=replace(layers, report=seen.append)))
    assert not seen[0].reports
    return out.numpy()


MULTICAST = f"""
    and.b32 %r11, %r2, MASK; shr.u32 %r12, MASK, %r2; and.b32 %r12, %r12, 1; setp.eq.u32 %p2, %r12, 0; @%p2 bra copied;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 512;
    setp.eq.u32 %p3, %r2, 1; and.pred %p3, %p3, %p1;            // the block of rank 1 fetches for all
    mul.wide.u32 %rd3, %r1, 512; add.u64 %rd3, %rd3, %rd9; mov.b16 %h1, MASK;
    @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r4], [%rd3], 512, [%r5], %h1;
    {WAIT}
copied:
    {END}
"""


@pytest.mark.parametrize("layers", LAYERS)
def test_one_copy_for_several_blocks(layers: Layers) -> None:
    mask = 0b1011
    found = sent(MULTICAST.replace("MASK", str(mask)), layers, cluster=4, blocks=8)
    for block in range(8):
        fetcher = block // 4 * 4 + 1
        wanted = np.arange(128) + 128 * fetcher if mask >> block % 4 & 1 else np.zeros(128)
        assert (found[block] == wanted).all()


AROUND = f"""
    mad.lo.u32 %r11, %r1, 1000, %tid; st.shared.u32 [%r7], %r11; fence.proxy.async.shared::cta; bar.sync 0;
    @!%p1 bra wait;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 512;
    add.u32 %r12, %r2, 1; mov.u32 %r13, %cluster_nctarank; rem.u32 %r12, %r12, %r13;
    mapa.shared::cluster.u32 %r14, %r4, %r12; mapa.shared::cluster.u32 %r15, %r5, %r12;
    cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r14], [%r3], 512, [%r15];
    {WAIT} {END}
"""


@pytest.mark.parametrize("layers", LAYERS)
def test_a_copy_from_block_to_block(layers: Layers) -> None:
    found = sent(AROUND, layers, cluster=3, blocks=6)
    for block in range(6):
        sender = block // 3 * 3 + (block - 1) % 3
        assert (found[block] == 1000 * sender + np.arange(128)).all()


STORES = f"""
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], BYTES;
    xor.b32 %r11, %r2, 1; mapa.shared::cluster.u32 %r12, %r5, %r11; mapa.shared::cluster.u32 %r13, %r4, %r11; shl.b32 %r14, %tid, SHIFT;
    add.u32 %r13, %r13, %r14; mad.lo.u32 %r15, %r1, 1000, %tid; cvt.u64.u32 %rd5, %r15; cvt.rn.f32.u32 %f1, %r15;
    setp.lt.u32 %p2, %tid, SENDERS;
    @%p2 SEND
    {WAIT} {END}
"""


def words(sender: int, kind: str) -> npt.NDArray[np.uint32]:
    thread = 1000 * sender + np.arange(128)
    if kind == "f32":
        return thread.astype(np.float32).view(np.uint32)
    if kind == "v2":
        return np.stack([thread[:64], thread[:64]], axis=1).reshape(-1)
    return np.stack([thread[:64], np.zeros(64)], axis=1).reshape(-1)


@pytest.mark.parametrize(
    ("kind", "send", "shift"),
    [
        ("f32", "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%r13], %f1, [%r12];", 2),
        ("v2", "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r13], {%r15, %r15}, [%r12];", 3),
        ("b64", "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r13], %rd5, [%r12];", 3),
    ],
)
@pytest.mark.parametrize("layers", LAYERS)
def test_stores_that_a_barrier_counts(kind: str, send: str, shift: int, layers: Layers) -> None:
    senders = 512 >> shift
    text = STORES.replace("SEND\n", f"{send}\n").replace("SHIFT", str(shift)).replace("SENDERS", str(senders)).replace("BYTES", "512")
    found = sent(text, layers, cluster=2, blocks=4)
    for block in range(4):
        assert (found[block] == words(block ^ 1, kind)).all()


@pytest.mark.parametrize(
    ("send", "wanted"),
    [
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r16], %tid, [%r12];", sum(range(128))),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.s32 [%r16], %tid, [%r12];", 127),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.or.b32 [%r16], %tid, [%r12];", 127),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r16], %r17, [%r12];", 28),
    ],
)
def test_reductions_that_a_barrier_counts(send: str, wanted: int) -> None:
    """All threads of a block go to one word of its neighbour. `inc` begins anew where it meets its operand, 99."""
    text = (
        STORES.replace("@%p2 SEND", f"mov.u32 %r17, 99; mapa.shared::cluster.u32 %r16, %r4, %r11; {send}")
        .replace("SHIFT", "2")
        .replace("SENDERS", "128")
    )
    found = sent(text.replace("BYTES", "512"), Layers(check=True), cluster=2, blocks=2)
    assert found[:, 0].tolist() == [wanted] * 2
    assert not found[:, 1:].any()


HAND_OVER = f"""
    setp.eq.u32 %p2, %r2, 0; @%p2 bra wait;
    mapa.shared::cluster.u32 %r12, %r5, 0; mapa.shared::cluster.u32 %r13, %r8, 0; mad.lo.u32 %r15, %r1, 1000, %tid;
    STORE mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12]; LATE
    bra behind;
    {WAIT}
behind: {END}
"""


def test_threads_arrive_at_the_barrier_of_another_block() -> None:
    store = "st.shared::cluster.u32 [%r13], %r15;"
    text = HAND_OVER.replace("STORE", store).replace("LATE", "")
    for layers in LAYERS:
        found = sent(text, layers, cluster=2, blocks=4, arrivals=128)
        assert (found[[0, 2]] == np.array([[1000], [3000]]) + np.arange(128)).all()
        assert not found[[1, 3]].any()


def test_the_checker_finds_what_comes_behind_the_arrival() -> None:
    text = program(f"{HEADING} {HAND_OVER}".replace("STORE", "").replace("LATE", "st.shared::cluster.u32 [%r13], %r15;"))
    target = emulator()
    kernel = target.load(parse(text.replace("ARRIVALS", "128"), "late.ptx"))["k"]
    reports = check(kernel[2, 128, None, 0, 2], target.zeros((2, 128), np.uint32))
    assert {(report.kind, report.who.block != report.other.block) for report in reports if report.other} == {("data race", True)}


def test_a_copy_to_a_block_that_is_not_there() -> None:
    with pytest.raises(BadAccess, match=r"in the shared memory of the block of rank 5, but its cluster has only ranks 0 to 3"):
        sent(MULTICAST.replace("MASK", "46"), Layers(), cluster=4, blocks=4)

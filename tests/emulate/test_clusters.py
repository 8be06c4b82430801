"""Clusters of blocks: who is in one, what they reach of each other, and their barrier."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.errors import BadAccess, BadLaunch, Deadlock
from memlane.launch import Layers, LoadedModule
from memlane.measure import count
from memlane.ptx import Module, parse
from tests.emulate.checking import check
from tests.emulate.running import HEAD, emulator, program

SOURCE = Path(__file__).with_name("clusters.cu")


@cache
def module() -> Module:
    return cuda(SOURCE)


def values_of(cluster: int, bins_per_block: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, cluster * bins_per_block, 5000).astype(np.uint32)


def hist(kernels: LoadedModule, blocks: int, cluster: int, bins_per_block: int = 64):
    """What the histogram of 5000 values gives, and what NumPy gives."""
    target = kernels.target
    values = values_of(cluster, bins_per_block)
    bins = target.zeros(cluster * bins_per_block, np.uint32)
    kernels["histogram"][blocks, 96, None, 4 * bins_per_block, cluster](bins, target.array(values), 5000, bins_per_block)
    return bins.numpy(), np.bincount(values, minlength=cluster * bins_per_block)


@pytest.mark.parametrize(("blocks", "cluster", "threads"), [(8, 8, 1), (24, 4, 3), (6, 1, 2), (600, 2, 4)])
def test_a_histogram_over_the_shared_memory_of_a_cluster(blocks: int, cluster: int, threads: int) -> None:
    found, wanted = hist(emulator(threads=threads).load(module()), blocks, cluster)
    assert (found == wanted).all()


def test_what_a_block_knows_of_its_cluster() -> None:
    target = emulator()
    grid = (8, 4)
    out = target.zeros((32, 64, 4), np.uint32)
    target.load(module())["ring"][grid, 64](out, 7)
    thread = np.arange(64)
    for block in range(32):
        x, y = block % 8, block // 8
        inner = x % 4 + 4 * (y % 2)
        following = (inner + 1) % 8
        neighbour = (x // 4 * 4 + following % 4) + 8 * (y // 2 * 2 + following // 4)
        wanted = np.stack(
            [
                1000 * neighbour + (thread ^ 1),
                100 * following + 64 * inner + thread,
                np.full(64, x % 4 + 10 * (y % 2) + 400 + 2000),
                np.full(64, 7 * 512),
            ],
            axis=1,
        )
        assert (out.numpy()[block] == wanted).all(), block


REGISTERS = [f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in "xyz"]


@pytest.mark.parametrize(("grid", "cluster"), [((4, 6, 2), (2, 3, 1)), ((3, 2, 8), (1, 2, 4)), ((3, 2, 2), None)])
def test_special_registers(grid: tuple[int, int, int], cluster: tuple[int, int, int] | None) -> None:
    names = [*REGISTERS, "%cluster_ctarank", "%cluster_nctarank"]
    reads = " ".join(f"mov.u32 %r1, {name}; st.global.u32 [%rd1+{4 * number}], %r1;" for number, name in enumerate(names))
    body = f"""
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y;
        mad.lo.u32 %r3, %r3, %r5, %r2; mad.lo.u32 %r3, %r3, %r4, %r1; mad.wide.u32 %rd1, %r3, 64, %out;
        {reads}
        mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+60], %r1;
        ret;
    """
    target = emulator(threads=2)
    out = target.zeros((int(np.prod(grid)), 16), np.uint32)
    target.load(parse(program(body), "registers.ptx"))["k"][grid, 32, None, 0, cluster](out)
    shape = np.array(cluster or (1, 1, 1))
    for number, row in enumerate(out.numpy()):
        at = np.array([number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])])
        inner = at % shape
        rank = inner[0] + shape[0] * (inner[1] + shape[1] * inner[2])
        wanted = [*(at // shape), *(np.array(grid) // shape), *inner, *shape, rank, shape.prod()]
        assert row[:14].tolist() == wanted
        assert row[15] == (cluster is not None)


REACH = """
    .shared .align 16 .b32 tile[128]; .shared .align 4 .b32 sum;
    mov.u32 %r10, tile; shl.b32 %r11, %tid, 4; add.u32 %r12, %r10, %r11;
    mov.u32 %r13, %cluster_ctarank; mad.lo.u32 %r14, %r13, 100, %tid;
    st.shared.v4.u32 [%r12], {%r14, %r14, %r14, %r14}; st.shared.u32 [sum], 0;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    and.b32 %r16, %tid, 3;                        // lane i goes to rank i % 4, to the word of its own rank there
    mapa.shared::cluster.u32 %r17, %r12, %r16; shl.b32 %r18, %r13, 2; add.u32 %r17, %r17, %r18;
    ld.shared::cluster.u32 %r20, [%r17];
    st.shared::cluster.u32 [%r17], %r14;
    red.relaxed.cluster.shared::cluster.add.u32 [%r17], 5;
    mov.u64 %rd11, sum; cvta.shared.u64 %rd11, %rd11;
    mapa.u64 %rd12, %rd11, %r16; atom.add.u32 %r21, [%rd12], 1;
    getctarank.u64 %r22, %rd12; getctarank.shared::cluster.u32 %r23, %r17; getctarank.shared::cluster.u32 %r24, %r12;
    isspacep.shared::cluster %p1, %rd12; isspacep.shared::cta %p2, %rd12; isspacep.shared %p3, %rd11; isspacep.global %p4, %rd12;
    selp.u32 %r25, 1, 0, %p1; selp.u32 %r26, 2, 0, %p2; selp.u32 %r27, 4, 0, %p3; selp.u32 %r28, 8, 0, %p4;
    or.b32 %r25, %r25, %r26; or.b32 %r27, %r27, %r28; or.b32 %r25, %r25, %r27;
    barrier.cluster.arrive; barrier.cluster.wait;
    ld.shared::cta.v4.u32 {%r30, %r31, %r32, %r33}, [%r12]; ld.shared.u32 %r34, [sum];
    mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 5; add.u32 %r1, %r1, %tid; mad.wide.u32 %rd1, %r1, 48, %out;
    st.global.v4.u32 [%rd1], {%r30, %r31, %r32, %r33}; st.global.v4.u32 [%rd1+16], {%r20, %r22, %r23, %r24};
    st.global.v4.u32 [%rd1+32], {%r25, %r34, 0, 0};
    ret;
"""


def test_wavefronts_are_those_of_the_lanes_that_stay_in_the_block() -> None:
    """Lane i of rank r stays if i % 4 == r, at the word 4 i + r: 8 lanes, 4 of them in bank r and 4 in bank 16 + r."""
    target = emulator()
    kernel, out = target.load(parse(program(REACH), "reach.ptx"))["k"], target.zeros((8, 32, 12), np.uint32)
    found = {one.site.op: one for one in count(kernel[8, 32, None, 0, 4], out).sites if one.site.space == "shared::cluster"}
    assert len(found) == 3
    for op, one in found.items():
        assert (one.requests, one.lanes, one.wavefronts, one.ideal_wavefronts) == (8, 256, 32, 8), op


@pytest.mark.parametrize("layers", [Layers(), Layers(check=True)])
def test_each_lane_reaches_another_block(layers: Layers) -> None:
    target = emulator()
    out, seen = target.zeros((8, 32, 12), np.uint32), []
    kernel = target.load(parse(program(REACH), "reach.ptx"))["k"]
    target.launch(replace(kernel[8, 32, None, 0, 4].bind(out), layers=replace(layers, report=seen.append)))
    assert not seen[0].reports
    lane = np.arange(32)
    for block, found in enumerate(out.numpy()):
        rank, to = block % 4, lane % 4
        written = 100 * np.arange(4) + lane[:, None] + 5
        assert (found[:, :4] == np.where((to == rank)[:, None], written, 100 * rank + lane[:, None])).all()
        assert (found[:, 4:8] == np.stack([100 * to + lane, to, to, np.full(32, rank)], axis=1)).all()
        assert (found[:, 8] == 1 + 4 + np.where(to == rank, 2, 0)).all()
        assert (found[:, 9] == 32).all()


TURNS = """
    .shared .align 4 .b32 word;
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, 0; mov.u32 %r3, word; mov.u32 %r4, 0;
    setp.ge.u32 %p1, %tid, 40; @%p1 exit;                       // those that have exited are waited for by nobody
    setp.ne.u32 %p2, %tid, 0;
again:
    mad.lo.u32 %r5, %r2, 10, %r1; @!%p2 st.shared.u32 [word], %r5;
    barrier.cluster.arrive; barrier.cluster.wait;
    add.u32 %r6, %r1, 1; and.b32 %r6, %r6, 1; mapa.shared::cluster.u32 %r7, %r3, %r6; ld.shared::cluster.u32 %r8, [%r7];
    add.u32 %r4, %r4, %r8;
    barrier.cluster.arrive.release; and.b32 %r9, %tid, 1; setp.eq.u32 %p3, %r9, 0; @%p3 bra even; barrier.cluster.wait; bra behind;
even: barrier.cluster.wait.acquire;
behind:
    add.u32 %r2, %r2, 1; setp.lt.u32 %p4, %r2, 5; @%p4 bra again;
    mov.u32 %r1, %ctaid.x; shl.b32 %r1, %r1, 6; add.u32 %r1, %r1, %tid; mad.wide.u32 %rd1, %r1, 8, %out; st.global.u32 [%rd1], %r4;
    ret;
"""


@pytest.mark.parametrize("layers", [Layers(), Layers(check=True), Layers(clock=True), Layers(seed=3)])
def test_many_phases_with_threads_that_have_exited(layers: Layers) -> None:
    target = emulator()
    out, seen = target.zeros((6, 64), np.uint64), []
    kernel = target.load(parse(program(TURNS), "turns.ptx"))["k"]
    target.launch(replace(kernel[6, 64, None, 0, 2].bind(out), layers=replace(layers, report=seen.append)))
    for block, row in enumerate(out.numpy()):
        assert row[:40].tolist() == [sum(10 * turn + (block + 1) % 2 for turn in range(5))] * 40
        assert not row[40:].any()
    assert not seen[0].reports


CHAIN = """
    mov.u32 %r1, %clusterid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %nclusterid.x; sub.u32 %r4, %r3, %r1; sub.u32 %r4, %r4, 1;
    setp.ne.u32 %p1, %tid, 0; setp.ne.or.u32 %p1, %r2, 0, %p1; @%p1 bra behind;
wait: ld.volatile.global.u32 %r5, [%out]; setp.ne.u32 %p2, %r5, %r4; @%p2 bra wait;
behind: barrier.cluster.arrive; barrier.cluster.wait;
    setp.eq.u32 %p3, %r2, 1; setp.eq.and.u32 %p3, %tid, 0, %p3; add.u32 %r6, %r4, 1; @%p3 st.volatile.global.u32 [%out], %r6;
    ret;
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_clusters_that_wait_for_later_ones_are_resident_together(threads: int) -> None:
    target = emulator(threads=threads)
    out = target.zeros(1, np.uint32)
    target.load(parse(program(CHAIN), "chain.ptx"))["k"][100, 64, None, 0, 2](out)
    assert out.numpy().tolist() == [50]


# -- what goes wrong ---------------------------------------------------------------------------------------------------------------


def failing(body: str, *, cluster: int = 2, blocks: int = 4, threads: int = 32) -> str:
    target = emulator()
    out = target.zeros(1024, np.uint64)
    with pytest.raises((BadAccess, Deadlock)) as caught:
        target.load(parse(program(body), "bad.ptx"))["k"][blocks, threads, None, 0, cluster](out)
    return str(caught.value)


SYNC = "barrier.cluster.arrive; barrier.cluster.wait;"
TILE = ".shared .align 8 .b8 tile[256]; mov.u32 %r1, tile; mov.u32 %r2, 1;"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            f"{TILE} {SYNC} mapa.shared::cluster.u32 %r3, %r1, %r2; ld.shared::cluster.u32 %r4, [%r3+256]; {SYNC} ret;",
            "read 4 bytes at 0x2000100 (ld.shared::cluster.u32), 0x100 in the shared memory of block (1, 0, 0) of its cluster, outside its "
            "256 bytes",
        ),
        (
            f"{TILE} {SYNC} mapa.shared::cluster.u32 %r3, %r1, 5; st.shared::cluster.u32 [%r3], 1; {SYNC} ret;",
            "wrote 4 bytes at 0x6000000 (st.shared::cluster.u32), in the shared memory of the block of rank 5, but its cluster has only "
            "ranks 0 to 1",
        ),
        (
            f"{TILE} {SYNC} mapa.shared::cluster.u32 %r3, %r1, %r2; st.shared.u32 [%r3], 1; {SYNC} ret;",
            "which mapa mapped to the shared memory of the block of rank 1: access it as .shared::cluster",
        ),
        (
            f"{TILE} {SYNC} cvta.shared.u64 %rd1, 0; mapa.u64 %rd2, %rd1, %r2; ld.u64 %rd3, [%rd2+252]; {SYNC} ret;",
            "which is not a multiple of 8, 0xfc in the shared memory of block (1, 0, 0) of its cluster",
        ),
        (
            f"{TILE} {SYNC} cvta.shared.u64 %rd1, 0; mapa.u64 %rd2, %rd1, %r2; ld.u32 %r3, [%rd2+256]; {SYNC} ret;",
            "0x100 in the shared memory of block (1, 0, 0) of its cluster, outside its 256 bytes",
        ),
        (
            f"{TILE} mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r5, 0; @%p1 exit; {SYNC}"
            "mapa.shared::cluster.u32 %r3, %r1, 0; ld.shared::cluster.u32 %r4, [%r3]; ret;",
            "in the shared memory of block (0, 0, 0) of its cluster, which has ended: synchronise the cluster (cluster.sync())",
        ),
        (
            "barrier.cluster.wait; ret;",
            "waited at the barrier of its cluster without having arrived there: put barrier.cluster.arrive before each wait",
        ),
        (
            "barrier.cluster.arrive; barrier.cluster.arrive; ret;",
            "arrived at the barrier of its cluster a second time before it waited: put barrier.cluster.wait between the two",
        ),
    ],
)
def test_faults_say_what_is_wrong(body: str, message: str) -> None:
    text = failing(body)
    assert message in text
    assert text.startswith("kernel k, bad.ptx:")


def test_a_deadlock_names_all_blocks_of_the_cluster() -> None:
    text = failing(
        """
        mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 bra other;
        barrier.cluster.arrive; barrier.cluster.wait; ret;
        other: setp.lt.u32 %p2, %tid, 32; @%p2 bar.sync 1, 64; barrier.cluster.arrive; barrier.cluster.wait; ret;
        """,
        threads=64,
    )
    assert text.startswith("kernel k: block (1, 0, 0) cannot continue: 32 threads, the first (0, 0, 0), wait at barrier 1 (bad.ptx:")
    assert "which needs 64 threads; 32 threads, the first (32, 0, 0), wait at the barrier of their cluster (bad.ptx:" in text
    assert ". Of block (0, 0, 0) of its cluster 64 threads, the first (0, 0, 0), wait at the barrier of their cluster (bad.ptx:" in text


# -- the checker -----------------------------------------------------------------------------------------------------------------------


def test_the_checker_knows_the_barrier_of_a_cluster() -> None:
    target = emulator()
    kernels = target.load(module())
    assert check(kernels["ring"][(8, 2), 64], target.zeros((16, 64, 4), np.uint32), 7) == ()
    values = target.array(np.arange(1000, dtype=np.uint32) % 128)
    assert check(kernels["histogram"][8, 64, None, 4 * 32, 4], target.zeros(128, np.uint32), values, 1000, 32) == ()


@pytest.mark.parametrize(
    ("name", "kind", "space", "words"),
    [
        ("unordered", "data race", "shared", "Put cluster.sync() between the two"),
        ("early", "barrier", "", "of its cluster, which may not have started"),
        ("beyond", "out of bounds", "shared::cluster", "outside its 256 bytes"),
    ],
)
def test_the_checker_finds(name: str, kind: str, space: str, words: str) -> None:
    target = emulator()
    found = check(target.load(module())[name][4, 64], target.zeros(256, np.uint32))
    assert [str(one) for one in found if (one.kind, one.space) == (kind, space) and words in str(one)], found


def test_a_barrier_that_does_not_release_orders_nothing() -> None:
    body = f"""
        .shared .align 4 .b32 word; mov.u32 %r1, word; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1;
        {SYNC} setp.ne.u32 %p1, %tid, 0; @%p1 bra behind;
        st.shared.u32 [word], %r2;
        behind: barrier.cluster.arrive.SEM; barrier.cluster.wait;
        mapa.shared::cluster.u32 %r4, %r1, %r3; ld.shared::cluster.u32 %r5, [%r4]; {SYNC} ret;
    """
    for word, wanted in (("release", []), ("relaxed", [("data race", "shared::cluster")])):
        target = emulator()
        kernel = target.load(parse(program(body.replace("SEM", word)), "order.ptx"))["k"]
        reports = check(kernel[2, 32, None, 0, 2], target.zeros(1, np.uint64))
        assert [(one.kind, one.space) for one in reports] == wanted


def test_the_text_of_a_kernel_may_hold_its_cluster() -> None:
    body = f"""{HEAD}.visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1 {{
        .reg .b32 r; .reg .b64 o; ld.param.u64 o, [out]; mov.u32 r, %cluster_nctarank; st.global.u32 [o], r; ret; }}"""
    target = emulator()
    out = target.zeros(1, np.uint32)
    target.load(parse(body, "own.ptx"))["k"][4, 32](out)
    assert out.numpy().tolist() == [2]


def test_a_launch_that_was_changed_has_whole_clusters_too() -> None:
    target = emulator()
    call = target.load(module())["ring"][(4, 2), 64]
    launch = call.bind(target.zeros((8, 64, 4), np.uint32), 7)
    with pytest.raises(
        BadLaunch, match=r"the grid \(1, 1, 1\) of ring is not a multiple of its cluster size \(4, 2, 1\): launch whole clusters"
    ):
        target.launch(replace(launch, grid=(1, 1, 1)))

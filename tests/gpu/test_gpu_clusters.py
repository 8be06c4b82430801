"""Clusters of blocks on a device, against the emulator: launches, special registers, neighbours' shared memory, barriers, copies."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.driver import Device
from memlane.errors import BadLaunch
from memlane.launch import Target
from memlane.measure import count, trace
from memlane.ptx import Module, parse
from memlane.record import COMPLETE, PROVED
from tests.emulate.running import program
from tests.emulate.test_cluster_copies import AROUND, HAND_OVER, HEADING, MULTICAST, STORES
from tests.emulate.test_clusters import REACH, REGISTERS, SOURCE, TURNS, values_of

pytestmark = pytest.mark.gpu

STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r13], {%r15, %r15}, [%r12];"
REDUCE = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r13], %tid, [%r12];"
BODIES = {
    "multicast": (MULTICAST.replace("MASK", "11"), 4, 1),
    "around": (AROUND, 3, 1),
    "stores": (STORES.replace("SEND\n", f"{STORE}\n").replace("SHIFT", "3").replace("SENDERS", "64").replace("BYTES", "512"), 2, 1),
    "reductions": (STORES.replace("SEND\n", f"{REDUCE}\n").replace("SHIFT", "2").replace("SENDERS", "128").replace("BYTES", "512"), 2, 1),
    "arrivals": (HAND_OVER.replace("STORE", "st.shared::cluster.u32 [%r13], %r15;").replace("LATE", ""), 2, 128),
}


def module(body: str, **options: str) -> Module:
    """`%tid` is no name that the assembler lets a program declare, and asynchronous stores came with PTX 8.1."""
    text = program(body, **options).replace(".version 8.0", ".version 8.6")
    return parse(text.replace("%tid", "%thread").replace("%thread.x", "%tid.x"), "cluster.ptx")


@pytest.mark.parametrize("name", BODIES)
def test_what_is_brought_into_other_blocks(name: str, gpu: Device, emulator: Target) -> None:
    body, cluster, arrivals = BODIES[name]
    text = f"ld.param.u64 %rd9, [given]; {HEADING} {body}".replace("ARRIVALS", str(arrivals))
    made = module(text, params=".param .u64 out, .param .u64 given")
    found = []
    for where in (gpu, emulator):
        out, given = where.zeros((2 * cluster, 128), np.uint32), where.array(np.arange(4096, dtype=np.uint32))
        where.load(made)["k"][2 * cluster, 128, None, 0, cluster](out, given)
        found.append(out.numpy())
    assert (found[0] == found[1]).all()
    assert found[0].any()


@pytest.mark.parametrize(("body", "words", "threads", "cluster"), [(REACH, 12, 32, 4), (TURNS, 2, 64, 2)])
def test_addresses_and_phases(body: str, words: int, threads: int, cluster: int, gpu: Device, emulator: Target) -> None:
    found = []
    for where in (gpu, emulator):
        out = where.zeros((8, threads, words), np.uint32)
        where.load(module(body))["k"][8, threads, None, 0, cluster](out)
        found.append(out.numpy())
    assert (found[0] == found[1]).all()


def test_special_registers(gpu: Device, emulator: Target) -> None:
    names = [*REGISTERS, "%cluster_ctarank", "%cluster_nctarank"]
    reads = " ".join(f"mov.u32 %r1, {name}; st.global.u32 [%rd1+{4 * number}], %r1;" for number, name in enumerate(names))
    made = module(
        f"""mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y;
        mad.lo.u32 %r3, %r3, %r5, %r2; mad.lo.u32 %r3, %r3, %r4, %r1; mad.wide.u32 %rd1, %r3, 64, %out; {reads}
        mov.pred %p1, %is_explicit_cluster; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%rd1+60], %r1; ret;"""
    )
    for cluster in ((2, 3, 1), None):
        found = []
        for where in (gpu, emulator):
            out = where.zeros((48, 16), np.uint32)
            where.load(made)["k"][(4, 6, 2), 32, None, 0, cluster](out)
            found.append(out.numpy())
        assert (found[0] == found[1]).all()


@pytest.mark.parametrize(("blocks", "cluster"), [(24, 8), (264, 2), (6, 1)])
def test_a_histogram_over_the_shared_memory_of_a_cluster(blocks: int, cluster: int, gpu: Device) -> None:
    values = values_of(cluster, 256)
    bins = gpu.zeros(256 * cluster, np.uint32)
    gpu.load(cuda(SOURCE))["histogram"][blocks, 128, None, 1024, cluster](bins, gpu.array(values), len(values), 256)
    assert (bins.numpy() == np.bincount(values, minlength=256 * cluster)).all()


def test_large_clusters_by_permission_and_clusters_in_graphs(gpu: Device) -> None:
    kernel = gpu.load(cuda(SOURCE))["histogram"]
    values = values_of(16, 64)
    given, bins = gpu.array(values), gpu.zeros(1024, np.uint32)
    with pytest.raises(BadLaunch, match="allow_nonportable_clusters"):
        kernel[16, 128, None, 256, 16](bins, given, len(values), 64)
    kernel.allow_nonportable_clusters()[16, 128, None, 256, 16](bins, given, len(values), 64)
    wanted = np.bincount(values, minlength=1024)
    assert (bins.numpy() == wanted).all()
    small = values_of(4, 64)
    few, counted = gpu.array(small), gpu.zeros(256, np.uint32)
    gpu.graph([kernel[8, 128, None, 256, 4].bind(counted, few, len(small), 64)] * 2).replay()
    gpu.sync()
    assert (counted.numpy() == 2 * np.bincount(small, minlength=256)).all()


def test_a_kernel_that_says_its_cluster_itself(gpu: Device, emulator: Target) -> None:
    found = []
    for where in (gpu, emulator):
        out = where.zeros((32, 64, 4), np.uint32)
        where.load(cuda(SOURCE))["ring"][(8, 4), 64](out, np.uint32(7))
        found.append(out.numpy())
    assert (found[0] == found[1]).all()


def test_accesses_to_neighbours_are_traced_and_counted(gpu: Device, emulator: Target) -> None:
    counted = []
    for where in (gpu, emulator):
        call = where.load(module(REACH))["k"][8, 32, None, 0, 4]
        plain, traced = (where.zeros((8, 32, 12), np.uint32) for _ in range(2))
        call(plain)
        made = trace(call, traced)
        assert (plain.numpy() == traced.numpy()).all()
        assert made.lost == 0
        (load,) = (site for site in made.sites if site.op == "ld.shared::cluster.u32")
        assert load.space == "shared::cluster"
        assert (load.completeness, load.reason) == (COMPLETE, "")
        counts = count(call, where.zeros((8, 32, 12), np.uint32))
        counted.append([(one.site.op, one.requests, one.lanes, one.sectors, one.wavefronts) for one in counts.sites])
    assert counted[0] == counted[1]


def test_a_generic_load_from_a_neighbour_is_timed_to_its_end(gpu: Device) -> None:
    """A neighbour's memory is farther than the own, and nearer than what misses every cache."""
    out = gpu.zeros((32, 64, 4), np.uint32)
    made = trace(gpu.load(cuda(SOURCE))["ring"][(8, 4), 64], out, np.uint32(7))
    (load,) = (site for site in made.sites if site.op == "ld.u32")
    assert (load.completeness, load.evidence) == (COMPLETE, PROVED)
    times = [row["end"] - row["start"] for row in made.table.to_pylist() if row["site"] == load.id]
    assert gpu.chip.latency.shared < np.median(times) < gpu.chip.latency.dram

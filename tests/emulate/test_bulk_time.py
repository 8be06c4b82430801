"""When bulk copies are complete, in the time of the clock layer: predicted by hand from the latencies and rates of the chip."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import Events, load
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.launch import Layers

H200 = load("h200")
BANKS_BYTES = 128
"""What shared memory takes in a cycle: 32 banks of 4 bytes."""
ROUND = 60
"""Cycles between two reads of the clock besides what is waited for: reads, issue, a wait that succeeds."""
SOURCE = r"""
struct alignas(64) TensorMap { char bytes[128]; };
__device__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void expect(void* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ void start(void* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ void fetch(void* to, const void* from, int bytes, void* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
__device__ void await(void* barrier, int parity) {
    asm volatile("{\n.reg .pred over;\nASK:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra ASK;\n}" ::"r"(
                     shared_address(barrier)), "r"(parity) : "memory");
}
__shared__ unsigned long long full;
extern __shared__ __align__(128) char stage[];

extern "C" __global__ void times(long long* out, const char* in, int bytes) {
    if (threadIdx.x == 0) start(&full);
    __syncthreads();
    for (int turn = 0; turn < 2; ++turn) {  // from DRAM, then from L2
        long long begin = clock64();
        if (threadIdx.x == 0) { expect(&full, bytes); fetch(stage, in, bytes, &full); }
        await(&full, turn);
        if (threadIdx.x % 32 == 0) out[2 * (threadIdx.x / 32) + turn] = clock64() - begin;
        __syncthreads();
    }
}
extern "C" __global__ void parts(long long* out, const char* in, int bytes) {
    start(&full);
    expect(&full, 2 * bytes);
    fetch(stage, in, bytes, &full);
    fetch(stage, in + bytes, bytes, &full);
    long long begin = clock64();
    await(&full, 0);
    *out = clock64() - begin;
}
extern "C" __global__ void sent(long long* out, char* to, int bytes) {
    for (int turn = 0; turn < 3; ++turn) {
        long long begin = clock64();
        for (int part = 0; part < 2; ++part)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(
                             to + part * bytes), "r"(shared_address(stage)), "r"(bytes) : "memory");
        if (turn == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        if (turn == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        if (turn == 2) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        out[turn] = clock64() - begin;
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
extern "C" __global__ void streams(const char* in, int bytes, int turns) {
    start(&full);
    for (int turn = 0; turn < turns; ++turn) {
        expect(&full, bytes);
        fetch(stage, in + (size_t(turn) * gridDim.x + blockIdx.x) * bytes, bytes, &full);
        await(&full, turn % 2);
    }
}
extern "C" __global__ void arrives(long long* out, const char* in) {
    start(&full);
    long long begin = clock64();
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.mbarrier.arrive.noinc.shared.b64 [%2];" ::"r"(shared_address(stage)),
                 "l"(in), "r"(shared_address(&full)) : "memory");
    await(&full, 0);
    *out = clock64() - begin;
}
extern "C" __global__ void boxes(long long* out, const __grid_constant__ TensorMap map, int bytes) {
    start(&full);
    for (int turn = 0; turn < 2; ++turn) {
        long long begin = clock64();
        expect(&full, bytes);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                         shared_address(stage)), "l"(&map), "r"(shared_address(&full)), "r"(0), "r"(0) : "memory");
        await(&full, turn);
        out[turn] = clock64() - begin;
    }
}
extern "C" __global__ void added(long long* out, float* to, int bytes) {
    long long begin = clock64();
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(to),
                 "r"(shared_address(stage)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    *out = clock64() - begin;
}
extern "C" __global__ void generic(long long* out, const char* in, int bytes) {
    start(&full);
    long long begin = clock64();
    expect(&full, bytes);
    fetch(stage, in, bytes, &full);
    asm volatile("{\n.reg .pred over;\nASK:\nmbarrier.try_wait.parity.b64 over, [%0], 0;\n@!over bra ASK;\n}" ::"l"(&full) : "memory");
    *out = clock64() - begin;
}
extern "C" __global__ void __cluster_dims__(2) spread(const __grid_constant__ TensorMap map, int bytes) {
    start(&full);
    expect(&full, bytes);
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (blockIdx.x % 2 == 0)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(stage)), "l"(&map), "r"(shared_address(&full)), "r"(0), "r"(0),
                "h"((short)3) : "memory");
    await(&full, 0);
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
"""


@pytest.fixture(scope="module")
def target() -> Emulator:
    return Emulator(H200)


@pytest.fixture(scope="module")
def kernels(target: Emulator):  # type: ignore[no-untyped-def]
    return target.load(cuda(SOURCE, name="bulk.cu", arch="sm_90a"))


def seen(target: Emulator, call, *arguments: object) -> Events:  # type: ignore[no-untyped-def]
    events = target.launch(replace(call.bind(*arguments), layers=Layers(clock=True))).events
    assert events is not None
    return events


def cycles_of(nbytes: int) -> float:
    return nbytes / BANKS_BYTES


@pytest.mark.parametrize("nbytes", [16, 1024, 16384])
def test_a_copy_takes_the_latency_and_the_time_of_its_bytes(target: Emulator, kernels, nbytes: int) -> None:  # type: ignore[no-untyped-def]
    out = target.zeros(8, np.int64)
    events = seen(target, kernels["times"][1, 128, None, 16384], out, target.zeros(16384, np.uint8), np.int32(nbytes))
    far, near = out.numpy().reshape(4, 2).T
    for found, latency in ((far, H200.latency.dram), (near, H200.latency.l2)):
        least = latency + cycles_of(nbytes)
        assert found.min() >= least - 2
        assert found.max() <= 1.1 * latency + cycles_of(nbytes) + ROUND
    assert events.traffic.total("read") == 2 * max(1, nbytes // 32)


def test_a_barrier_waits_for_the_last_of_the_bytes_that_it_counts(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    out, nbytes = target.zeros(1, np.int64), 8192
    seen(target, kernels["parts"][1, 1, None, 2 * nbytes], out, target.zeros(2 * nbytes, np.uint8), np.int32(nbytes))
    assert out.numpy()[0] >= H200.latency.dram + cycles_of(2 * nbytes) - ROUND


def test_waits_for_groups_last_until_they_are_complete_or_read(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    out, nbytes = target.zeros(3, np.int64), 16384
    seen(target, kernels["sent"][1, 1, None, nbytes], out, target.zeros(2 * nbytes, np.uint8), np.int32(nbytes))
    complete, read, first_read = out.numpy()
    assert cycles_of(2 * nbytes) + H200.latency.l2 <= complete
    assert cycles_of(2 * nbytes) <= read <= cycles_of(2 * nbytes) + ROUND
    assert cycles_of(nbytes) <= first_read <= cycles_of(nbytes) + ROUND


def test_a_reduction_takes_the_latency_of_atomics(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    out, nbytes = target.zeros(1, np.int64), 4096
    events = seen(target, kernels["added"][1, 1, None, nbytes], out, target.zeros(nbytes // 4, np.float32), np.int32(nbytes))
    assert out.numpy()[0] >= H200.latency.global_atomic + cycles_of(nbytes)
    assert events.traffic.total("atomic") == nbytes // 32


def test_a_wait_by_a_generic_address_is_a_wait_too(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    out, nbytes = target.zeros(1, np.int64), 4096
    seen(target, kernels["generic"][1, 1, None, nbytes], out, target.zeros(nbytes, np.uint8), np.int32(nbytes))
    least = H200.latency.dram + cycles_of(nbytes)
    assert least <= out.numpy()[0] <= 1.1 * least + ROUND


def test_copies_of_all_multiprocessors_share_dram(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    grid, nbytes, turns = 132 * 8, 16384, 8
    array = target.zeros(grid * nbytes * turns, np.uint8)
    events = seen(target, kernels["streams"][grid, 1, None, nbytes], array, np.int32(nbytes), np.int32(turns))
    least = array.nbytes / (H200.bandwidth.dram_read * 1e9) * H200.clock_mhz * 1e6
    assert least <= events.cycles <= 1.1 * least + 2 * H200.latency.dram


def test_a_barrier_waits_for_the_copies_of_lanes_that_arrive_at_it(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    out = target.zeros(1, np.int64)
    seen(target, kernels["arrives"][1, 1, None, 128], out, target.zeros(16, np.uint8))
    assert H200.latency.dram <= out.numpy()[0] <= 1.1 * H200.latency.dram + H200.latency.shared + ROUND


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (256, 4)])
def test_a_box_takes_a_pass_for_each_row_and_128_bytes(target: Emulator, kernels, rows: int, columns: int) -> None:  # type: ignore[no-untyped-def]
    image, out = target.zeros((512, 1024), np.float32), target.zeros(2, np.int64)
    seen(target, kernels["boxes"][1, 1, None, 16384], out, target.tensor_map(image, (rows, columns)), np.int32(4 * rows * columns))
    passes = rows * max(1, 4 * columns // BANKS_BYTES)
    for found, latency in zip(out.numpy(), (H200.latency.dram, H200.latency.l2), strict=True):
        assert latency + passes - 2 <= found <= 1.1 * latency + passes + ROUND


def test_a_box_for_two_blocks_is_fetched_once(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    image = target.zeros((64, 64), np.float32)
    events = seen(target, kernels["spread"][2, 1, None, 16384], target.tensor_map(image, (64, 64)), np.int32(image.nbytes))
    assert events.traffic.total("read") == image.nbytes // 32
    assert events.cycles >= H200.latency.dram + cycles_of(image.nbytes)


def test_blocks_that_wait_at_their_own_barriers_run_one_without_the_others(target: Emulator, kernels) -> None:  # type: ignore[no-untyped-def]
    alone = kernels["streams"][4, 1, None, 64].bind(target.zeros(64, np.uint8), np.int32(16), np.int32(1))
    assert target.may_leave_out_blocks(alone)
    image = target.zeros((64, 64), np.float32)
    assert not target.may_leave_out_blocks(kernels["spread"][2, 1, None, 64].bind(target.tensor_map(image, (4, 4)), np.int32(64)))

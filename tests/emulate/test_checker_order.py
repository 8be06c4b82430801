"""What orders the accesses of threads, and what does not: right programs have no report, and those with one piece taken out have."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.launch import Report
from tests.emulate.checking import check, compiled, kinds
from tests.emulate.running import emulator

LAST_BLOCK = """
__device__ unsigned arrived = 0;
__global__ void sum(float* partial, float* total, const float* in, int n) {
    __shared__ float sums[64];
    __shared__ bool last;
    float mine = 0;
    for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) mine += in[i];
    sums[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (int i = 0; i < 64; ++i) all += sums[i];
        partial[blockIdx.x] = all;
        __threadfence();
        unsigned ticket = atomicInc(&arrived, gridDim.x - 1);
        last = ticket == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float all = 0;
        for (int b = 0; b < gridDim.x; ++b) all += partial[b];
        *total = all;
    }
}"""

LOOK_BACK = """
__global__ void scan(int* out, const int* in, int* sums, volatile int* flags) {
    __shared__ int before;
    int t = threadIdx.x, b = blockIdx.x, i = b * 32 + t;
    int value = in[i];
    for (int step = 1; step < 32; step *= 2) {
        int left = __shfl_up_sync(0xffffffffu, value, step);
        if (t >= step) value += left;
    }
    if (t == 31) {
        int earlier = 0;
        if (b > 0) {
            while (flags[b - 1] == 0) {}
            __threadfence();
            earlier = sums[b - 1];
        }
        sums[b] = earlier + value;
        __threadfence();
        flags[b] = 1;
        before = earlier;
    }
    __syncthreads();
    out[i] = before + value;
}"""

LOCK = """
__global__ void add(int* lock, int* total) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *total += 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}"""

GRID_BARRIER = """
__device__ unsigned come = 0;
__device__ volatile unsigned turn = 0;
__device__ void meet(unsigned blocks) {
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned now = turn;
        __threadfence();
        if (atomicAdd(&come, 1) == blocks - 1) { come = 0; __threadfence(); turn = now + 1; }
        else while (turn == now) {}
        __threadfence();
    }
    __syncthreads();
}
__global__ void shift(int* a, int* b, int steps) {
    int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int s = 0; s < steps; ++s) {
        b[i] = a[(i + 40) % n] + 1;
        meet(gridDim.x);
        a[i] = b[(i + 40) % n] + 1;
        meet(gridDim.x);
    }
}"""

WARP_FLAG = """
__global__ void pass(int* out) {
    __shared__ int value[32];
    __shared__ volatile int ready;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (warp == 1) {
        value[lane] = lane * 3;
        __threadfence_block();
        __syncwarp();
        if (lane == 0) ready = 1;
    } else {
        while (ready == 0) {}
        __threadfence_block();
        out[lane] = value[31 - lane];
    }
}"""

NAMED = """
__global__ void produce(int* out) {
    __shared__ int value[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = 0; i < 3; ++i) {
        if (warp == 1) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            value[lane] = lane + i;
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        } else {
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            asm volatile("bar.sync 2, 64;" ::: "memory");
            out[32 * i + lane] = value[31 - lane];
        }
    }
}"""

ACQUIRE = """
__global__ void hand(int* data, int* flag, int* out) {
    if (blockIdx.x == 1) {
        *data = 7;
        asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    } else {
        int seen = 0;
        while (!seen) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        *out = *data;
    }
}"""


Outcome = tuple[tuple[Report, ...], bool]
"""What the checker found, and whether the result is right."""


def last_block(source: str) -> Outcome:
    target = emulator()
    total, values = target.empty(1), np.arange(1000, dtype=np.float32)
    call = target.load(compiled(source))["sum"][8, 64]
    found = check(call, target.empty(8), total, target.array(values), 1000)
    return found, total.numpy()[0] == values.sum()


def look_back(source: str) -> Outcome:
    target = emulator()
    out, host = target.empty(320, np.int32), np.arange(320, dtype=np.int32)
    call = target.load(compiled(source))["scan"][10, 32]
    found = check(call, out, target.array(host), target.empty(10, np.int32), target.zeros(10, np.int32))
    return found, np.array_equal(out.numpy(), np.cumsum(host))


def lock(source: str) -> Outcome:
    target = emulator()
    total = target.zeros(1, np.int32)
    found = check(target.load(compiled(source))["add"][4, 64], target.zeros(1, np.int32), total)
    return found, total.numpy()[0] == 8


def grid_barrier(source: str) -> Outcome:
    target = emulator()
    a, b = target.zeros(256, np.int32), target.zeros(256, np.int32)
    found = check(target.load(compiled(source))["shift"][4, 64], a, b, 3)
    return found, a.numpy().tolist() == [6] * 256


def warp_flag(source: str) -> Outcome:
    target = emulator()
    out = target.zeros(32, np.int32)
    found = check(target.load(compiled(source))["pass"][1, 64], out)
    return found, out.numpy().tolist() == [3 * (31 - lane) for lane in range(32)]


def named(source: str) -> Outcome:
    target = emulator()
    out = target.zeros(96, np.int32)
    found = check(target.load(compiled(source))["produce"][1, 64], out)
    return found, out.numpy().tolist() == [31 - lane + turn for turn in range(3) for lane in range(32)]


def acquire(source: str) -> Outcome:
    target = emulator()
    data, flag, out = (target.zeros(1, np.int32) for _ in range(3))
    found = check(target.load(compiled(source))["hand"][2, 1], data, flag, out)
    return found, out.numpy()[0] == 7


PROGRAMS = {
    "last block": (last_block, LAST_BLOCK),
    "look back": (look_back, LOOK_BACK),
    "lock": (lock, LOCK),
    "grid barrier": (grid_barrier, GRID_BARRIER),
    "flag between warps": (warp_flag, WARP_FLAG),
    "named barriers": (named, NAMED),
    "release and acquire": (acquire, ACQUIRE),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_ordered_is_no_race(name: str) -> None:
    run, source = PROGRAMS[name]
    found, is_right = run(source)
    assert found == ()
    assert is_right


@pytest.mark.parametrize(
    "store", ["st.async.release.gpu.global.u32", "st.async.mmio.release.sys.global.u32", "red.async.release.gpu.global.add.u32"]
)
def test_asynchronous_stores_that_release_order_as_others_do(store: str) -> None:
    found, is_right = acquire(ACQUIRE.replace("st.release.gpu.global.u32", store))
    assert found == ()
    assert is_right


@pytest.mark.parametrize(
    ("name", "old", "new", "space"),
    [
        ("last block", "        __threadfence();\n", "", "global"),
        ("last block", "        __threadfence();\n", "        __threadfence_block();\n", "global"),
        ("last block", "    sums[threadIdx.x] = mine;\n    __syncthreads();", "    sums[threadIdx.x] = mine;", "shared"),
        ("last block", "    }\n    __syncthreads();\n    if (last", "    }\n    if (last", "shared"),
        ("look back", "            __threadfence();\n", "", "global"),
        ("look back", "        __threadfence();\n        flags", "        flags", "global"),
        ("lock", "        __threadfence();\n        *total", "        *total", "global"),
        ("lock", "        __threadfence();\n        atomicExch", "        atomicExch", "global"),
        ("grid barrier", "        meet(gridDim.x);\n        a[i]", "        a[i]", "global"),
        ("grid barrier", "        unsigned now = turn;\n        __threadfence();", "        unsigned now = turn;", "global"),
        ("flag between warps", "        __threadfence_block();\n        __syncwarp();", "        __syncwarp();", "shared"),
        ("flag between warps", "while (ready == 0) {}\n        __threadfence_block();", "while (ready == 0) {}", "shared"),
        ("named barriers", 'asm volatile("bar.sync 1, 64;" ::: "memory");', 'asm volatile("bar.arrive 1, 64;" ::: "memory");', "shared"),
        ("release and acquire", "st.release.gpu", "st.relaxed.gpu", "global"),
        ("release and acquire", "ld.acquire.gpu", "ld.relaxed.gpu", "global"),
        ("release and acquire", "st.release.gpu", "st.release.cta", "global"),
    ],
)
def test_without_what_orders_there_is_a_race(name: str, old: str, new: str, space: str) -> None:
    run, source = PROGRAMS[name]
    assert old in source
    found, _ = run(source.replace(old, new))
    assert ("data race", space) in kinds(found)

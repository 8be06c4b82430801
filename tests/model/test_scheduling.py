"""The order of an assembler: loads early, and what the kernel computes stays the same."""

from __future__ import annotations

import numpy as np

from memlane.chip import load
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.model.scheduling import scheduled
from memlane.ptx import Function, memory_access

SOURCE = """
extern "C" __global__ void blend(float* out, const float* __restrict__ a, const float* __restrict__ b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 8; ++k) {
        sum = sum * 0.5f + a[(i + k) % n];
        sum = sum * 0.25f + b[(i * k) % n];
    }
    out[i] = sum;
}
extern "C" __global__ void in_turn(int* out, int n) {
    int i = threadIdx.x;
    int first = out[i];
    out[(i + 1) % n] = first + 1;
    __syncthreads();
    out[i] = out[i] * 2 + out[(i + 2) % n];
}
"""


def _loads_before_use(function: Function) -> int:
    """Loads of global memory in front of the first multiplication of what they bring."""
    found = 0
    for one in function.instructions():
        access = memory_access(one)
        found += access is not None and access.kind == "load" and access.space == "global"
        if one.opcode == "fma":
            break
    return found


def test_loads_move_in_front_of_the_first_use() -> None:
    module = cuda(SOURCE, name="s.cu")
    assert _loads_before_use(module.kernels["blend"]) <= 2
    assert _loads_before_use(scheduled(module).module.kernels["blend"]) >= 8


def test_kernels_compute_the_same_in_the_new_order() -> None:
    module = cuda(SOURCE, name="s.cu")
    found = []
    for one in (module, scheduled(module).module):
        target = Emulator(load("h200"))
        kernels = target.load(one)
        random = np.random.default_rng(1)
        a, b = (target.array(random.random(64, np.float32)) for _ in range(2))
        out, turn = target.zeros(64, np.float32), target.array(random.integers(0, 9, 64, np.int32))
        kernels["blend"][2, 32](out, a, b, 64)
        kernels["in_turn"][1, 32](turn, 64)
        found.append((out.numpy(), turn.numpy()))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])

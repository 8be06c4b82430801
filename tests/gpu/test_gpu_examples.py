"""The example kernels on both roads: the same outputs, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.driver import Device
from memlane.launch import DeviceArray, Target
from memlane.ptx import Module, parse

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Case:
    """One launch of an example. Arrays among the arguments are copied to the target; all of them are compared afterwards."""

    file: str
    kernel: str
    grid: int | tuple[int, ...]
    block: int | tuple[int, ...]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]] = field(repr=False)
    shared_bytes: int = 0

    def run(self, target: Target, module: Module) -> list[np.ndarray]:
        values = self.arguments(np.random.default_rng(11))
        bound = [target.array(value) if isinstance(value, np.ndarray) else value for value in values]
        target.load(module)[self.kernel][self.grid, self.block, None, self.shared_bytes](*bound)
        return [value.numpy() for value in bound if isinstance(value, DeviceArray)]


@cache
def compiled(file: str) -> Module:
    return cuda(EXAMPLES / file)


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)


def matrix(random: np.random.Generator) -> tuple[Any, ...]:
    """Output, then a sparse matrix of 100 rows in compressed form, a vector, and the number of rows."""
    lengths = random.integers(0, 70, 100)
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    column = random.integers(0, 100, start[-1]).astype(np.int32)
    return np.zeros(100, np.float32), start, column, floats(random, int(start[-1])), floats(random, 100), 100


def copying(extra: tuple[int, ...] = ()) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda random: (np.zeros(4096, np.float32), floats(random, 4096), 4096, *extra)


def transposing(random: np.random.Generator) -> tuple[Any, ...]:
    return np.zeros((70, 70), np.float32), floats(random, 70, 70), 70


def reducing(kind: str) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda random: (np.zeros(8, kind), (1000 * random.standard_normal(1900)).astype(kind), 1900)


def counting(random: np.random.Generator) -> tuple[Any, ...]:
    return np.zeros(256, np.uint32), random.integers(0, 256, 5000).astype(np.uint8), 5000


def cells(random: np.random.Generator) -> tuple[Any, ...]:
    return np.zeros((6, 20, 40), np.float32), floats(random, 6, 20, 40), 40, 20, 6


CASES = [
    Case("copies.cu", "direct", 16, 256, copying()),
    Case("copies.cu", "vectors", 4, 256, copying()),
    Case("copies.cu", "shifted", 16, 256, copying((3,))),
    Case("copies.cu", "strided", 16, 256, copying((32,))),
    Case("transpose.cu", "naive", (3, 3), (32, 32), transposing),
    Case("transpose.cu", "tiled", (3, 3), (32, 32), transposing),
    Case("transpose.cu", "padded", (3, 3), (32, 32), transposing),
    Case("matmul.cu", "matmul", (4, 4), (16, 16), lambda r: (np.zeros((50, 50), "f4"), floats(r, 50, 50), floats(r, 50, 50), 50)),
    Case("reduction.cu", "block_sum<int>", 8, 256, reducing("i4")),
    Case("reduction.cu", "block_sum<float>", 8, 256, reducing("f4")),
    Case("reduction.cu", "interleaved<int>", 8, 256, reducing("i4")),
    Case("reduction.cu", "interleaved<float>", 8, 256, reducing("f4")),
    Case("spmv.cu", "csr_scalar", 1, 128, matrix),
    Case("spmv.cu", "csr_warp", 25, 128, matrix),
    Case("histogram.cu", "global_atomics", 8, 256, counting),
    Case("histogram.cu", "shared_atomics", 8, 256, counting),
    Case("stencil.cu", "seven_point", (2, 5, 3), (32, 4, 2), cells),
    Case("stencil.cu", "marching", (2, 3), (32, 8), cells),
    Case("chase.cu", "chase_shared", 1, 32, lambda r: (np.zeros(1, np.uint32), 4096, 17, 300), shared_bytes=4096 * 4),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{Path(case.file).stem}-{case.kernel}")
def test_gpu_and_emulator_agree(case: Case, gpu: Device, emulator: Target) -> None:
    module = compiled(case.file)
    measured, emulated = case.run(gpu, module), case.run(emulator, module)
    for seen, expected in zip(measured, emulated, strict=True):
        assert seen.tobytes() == expected.tobytes()
    assert measured[0].any()


def test_a_ring_of_absolute_addresses(gpu: Device, emulator: Target) -> None:
    arrived = []
    for target in (gpu, emulator):
        kernels = target.load(compiled("chase.cu"))
        ring, end = target.empty(1024, "u8"), target.empty(1, "u8")
        kernels["link_ring"][4, 256](ring, 1024, 17)
        kernels["chase_global"][1, 1](end, ring, 100)
        arrived.append(int(end.numpy()[0]) - ring.address)
    assert arrived == [8 * (17 * 100 % 1024)] * 2


UNFUSED = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry product_and_sum(.param .u64 out, .param .u64 in)
{
    .reg .b32 %r<3>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd2, %rd2, %rd3;
    add.u64 %rd1, %rd1, %rd3;
    ld.global.f32 %f1, [%rd2];
    mul.f32 %f2, %f1, %f1;
    add.f32 %f3, %f2, 0fBF800000;
    st.global.f32 [%rd1], %f3;
    ret;
}
"""


def test_fused_multiplication_and_addition_is_the_default(gpu: Device, emulator: Target) -> None:
    """So the option that turns it off is what makes the roads agree, and it is not ignored.

    The compiler has fused what it can in the examples already; this PTX leaves it to the assembler, because its `mul` and `add` name no
    rounding.
    """
    values = np.random.default_rng(7).random(32, dtype=np.float32)
    results = []
    for target in (Device(0), gpu, emulator):
        out = target.zeros(32)
        target.load(parse(UNFUSED))["product_and_sum"][1, 32](out, target.array(values))
        results.append(out.numpy())
    fused, separate, emulated = results
    assert np.array_equal(separate, emulated)
    assert not np.array_equal(fused, separate)
    assert np.array_equal(fused, (values.astype(np.float64) ** 2 - 1).astype(np.float32))

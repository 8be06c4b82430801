"""Products of matrices whose fragments have layouts of their own, against NumPy: `m8n8k4` in four groups of lanes, single bits, and short
integers of `wmma`. The manual's formulas for the elements are written down here once more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.ptx import parse
from tests.emulate.running import emulator, program
from tests.emulate.test_matrices import fragments

Matrix = npt.NDArray[Any]
FORMS = [
    (a, b, d, c)
    for a, b, d, c in itertools.product(("row", "col"), ("row", "col"), ("f16", "f32"), ("f16", "f32"))
    if (d, c) != ("f16", "f32")
]


def lanes_of(matrices: Matrix, count: int, place: Callable[[int, int], tuple[int, int]]) -> Matrix:
    """Elements by lane: `place(lane, i)` is the element of the matrix of the lane's group that its element i is."""
    return np.array([[matrices[(lane % 16) // 4][place(lane, i)] for i in range(count)] for lane in range(32)])


def of_sums(kind: str) -> Callable[[int, int], tuple[int, int]]:
    def place(lane: int, i: int) -> tuple[int, int]:
        lower = 4 * (lane >= 16)
        return (lane % 4 + lower, i) if kind == "f16" else ((lane & 1) + (i & 2) + lower, (i & 4) + (lane & 2) + (i & 1))

    return place


def words(values: Matrix, kind: str) -> Matrix:
    """Registers by lanes."""
    if kind == "f32":
        return values.astype(np.float32).view(np.uint32).T
    return np.ascontiguousarray(values.astype(np.float16)).view(np.uint32).T


@pytest.mark.parametrize(("a_layout", "b_layout", "d_type", "c_type"), FORMS)
def test_four_groups_of_lanes_multiply_matrices_of_their_own(a_layout: str, b_layout: str, d_type: str, c_type: str) -> None:
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-9, 10, (4, *shape)) / 4 for shape in ((8, 4), (4, 8), (8, 8)))
    half = [4 * (lane >= 16) for lane in range(32)]

    def by_a(lane: int, i: int) -> tuple[int, int]:
        return (lane % 4 + half[lane], i) if a_layout == "row" else (i + half[lane], lane % 4)

    def by_b(lane: int, i: int) -> tuple[int, int]:
        return (lane % 4, i + half[lane]) if b_layout == "row" else (i, lane % 4 + half[lane])

    inputs = [words(lanes_of(a, 4, by_a), "f16"), words(lanes_of(b, 4, by_b), "f16"), words(lanes_of(c, 8, of_sums(c_type)), c_type)]
    found = fragments(f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d_type}.f16.f16.{c_type}", inputs, 4 if d_type == "f16" else 8)
    assert (found == words(lanes_of(a @ b + c, 8, of_sums(d_type)), d_type)).all()


def counted(a: Matrix, b: Matrix, operation: str) -> Matrix:
    """For each row of A and column of B, how many bits both have, or one of them."""
    combined = a[:, :, None] & b[None] if operation == "and" else a[:, :, None] ^ b[None]
    return np.asarray(combined.sum(axis=1))


@pytest.mark.parametrize("operation", ["xor", "and"])
@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
def test_bits_are_combined_and_counted(shape: str, operation: str) -> None:
    rng = np.random.default_rng(6)
    rows, depth = int(shape[1 : shape.index("n")]), int(shape.split("k")[1])
    a, b, c = rng.integers(0, 2, (rows, depth)), rng.integers(0, 2, (depth, 8)), rng.integers(-99, 99, (rows, 8))
    registers = {letter: np.zeros((count, 32), np.uint32) for letter, count in (("a", rows * depth // 1024), ("b", depth // 128))}
    sums = {name: np.zeros((rows // 4, 32), np.int32) for name in ("start", "wanted")}
    for lane in range(32):
        group, member = lane // 4, lane % 4
        for i in range(32 * len(registers["a"])):
            if rows == 8:
                row, column = group, 32 * member + i
            elif depth == 128:
                row, column = group + 8 * (i >= 32), 32 * member + i % 32
            else:
                row, column = group + 8 * (not (i < 32 or 64 <= i < 96)), 32 * member + i % 32 + 128 * (i >= 64)
            registers["a"][i // 32, lane] |= np.uint32(int(a[row, column]) << i % 32)
        for i in range(32 * len(registers["b"])):
            registers["b"][i // 32, lane] |= np.uint32(int(b[32 * member + i % 32 + 128 * (i >= 32), group]) << i % 32)
        for i in range(rows // 4):
            place = group + 8 * (i >= 2), 2 * member + i % 2
            sums["start"][i, lane], sums["wanted"][i, lane] = c[place], (counted(a, b, operation) + c)[place]
    inputs = [registers["a"], registers["b"], sums["start"].view(np.uint32)]
    found = fragments(f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc", inputs, rows // 4)
    assert (found.view(np.int32) == sums["wanted"]).all()


def rows_of_bits(matrix: Matrix, bits: int) -> Matrix:
    """Rows of short integers, the first of them lowest in its word."""
    places = bits * np.arange(32 // bits, dtype=np.uint64)
    parts = (matrix & ((1 << bits) - 1)).astype(np.uint64).reshape(len(matrix), -1, 32 // bits)
    return (parts << places).sum(axis=2).astype(np.uint32)


@pytest.mark.parametrize(
    ("depth", "kind", "least", "end", "operation"),
    [(32, "s4", -8, 8, ""), (32, "u4", 0, 16, ""), (128, "b1", 0, 2, "xor"), (128, "b1", 0, 2, "and")],
)
def test_fragments_of_short_integers(depth: int, kind: str, least: int, end: int, operation: str) -> None:
    rng = np.random.default_rng(7)
    a, b, c = rng.integers(least, end, (8, depth)), rng.integers(least, end, (depth, 8)), rng.integers(-99, 99, (8, 8))
    shape, name = f"m8n8k{depth}", f"wmma.mma.{operation}.popc" if operation else "wmma.mma"
    body = f"""
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
        wmma.load.a.sync.aligned.row.{shape}.global.{kind} {{%r1}}, [%rd1];
        wmma.load.b.sync.aligned.col.{shape}.global.{kind} {{%r2}}, [%rd2], {depth};
        wmma.load.c.sync.aligned.row.{shape}.global.s32 {{%r3, %r4}}, [%rd3], 8;
        {name}.sync.aligned.row.col.{shape}.s32.{kind}.{kind}.s32 {{%r5, %r6}}, {{%r1}}, {{%r2}}, {{%r3, %r4}};
        wmma.store.d.sync.aligned.row.{shape}.global.s32 [%out], {{%r5, %r6}}, 8; ret;"""
    target, bits = emulator(), 1 if kind == "b1" else 4
    out = target.zeros((8, 8), np.int32)
    module = parse(program(body, params=".param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c"))
    inputs = rows_of_bits(a, bits), rows_of_bits(b.T, bits), c.astype(np.int32)
    target.load(module)["k"][1, 32](out, *(target.array(np.ascontiguousarray(one)) for one in inputs))
    assert (out.numpy() == (counted(a, b, operation) if operation else a @ b) + c).all()

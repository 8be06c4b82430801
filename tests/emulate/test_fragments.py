"""Fragments of matrices (`nvcuda::wmma`): shapes, types and layouts, against NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from memlane.compile import cuda
from memlane.launch import Layers
from memlane.measure import check
from memlane.ptx import Module
from tests.emulate.running import emulator
from tests.emulate.test_layers import counted, observe

SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

template <int Rows, int Columns, int Depth, class Factor, class Stored, class Sum, class Left, class Right>
__device__ void product(Sum* d, const Stored* a, const Stored* b, const Sum* c, wmma::layout_t layout) {
    wmma::fragment<wmma::matrix_a, Rows, Columns, Depth, Factor, Left> left;
    wmma::fragment<wmma::matrix_b, Rows, Columns, Depth, Factor, Right> right;
    wmma::fragment<wmma::accumulator, Rows, Columns, Depth, Sum> sum;
    bool by_rows = layout == wmma::mem_row_major;
    wmma::load_matrix_sync(left, a, by_rows ? Depth : Rows);
    wmma::load_matrix_sync(right, b, by_rows ? Depth : Columns);
    wmma::load_matrix_sync(sum, c, by_rows ? Columns : Rows, layout);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(d, sum, by_rows ? Columns : Rows, layout);
}

extern "C" __global__ void rows_by_columns(SUM* d, const STORED* a, const STORED* b, const SUM* c) {
    product<M, N, K, FACTOR, STORED, SUM, wmma::row_major, wmma::col_major>(d, a, b, c, wmma::mem_row_major);
}

extern "C" __global__ void columns_by_rows(SUM* d, const STORED* a, const STORED* b, const SUM* c) {
    product<M, N, K, FACTOR, STORED, SUM, wmma::col_major, wmma::row_major>(d, a, b, c, wmma::mem_col_major);
}
"""
KINDS = {
    "f16": ("__half", "__half", "float", np.float16, np.float32),
    "f16 into f16": ("__half", "__half", "__half", np.float16, np.float16),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16", "float", None, np.float32),
    "tf32": ("wmma::precision::tf32", "float", "float", np.float32, np.float32),
    "f64": ("double", "double", "double", np.float64, np.float64),
    "s8": ("signed char", "signed char", "int", np.int8, np.int32),
    "u8": ("unsigned char", "unsigned char", "int", np.uint8, np.int32),
}
CASES = [
    ("f16", (16, 16, 16)),
    ("f16", (8, 32, 16)),
    ("f16 into f16", (32, 8, 16)),
    ("bf16", (16, 16, 16)),
    ("tf32", (16, 16, 8)),
    ("f64", (8, 8, 4)),
    ("s8", (32, 8, 16)),
    ("u8", (8, 32, 16)),
]


@cache
def compiled(kind: str, shape: tuple[int, int, int]) -> Module:
    names = dict(zip("MNK", shape, strict=True)) | dict(zip(("FACTOR", "STORED", "SUM"), KINDS[kind][:3], strict=True))
    return cuda(SOURCE, name="fragments.cu", define=[f"{name}={value}" for name, value in names.items()])


def stored(values: npt.NDArray[np.int64], kind: type | None) -> npt.NDArray[np.generic]:
    """Whole numbers in the type of the factors; of bf16 the upper half of f32."""
    return values.astype(kind) if kind is not None else (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("kernel", ["rows_by_columns", "columns_by_rows"])
@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_products_equal_numpy(kind: str, shape: tuple[int, int, int], kernel: str) -> None:
    *_, factor, total = KINDS[kind]
    rows, columns, depth = shape
    random, low = np.random.default_rng(3), 0 if kind == "u8" else -5
    a, b, c = (random.integers(low, 6, extents) for extents in ((rows, depth), (depth, columns), (rows, columns)))
    order = (a, b.T, c) if kernel == "rows_by_columns" else (a.T, b, c.T)
    target = emulator()
    left, right = (target.array(stored(np.ascontiguousarray(one), factor)) for one in order[:2])
    d = target.empty((rows, columns) if kernel == "rows_by_columns" else (columns, rows), total)
    call = target.load(compiled(kind, shape))[kernel][1, 32]
    assert check(call, d, left, right, target.array(np.ascontiguousarray(order[2]).astype(total))) == []
    result = d.numpy() if kernel == "rows_by_columns" else d.numpy().T
    assert np.array_equal(result, a @ b + c)


def test_loads_are_checked() -> None:
    target = emulator()
    call = target.load(compiled("f16", (16, 16, 16)))["rows_by_columns"][1, 32]
    a, c, d = target.zeros((16, 16), np.float16), target.zeros((16, 16)), target.zeros((16, 16))
    assert {(report.kind, report.memory.partition("+")[0]) for report in check(call, d, a, target.zeros((15, 16), np.float16), c)} == {
        ("out of bounds", "argument 3 (f2[15, 16])")
    }
    assert {(report.kind, report.who.op) for report in check(call, d, target.empty((16, 16), np.float16), a, c)} == {
        ("never written", "wmma.load.a.sync.aligned.row.m16n16k16.global.f16")
    }


def test_a_fragment_is_one_request_of_the_warp() -> None:
    """However many pieces of it a lane has. Each of 16 x 16 elements, of 2 or 4 bytes, moves once."""
    target = emulator()
    call = target.load(compiled("f16", (16, 16, 16)))["rows_by_columns"][1, 32]
    factors, sums = target.zeros((16, 16), np.float16), target.zeros((16, 16))
    seen = observe(call, target.zeros((16, 16)), factors, factors, sums, layers=Layers(counts=True))
    rows = {name: counted(seen, f"wmma.{name}.")[0] for name in ("load.a", "load.b", "load.c", "store.d")}
    assert {name: (row["requests"], row["lanes"], row["bytes"]) for name, row in rows.items()} == {
        "load.a": (1, 32, 512), "load.b": (1, 32, 512), "load.c": (1, 32, 1024), "store.d": (1, 32, 1024)
    }  # fmt: skip

"""The example kernels on the emulator against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate.running import emulator, example

RANDOM = np.random.default_rng(11)


@pytest.mark.parametrize("name", ["direct", "vectors", "shifted", "strided"])
@pytest.mark.parametrize("n", [4096, 1000, 4])
def test_copies(name: str, n: int) -> None:
    target = emulator()
    host = RANDOM.random(n, dtype=np.float32)
    source, out = target.array(host), target.zeros(n)
    stride = 4
    extra = {"shifted": [3], "strided": [stride]}.get(name, [])
    example(target, "copies")[name][-(-n // 128), 128](out, source, n, *extra)
    expected = host if name != "shifted" else np.concatenate([host[3:], np.zeros(3, np.float32)])
    assert np.array_equal(out.numpy(), expected)


@pytest.mark.parametrize("name", ["naive", "tiled", "padded"])
@pytest.mark.parametrize("n", [64, 100, 33])
def test_transposes(name: str, n: int) -> None:
    target = emulator()
    host = RANDOM.random((n, n), dtype=np.float32)
    out = target.empty((n, n))
    blocks = -(-n // 32)
    example(target, "transpose")[name][(blocks, blocks), (32, 32)](out, target.array(host), n)
    assert np.array_equal(out.numpy(), host.T)


@pytest.mark.parametrize("n", [64, 50, 17])
def test_matrix_product(n: int) -> None:
    target = emulator()
    a, b = (RANDOM.integers(0, 8, (n, n)).astype(np.float32) for _ in range(2))
    out = target.empty((n, n))
    blocks = -(-n // 16)
    example(target, "matmul")["matmul"][(blocks, blocks), (16, 16)](out, target.array(a), target.array(b), n)
    assert np.array_equal(out.numpy(), a @ b)


@pytest.mark.parametrize("name", ["block_sum", "interleaved"])
@pytest.mark.parametrize(("element", "dtype"), [("int", np.int32), ("float", np.float32)])
def test_reductions(name: str, element: str, dtype: type) -> None:
    target = emulator()
    host = RANDOM.integers(-50, 50, 5000).astype(dtype)
    blocks = 20
    partial = target.empty(blocks, dtype)
    example(target, "reduction")[f"{name}<{element}>"][blocks, 256](partial, target.array(host), host.size)
    assert partial.numpy().sum() == host.sum()


@pytest.mark.parametrize(("name", "threads_per_row"), [("csr_scalar", 1), ("csr_warp", 32)])
def test_sparse_products(name: str, threads_per_row: int) -> None:
    target, rows = emulator(), 300
    lengths = RANDOM.integers(0, 70, rows)
    row_start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    column = RANDOM.integers(0, rows, row_start[-1]).astype(np.int32)
    value = RANDOM.integers(1, 4, row_start[-1]).astype(np.float32)
    x = RANDOM.integers(0, 10, rows).astype(np.float32)
    y = target.empty(rows)
    matrix = [target.array(part) for part in (row_start, column, value, x)]
    example(target, "spmv")[name][-(-rows * threads_per_row // 128), 128](y, *matrix, rows)
    expected = np.zeros(rows)
    np.add.at(expected, np.repeat(np.arange(rows), lengths), value * x[column])
    assert np.array_equal(y.numpy(), expected)


@pytest.mark.parametrize("name", ["global_atomics", "shared_atomics"])
def test_histograms(name: str) -> None:
    target = emulator()
    host = RANDOM.normal(128, 20, 5000).clip(0, 255).astype(np.uint8)
    bins = target.zeros(256, np.uint32)
    example(target, "histogram")[name][7, 96](bins, target.array(host), host.size)
    assert np.array_equal(bins.numpy(), np.bincount(host, minlength=256))


@pytest.mark.parametrize(("name", "block"), [("seven_point", (32, 4, 2)), ("marching", (32, 8, 1))])
def test_stencils(name: str, block: tuple[int, int, int]) -> None:
    target, (nx, ny, nz) = emulator(), (40, 12, 10)
    host = RANDOM.random((nz, ny, nx), dtype=np.float32)
    out = target.array(host)
    grid = (-(-nx // block[0]), -(-ny // block[1]), -(-nz // block[2]) if name == "seven_point" else 1)
    example(target, "stencil")[name][grid, block](out, target.array(host), nx, ny, nz)
    wide, inner = host.astype(np.float64), (slice(1, -1),) * 3
    expected = wide.copy()
    neighbours = sum(np.roll(wide, step, axis)[inner] for axis in range(3) for step in (1, -1))
    expected[inner] = 0.4 * wide[inner] + 0.1 * neighbours
    assert np.abs(out.numpy() - expected).max() < 1e-6


def test_pointer_chases() -> None:
    target, slots, stride, steps = emulator(), 1000, 17, 345
    module = example(target, "chase")
    ring, end = target.empty(slots, np.uint64), target.empty(1, np.uint64)
    module["link_ring"][4, 256](ring, slots, stride)
    module["chase_global"][1, 1](end, ring, steps)
    assert (int(end.numpy()[0]) - ring.address) // 8 == steps * stride % slots
    index = target.empty(1, np.uint32)
    module["chase_shared"][1, 32, target.default_stream, 4 * slots](index, slots, stride, steps)
    assert index.numpy()[0] == steps * stride % slots

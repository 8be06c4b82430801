"""The examples have no report; the same with a fault planted in their source have the one that belongs to it, at its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.launch import KernelCall, Layers, LoadedModule, Observation, Report
from tests.emulate.checking import check, kinds, line, mutated
from tests.emulate.running import emulator

RANDOM = np.random.default_rng(5)
Start = tuple[KernelCall, tuple[object, ...]]


def floats(target: Emulator, *shape: int) -> object:
    return target.array(RANDOM.random(shape, dtype=np.float32))


def matmul(target: Emulator, module: LoadedModule, name: str, n: int = 50) -> Start:
    tiles = -(-n // 16)
    return module[name][(tiles, tiles), (16, 16)], (target.empty((n, n)), floats(target, n, n), floats(target, n, n), n)


def transpose(target: Emulator, module: LoadedModule, name: str, n: int = 70) -> Start:
    tiles = -(-n // 32)
    return module[name][(tiles, tiles), (32, 32)], (target.empty((n, n)), floats(target, n, n), n)


def histogram(target: Emulator, module: LoadedModule, name: str, n: int = 4096) -> Start:
    data = target.array(RANDOM.integers(0, 256, n).astype(np.uint8))
    return module[name][4, 64], (target.zeros(256, "u4"), data, n)


def reduction(target: Emulator, module: LoadedModule, name: str, n: int = 4000) -> Start:
    return module[f"{name}<int>"][16, 256], (target.empty(16, "i4"), target.array(RANDOM.integers(0, 9, n).astype("i4")), n)


def stencil(target: Emulator, module: LoadedModule, name: str) -> Start:
    nx, ny, nz = 33, 10, 9
    block = (32, 4, 2) if name == "seven_point" else (32, 8)
    grid = (2, 3, 5) if name == "seven_point" else (2, 2)
    host = RANDOM.random((nz, ny, nx), dtype=np.float32)
    return module[name][grid, block], (target.array(host), target.array(host), nx, ny, nz)


def copies(target: Emulator, module: LoadedModule, name: str, n: int = 1024) -> Start:
    extra = {"shifted": (3,), "strided": (32,)}.get(name, ())
    return module[name][-(-n // 64), 64], (target.empty(n), floats(target, n), n, *extra)


def spmv(target: Emulator, module: LoadedModule, name: str, rows: int = 60) -> Start:
    starts = np.arange(rows + 1, dtype="i4") * 37
    columns = target.array(RANDOM.integers(0, rows, 37 * rows).astype("i4"))
    matrix = (target.array(starts), columns, floats(target, 37 * rows), floats(target, rows))
    blocks = -(-rows * (32 if name == "csr_warp" else 1) // 128)
    return module[name][blocks, 128], (target.empty(rows), *matrix, rows)


def chase(target: Emulator, module: LoadedModule, name: str) -> Start:
    if name == "link_ring":
        return module[name][4, 64], (target.empty(200, "u8"), 200, 17)
    return module[name][1, 32, target.default_stream, 400], (target.empty(1, "u4"), 100, 17, 50)


STARTS: dict[str, Callable[..., Start]] = {
    one.__name__: one for one in (matmul, transpose, histogram, reduction, stencil, copies, spmv, chase)
}
KERNELS = {
    "matmul": ["matmul"],
    "transpose": ["naive", "tiled", "padded"],
    "histogram": ["global_atomics", "shared_atomics"],
    "reduction": ["block_sum", "interleaved"],
    "stencil": ["seven_point", "marching"],
    "copies": ["direct", "vectors", "shifted", "strided"],
    "spmv": ["csr_scalar", "csr_warp"],
    "chase": ["link_ring", "chase_shared"],
}


def found(example: str, kernel: str, *changes: tuple[str, str]) -> tuple[tuple[Report, ...], KernelCall]:
    """What the checker finds in a kernel of an example with changes to its source."""
    target = emulator()
    call, arguments = STARTS[example](target, mutated(target, example, *changes), kernel)
    return check(call, *arguments), call


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(("example", "kernel"), [(example, kernel) for example, names in KERNELS.items() for kernel in names])
def test_a_right_kernel_has_no_report(example: str, kernel: str, seed: int | None) -> None:
    target = emulator()
    call, arguments = STARTS[example](target, mutated(target, example), kernel)
    seen: list[Observation] = []
    target.launch(replace(call.bind(*arguments), layers=Layers(check=True, seed=seed, report=seen.append)))
    assert [observation.reports for observation in seen] == [()]


SYNC = "__syncthreads();"
SHARED_RACES = [
    ("matmul", "matmul", f"        {SYNC}\n        for (int k", "        for (int k"),
    ("matmul", "matmul", f"        {SYNC}\n    }}\n", "    }\n"),
    ("transpose", "tiled", f"    {SYNC}\n", ""),
    ("transpose", "padded", f"    {SYNC}\n", ""),
    ("histogram", "shared_atomics", f"    {SYNC}\n\n    int stride", "    int stride"),
    ("histogram", "shared_atomics", f"    {SYNC}\n\n    for (int b", "    for (int b"),
    ("histogram", "shared_atomics", "atomicAdd(&local_bins[data[i]], 1u)", "local_bins[data[i]] += 1u"),
    ("reduction", "block_sum", f"    sums[t] = sum;\n    {SYNC}", "    sums[t] = sum;"),
    ("reduction", "block_sum", f"        {SYNC}\n    }}\n    if (t < 32)", "    }\n    if (t < 32)"),
    ("reduction", "interleaved", f"        {SYNC}\n    }}\n    if (t == 0)", "    }\n    if (t == 0)"),
    ("chase", "chase_shared", f"    {SYNC}\n", ""),
]
GLOBAL_RACES = [
    ("histogram", "global_atomics", "atomicAdd(&bins[data[i]], 1u)", "bins[data[i]] += 1u"),
    ("histogram", "shared_atomics", "atomicAdd(&bins[b], local_bins[b])", "bins[b] += local_bins[b]"),
    ("copies", "direct", "if (i < n) out[i] = in[i];", "if (i < n) out[i / 2] = in[i];"),
    ("copies", "strided", "out[k] = in[k];", "out[k % 100] = in[k];"),
    ("spmv", "csr_scalar", "    y[row] = sum;", "    y[row / 2] = sum;"),
    ("spmv", "csr_warp", "if (lane == 0) y[row]", "y[row]"),
    ("reduction", "block_sum", "if (t == 0) partial[blockIdx.x]", "if (t == 0) partial[blockIdx.x / 2]"),
    ("transpose", "naive", "out[x * n + y] = in", "out[x * n / 2 + y] = in"),
    ("matmul", "matmul", "c[row * n + column] = sum", "c[column] = sum"),
]


@pytest.mark.parametrize(("example", "kernel", "old", "new"), SHARED_RACES)
def test_a_race_in_shared_memory(example: str, kernel: str, old: str, new: str) -> None:
    reports, _ = found(example, kernel, (old, new))
    assert ("data race", "shared") in kinds(reports)
    assert ("data race", "global") not in kinds(reports)


@pytest.mark.parametrize(("example", "kernel", "old", "new"), GLOBAL_RACES)
def test_a_race_in_global_memory(example: str, kernel: str, old: str, new: str) -> None:
    reports, _ = found(example, kernel, (old, new))
    assert ("data race", "global") in kinds(reports)
    assert ("data race", "shared") not in kinds(reports)


BEYOND = [
    ("matmul", "matmul", "if (row < n && column < n)", "if (row <= n && column < n)", "global"),
    ("matmul", "matmul", "tile_b[k][tx]", "tile_b[k + 1][tx]", "shared"),
    ("transpose", "naive", "if (x < n && y < n)", "if (x < n && y <= n)", "global"),
    ("transpose", "padded", "tile[threadIdx.x][threadIdx.y];", "tile[threadIdx.x + 8][threadIdx.y];", "shared"),
    ("histogram", "global_atomics", "&bins[data[i]]", "&bins[data[i] + 4]", "global"),
    ("histogram", "shared_atomics", "&local_bins[data[i]]", "&local_bins[data[i] * 2]", "shared"),
    ("reduction", "block_sum", "i < n; i += gridDim.x", "i <= n; i += gridDim.x", "global"),
    ("reduction", "interleaved", "if (left < BLOCK)", "", "shared"),
    ("stencil", "seven_point", "z < 1 || ", "", "global"),
    ("stencil", "marching", "z < nz - 1; ++z", "z < nz; ++z", "global"),
    ("copies", "direct", "out[i] = in[i];", "out[i] = in[i + 1];", "global"),
    ("copies", "vectors", "if (i < n / 4)", "if (i < n / 4 + 1)", "global"),
    ("copies", "shifted", "if (i + shift < n)", "if (i < n)", "global"),
    ("spmv", "csr_scalar", "if (row >= rows) return;", "if (row > rows) return;", "global"),
    ("chase", "link_ring", "if (i < slots)", "", "global"),
    ("chase", "chase_shared", "i < slots; i += blockDim.x", "i < slots + 3; i += blockDim.x", "shared"),
]


@pytest.mark.parametrize(("example", "kernel", "old", "new", "space"), BEYOND)
def test_an_access_out_of_bounds(example: str, kernel: str, old: str, new: str, space: str) -> None:
    reports, _ = found(example, kernel, (old, new))
    assert ("out of bounds", space) in kinds(reports)


UNWRITTEN = [
    ("matmul", "matmul", "tile_a[ty][tx] = row", "if (tx < 15) tile_a[ty][tx] = row", "shared"),
    ("transpose", "tiled", "tile[threadIdx.x][threadIdx.y];", "tile[threadIdx.x ^ 31][threadIdx.y];", "shared"),
    ("histogram", "shared_atomics", "local_bins[b] = 0;", "", "shared"),
    ("reduction", "block_sum", "    sums[t] = sum;\n", "    if (t != 77) sums[t] = sum;\n", "shared"),
    ("reduction", "interleaved", "    sums[t] = i < n ? in[i] : T(0);\n", "    if (i < n) sums[t] = in[i];\n", "shared"),
    ("chase", "chase_shared", "next[i] = (i + stride) % slots;", "if (i % 5) next[i] = (i + stride) % slots;", "shared"),
    ("copies", "direct", "if (i < n) out[i] = in[i];", "if (i < n) out[i] += in[i];", "global"),
    ("spmv", "csr_scalar", "y[row] = sum;", "y[row] += sum;", "global"),
    ("matmul", "matmul", "c[row * n + column] = sum", "c[row * n + column] += sum", "global"),
    ("transpose", "naive", "out[x * n + y] = in[y * n + x];", "out[x * n + y] = in[y * n + x] + out[x * n + y];", "global"),
]


@pytest.mark.parametrize(("example", "kernel", "old", "new", "space"), UNWRITTEN)
def test_a_read_of_what_was_never_written(example: str, kernel: str, old: str, new: str, space: str) -> None:
    reports, _ = found(example, kernel, (old, new))
    assert ("never written", space) in kinds(reports)


BARRIERS = [
    ("matmul", "matmul", f"        {SYNC}\n        for (int k", f"        if (ty < 8) {SYNC} else {SYNC}\n        for (int k"),
    ("matmul", "matmul", "    float sum = 0.0f;", "    if (row >= n) return;\n    float sum = 0.0f;"),
    (
        "transpose",
        "tiled",
        "    __shared__ float tile[TILE][TILE];\n",
        "    __shared__ float tile[TILE][TILE];\n    if (threadIdx.y > 30) return;\n",
    ),
    ("histogram", "shared_atomics", "    __shared__", "    if (threadIdx.x > 60) return;\n    __shared__"),
    ("reduction", "block_sum", f"t + half];\n        {SYNC}", f"t + half]; else return;\n        {SYNC}"),
    ("chase", "chase_shared", f"    {SYNC}\n", f"    if (threadIdx.x % 2) {SYNC} else {SYNC}\n"),
]


@pytest.mark.parametrize(("example", "kernel", "old", "new"), BARRIERS)
def test_a_barrier_that_part_of_the_block_reaches(example: str, kernel: str, old: str, new: str) -> None:
    reports, _ = found(example, kernel, (old, new))
    assert ("barrier", "") in kinds(reports)


MASKS = [
    ("spmv", "csr_warp", "__shfl_down_sync(ALL_LANES", "__shfl_down_sync(0xffffu"),
    ("spmv", "csr_warp", "__shfl_down_sync(ALL_LANES", "__shfl_down_sync(lane ? ALL_LANES : 0x7fffffffu"),
    ("reduction", "block_sum", "__shfl_down_sync(ALL_LANES", "__shfl_down_sync(0xfffffffeu"),
    ("reduction", "block_sum", "__shfl_down_sync(ALL_LANES", "__shfl_down_sync(t < 16 ? 0xffffu : 0xffff0001u"),
]


@pytest.mark.parametrize(("example", "kernel", "old", "new"), MASKS)
def test_a_mask_that_does_not_fit(example: str, kernel: str, old: str, new: str) -> None:
    reports, call = found(example, kernel, (old, new))
    assert ("mask", "") in kinds(reports)
    assert {report.who.line for report in reports} == {line(call, "__shfl_down_sync")}


@pytest.mark.parametrize(
    ("kernel", "old", "new", "reader"),
    [("block_sum", f"    sums[t] = sum;\n    {SYNC}", "    sums[t] = sum;", "sums[t] += sums[t + half]")],
)
def test_a_race_names_both_lines(kernel: str, old: str, new: str, reader: str) -> None:
    reports, call = found("reduction", kernel, (old, new))
    lines = {line(call, "sums[t] = sum;"), line(call, reader)}
    assert any({report.who.line, report.other.line} == lines for report in reports if report.other is not None)

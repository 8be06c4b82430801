"""Launch the second set: kernels of PolyBench-ACC, SHOC and the programs of a textbook, with sizes small enough for the emulator.

They are launched as the host code beside them does it. Where the sides of a matrix have names that CUDA's own headers use (`N`), the file's
smallest sides stay, and the kernel is told to work on a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import Public
from public_sources import POLYBENCH, PROFESSIONAL, SHOC

from memlane.launch import Target

Extent = tuple[int, ...]
_SIDE = 256
"""Side of a matrix, unless another is given."""
_SMALLEST = "MINI_DATASET"
_WIDE, _FLAT = (32, 8), 256


def _extent(given: Extent | int) -> Extent:
    return given if isinstance(given, tuple) else (given,)


def _floats(*sizes: int, first: tuple[object, ...] = (), then: tuple[object, ...] = ()) -> Arguments:
    """Return arguments: numbers, arrays of floats of these sizes, numbers."""
    return lambda target, _: (*first, *(floats(target, size) for size in sizes), *then)


def _poly(
    file: str, kernel: str, grid: Extent | int, block: Extent | int, names: str, arguments: Arguments, *, side: int = _SIDE, title: str = ""
) -> Public:
    """Return a launch of a PolyBench kernel. `names`: the macros for the sides of the matrices, or the one that selects a set of sizes."""
    folder = f"CUDA/{file.rpartition('/')[0]}"
    define = (names,) if names == _SMALLEST else tuple(f"{name}={side}" for name in names.split())
    include = (folder, "CUDA/utilities")
    return Public(POLYBENCH, f"CUDA/{file}", kernel, _extent(grid), _extent(block), arguments, 0, include, False, define, title)


def _shoc(file: str, kernel: str, grid: int, block: int, arguments: Arguments, *, shared: int = 0, instantiate: bool = False) -> Public:
    include = ("src/cuda/common", "src/common", f"src/cuda/{file}".rpartition("/")[0])
    return Public(SHOC, f"src/cuda/{file}", kernel, (grid,), (block,), arguments, shared, include, instantiate)


def _book(file: str, kernel: str, grid: Extent | int, block: Extent | int, arguments: Arguments, *, title: str = "") -> Public:
    return Public(PROFESSIONAL, f"examples/{file}.cu", kernel, _extent(grid), _extent(block), arguments, title=title)


_MATRIX = _SIDE * _SIDE
_KERNELS, _SOLVERS, _STENCILS, _MINING = "linear-algebra/kernels", "linear-algebra/solvers", "stencils", "datamining"
_ATAX, _BICG, _MVT, _GEMVER = (f"{_KERNELS}/{name}/{name}.cu" for name in ("atax", "bicg", "mvt", "gemver"))
_GRAM, _LU, _ADI, _CORRELATION = (
    f"{_SOLVERS}/gramschmidt/gramschmidt.cu",
    f"{_SOLVERS}/lu/lu.cu",
    f"{_STENCILS}/adi/adi.cu",
    (f"{_MINING}/correlation/correlation.cu"),
)
_FDTD = f"{_STENCILS}/fdtd-2d/fdtd2d.cu"
_POLYBENCH_CASES = (
    _poly(_ATAX, "atax_kernel1", 8, _WIDE, "NX NY", _floats(_MATRIX, _SIDE, _SIDE, first=(_SIDE, _SIDE))),
    _poly(_ATAX, "atax_kernel2", 8, _WIDE, "NX NY", _floats(_MATRIX, _SIDE, _SIDE, first=(_SIDE, _SIDE))),
    _poly(_BICG, "bicg_kernel1", 1, _FLAT, "NX NY", _floats(_MATRIX, _SIDE, _SIDE, first=(_SIDE, _SIDE))),
    _poly(_BICG, "bicg_kernel2", 1, _FLAT, "NX NY", _floats(_MATRIX, _SIDE, _SIDE, first=(_SIDE, _SIDE))),
    _poly(
        f"{_KERNELS}/gesummv/gesummv.cu",
        "gesummv_kernel",
        1,
        _FLAT,
        _SMALLEST,
        _floats(_SIDE * 1024, _SIDE * 1024, _SIDE, _SIDE, _SIDE, first=(_SIDE, 1.5, 1.2)),
    ),
    _poly(_MVT, "mvt_kernel1", 8, _WIDE, _SMALLEST, _floats(_SIDE * 1024, _SIDE, _SIDE, first=(_SIDE,))),
    _poly(_MVT, "mvt_kernel2", 8, _WIDE, _SMALLEST, _floats(_SIDE * 1024, _SIDE, _SIDE, first=(_SIDE,))),
    _poly(
        f"{_KERNELS}/gemm/gemm.cu",
        "gemm_kernel",
        (4, 16),
        _WIDE,
        "NI NJ NK",
        _floats(128 * 128, 128 * 128, 128 * 128, first=(128, 128, 128, 1.5, 1.2)),
        side=128,
    ),
    _poly(
        _GEMVER,
        "gemver_kernel1",
        (8, 32),
        _WIDE,
        _SMALLEST,
        _floats(_SIDE * 1024, _SIDE, _SIDE, _SIDE, _SIDE, first=(_SIDE, 1.5, 1.2)),
    ),
    _poly(
        f"{_KERNELS}/syrk/syrk.cu",
        "syrk_kernel",
        (4, 16),
        _WIDE,
        "NI NJ",
        _floats(128 * 128, 128 * 128, first=(128, 128, 1.5, 1.2)),
        side=128,
    ),
    _poly(
        f"{_KERNELS}/syr2k/syr2k.cu",
        "syr2k_kernel",
        (4, 16),
        _WIDE,
        "NI NJ",
        _floats(128 * 128, 128 * 128, 128 * 128, first=(128, 128, 1.5, 1.2)),
        side=128,
    ),
    _poly(
        f"{_KERNELS}/doitgen/doitgen.cu",
        "doitgen_kernel1",
        (4, 16),
        _WIDE,
        "NR NQ NP",
        _floats(128 * 128, 128 * 128, 128 * 128, first=(1, 128, 128), then=(0,)),
        side=128,
    ),
    _poly(_CORRELATION, "std_kernel", 1, _FLAT, _SMALLEST, _floats(_SIDE, _SIDE, _SIDE * 512, first=(_SIDE, _SIDE))),
    _poly(_CORRELATION, "corr_kernel", 1, _FLAT, _SMALLEST, _floats(64 * 512, 64 * 512, first=(64, 64))),
    _poly(_GRAM, "gramschmidt_kernel1", 1, _FLAT, "NI NJ", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE, _SIDE), then=(3,))),
    _poly(_GRAM, "gramschmidt_kernel2", 1, _FLAT, "NI NJ", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE, _SIDE), then=(3,))),
    _poly(_GRAM, "gramschmidt_kernel3", 1, _FLAT, "NI NJ", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE, _SIDE), then=(3,))),
    _poly(_LU, "lu_kernel1", 4, _FLAT, "N", _floats(1024 * 1024, first=(1024,), then=(0,)), side=1024),
    _poly(_LU, "lu_kernel2", (8, 32), _WIDE, "N", _floats(_MATRIX, first=(_SIDE,), then=(0,))),
    _poly(_ADI, "adi_kernel1", 1, _FLAT, "N", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE,))),
    _poly(_ADI, "adi_kernel2", 1, _FLAT, "N", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE,))),
    _poly(_ADI, "adi_kernel4", 4, _FLAT, "N", _floats(1024 * 1024, 1024 * 1024, 1024 * 1024, first=(1024,), then=(1,)), side=1024),
    _poly(
        f"{_STENCILS}/convolution-2d/2DConvolution.cu",
        "convolution2D_kernel",
        (8, 32),
        _WIDE,
        "NI NJ",
        _floats(_MATRIX, _MATRIX, first=(_SIDE, _SIDE)),
    ),
    _poly(
        f"{_STENCILS}/convolution-3d/3DConvolution.cu",
        "convolution3D_kernel",
        (4, 16),
        _WIDE,
        "NI NJ NK",
        _floats(128**3, 128**3, first=(128, 128, 128), then=(1,)),
        side=128,
    ),
    _poly(_FDTD, "fdtd_step2_kernel", (8, 32), _WIDE, "NX NY", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE, _SIDE), then=(0,))),
    _poly(_FDTD, "fdtd_step3_kernel", (8, 32), _WIDE, "NX NY", _floats(_MATRIX, _MATRIX, _MATRIX, first=(_SIDE, _SIDE), then=(0,))),
    _poly(
        f"{_STENCILS}/jacobi-1d-imper/jacobi1D.cu",
        "runJacobiCUDA_kernel1",
        256,
        _FLAT,
        "N",
        _floats(65536, 65536, first=(65536,)),
        side=65536,
        title="runJacobi1D_kernel1",
    ),
    _poly(
        f"{_STENCILS}/jacobi-2d-imper/jacobi2D.cu",
        "runJacobiCUDA_kernel1",
        (8, 32),
        _WIDE,
        "N",
        _floats(_MATRIX, _MATRIX, first=(_SIDE,)),
        title="runJacobi2D_kernel1",
    ),
)


def _keys(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    """Return the arguments: two outputs, and keys with their values, in groups of four."""
    given = [target.array(random.integers(0, 1 << 30, 32768, np.uint32)) for _ in range(2)]
    return 4, 0, target.zeros(32768, "u4"), target.zeros(32768, "u4"), *given


def _sorted_keys(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    """Return arguments: keys that each block has sorted by their lowest four bits, then counters and sizes."""
    keys = np.sort(random.integers(0, 16, (64, 512), np.uint32), axis=1)
    return target.array(keys.ravel()), target.zeros(16 * 64, "u4"), target.zeros(16 * 64, "u4"), 0, 32768, 64


def _search(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    """Return the arguments: a graph half of whose nodes were just reached."""
    degrees = random.integers(1, 12, 8192)
    begins = np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint32)
    levels = np.where(random.random(8192) < 0.5, 3, 0xFFFFFFFF).astype(np.uint32)
    edges = target.array(random.integers(0, 8192, int(degrees.sum()), np.uint32))
    return target.array(levels), target.array(begins), edges, 32, 32, 8192, 3, target.zeros(1, "i4")


_SORT = "level1/sort/sort_kernel.cu"
_SHOC_CASES = (
    _shoc(
        "level1/reduction/reduction_kernel.h",
        "reduce<float, 256>",
        64,
        256,
        _floats(131072, 64, then=(131072,)),
        shared=1024,
        instantiate=True,
    ),
    _shoc(_SORT, "radixSortBlocks", 64, 128, _keys, shared=2048),
    _shoc(_SORT, "findRadixOffsets", 64, 256, _sorted_keys, shared=2048),
    _shoc(_SORT, "vectorAddUniform4", 64, 256, lambda target, _: (whole(target, 9, 65536), whole(target, 9, 64), 65536)),
    _shoc("level1/bfs/bfs_kernel.cu", "BFS_kernel_warp", 32, 256, _search),
)

_MANY = 131072
_STRUCTURES = 1 << 22


def _ints(*sizes: int, then: tuple[object, ...] = ()) -> Arguments:
    return lambda target, _: (*(whole(target, 9, size) for size in sizes), *then)


def _bodies(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return *(floats(target, 512) for _ in range(6)), 512, target.zeros(1, "i4")


def _padded_line(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    """Return a line with a sector in front of it, and one behind, which the halos of the first and the last block are read from."""
    whole_line = floats(target, 8192 + 16)
    line = replace(whole_line, address=whole_line.address + 32, shape=(8192,), owner=whole_line)
    return line, target.zeros(8192), 8192


_TRANSPOSE, _SQUARE, _RECTANGLE = "chapter04/transpose", "chapter05/checkSmemSquare", "chapter05/checkSmemRectangle"
_BOOK_CASES = (
    _book("chapter02/sumMatrixOnGPU-1D-grid-1D-block", "sumMatrixOnGPU1D", 32, 32, _floats(1 << 17, 1 << 17, 1 << 17, then=(1024, 128))),
    _book("chapter03/simpleDivergence", "mathKernel1", 2048, 64, _floats(_MANY)),
    _book("chapter03/reduceInteger", "reduceNeighbored", 64, 512, _ints(32768, 64, then=(32768,))),
    _book("chapter03/reduceInteger", "reduceNeighboredLess", 64, 512, _ints(32768, 64, then=(32768,))),
    _book("chapter03/reduceInteger", "reduceInterleaved", 64, 512, _ints(32768, 64, then=(32768,))),
    _book("chapter03/reduceInteger", "reduceUnrolling8", 32, 512, _ints(131072, 32, then=(131072,))),
    _book("chapter04/readSegment", "readOffset", 256, 512, _floats(_MANY, _MANY, _MANY, then=(_MANY, 11))),
    _book("chapter04/writeSegment", "writeOffset", 256, 512, _floats(_MANY, _MANY, _MANY, then=(_MANY, 11))),
    _book("chapter04/simpleMathAoS", "testInnerStruct", 1024, 128, _floats(2 * _MANY, 2 * _MANY, then=(_MANY,))),
    _book("chapter04/simpleMathSoA", "testInnerArray", 1024, 128, _floats(2 * _STRUCTURES, 2 * _STRUCTURES, then=(_MANY,))),
    _book(_TRANSPOSE, "copyCol", (16, 16), (16, 16), _floats(65536, 65536, then=(256, 256))),
    _book(_TRANSPOSE, "transposeNaiveRow", (16, 16), (16, 16), _floats(65536, 65536, then=(256, 256))),
    _book(_TRANSPOSE, "transposeNaiveCol", (16, 16), (16, 16), _floats(65536, 65536, then=(256, 256))),
    _book(_SQUARE, "setColReadCol", 1, (32, 32), _ints(1024), title="setColReadCol (square)"),
    _book(_SQUARE, "setRowReadColPad", 1, (32, 32), _ints(1024), title="setRowReadColPad (square)"),
    _book(_RECTANGLE, "setRowReadCol", 1, (32, 16), _ints(512), title="setRowReadCol (rectangle)"),
    _book(_RECTANGLE, "setRowReadColPad", 1, (32, 16), _ints(512), title="setRowReadColPad (rectangle)"),
    _book("chapter05/constantStencil", "stencil_1d", 64, 32, _padded_line),
    _book("chapter05/transposeRectangle", "transposeSmem", (16, 16), (16, 16), _floats(65536, 65536, then=(256, 256))),
    _book("chapter05/transposeRectangle", "transposeSmemPad", (16, 16), (16, 16), _floats(65536, 65536, then=(256, 256))),
    _book("chapter07/nbody", "d_nbody_update_velocity", 4, 128, _bodies),
)
CASES = (*_POLYBENCH_CASES, *_SHOC_CASES, *_BOOK_CASES)

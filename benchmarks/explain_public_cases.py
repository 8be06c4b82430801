"""Kernels of source distributions with the finding that a reader of each expects first; all labels are older than the first run.

Launches are those of the host code around the kernels where it says how, with sizes small enough for the emulator.
"""

from __future__ import annotations

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import Public
from public_sources import sdist

from memlane.launch import Target

NOTHING = ""


def longs(target: Target, *values: int) -> object:
    """An array of 64-bit integers."""
    return target.array(np.array(values, np.int64))


def _points(target: Target, *shape: int) -> object:
    return floats(target, *shape, 3)


# -- torch-cluster: points in space, a thread or a block for each

CLUSTER, _CLUSTER = sdist("torch-cluster"), "csrc/cuda"


def _cluster(kernel: str, file: str, grid: int, block: int, arguments: Arguments, label: str, why: str) -> Public:
    name = f"{kernel}<float>"
    return Public(CLUSTER, f"{_CLUSTER}/{file}_cuda.cu", name, (grid,), (block,), arguments, label, why, instantiate=(name,))


def _grid(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    three = [target.array(np.full(3, value, np.float32)) for value in (0.1, 0.0, 1.0)]
    return _points(target, 131072), *three, target.zeros(131072, "i8"), 3, 131072


def _nearest(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return _points(target, 132), _points(target, 8192), longs(target, 0, 132), longs(target, 0, 8192), target.zeros(132, "i8"), 1, 3


def _neighbours(m: int, n: int, each: int, *more: object) -> Arguments:
    def arguments(target: Target, _: np.random.Generator) -> tuple[object, ...]:
        found = [target.zeros(m * each, "i8") for _ in range(2)]
        return _points(target, n), _points(target, m), longs(target, 0, n), longs(target, 0, m), *found, *more

    return arguments


def _farthest(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    starts, outs = longs(target, *range(0, 9 * 2048, 2048)), longs(target, *range(0, 9 * 16, 16))
    far = target.array(np.full(8 * 2048, 5e4, np.float32))
    return _points(target, 8 * 2048), starts, outs, longs(target, *[0] * 8), far, target.zeros(8 * 16, "i8"), 3


_CLUSTER_CASES = (
    _cluster("grid_kernel", "grid", 128, 1024, _grid, "partial-sectors", "each load takes one of three coordinates that lie side by side"),
    _cluster("nearest_kernel", "nearest", 132, 1024, _nearest, "partial-sectors", "each load takes one of three coordinates side by side"),
    _cluster(
        "radius_kernel",
        "radius",
        16,
        256,
        _neighbours(4096, 512, 32, 0.0016, 512, 4096, 3, 1, 32),
        "sectors-reloaded",
        "every thread walks over all points, and loads its own again for each",
    ),
    _cluster(
        "knn_kernel",
        "knn",
        8,
        256,
        _neighbours(2048, 256, 16, 16, 256, 2048, 3, 1, False),
        "local-memory",
        "two arrays of 100 elements for each thread, indexed by loops of unknown length",
    ),
    _cluster("fps_kernel", "fps", 8, 256, _farthest, "sectors-reloaded", "the whole cloud is loaded again for each sample that is taken"),
)

# -- torch-sparse: sparse matrices, random walks

SPARSE = sdist("torch-sparse")


def _walk(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    pointers = target.array(np.arange(0, 8 * 16385, 8, np.int64))
    columns = target.array(random.integers(0, 16384, 8 * 16384))
    starts = target.array(random.integers(0, 16384, 65536))
    return pointers, columns, starts, floats(target, 8, 65536), target.zeros(9 * 65536, "i8"), 8, 65536


def _sorted(target: Target, random: np.random.Generator) -> object:
    return target.array(np.sort(random.integers(0, 8192, 131072)))


def _diagonal(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    rows, columns = np.repeat(np.arange(8192), 8), np.sort(random.integers(0, 8192, (8192, 8)), axis=1).reshape(-1)
    return target.array(rows), target.array(columns), target.zeros(65536 + 8192, "?"), 8192, 0, 8192, 65536


def _rows(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    ends = np.concatenate(([0], np.cumsum(random.integers(4, 29, 32768))))
    return target.array(ends), target.zeros(int(ends[-1]), "i8"), int(ends[-1]), 32768


def _multiply(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    columns = target.array(random.integers(0, 4096, 16 * 4096))
    pointers = target.array(np.arange(0, 16 * 4097, 16, np.int64))
    return pointers, columns, floats(target, 16 * 4096), floats(target, 4096, 32), target.zeros((4096, 32)), 0, 1, 4096, 4096, 32


def _multiply_back(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    rows, columns = np.repeat(np.arange(1024), 16), random.integers(0, 1024, 16 * 1024)
    pointers = target.array(np.arange(0, 16 * 1025, 16, np.int64))
    matrices = floats(target, 1024, 32), floats(target, 1024, 32)
    return target.array(rows), pointers, target.array(columns), *matrices, target.zeros(16 * 1024), 1, 1024, 1024, 16 * 1024, 32


def _sparse(kernel: str, file: str, grid: int, block: int, arguments: Arguments, label: str, why: str) -> Public:
    wanted = (kernel,) if "<" in kernel else ()
    return Public(
        SPARSE, f"csrc/cuda/{file}_cuda.cu", kernel.partition("<")[0], (grid,), (block,), arguments, label, why, instantiate=wanted
    )


_SPARSE_CASES = (
    _sparse("uniform_random_walk_kernel", "rw", 64, 1024, _walk, "dependent-chain", "each step's row is the column of the step before"),
    _sparse("non_diag_mask_kernel", "diag", 64, 1024, _diagonal, NOTHING, "indices side by side; bytes that are stored nearly so"),
    _sparse(
        "ind2ptr_kernel",
        "convert",
        513,
        256,
        lambda target, random: (_sorted(target, random), target.zeros(8193, "i8"), 8192, 131072),
        NOTHING,
        "indices side by side, and those one before, as in a stencil; few stores",
    ),
    _sparse("ptr2ind_kernel", "convert", 128, 256, _rows, "uncoalesced-global", "each thread stores a run of its own, 16 elements long"),
    _sparse("spmm_kernel<float, SUM, true>", "spmm", 512, 256, _multiply, NOTHING, "a warp for each row loads rows of 128 bytes"),
    _sparse("spmm_value_bw_kernel<float, SUM>", "spmm", 2048, 256, _multiply_back, NOTHING, "a warp for each element, rows of 128 bytes"),
)

# -- torch-points-kernels: clouds of points, a block for each

POINTS = sdist("torch-points-kernels")


def _ball(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    found = target.zeros(8 * 1024 * 16, "i8"), target.zeros(8 * 1024 * 16)
    return 8, 512, 1024, 0.2, 16, _points(target, 8, 1024), _points(target, 8, 512), *found


def _three(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 8, 1024, 256, _points(target, 8, 1024), _points(target, 8, 256), target.zeros(8 * 3072), target.zeros(8 * 3072, "i4")


def _interpolate(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    points, result = floats(target, 8, 16, 256), target.zeros(8 * 16 * 1024)
    return 8, 16, 256, 1024, points, whole(target, 256, 8, 1024, 3), _points(target, 8, 1024), result


def _interpolate_back(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    given = floats(target, 8, 16, 1024), whole(target, 256, 8, 1024, 3), _points(target, 8, 1024)
    return 8, 16, 1024, 256, *given, target.zeros(8 * 16 * 256)


def _furthest(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 8, 2048, 16, _points(target, 8, 2048), target.array(np.full(8 * 2048, 1e10, np.float32)), target.zeros(8 * 16, "i4")


def _chamfer(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 8, 2048, _points(target, 8, 2048), 1024, _points(target, 8, 1024), target.zeros(8 * 2048), target.zeros(8 * 2048, "i4")


def _instances(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    chosen = target.array(random.integers(0, 4096, 64 * 128))
    labels = target.array(random.integers(0, 65, 4096))
    offsets = longs(target, *range(0, 65 * 128, 128))
    sizes = target.array(random.integers(32, 97, 64))
    zeros = target.zeros(4096, "i8")
    return 64, longs(target, 64), 64, chosen, offsets, labels, longs(target, 0), zeros, sizes, target.zeros(64 * 64)


def _cloud(target: Target, scale: float) -> object:
    return target.array((np.random.default_rng(1).random((8, 2048, 3), np.float32) * np.float32(scale)).astype(np.float32))


def _gridding(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    results = target.zeros(8 * 32**3), target.zeros(8 * 2048 * 24), target.zeros(8 * 2048 * 8, "i4")
    return 32**3, 2048, 0.0, 0.0, 0.0, 32, 32, _cloud(target, 30.5), *results


def _cubic(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    results = target.zeros(8 * 2048 * 8 * 8), target.zeros(8 * 2048 * 8, "i4")
    return 16, 1, 8, 2048, 8, _cloud(target, 14.5), floats(target, 8, 8, 16**3), *results


def _point(kernel: str, file: str, grid: tuple[int, ...], block: int, arguments: Arguments, label: str, why: str) -> Public:
    wanted = (kernel,) if "<" in kernel else ()
    path = f"cuda/src/{file}_gpu.cu"
    return Public(POINTS, path, kernel, grid, (block,), arguments, label, why, include=("cuda/include",), instantiate=wanted)


_ALL_POINTS = "every thread walks over all points, which come from memory each time"
_POINT_CASES = (
    _point("query_ball_point_kernel_dense", "ball_query", (8,), 512, _ball, "sectors-reloaded", _ALL_POINTS),
    _point("three_nn_kernel", "interpolate", (8,), 512, _three, "sectors-reloaded", _ALL_POINTS),
    _point(
        "three_interpolate_kernel", "interpolate", (8,), 512, _interpolate, "uncoalesced-global", "gathers three values by random index"
    ),
    _point("three_interpolate_grad_kernel", "interpolate", (8,), 512, _interpolate_back, "uncoalesced-global", "adds at random places"),
    _point(
        "furthest_point_sampling_kernel<512>",
        "sampling",
        (8,),
        512,
        _furthest,
        "sectors-reloaded",
        "the whole cloud is loaded again for each sample that is taken",
    ),
    _point(
        "chamfer_dist_kernel<float>", "chamfer_dist", (8, 4), 512, _chamfer, NOTHING, "512 points at a time in shared memory, read by all"
    ),
    _point(
        "instance_iou_cuda_kernel",
        "metrics",
        (64,),
        64,
        _instances,
        "sectors-reloaded",
        "every thread walks over the points of the proposal, which come from memory each time",
    ),
    _point("gridding_kernel<float>", "gridding", (8,), 512, _gridding, "uncoalesced-global", "stores 24 weights of its own by each thread"),
    _point(
        "cubic_feature_sampling_kernel<float>",
        "cubic_feature_sampling",
        (8,),
        512,
        _cubic,
        "uncoalesced-global",
        "stores 64 features of its own by each thread, gathered from corners of cells",
    ),
)

# -- implicit, gsplat, kernel-tuner, pycuda

IMPLICIT, GSPLAT, TUNER, PYCUDA = sdist("implicit"), sdist("gsplat"), sdist("kernel-tuner"), sdist("pycuda")
_ALS = "implicit/gpu/als.cu"
_CG = "implicit::gpu::least_squares_cg_kernel<float>"


def _squares(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    matrices = floats(target, 512, 64), floats(target, 1024, 64), floats(target, 64, 64)
    pointers = target.array(np.arange(0, 16 * 513, 16, dtype=np.int32))
    return 64, 512, 1024, *matrices, pointers, whole(target, 1024, 16 * 512), floats(target, 16 * 512), 3


def _adam(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 32768, 4, *(floats(target, 131072) for _ in range(4)), 0, 1e-3, 0.9, 0.999, 1e-8


def _relocate(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    ratios = target.array(random.integers(1, 9, 32768, dtype=np.int32))
    given = floats(target, 32768), floats(target, 32768, 3), ratios, floats(target, 16, 16)
    return 32768, *given, 16, target.zeros(32768), target.zeros(32768 * 3)


def _gsplat(kernel: str, file: str, grid: int, arguments: Arguments, label: str, why: str) -> Public:
    path, name = f"gsplat/cuda/csrc/{file}CUDA.cu", f"gsplat::{kernel}<float>"
    return Public(GSPLAT, path, name, (grid,), (256,), arguments, label, why, include=("gsplat/cuda/include",), instantiate=(name,))


def _image(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.zeros(4096 * 4096), floats(target, 4112, 4112), floats(target, 17, 17)


def _matrices(count: int, n: int, *more: object) -> Arguments:
    return lambda target, _: (*(floats(target, n, n) for _ in range(count)), *more)


def _pycuda(
    kernel: str, file: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: Arguments, label: str, why: str, **more: object
) -> Public:
    return Public(PYCUDA, f"examples/from-wiki/{file}.py", kernel, grid, block, arguments, label, why, **more)  # type: ignore[arg-type]


_OTHER_CASES = (
    Public(
        IMPLICIT,
        _ALS,
        _CG,
        (512,),
        (64,),
        _squares,
        "sectors-reloaded",
        "the matrix of all factors comes from memory in each of four passes",
        include=(".",),
        instantiate=(_CG,),
        shared_bytes=1024,
    ),
    Public(
        IMPLICIT,
        _ALS,
        "l2_regularize_kernel",
        (1,),
        (64,),
        lambda target, _: (64, 0.1, floats(target, 64, 64)),
        "uncoalesced-global",
        "neighbouring threads update the diagonal",
        include=(".",),
    ),
    _gsplat("adam_kernel", "Adam", 512, _adam, NOTHING, "element by element"),
    _gsplat("relocation_kernel", "Relocation", 128, _relocate, "divergence", "the turns of both loops differ between neighbouring threads"),
    Public(
        TUNER,
        "test/convolution.cu",
        "convolution_naive",
        (16, 16),
        (16, 16),
        _image,
        "sectors-reloaded",
        "all threads load all of their 289 neighbours, and the filter",
    ),
    Public(
        TUNER, "test/convolution.cu", "convolution_kernel", (16, 16), (16, 16), _image, NOTHING, "a padded tile; the filter is a constant"
    ),
    _pycuda(
        "transpose",
        "matrix_transpose",
        (32, 32),
        (16, 16),
        _matrices(2, 512, 512, 512),
        "bank-conflict",
        "two rows of 17 words that a warp stores and two columns that it reads meet in one bank",
        values={"block_size": 16},
    ),
    _pycuda(
        "transpose",
        "matrix_transpose",
        (16, 16),
        (16, 16),
        _matrices(2, 512, 512, 512),
        "bank-conflict",
        "of the two half rows of a warp, 33 words apart, 15 words meet in the same banks",
        values={"block_size": 16},
        literal=1,
    ),
    _pycuda(
        "MatrixMulKernel",
        "matrixmul_tiled",
        (8, 8),
        (16, 16),
        _matrices(3, 128),
        NOTHING,
        "tiles in shared memory",
        values={"MATRIX_SIZE": 128, "BLOCK_SIZE": 16},
    ),
    _pycuda(
        "step",
        "game_of_life",
        (32, 32),
        (16, 16),
        lambda target, _: (whole(target, 2, 512, 512), target.zeros((512, 512), "i4")),
        NOTHING,
        "a stencil of near neighbours, which L1 holds",
    ),
    _pycuda("rgb2gray", "simple_rgb2gray", (64,), (1024,), _matrices(4, 256), NOTHING, "element by element"),
    _pycuda(
        "func",
        "arithmetic_example",
        (218,),
        (1024,),
        lambda target, _: (floats(target, 222341), 222341, 0.0, 255),
        NOTHING,
        "element by element",
    ),
    _pycuda(
        "select_them",
        "select_to_list",
        (256,),
        (512,),
        lambda target, _: (floats(target, 131072), target.zeros(131072, "i4"), 0.9, target.zeros(1, "i4")),
        NOTHING,
        "loads side by side; a tenth of the threads counts up in shared memory",
        values={"block_size": 512, "el_per_thread": 1},
    ),
)

SDIST_CASES = (*_CLUSTER_CASES, *_SPARSE_CASES, *_POINT_CASES, *_OTHER_CASES)

"""Launch the third set: kernels of a series of matrix products, of Parboil, of two textbooks, and of Liger in Triton, with sizes small
enough for the emulator. They are launched as the host code beside them does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import Public, PublicTriton
from public_sources import LEARN, LIGER, MASSIVELY, PARBOIL, SAMPLES, SGEMM

from memlane.launch import Target

Extent = tuple[int, ...]
_SIDE = 256
_MATRIX = _SIDE * _SIDE
_MANY = 131072


def _extent(given: Extent | int) -> Extent:
    return given if isinstance(given, tuple) else (given,)


def _floats(*sizes: int, first: tuple[object, ...] = (), then: tuple[object, ...] = ()) -> Arguments:
    """Return arguments: numbers, arrays of floats of these sizes, numbers."""
    return lambda target, _: (*first, *(floats(target, size) for size in sizes), *then)


def _ints(*sizes: int, below: int = 10, then: tuple[object, ...] = ()) -> Arguments:
    return lambda target, _: (*(whole(target, below, size) for size in sizes), *then)


def _sgemm(file: str, kernel: str, grid: Extent, block: Extent | int, *, instantiate: bool = True) -> Public:
    def arguments(target: Target, _: np.random.Generator) -> tuple[object, ...]:
        a, b, c = (floats(target, _MATRIX) for _ in range(3))
        return _SIDE, _SIDE, _SIDE, 1.5, a, b, 0.5, c

    return Public(SGEMM, f"src/kernels/{file}.cuh", kernel, grid, _extent(block), arguments, instantiate=instantiate)


_BLOCKED = "<128, 128, 8, 8, 8>"
_SGEMM_CASES = (
    _sgemm("1_naive", "sgemm_naive", (8, 8), (32, 32), instantiate=False),
    _sgemm("2_kernel_global_mem_coalesce", "sgemm_global_mem_coalesce<32>", (8, 8), 1024),
    _sgemm("3_kernel_shared_mem_blocking", "sgemm_shared_mem_block<32>", (8, 8), 1024),
    _sgemm("4_kernel_1D_blocktiling", "sgemm1DBlocktiling<64, 64, 8, 8>", (4, 4), 512),
    _sgemm("5_kernel_2D_blocktiling", f"sgemm2DBlocktiling{_BLOCKED}", (2, 2), 256),
    _sgemm("6_kernel_vectorize", f"sgemmVectorize{_BLOCKED}", (2, 2), 256),
    _sgemm("7_kernel_resolve_bank_conflicts", f"sgemmResolveBankConflicts{_BLOCKED}", (2, 2), 256),
)


def _parboil(
    file: str, kernel: str, grid: Extent | int, block: Extent | int, arguments: Arguments, *, shared: int = 0, title: str = ""
) -> Public:
    include = (f"benchmarks/{file}".rpartition("/")[0], "common/include")
    return Public(PARBOIL, f"benchmarks/{file}.cu", kernel, _extent(grid), _extent(block), arguments, shared, include=include, title=title)


def _cells(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    """Return arguments: two grids of five planes of cells with twenty floats each, of which the kernel streams the third plane into its
    neighbours."""
    plane = 128 * 120 * 20
    grids = [target.zeros(5 * plane) for _ in range(2)]
    return tuple(replace(one, address=one.address + 2 * plane * 4, shape=(3 * plane,), owner=one) for one in grids)


def _product(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    a, b, c = (floats(target, _MATRIX) for _ in range(3))
    return a, _SIDE, b, _SIDE, c, _SIDE, 128, 1.5, 0.5


def _volume(side: int) -> Arguments:
    return lambda target, _: (0.5, 0.25, floats(target, side**3), floats(target, side**3), side, side, side)


def _counts(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    """Return arguments for 65,536 bins."""
    bins = 65536
    return 0, 5, 256, 256, *(target.zeros(bins, "u4") for _ in range(3)), target.zeros(bins // 4, "u4")


def _bins(count: int, values: int = 256, size: int = _MANY) -> Arguments:
    """Return arguments: values, as many words as there are bins, the number of values and that of the bins."""
    return lambda target, random: (
        target.array(random.integers(0, values, size, dtype=np.uint32)),
        target.zeros(count, "u4"),
        size,
        count,
    )


def _few_bits(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return target.zeros(256, "u4"), target.array(random.integers(0, 4096, _MANY, dtype=np.uint32)), _MANY, 256


_PARBOIL_CASES = (
    _parboil("sgemm/src/cuda_base/sgemm_kernel", "mysgemmNT", (16, 16), (16, 16), _product, title="mysgemmNT (base)"),
    _parboil("sgemm/src/cuda/sgemm_kernel", "mysgemmNT", (2, 16), (16, 8), _product, title="mysgemmNT (tiled)"),
    _parboil("stencil/src/cuda_base/kernels", "naive_kernel", (126, 14), 127, _volume(128)),
    _parboil("stencil/src/cuda/kernels", "block2D_hybrid_coarsen_x", (2, 32), (32, 4), _volume(128), shared=32 * 2 * 4 * 4),
    _parboil("lbm/src/cuda_base/lbm", "performStreamCollide_kernel", (16, 1), 120, _cells),
    _parboil("mri-q/src/cuda/computeQ", "ComputePhiMag_GPU", 256, 512, _floats(_MANY, _MANY, _MANY, then=(_MANY,))),
    _parboil("mri-q/src/cuda/computeQ", "ComputeQ_GPU", 64, 256, _floats(*[16384] * 5, first=(128, 0))),
    _parboil(
        "histo/src/cuda_base/histo_prescan",
        "histo_prescan_kernel",
        64,
        512,
        lambda target, _: (target.zeros(2 * _MANY, "u4"), 2 * _MANY, target.zeros(2, "u4")),
    ),
    _parboil(
        "histo/src/cuda_base/histo_intermediates",
        "histo_intermediates_kernel",
        32,
        256,
        lambda target, _: (whole(target, 1000, 512 * 512), 512, 512, 256, target.zeros(512 * 512 * 4, "u1")),
    ),
    _parboil("histo/src/cuda_base/histo_final", "histo_final_kernel", 42, 512, _counts),
    _parboil("imghisto/src/cuda_base/kernel", "histo_R_per_block_kernel", 64, 256, _few_bits, shared=1024),
    _parboil("cp/src/cuda_base/cuenergy_pre", "cenergy", (16, 32), (16, 8), _floats(_MATRIX, first=(128, 0.1))),
)


def _learn(
    file: str,
    kernel: str,
    grid: Extent | int,
    block: Extent | int,
    arguments: Arguments,
    *,
    shared: int = 0,
    title: str = "",
) -> Public:
    chapter = file.partition("/")[0]
    folder = {"02": "Chapter02/02_memory_overview", "03": "Chapter03/03_cuda_thread_programming", "06": "Chapter06/06_multigpu"}
    folders = {**folder, "07": "Chapter07/07_parallel_programming_pattern", "10": "Chapter10/10_deep_learning"}
    path = f"{folders[chapter]}/{file.partition('/')[2]}"
    return Public(
        LEARN,
        f"{path}.cu",
        kernel,
        _extent(grid),
        _extent(block),
        arguments,
        shared,
        include=(path.rpartition("/")[0], f"../{SAMPLES}/Common"),
        title=title,
    )


def _columns_of(side: int) -> Arguments:
    """Return the arguments: two matrices of so long rows, and as many of these as the launch touches."""
    return lambda target, _: (whole(target, 9, _SIDE * side), target.zeros(_SIDE * side, "i4"))


def _filtered(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.zeros(_MATRIX), floats(target, _MATRIX), floats(target, 25), _SIDE, _SIDE, 5


def _packed(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    kept = (random.random(_MANY) < 0.5).astype(np.float32)
    return target.zeros(_MANY), floats(target, _MANY), target.array(kept), target.array(np.cumsum(kept).astype(np.float32)), _MANY


def _pixels(*sizes: int, then: tuple[object, ...] = ()) -> Arguments:
    return lambda target, random: (*(target.array(random.integers(0, 256, size, dtype=np.uint8)) for size in sizes), *then)


def _halves(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return target.zeros(_MANY, "f2"), target.zeros(_MANY, "f2"), target.zeros(_MANY), _MANY // 2


_TRANSPOSE, _CONVOLUTION = "02/04_matrix_transpose", "07/02_convolution/convolution"
_ATOMIC, _MIXED = "03/10_atomic_operation", "03/11_mixed_precision_operation"
_LEARN_CASES = (
    _learn("02/03_aos_soa/aos", "complicatedCalculation", 256, 256, lambda target, _: (whole(target, 9, 65536 * 8),)),
    _learn(f"{_TRANSPOSE}/matrix_transpose", "matrix_transpose_naive", (4, 4), (32, 32), _columns_of(2048)),
    _learn(f"{_TRANSPOSE}/matrix_transpose", "matrix_transpose_shared", (8, 8), (32, 32), _columns_of(2048)),
    _learn(
        f"{_TRANSPOSE}/conflict_solved",
        "matrix_transpose_shared",
        (8, 8),
        (32, 32),
        _columns_of(1024),
        title="matrix_transpose_shared (conflict_solved)",
    ),
    _learn(
        "03/03_threadsync_and_reduction/reduction_global_kernel",
        "global_reduction_kernel",
        256,
        256,
        _floats(_MANY, _MANY, then=(65536, _MANY)),
    ),
    _learn(
        "03/05_warp_divergence/reduction_kernel_interleaving",
        "reduction_kernel_1",
        256,
        256,
        _floats(256, 65536, then=(65536,)),
        shared=1024,
    ),
    _learn("03/07_warp_synchronous_programming/reduction_wp_kernel", "reduction_kernel", 64, 256, _floats(64, _MANY, then=(_MANY,))),
    _learn(f"{_ATOMIC}/reduction_kernel", "atomic_reduction_kernel", 256, 256, _floats(1, 65536, then=(65536,))),
    _learn(f"{_ATOMIC}/reduction_blk_atmc_kernel", "reduction_blk_atmc_kernel", 64, 256, _floats(1, _MANY, then=(_MANY,))),
    _learn(f"{_MIXED}/mixed_precision_half", "hfma_kernel", 256, 256, _halves),
    _learn(
        f"{_MIXED}/mixed_precision_int",
        "dp4a_kernel",
        256,
        256,
        lambda target, _: (target.zeros(4 * 65536, "i1"), target.zeros(4 * 65536, "i1"), target.zeros(65536, "i4"), 65536),
    ),
    _learn(_CONVOLUTION, "convolution_kernel_v1", (16, 16), (16, 16), _filtered),
    _learn(_CONVOLUTION, "convolution_kernel_v2", (16, 16), (16, 16), _filtered),
    _learn(_CONVOLUTION, "convolution_kernel_v3", (16, 16), (16, 16), _filtered, shared=20 * 20 * 4),
    _learn("07/03_scan/scan_v1", "scan_v1_kernel", 2, 512, _floats(1024, 1024, then=(1024,))),
    _learn("07/03_scan/scan_v2", "scan_v2_kernel", 1, 512, _floats(1024, 1024, then=(1024,)), shared=4096),
    _learn("07/04_pack_n_split/pack_n_split", "predicate_kernel", 512, 256, _floats(_MANY, _MANY, then=(_MANY,))),
    _learn("07/04_pack_n_split/pack_n_split", "pack_kernel", 512, 256, _packed),
    _learn("07/05_n-body/n_body", "calculateBodyForce", 8, 128, _floats(4096, 4096, then=(0.01, 1024))),
    _learn("06/05_streams/image_merging", "merging_kernel", (32, 32), (16, 16), _pixels(*[512 * 512] * 3, then=(512, 512, 0, 0))),
    _learn("10/02_cnn/src/loss", "softmax_loss_kernel", 1, 256, _floats(1, 2560, 2560, 256, then=(256, 10)), shared=1024),
)

_BOOK, _LABS = "Performance-Tests-NvBench", "Chapters/Ch{} - {}/labs"
_EXECUTION, _SPARSE = _LABS.format("03", "Scalable Parallel Execution"), _LABS.format("10", "Parallel Patterns: Sparse Matrix Computation")


def _book(
    file: str, kernel: str, grid: Extent | int, block: Extent | int, arguments: Arguments, *, shared: int = 0, instantiate: bool = False
) -> Public:
    return Public(MASSIVELY, file, kernel, _extent(grid), _extent(block), arguments, shared, instantiate=instantiate or "<" in kernel)


def _matrices(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return *(floats(target, 128 * 128) for _ in range(3)), *[128] * 4


def _scanned(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return floats(target, 65536), target.zeros(65536), 65536, 0


def _sections(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return floats(target, 65536), target.zeros(65536), 65536, 2048, 0


def _rows_of_elements(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    rows, most = 8192, 16
    columns = target.array(random.integers(0, rows, rows * most, dtype=np.int32))
    return whole(target, 9, rows * most), columns, whole(target, 9, rows), target.zeros(rows, "i4"), rows, most


def _lengths(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    lengths = target.array(random.integers(0, 99, 2048, dtype=np.int32))
    return lengths, *(target.zeros(2048, "i4") for _ in range(3)), 2048, 2048


def _order(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return target.array(random.permutation(128).astype(np.int32)), whole(target, 9, 128 * 256), target.zeros(128 * 256, "i4"), 128, 256


_PRODUCT, _VECTOR, _SUM = (f"{_BOOK}/{name}/{name}_kernels.cuh" for name in ("mat_mat_mul", "mat_vec_mul", "reduction"))
_SCAN, _ADD, _HISTOGRAM = (f"{_BOOK}/{name}/{name}_kernels.cuh" for name in ("scan", "array_add", "histogram"))
_ADDITION = f"{_EXECUTION}/matrix_addition/matrix_addition.cu"
_COMPRESSED = f"{_SPARSE}/sparse_matrix_comp.cu"
_THREE = _floats(_MATRIX, _MATRIX, _MATRIX, then=(_SIDE, _SIDE))
_BY_SIDE = _floats(_MATRIX, _MATRIX, _MATRIX, then=(_SIDE,))
_TREE = _floats(65536, then=(65536,))


def _tree(target: Target, random: np.random.Generator) -> tuple[object, ...]:
    return *_TREE(target, random), target.zeros(256)


_BOOK_CASES = (
    _book(_ADD, "array_add_not_coalesced<float>", (16, 16), (16, 16), _THREE),
    _book(_ADD, "array_add_coalesced<float>", (16, 16), (16, 16), _THREE),
    _book(_HISTOGRAM, "simple_histogram", 64, 256, _bins(256)),
    _book(_HISTOGRAM, "histogram_shared", 64, 256, _bins(256), shared=1024),
    _book(
        f"{_BOOK}/image_to_grayscale/img_to_gray_kernels.cuh",
        "color_to_grayscale_conversion",
        (16, 16),
        (16, 16),
        _pixels(3 * _MATRIX, _MATRIX, then=(_SIDE, _SIDE)),
    ),
    _book(_PRODUCT, "mat_mat_mul<float>", (4, 4), (32, 32), _matrices),
    _book(_PRODUCT, "mat_mat_mul_tiles<float>", (8, 8), (16, 16), _matrices, shared=2048),
    _book(_VECTOR, "mat_vec_mul<float>", 8, 128, _floats(1024, 1024 * 128, 128, then=(1024, 128))),
    _book(_VECTOR, "mat_vec_mul_tiles<float>", 8, 128, _floats(1024, 1024 * 128, 128, then=(1024, 128)), shared=512),
    _book(_SUM, "reduction1<float>", 256, 256, _tree, shared=1024),
    _book(_SUM, "reduction2<float>", 256, 256, _tree, shared=1024),
    _book(_SUM, "reduction3<float>", 256, 256, _tree, shared=1024),
    _book(_SCAN, "Kogge_Stone_inclusive_scan<float>", 64, 1024, _scanned, shared=8192),
    _book(_SCAN, "Brent_Kung_inclusive_scan<float>", 32, 1024, _scanned, shared=8192),
    _book(_SCAN, "three_phase_parallel_inclusive_scan<float>", 32, 256, _sections, shared=8192),
    _book(
        _SCAN,
        "add_intermediate_results<float>",
        32,
        256,
        lambda target, _: (floats(target, 65536), 65536, floats(target, 32), 2048),
    ),
    _book(f"{_EXECUTION}/image_blur/image_blur.cu", "blur_kernel", (16, 16), (16, 16), _pixels(_MATRIX, _MATRIX, then=(_SIDE, _SIDE))),
    _book(_ADDITION, "matrix_addition_B", (16, 16), (16, 16), _BY_SIDE),
    _book(_ADDITION, "matrix_addition_C", 2, 128, _BY_SIDE),
    _book(_ADDITION, "matrix_addition_D", 2, 128, _BY_SIDE),
    _book(_COMPRESSED, "transpose", (8, 8), (32, 8), _ints(_MATRIX, _MATRIX, then=(_SIDE, _SIDE))),
    _book(_COMPRESSED, "parallel_ELL", 32, 256, _rows_of_elements),
    _book(_COMPRESSED, "parallel_count_sort_JDS", 8, 256, _lengths, shared=1024),
    _book(_COMPRESSED, "parallel_copy", 1, 256, _order),
)


def _liger(file: str, kernel: str, grid: int, arguments: Arguments, signature: str, constexprs: Mapping[str, object]) -> PublicTriton:
    path = f"src/liger_kernel/ops/{file}.py"
    return PublicTriton(LIGER, path, kernel, (grid,), (128,), arguments, signature=signature, constexprs=constexprs)


def _rotated(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    """Return arguments: 64 tokens with 8 heads of queries and 2 of keys, of 64 floats each."""
    return floats(target, 64, 512), 512, floats(target, 64, 128), 128, floats(target, 64, 64), 64, floats(target, 64, 64), 64, 64


_LIGER_CASES = (
    _liger(
        "swiglu",
        "_swiglu_forward_kernel",
        128,
        _floats(_MANY, _MANY, _MANY, then=(1024, 1.0)),
        "*fp32:16, *fp32:16, *fp32:16, i32:16, fp32",
        {"n_cols": 1024, "BLOCK_SIZE": 1024},
    ),
    _liger(
        "rope",
        "_triton_rope",
        64,
        _rotated,
        "*fp32:16, i32:16, *fp32:16, i32:16, *fp32:16, i32:16, *fp32:16, i32:16, i32:16",
        {
            "bs": 1,
            "cos_bs": 1,
            "n_qh": 8,
            "n_kh": 2,
            "hd": 64,
            "pad_n_qh": 8,
            "pad_n_kh": 2,
            "pad_hd": 64,
            "BLOCK_SIZE": 8,
            "BACKWARD_PASS": False,
        },
    ),
)
CASES = (*_SGEMM_CASES, *_PARBOIL_CASES, *_LEARN_CASES, *_BOOK_CASES, *_LIGER_CASES)

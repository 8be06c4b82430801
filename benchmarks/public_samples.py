"""Launch kernels of NVIDIA's samples as the host code next to them does, with sizes small enough for the emulator."""

from __future__ import annotations

import numpy as np
from explain_cases import Arguments, floats, whole
from public_kernel import Public
from public_sources import SAMPLES

from memlane.launch import Target

INTRODUCTION, CONCEPTS, DOMAINS = "Samples/0_Introduction", "Samples/2_Concepts_and_Techniques", "Samples/5_Domain_Specific"
LIBRARIES, PERFORMANCE = "Samples/4_CUDA_Libraries", "Samples/6_Performance"
ANY = 1 << 31
Extent = tuple[int, ...]


def _case(
    file: str,
    kernel: str,
    grid: Extent | int,
    block: Extent | int,
    arguments: Arguments,
    *,
    shared: int = 0,
    instantiate: bool = False,
    title: str = "",
) -> Public:
    grids, blocks = (one if isinstance(one, tuple) else (one,) for one in (grid, block))
    folders = ("Common", file.rpartition("/")[0])
    return Public(SAMPLES, file, kernel, grids, blocks, arguments, shared, folders, instantiate, title=title)


def _floats(*sizes: int, then: tuple[object, ...] = ()) -> Arguments:
    """Return arguments: arrays of floats of these sizes, then numbers."""
    return lambda target, _: (*(floats(target, size) for size in sizes), *then)


def _words(*sizes: int, then: tuple[object, ...] = ()) -> Arguments:
    """Return arguments: arrays of random integers of these sizes, then numbers."""
    return lambda target, _: (*(whole(target, ANY - 1, size) for size in sizes), *then)


def _structures(target: Target, nbytes: int) -> tuple[object, object]:
    return target.zeros(nbytes, "u1"), target.zeros(nbytes, "u1")


def _copied(kernel: str, nbytes: int, title: str) -> Public:
    def arguments(target: Target, _: np.random.Generator) -> tuple[object, ...]:
        return *_structures(target, 65536 * nbytes), 65536

    return _case(f"{PERFORMANCE}/alignedTypes/alignedTypes.cu", kernel, 64, 256, arguments, title=title)


def _sums(kernel: str, grid: int) -> Public:
    file = f"{CONCEPTS}/reduction/reduction_kernel.cu"
    return _case(file, kernel, grid, 256, _floats(32768, grid, then=(32768,)), shared=1024, instantiate=True)


_HISTOGRAM, _WALSH = f"{CONCEPTS}/histogram/histogram", f"{DOMAINS}/fastWalshTransform/fastWalshTransform_kernel.cuh"
_SEPARABLE, _SCAN = f"{CONCEPTS}/convolutionSeparable/convolutionSeparable.cu", f"{CONCEPTS}/scan/scan.cu"
_SORTS, _DCT = f"{CONCEPTS}/sortingNetworks", f"{CONCEPTS}/dct8x8"
_GAUSSIAN, _QUASI = (
    f"{DOMAINS}/recursiveGaussian/recursiveGaussian_kernel.cuh",
    f"{DOMAINS}/quasirandomGenerator/quasirandomGenerator_kernel.cu",
)
_BOX, _OCEAN = f"{CONCEPTS}/boxFilter/boxFilter_kernel.cu", f"{LIBRARIES}/oceanFFT/oceanFFT_kernel.cu"
_TRANSPOSE = f"{PERFORMANCE}/transpose/transpose.cu"
_FLOW = f"{DOMAINS}/HSOpticalFlow/solverKernel.cuh"
_FILTER = (512, 128, 0.1, 0.2, 0.1, 0.05, -1.2, 0.4, 0.5, 0.5)


def _in_place(count: int, *more: object) -> Arguments:
    """Return the arguments: one array twice, then numbers."""

    def arguments(target: Target, _: np.random.Generator) -> tuple[object, ...]:
        array = floats(target, count)
        return array, array, *more

    return arguments


def _options(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return *(floats(target, 131072) for _ in range(5)), 0.02, 0.3, 131072


def _shuffled(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return whole(target, 100, 65536), 32, target.zeros(256, "i4")


def _sobol(target: Target, _: np.random.Generator) -> tuple[object, ...]:
    return 32768, 4, whole(target, ANY - 1, 128), target.zeros(4 * 32768)


CASES = (
    _case(f"{INTRODUCTION}/vectorAdd/vectorAdd.cu", "vectorAdd", 196, 256, _floats(50176, 50176, 50176, then=(50000,))),
    _case(
        f"{CONCEPTS}/scalarProd/scalarProd_kernel.cuh", "scalarProdGPU", 128, 256, _floats(256, 256 * 2048, 256 * 2048, then=(256, 2048))
    ),
    _case(f"{DOMAINS}/BlackScholes/BlackScholes_kernel.cuh", "BlackScholesGPU", 512, 128, _options),
    _case(f"{_HISTOGRAM}256.cu", "histogram256Kernel", 240, 192, _words(240 * 256, 184320, then=(184320,))),
    _case(f"{_HISTOGRAM}256.cu", "mergeHistogram256Kernel", 256, 256, _words(256, 240 * 256, then=(240,))),
    _case(f"{_HISTOGRAM}64.cu", "histogram64Kernel", 64, 64, _words(64 * 64, 258048, then=(64512,))),
    _case(f"{_HISTOGRAM}64.cu", "mergeHistogram64Kernel", 64, 256, _words(64, 256 * 64, then=(256,))),
    _case(_WALSH, "fwtBatch1Kernel", 64, 512, _in_place(64 * 2048, 11), shared=8192),
    _case(_WALSH, "fwtBatch2Kernel", (32, 2), 256, _in_place(65536, 8192)),
    _case(_WALSH, "modulateKernel", 128, 256, _floats(131072, 131072, then=(131072,))),
    _case(_SEPARABLE, "convolutionRowsKernel", (4, 64), (16, 4), _floats(131072, 131072, then=(512, 256, 512))),
    _case(_SEPARABLE, "convolutionColumnsKernel", (32, 4), (16, 8), _floats(131072, 131072, then=(512, 256, 512))),
    _case(_SCAN, "scanExclusiveShared", 128, 256, _words(131072, 131072, then=(1024,))),
    _case(_SCAN, "scanExclusiveShared2", 4, 256, _words(1024, 1 << 20, 1 << 20, then=(1024, 256))),
    _case(_SCAN, "uniformUpdate", 128, 256, _words(131072, 128)),
    _case(
        _FLOW,
        "JacobiIteration<32, 6>",
        (8, 40),
        (32, 6),
        lambda target, _: (*(floats(target, 61440) for _ in range(5)), 256, 240, 256, 0.2, target.zeros(61440), target.zeros(61440)),
        instantiate=True,
    ),
    _case(f"{_SORTS}/bitonicSort.cu", "bitonicSortShared", 32, 512, _words(*[32768] * 4, then=(1024, 1))),
    _case(f"{_SORTS}/bitonicSort.cu", "bitonicMergeGlobal", 64, 256, _words(*[32768] * 4, then=(32768, 4096, 2048, 1))),
    _case(f"{_SORTS}/bitonicSort.cu", "bitonicMergeShared", 32, 512, _words(*[32768] * 4, then=(32768, 4096, 1))),
    _case(f"{_SORTS}/oddEvenMergeSort.cu", "oddEvenMergeSortShared", 32, 512, _words(*[32768] * 4, then=(1024, 1))),
    _case(
        f"{INTRODUCTION}/mergeSort/mergeSort.cu",
        "mergeSortSharedKernel<1U>",
        32,
        512,
        _words(*[32768] * 4, then=(1024,)),
        title="mergeSortSharedKernel<1>",
    ),
    _case(f"{DOMAINS}/binomialOptions/binomialOptions_kernel.cu", "binomialOptionsKernel", 16, 128, lambda target, _: ()),
    _case(f"{DOMAINS}/dwtHaar1D/dwtHaar1D.cu", "dwtHaar1D", 64, 512, _floats(65536, 65536, 64, then=(10, 32768, 512)), shared=4352),
    _case(f"{_DCT}/dct8x8_kernel_quantization.cuh", "CUDAkernelQuantizationFloat", (32, 16), (8, 8), _floats(32768, then=(256,))),
    _case(
        f"{_DCT}/dct8x8_kernel_quantization.cuh",
        "CUDAkernelQuantizationShort",
        (32, 16),
        (8, 8),
        lambda target, _: (target.zeros(32768, "i2"), 256),
    ),
    _case(f"{_DCT}/dct8x8_kernel2.cuh", "CUDAkernel2DCT", (16, 16), (8, 4, 2), _floats(131072, 131072, then=(512,))),
    _case(_GAUSSIAN, "d_transpose", (16, 16), (16, 16), _words(65536, 65536, then=(256, 256))),
    _case(_GAUSSIAN, "d_recursiveGaussian_rgba", 8, 64, _words(65536, 65536, then=_FILTER)),
    _case(f"{DOMAINS}/SobolQRNG/sobol_gpu.cu", "sobolGPU_kernel", (64, 4), 64, _sobol),
    _case(_QUASI, "quasirandomGeneratorKernel", 128, (128, 3), _floats(3 * 32768, then=(0, 32768))),
    _case(_QUASI, "inverseCNDKernel", 128, 128, lambda target, _: (target.zeros(65536), whole(target, ANY - 1, 65536), 65536)),
    _case(f"{CONCEPTS}/shfl_scan/shfl_scan.cu", "shfl_scan_test", 256, 256, _shuffled, shared=32),
    _case(_BOX, "d_boxfilter_x_global", 16, 64, _floats(131072, 131072, then=(128, 1024, 14))),
    _case(_BOX, "d_boxfilter_y_global", 16, 64, _floats(131072, 131072, then=(1024, 128, 14))),
    _case(_OCEAN, "generateSpectrumKernel", (32, 32), (8, 8), _floats(2 * 257 * 260 + 2, 2 * 65536, then=(260, 256, 256, 0.1, 100.0))),
    _case(_OCEAN, "updateHeightmapKernel", (32, 32), (8, 8), _floats(65536, 131072, then=(256,))),
    _case(_OCEAN, "calculateSlopeKernel", (32, 32), (8, 8), _floats(65536, 131072, then=(256, 256))),
    _case(f"{INTRODUCTION}/systemWideAtomics/systemWideAtomics.cu", "atomicKernel", 64, 256, lambda target, _: (target.zeros(10, "i4"),)),
    _copied("testKernel<unsigned char>", 1, "testKernel<uint8>"),
    _copied("testKernel<unsigned short>", 2, "testKernel<uint16>"),
    _copied("testKernel<RGBA8_misaligned>", 4, "testKernel<RGBA8_misaligned>"),
    _copied("testKernel<RGBA32_misaligned>", 16, "testKernel<RGBA32_misaligned>"),
    _copied("testKernel<RGBA32>", 16, "testKernel<RGBA32>"),
    _case(_TRANSPOSE, "copySharedMem", (16, 16), (32, 16), _floats(262144, 262144, then=(512, 512))),
    _case(_TRANSPOSE, "transposeDiagonal", (16, 16), (32, 16), _floats(262144, 262144, then=(512, 512))),
    _case(_TRANSPOSE, "transposeCoarseGrained", (16, 16), (32, 16), _floats(262144, 262144, then=(512, 512))),
    _sums("reduce0<float>", 128),
    _sums("reduce1<float>", 128),
    _sums("reduce2<float>", 128),
    _sums("reduce3<float>", 64),
)

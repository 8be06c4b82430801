"""Provide stand-ins for host headers of CUDA's libraries, and name the wheel that contains each.

A program that calls cuBLAS on the host includes `cublas_v2.h`, and its kernels use what that header includes in turn: `half`, `cuComplex`.
With a stand-in, the header itself need not be installed. Headers that kernels call (`curand_kernel.h`) must be.
"""

from __future__ import annotations

from memlane.packages import pip_install

_NUMBERS = "#include <cuComplex.h>\n#include <cuda_fp16.h>\n#include <library_types.h>\n"
_NARROW_NUMBERS = f"{_NUMBERS}#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
_TRANSFORMS = f"""{_NUMBERS}typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
typedef int cufftHandle;
"""
_TEXTS = {
    **dict.fromkeys(("cublas.h", "cublas_v2.h", "cublas_api.h", "cublasXt.h"), _NUMBERS + "#include <cuda_bf16.h>\n"),
    "cublasLt.h": _NARROW_NUMBERS,
    **dict.fromkeys(("cufft.h", "cufftXt.h", "cufftw.h"), _TRANSFORMS),
    **dict.fromkeys(("cusparse.h", "cusparse_v2.h"), _NUMBERS + "#include <cuda_bf16.h>\n"),
    **dict.fromkeys(("cusolverDn.h", "cusolverSp.h", "cusolverRf.h", "cusolverMg.h", "cusolver_common.h"), _NUMBERS),
    **dict.fromkeys(("curand.h", "cudnn.h", "nvml.h", "nvjpeg.h", "nvToolsExt.h", "nvtx3/nvToolsExt.h", "nvtx3/nvtx3.hpp"), ""),
    "nccl.h": "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n",
}
"""Host header -> the declarations in it that device code may use."""
_WHEELS = (
    ("cublas", "nvidia-cublas"),
    ("cufft", "nvidia-cufft"),
    ("curand", "nvidia-curand"),
    ("cusparse", "nvidia-cusparse"),
    ("cusolver", "nvidia-cusolver"),
    ("cudnn", "nvidia-cudnn-cu13"),
    ("nccl", "nvidia-nccl-cu13"),
    ("nvjpeg", "nvidia-nvjpeg"),
    ("nvToolsExt", "nvidia-nvtx"),
    ("nvtx3/", "nvidia-nvtx"),
    ("npp", "nvidia-npp"),
)
"""Prefixes of header names, and the wheel that contains those headers."""

_REPOSITORIES = (
    ("cute/", "CUTLASS", "include"),
    ("cutlass/", "CUTLASS", "include"),
    ("helper_", "NVIDIA's cuda-samples", "Common"),
)
"""Prefixes of header names, the project that contains those headers, and its include directory."""


def is_for_host(header: str) -> bool:
    """Return whether a header declares only host functions, which no kernel calls."""
    return header in _TEXTS


def stand_in(header: str) -> str:
    """Return the text that replaces a header that was not found; empty for an unknown one."""
    return _TEXTS.get(header, "")


def remedy(header: str) -> str:
    """Return the remedy for a header that was not found, as the rest of a sentence."""
    wheel = next((wheel for start, wheel in _WHEELS if header.startswith(start)), "")
    given = "name its directory with -I DIR (include=[DIR] in Python)"
    for start, project, directory in _REPOSITORIES:
        if header.startswith(start):
            return f"it comes with {project}, whose directory `{directory}` is to be named with -I DIR (include=[DIR] in Python)"
    return f"install it with: {pip_install(wheel)}, or {given}" if wheel else given

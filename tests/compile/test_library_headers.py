"""Headers of CUDA and CCCL that NVRTC refuses, and macros that nvcc defines for its options."""

from __future__ import annotations

import pytest

from memlane.compile import cuda_to_ptx


@pytest.mark.parametrize("header", ["cuda/stream_ref", "channel_descriptor.h", "cuda_device_runtime_api.h"])
def test_headers_for_the_host_stand_beside_kernels(header: str) -> None:
    assert cuda_to_ptx(f"#include <{header}>\n__global__ void k(int* p) {{ *p = 1; }}\n").kernels


def test_host_functions_that_take_a_stream_are_followed() -> None:
    source = """#include <cuda/stream_ref>
struct Pool { cuda::stream_ref stream; void* take(unsigned long n, cuda::stream_ref s = {}); };
template <int N> __global__ void k(int* p) { p[threadIdx.x] = N; }
template <int N> void run(int* p, cuda::stream_ref s) { k<N><<<1, 32, 0, s.get()>>>(p); s.sync(); }
int main() { cudaStream_t s; cudaStreamCreate(&s); run<3>(nullptr, s); }
"""
    assert [*cuda_to_ptx(source).kernels.values()] == ["void k<3>(int*)"]


def test_a_program_may_ask_for_the_options_of_nvcc_that_are_always_on() -> None:
    asked = "".join(
        f"#ifndef {name}\n#error pass the option\n#endif\n" for name in ("__CUDACC_EXTENDED_LAMBDA__", "__CUDACC_RELAXED_CONSTEXPR__")
    )
    assert cuda_to_ptx(f"{asked}__global__ void k(int* p) {{ *p = 1; }}\n").kernels

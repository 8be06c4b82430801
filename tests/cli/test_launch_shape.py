"""The launch that is suggested for a kernel covers the extents that its text counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from memlane.cli.launch_example import launch_example
from memlane.cli.specs import parse_argument, parse_extent
from memlane.compile import cuda
from memlane.launch import Kernel, Target
from memlane.targets import target as named

LINEAR = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
PLANE = f"{LINEAR} int j = blockIdx.y * blockDim.y + threadIdx.y;"
CASES = {
    "saxpy": ("int n", f"{LINEAR} if (i < n) out[i] = 1;", "4", "256", 1024),
    "matrix": ("int rows, int cols", f"{LINEAR} if (i < rows * cols) out[i] = 1;", "256", "256", 1 << 16),
    "long_matrix": (
        "long rows, long cols",
        "long i = (long)blockIdx.x * blockDim.x + threadIdx.x; if (i < rows * cols) out[i] = 1;",
        "256",
        "256",
        1 << 16,
    ),
    "taken_apart": (
        "int rows, int cols",
        f"{LINEAR} int r = i / cols, c = i % cols; if (r < rows) out[c * rows + r] = 1;",
        "256",
        "256",
        1 << 16,
    ),
    "matvec": ("int m, int n", f"{LINEAR} if (i < m) for (int j = 0; j < n; j++) out[i * n + j] = 1;", "4", "64", 1 << 16),
    "row_per_block": (
        "int rows, int cols",
        "for (int j = threadIdx.x; j < cols; j += blockDim.x) out[blockIdx.x * cols + j] = 1;",
        "256",
        "256",
        1 << 16,
    ),
    "row_on_an_axis": ("int batch, int n", f"{LINEAR} if (i < n) out[blockIdx.y * n + i] = 1;", "4,256", "64", 1 << 16),
    "plane": ("int width, int height", f"{PLANE} if (i < width && j < height) out[j * width + i] = 1;", "16,16", "16,16", 1 << 16),
    "grid_stride": (
        "int n",
        "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = 1;",
        "4",
        "256",
        1024,
    ),
    "marched": (
        "int nx, int ny, int nz",
        f"{PLANE} if (i < nx && j < ny) for (int k = 0; k < nz; k++) out[(k * ny + j) * nx + i] = 1;",
        "4,4",
        "16,16",
        1 << 18,
    ),
    "volume": (
        "int nx, int ny, int nz",
        f"{PLANE} int k = blockIdx.z * blockDim.z + threadIdx.z; if (i < nx && j < ny && k < nz) out[(k * ny + j) * nx + i] = 1;",
        "8,8,8",
        "8,8,8",
        1 << 18,
    ),
    "images": ("int n, int c, int h, int w", f"{LINEAR} if (i < n * c * h * w) out[i] = 1 + i % w;", "4096", "256", 1 << 20),
    "fixed_block": ("int n", "int i = blockIdx.x * 128 + threadIdx.x; if (i < n) out[i] = 1;", "8", "128", 1024),
    "one_block": ("", "out[threadIdx.x] = 1;", "1", "256", 256),
}


@pytest.fixture(scope="module")
def target() -> Target:
    return named("emulator:h200")


@pytest.fixture(scope="module")
def kernels(target: Target) -> dict[str, Kernel]:
    heads = {name: ", ".join(part for part in ("float* out", head) if part) for name, (head, *_) in CASES.items()}
    text = "\n".join(f'extern "C" __global__ void {name}({heads[name]}) {{ {CASES[name][1]} }}' for name in CASES)
    loaded = target.load(cuda(text))
    return {name: loaded[name] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_suggested_launch_covers_all_extents(target: Target, kernels: dict[str, Kernel], name: str) -> None:
    """Each kernel writes each element of its extents once, so the elements written tell how much is covered."""
    _, _, grid, block, covered = CASES[name]
    words = launch_example(kernels[name]).replace("'", "").split()
    assert words[:4] == ["--grid", grid, "--block", block]
    given = [parse_argument(word).on(target) for before, word in itertools.pairwise(words) if before == "--arg"]
    kernels[name][parse_extent("--grid", grid), parse_extent("--block", block)](*given)
    assert np.count_nonzero(given[0].numpy()) == covered

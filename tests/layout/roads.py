"""Layouts run on a target: all functions in one kernel, so that they are compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import memlane as ml
from memlane.layout import Layout

BLOCK = 128


def cuda_offsets(target: ml.Target, layouts: Sequence[Layout], *, by_index: bool = False) -> list[np.ndarray]:
    """int64[rows, columns] for each layout, from the CUDA C++ it writes."""
    functions, kernels = [], []
    for number, layout in enumerate(layouts):
        functions.append(layout.cuda_source(f"place{number}", by_index=by_index))
        where = "k" if by_index else f"k / {layout.columns}, k % {layout.columns}"
        count = layout.rows * layout.columns
        kernels.append(f"  if (layout == {number} && k < {count}) out[k] = place{number}({where});\n")
    kernel = (
        'extern "C" __global__ void fill(long long* out, int layout)\n'
        f"{{\n  int k = blockIdx.x * {BLOCK} + threadIdx.x;\n{''.join(kernels)}}}\n"
    )
    return _filled(target, layouts, target.load(ml.cuda("".join(functions) + kernel))["fill"])


def numba_offsets(target: ml.Target, layouts: Sequence[Layout]) -> list[np.ndarray]:
    """The same from the functions for Numba."""
    from numba import cuda

    lines = [f"  k = cuda.blockIdx.x * {BLOCK} + cuda.threadIdx.x"]
    scope: dict[str, Any] = {"cuda": cuda}
    for number, layout in enumerate(layouts):
        scope[f"place{number}"] = layout.numba()
        lines.append(f"  if layout == {number} and k < {layout.rows * layout.columns}:")
        lines.append(f"    out[k] = place{number}(k // {layout.columns}, k % {layout.columns})")
    exec("\n".join(["def fill(out, layout):", *lines]), scope)
    return _filled(target, layouts, target.load(ml.numba(scope["fill"], "void(int64[::1], int32)", lineinfo=False))["fill"])


def _filled(target: ml.Target, layouts: Sequence[Layout], kernel: Any) -> list[np.ndarray]:
    found = []
    for number, layout in enumerate(layouts):
        count = layout.rows * layout.columns
        out = target.array(np.full(count, -1, np.int64))
        kernel[-(-count // BLOCK), BLOCK](out, number)
        found.append(out.numpy().reshape(layout.rows, layout.columns))
    return found

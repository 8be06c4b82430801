"""A kernel in CUDA C++ that copies tiles by tensor maps and waits at a `cuda::barrier`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from memlane.compile import cuda
from memlane.launch import DeviceArray, KernelCall, Target, TensorMap
from memlane.ptx import Module

SOURCE = Path(__file__).with_name("tensor_tiles.cu")
IMAGE = np.random.default_rng(8).standard_normal((50, 60)).astype(np.float32)
"""Of which tiles of 8 by 32 reach beyond both edges."""


@cache
def module() -> Module:
    return cuda(SOURCE)


def line_of(text: str) -> int:
    """Of the source."""
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)


def doubling(target: Target) -> tuple[KernelCall, TensorMap, TensorMap, DeviceArray]:
    """The call, its arguments, and the array in which twice the image will be."""
    out = target.zeros(IMAGE.shape, np.float32)
    maps = (target.tensor_map(array, (8, 32)) for array in (target.array(IMAGE), out))
    return target.load(module())["twice"][(2, 7), 64], *maps, out

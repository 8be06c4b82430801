"""Kernels that read textures, and what they should find: the formulas of the CUDA programming guide's appendix on texture fetching, in
exact fractions, with coordinates folded before they are scaled (the emulator folds texel numbers afterwards)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.launch import LoadedModule, Texture
from memlane.ptx import Module

_SOURCE = r"""
#define READ(NAME, TYPE, FETCH)                                                                                                        \
    extern "C" __global__ void NAME(cudaTextureObject_t t, const float *x, const float *y, const float *z, TYPE *out, int n)            \
    {                                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                                 \
        if (i < n) out[i] = FETCH;                                                                                                     \
    }

READ(fetch_float, float, tex1Dfetch<float>(t, (int)x[i]))
READ(fetch_float4, float4, tex1Dfetch<float4>(t, (int)x[i]))
READ(fetch_uchar4, uchar4, tex1Dfetch<uchar4>(t, (int)x[i]))
READ(fetch_short2, short2, tex1Dfetch<short2>(t, (int)x[i]))
READ(read_1d, float, tex1D<float>(t, x[i]))
READ(read_2d, float, tex2D<float>(t, x[i], y[i]))
READ(read_3d, float, tex3D<float>(t, x[i], y[i], z[i]))
READ(read_a1d, float, tex1DLayered<float>(t, x[i], (int)z[i]))
READ(read_a2d, float, tex2DLayered<float>(t, x[i], y[i], (int)z[i]))
READ(read_cube, float, texCubemap<float>(t, x[i], y[i], z[i]))
READ(read_level, float, tex2DLod<float>(t, x[i], y[i], z[i]))
READ(read_gradient, float, tex2DGrad<float>(t, x[i], y[i], make_float2(z[i], 1), make_float2(1, z[i])))
READ(read_float4, float4, tex2D<float4>(t, x[i], y[i]))
READ(read_uchar, unsigned char, tex2D<unsigned char>(t, x[i], y[i]))
READ(read_schar4, char4, tex2D<char4>(t, x[i], y[i]))
READ(read_ushort, unsigned short, tex2D<unsigned short>(t, x[i], y[i]))
READ(read_short2, short2, tex2D<short2>(t, x[i], y[i]))
READ(read_uint, unsigned, tex2D<unsigned>(t, x[i], y[i]))
READ(read_int, int, tex2D<int>(t, x[i], y[i]))
READ(gather_0, float4, tex2Dgather<float4>(t, x[i], y[i], 0))
READ(gather_3, float4, tex2Dgather<float4>(t, x[i], y[i], 3))

#define COPY(NAME, TYPE, READ, WRITE)                                                                                                  \
    extern "C" __global__ void NAME(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height, int by)                    \
    {                                                                                                                                  \
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;                                                 \
        if (x < width && y < height) { TYPE value; READ; WRITE; }                                                                      \
    }

COPY(copy_1d, float, surf1Dread(&value, from, (x + by) * 4, cudaBoundaryModeZero), surf1Dwrite(value, to, x * 4))
COPY(copy_2d, uchar4, surf2Dread(&value, from, (x + by) * 4, y, cudaBoundaryModeZero), surf2Dwrite(value, to, x * 4, y))
COPY(copy_2d_clamp, uchar4, surf2Dread(&value, from, (x + by) * 4, y + by, cudaBoundaryModeClamp), surf2Dwrite(value, to, x * 4, y))
COPY(copy_2d_trap, uchar4, surf2Dread(&value, from, (x + by) * 4, y, cudaBoundaryModeTrap), surf2Dwrite(value, to, x * 4, y))
COPY(shift_2d, uchar4, surf2Dread(&value, from, x * 4, y), surf2Dwrite(value, to, (x + by) * 4, y - by, cudaBoundaryModeZero))
COPY(copy_3d, int4, surf3Dread(&value, from, x * 16, y, z), surf3Dwrite(value, to, x * 16, y, z))
COPY(copy_a1d, short, surf1DLayeredread(&value, from, x * 2, z), surf1DLayeredwrite(value, to, x * 2, z))
COPY(copy_a2d, float2, surf2DLayeredread(&value, from, x * 8, y, z), surf2DLayeredwrite(value, to, x * 8, y, z))
"""


@cache
def programs() -> Module:
    """The kernels above."""
    return cuda(_SOURCE, name="textures.cu")


def line_of(text: str) -> int:
    """The line of the program that holds `text`."""
    return next(number for number, line in enumerate(_SOURCE.split("\n"), 1) if text in line)


def read(module: LoadedModule, kernel: str, texture: Texture, x: Any, y: Any = 0.0, z: Any = 0.0, dtype: str = "f4") -> npt.NDArray[Any]:
    """What a kernel reads at coordinates, one in each thread; a last axis holds the channels if `dtype` has several (`4f4`)."""
    target = module.target
    count = np.size(x)
    coordinates = [target.array(np.broadcast_to(np.asarray(axis, np.float32), (count,))) for axis in (x, y, z)]
    out = target.zeros(count, np.dtype(dtype))
    module[kernel][-(-count // 64), 64](texture, *coordinates, out, count)
    return out.numpy()


# -- the programming guide ---------------------------------------------------------------------------------------------------------


def expected(texels: npt.NDArray[Any], modes: tuple[str, ...], linear: bool, normalized: bool, where: tuple[float, ...]) -> Fraction:
    """The value of an image of shape (height, width) or so at the coordinates x, y, ..., which are numbers."""
    axes = [
        _texels(Fraction(float(coordinate)), extent, mode, linear, normalized)
        for coordinate, extent, mode in zip(where, reversed(texels.shape), modes, strict=True)
    ]
    total = Fraction(0)
    for corner in product(*axes):
        numbers, weights = zip(*corner, strict=True)
        if None not in numbers:
            total += math.prod(weights) * Fraction(float(texels[tuple(reversed(numbers))]))
    return total


def on_cube(x: float, y: float, z: float) -> tuple[int, float, float]:
    """The face that a direction meets and the place on it, from 0 to 1, by the table of the guide's section on cubemap textures."""
    if abs(x) > abs(y) and abs(x) > abs(z):
        face, m, s, t = (0, x, -z, -y) if x >= 0 else (1, -x, z, -y)
    elif abs(y) > abs(z):
        face, m, s, t = (2, y, x, z) if y >= 0 else (3, -y, x, -z)
    else:
        face, m, s, t = (4, z, x, -y) if z >= 0 else (5, -z, -x, -y)
    return face, (s / m + 1) / 2, (t / m + 1) / 2


def _texels(coordinate: Fraction, extent: int, mode: str, linear: bool, normalized: bool) -> list[tuple[int | None, Fraction]]:
    """The texels of one axis that count, with their weights; None for the border."""
    if mode == "wrap":
        coordinate -= math.floor(coordinate)
    if mode == "mirror":
        whole = math.floor(coordinate)
        coordinate = coordinate - whole if whole % 2 == 0 else 1 - (coordinate - whole)
    place = coordinate * extent if normalized else coordinate
    if not linear:
        return [(_inside(math.floor(place), extent, mode), Fraction(1))]
    start = place - Fraction(1, 2)
    left = math.floor(start)
    share = Fraction(math.floor((start - left) * 256 + Fraction(1, 2)), 256)
    return [(_inside(left, extent, mode), 1 - share), (_inside(left + 1, extent, mode), share)]


def _inside(number: int, extent: int, mode: str) -> int | None:
    if 0 <= number < extent:
        return number
    if mode == "border":
        return None
    return number % extent if mode == "wrap" else min(max(number, 0), extent - 1)

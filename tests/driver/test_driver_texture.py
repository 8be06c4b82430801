"""What the driver is told of images and textures, as far as it can be seen without a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from cuda.bindings import driver

from memlane.driver.texture import array_descriptor, sampling_descriptor
from memlane.launch.texture import sampling_of, texels_of

SURFACE, LAYERED, GATHER = (getattr(driver, f"CUDA_ARRAY3D_{name}") for name in ("SURFACE_LDST", "LAYERED", "TEXTURE_GATHER"))


@pytest.mark.parametrize(
    ("shape", "channels", "layered", "writable", "extents", "flags"),
    [
        ((9,), 1, False, False, (9, 0, 0), 0),
        ((4, 9), 1, False, True, (9, 4, 0), SURFACE | GATHER),
        ((4, 1 << 15), 1, False, False, (1 << 15, 4, 0), 0),
        ((3, 4, 9, 2), 2, False, True, (9, 4, 3), SURFACE),
        ((3, 9), 1, True, False, (9, 0, 3), LAYERED),
        ((3, 5, 9, 4), 4, True, False, (9, 5, 3), LAYERED),
    ],
)
def test_arrays(shape: tuple[int, ...], channels: int, layered: bool, writable: bool, extents: tuple[int, ...], flags: int) -> None:
    texels = texels_of("a texture", shape, np.dtype("i2"), channels, layered)
    described = array_descriptor(texels, writable)
    assert (described.Width, described.Height, described.Depth) == extents
    assert (described.NumChannels, described.Flags) == (channels, flags)
    assert described.Format == driver.CUarray_format.CU_AD_FORMAT_SIGNED_INT16


def test_cubes() -> None:
    described = array_descriptor(texels_of("a texture", (6, 4, 4), np.dtype("f4"), 1, False, cube=True), False)
    assert (described.Width, described.Height, described.Depth, described.Flags) == (4, 4, 6, driver.CUDA_ARRAY3D_CUBEMAP)


@pytest.mark.parametrize(
    ("dtype", "read", "normalized", "flags"),
    [
        ("u1", "element", False, driver.CU_TRSF_READ_AS_INTEGER),
        ("u1", "normalized_float", True, driver.CU_TRSF_NORMALIZED_COORDINATES),
        ("f4", "element", True, driver.CU_TRSF_NORMALIZED_COORDINATES),
    ],
)
def test_samplers(dtype: str, read: str, normalized: bool, flags: int) -> None:
    texels = texels_of("a texture", (4, 9), np.dtype(dtype), 1, False)
    linear = "point" if read == "element" and dtype == "u1" else "linear"
    chosen = sampling_descriptor(texels, sampling_of(texels, linear, ("border", "clamp"), normalized, read))
    modes = driver.CUaddress_mode
    assert list(chosen.addressMode)[:2] == [modes.CU_TR_ADDRESS_MODE_BORDER, modes.CU_TR_ADDRESS_MODE_CLAMP]
    assert chosen.filterMode == getattr(driver.CUfilter_mode, f"CU_TR_FILTER_MODE_{linear.upper()}")
    assert chosen.flags == flags
    assert list(chosen.borderColor) == [0, 0, 0, 0]

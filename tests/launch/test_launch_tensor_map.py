"""What can be a tensor map, and what a refusal says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch
from memlane.launch import DeviceArray, Tiling
from memlane.ptx import parse
from tests.launch.fake_target import PTX, FakeTarget

KERNELS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry boxes(.param .align 64 .b8 map[128]) { ret; }
.visible .entry crooked(.param .align 8 .b8 map[128]) { ret; }
.visible .entry pointer(.param .u64 map) { ret; }
"""
FLAT = np.zeros((64, 40), np.float32)


@pytest.fixture
def target() -> Emulator:
    return Emulator(load("h200"))


def test_axes_are_those_of_numpy_outside_and_x_first_inside(target: Emulator) -> None:
    tiles = target.tensor_map(target.array(np.zeros((5, 6, 40), np.int16)), (2, 3, 8), element_strides=(2, 1, 1), fill="zeros")
    address = tiles.tiling.address
    assert tiles.tiling == Tiling(address, "u16", (40, 6, 5), (80, 480), (8, 3, 2), (1, 1, 2))
    assert tiles.tiling.taken == (8, 3, 1)
    assert tiles.tiling.box_bytes == 48
    assert str(tiles.tiling) == "boxes of 2 x 3 x 8 of u16[5, 6, 40]"
    assert len(tiles.data) == 128


def test_a_part_of_an_array_has_its_own_shape_and_strides(target: Emulator) -> None:
    padded = target.array(np.zeros((10, 36), np.float32))
    tiles = target.tensor_map(padded, (4, 8), shape=(10, 33), strides=(144, 4))
    assert (tiles.tiling.extents, tiles.tiling.strides) == ((33, 10), (144,))
    with pytest.raises(BadLaunch, match=r"shape \(11, 33\) with strides up to 144 needs 1,572 bytes, but the array has 1440"):
        target.tensor_map(padded, (4, 8), shape=(11, 33), strides=(144, 4))


@pytest.mark.parametrize(
    ("array", "box", "options", "message"),
    [
        (FLAT, (8, 257), {}, r"a box of \(8, 257\) is too large or empty: each of its extents is from 1 to 256; copy several smaller ones"),
        (FLAT, (0, 8), {}, r"a box of \(0, 8\) is too large or empty"),
        (FLAT, (8, 6), {}, r"rows of the box have 24 bytes \(6 x f32\), but a copy needs a multiple of 16: make the box 8 wide"),
        (FLAT, (8,), {}, r"the array has 2 axes, the box 1 and its element strides 1: give one number for each axis"),
        (FLAT, (8, 8), {"element_strides": (9, 1)}, r"element strides \(9, 1\) are invalid: each is from 1 to 8"),
        (FLAT, (8, 8), {"element_strides": (1, 2)}, r"and that of the last axis is 1"),
        (FLAT, (8, 8), {"swizzle": "64B"}, r"rows of the box have 32 bytes, but swizzle 64B is for rows of 64: .* or use swizzle 32B"),
        (FLAT, (8, 32), {"swizzle": "64B"}, r"make the box 16 wide, or use swizzle 128B"),
        (FLAT, (8, 36), {"swizzle": "128B"}, r"make the box 32 wide, or use swizzle none"),
        (FLAT, (8, 8), {"swizzle": "256B"}, r"swizzle of a tensor map is one of none, 32B, 64B, 128B; got '256B'"),
        (FLAT, (8, 8), {"promotion": "32B"}, r"promotion of a tensor map is one of none, 64B, 128B, 256B; got '32B'"),
        (FLAT, (8, 8), {"fill": "ones"}, r"fill of a tensor map is zeros, or nan if its elements are floats; got 'ones' for f32"),
        (np.zeros((4, 8), "i4"), (4, 8), {"fill": "nan"}, r"nan if its elements are floats; got 'nan' for s32"),
        (np.zeros((64, 10), "f4"), (8, 8), {}, r"an axis has a stride of 40 bytes, .* pad the rows to 48 bytes, and pass strides="),
        (
            np.zeros((1, 1, 1, 1, 1, 16), "f4"),
            (1,) * 5 + (8,),
            {},
            r"1 to 5 dimensions, but the array has 6: join or split some with shape=",
        ),
        (np.zeros((0, 8), "f4"), (1, 8), {}, r"an array of shape \(0, 8\) has no tensor map"),
        (np.zeros(64, "c8"), (8,), {}, r"the element type of a tensor map is one of u8, u16, .*; got complex64: pass element="),
        (FLAT, (8, 8), {"element": "bf16"}, r"an array of float32 has elements of 4 bytes, but bf16 has 2"),
        (FLAT, (8, 8), {"shape": (64, 40), "strides": (160,)}, r"strides of a tensor map are in bytes, one for each of its 2 axes"),
        (np.zeros((256, 256, 4), "f4"), (256, 256, 4), {}, r"a box of 256 x 256 x 4 takes 1,048,576 bytes, and a block of h200 has 232448"),
    ],
)
def test_what_no_tensor_map_can_be_is_refused(
    target: Emulator, array: Any, box: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadLaunch, match=message):
        target.tensor_map(target.array(array), box, **options)


def test_the_array_must_lie_on_the_target_at_a_multiple_of_16(target: Emulator) -> None:
    with pytest.raises(BadLaunch, match=r"this one is in host memory: copy it with target.array\(x\)"):
        target.tensor_map(FLAT, (8, 8))
    other = Emulator(load("h200"))
    with pytest.raises(BadLaunch, match=r"the array is on another emulator:h200, but the tensor map would be on emulator:h200"):
        target.tensor_map(other.array(FLAT), (8, 8))
    whole = target.array(FLAT)
    late = DeviceArray(target, whole.address + 8, (32,), whole.dtype, whole)
    with pytest.raises(BadLaunch, match=r"begins at address 0x[0-9a-f]+8, but a tensor map needs a multiple of 16"):
        target.tensor_map(late, (8,))
    with pytest.raises(BadLaunch, match=r"a object has no memory|has no memory on"):
        target.tensor_map(object(), (8,))


def test_older_chips_have_none() -> None:
    target = Emulator(load("a100"))
    with pytest.raises(BadLaunch, match=r"tensor maps need sm_90, but emulator:a100 is sm_80: let threads copy \(cp.async\)"):
        target.tensor_map(target.array(FLAT), (8, 8))


def test_a_target_without_them_says_so() -> None:
    target = FakeTarget()
    with pytest.raises(BadLaunch, match="fake has no tensor maps"):
        target.tensor_map(target.array(FLAT), (8, 8))


def test_a_kernel_takes_one_where_it_has_128_bytes_for_it(target: Emulator) -> None:
    kernels, tiles = target.load(parse(KERNELS, "k.ptx")), target.tensor_map(target.array(FLAT), (8, 8))
    (argument,) = kernels["boxes"][1, 1].bind(tiles).arguments
    assert (argument.data, argument.owner) == (tiles.data, tiles)
    assert argument.text == "tensor map: boxes of 8 x 8 of f32[64, 40]"
    remedy = "declare it as `const __grid_constant__ CUtensorMap`"
    with pytest.raises(
        BadLaunch, match=rf"is a tensor map \(128 bytes, aligned to 64\), but the parameter is 128 bytes, aligned to \d+: {remedy}"
    ):
        kernels["crooked"][1, 1].bind(tiles)
    with pytest.raises(BadLaunch, match=rf"but the parameter is u64: {remedy}"):
        kernels["pointer"][1, 1].bind(tiles)
    other = Emulator(load("h200"))
    with pytest.raises(BadLaunch, match=r"is a tensor map of another emulator:h200, but the kernel runs on emulator:h200; create it there"):
        other.load(parse(KERNELS, "k.ptx"))["boxes"][1, 1].bind(tiles)
    with pytest.raises(BadLaunch, match=r"argument 1 of scale is a tensor map"):
        FakeTarget().load(parse(PTX, "k.ptx"))["scale"][1, 1].bind(tiles, 1, 1.0)

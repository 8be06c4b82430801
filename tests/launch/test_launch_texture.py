"""What can be a texture or a surface, and what a refusal says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch
from memlane.launch import Surface
from memlane.ptx import parse
from tests.launch.fake_target import PTX, FakeTarget

FLAT = np.zeros((4, 6), np.float32)


@pytest.fixture
def target() -> Emulator:
    return Emulator(load("h200"))


def test_the_last_axis_holds_channels_only_where_it_is_said(target: Emulator) -> None:
    image = np.zeros((3, 5, 4), np.uint8)
    assert str(target.texture(image).texels) == "3d image of u1, 4 x 5 x 3"
    assert str(target.texture(image, channels=4).texels) == "2d image of u1 x 4, 5 x 3"
    assert str(target.texture(image[0], channels=4, layered=False).texels) == "1d image of u1 x 4, 5"
    assert str(target.surface(image, layered=True).texels) == "a2d image of u1, 4 x 5, 3 layers"


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros(3), {}, r"a texture cannot hold float64; its channels are integers of 8, 16 or 32 bits, float16 or float32"),
        (np.zeros(3, ">f4"), {}, r"a texture cannot hold >f4"),
        (FLAT, {"channels": 3}, r"a texel of a texture has 1, 2 or 4 channels, not 3"),
        (FLAT, {"channels": 4}, r"with channels=4 the last axis of a texture must be 4 long; the array has shape \(4, 6\)"),
        (np.zeros((2, 3, 4, 4), "f4"), {}, r"got \(2, 3, 4, 4\); pass channels=2 or channels=4 if the last axis holds the channels"),
        (np.zeros((2, 3, 4, 5), "f4"), {"layered": True}, r"a texture has the shape \(layers, width\) or \(layers, height, width\), got"),
        (np.zeros((0, 3), "f4"), {}, r"got \(0, 3\)"),
        (FLAT, {"filter": "cubic"}, r"filter of a texture is one of point, linear; got 'cubic'"),
        (FLAT, {"address": "repeat"}, r"address of a texture is one of wrap, clamp, mirror, border; got 'repeat'"),
        (FLAT, {"address": ("clamp",)}, r"a 2d texture has 2 address modes, one per axis; got 1"),
        (FLAT, {"address": ("clamp", "wrap")}, r"address mode 'wrap' needs normalized coordinates: pass normalized=True"),
        (FLAT, {"read": "normalized_float"}, r"only integers of 8 and 16 bits can be read as normalized floats, not float32"),
        (
            np.zeros(3, "u1"),
            {"filter": "linear"},
            r'linear filtering returns floats, but this texture returns uint8: pass read="normalized_float"',
        ),
        (np.zeros(3, "i4"), {"filter": "linear"}, r"linear filtering returns floats, but this texture returns int32: use floats$"),
        (FLAT, {"memory": "linear"}, r"a texture in linear memory has one dimension, got shape \(4, 6\)"),
        (
            np.zeros(3, "f4"),
            {"memory": "linear", "filter": "linear"},
            r"is read with integer coordinates: it has no filter, address mode, layers or faces",
        ),
        (
            np.zeros((6, 4, 5), "f4"),
            {"cube": True},
            r"a cube has the shape \(6, width, width\), a square for each of its faces, and no layers",
        ),
        (np.zeros((6, 4, 4), "f4"), {"cube": True, "address": "border"}, r"a cube is read with a direction: it has no address modes"),
        (FLAT, {"memory": "pitched"}, r"memory of a texture is one of array, linear; got 'pitched'"),
    ],
)
def test_what_no_texture_can_be(target: Emulator, array: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadLaunch, match=message):
        target.texture(array, **options)


def test_surfaces_keep_their_shape(target: Emulator) -> None:
    surface = target.surface(FLAT)
    with pytest.raises(BadLaunch, match=r"cannot copy an array of shape \(6, 4\) into a surface of shape \(4, 6\)"):
        surface.copy_from(FLAT.T)
    with pytest.raises(BadLaunch, match="a surface cannot be in linear memory"):
        target.texture(surface, memory="linear")


def test_images_stay_on_their_target(target: Emulator) -> None:
    other = Emulator(load("a100"))
    surface, texture = other.surface(FLAT), other.texture(FLAT)
    with pytest.raises(BadLaunch, match="the image is on emulator:a100, but the texture would be on emulator:h200"):
        target.texture(surface)
    kernel = target.load(parse(PTX, "k.ptx"))["scale"][1, 1]
    for image, what in ((surface, "surface"), (texture, "texture")):
        with pytest.raises(BadLaunch, match=rf"argument 1 of scale is a {what} of emulator:a100, but the kernel runs on emulator:h200"):
            kernel.bind(image, 1, 1.0)


def test_a_handle_is_an_argument_of_64_bits(target: Emulator) -> None:
    module, surface = target.load(parse(PTX, "k.ptx")), target.surface(FLAT)
    (argument, *_) = module["scale"][1, 1].bind(surface, 1, 1.0).arguments
    assert argument.data == surface.handle.to_bytes(8, "little")
    assert argument.text == "surface: 2d image of f4, 6 x 4"
    assert isinstance(argument.owner, Surface)
    with pytest.raises(BadLaunch, match="argument 2 of scale is a surface, a handle of 64 bits, but the parameter is u32"):
        module["scale"][1, 1].bind(0, surface, 1.0)
    with pytest.raises(BadLaunch, match="argument 1 of pointers is a surface, a handle of 64 bits, but the parameter is u64 pointer"):
        module["pointers"][1, 1].bind(surface, 1)


def test_a_target_may_have_none() -> None:
    with pytest.raises(BadLaunch, match="fake has no textures and surfaces"):
        FakeTarget().texture(FLAT)

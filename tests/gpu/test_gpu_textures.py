"""Textures and surfaces on both roads: the same bits for single texels, and for means of texels a bound.

The programming guide gives the weights of linear filtering eight bits of fraction and does not say how they are rounded, nor how precisely
the mean is computed. So a mean may be off by one step of the weight in each dimension, 1/256 of the range of the texels; the worst that was
found is in the message of the assertion and in the property `worst` of the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.driver import Device
from memlane.errors import BadAccess
from memlane.launch import LoadedModule, Target
from memlane.ptx import parse
from tests.emulate.running import program
from tests.emulate.texturing import on_cube, programs, read
from tests.gpu.conftest import PROGRAMS

pytestmark = pytest.mark.gpu

SHAPES = {"1d": (37,), "2d": (13, 22), "3d": (5, 9, 12)}
CHOICES = [
    ("1d", ("clamp",), False),
    ("1d", ("border",), False),
    ("1d", ("wrap",), True),
    ("1d", ("mirror",), True),
    ("1d", ("border",), True),
    ("2d", ("clamp", "border"), False),
    ("2d", ("wrap", "mirror"), True),
    ("2d", ("clamp", "border"), True),
    ("3d", ("border", "clamp", "border"), False),
    ("3d", ("wrap", "mirror", "clamp"), True),
]
SAMPLES = 20000


@pytest.fixture(scope="module")
def both(gpu: Device, emulator: Target) -> tuple[LoadedModule, LoadedModule]:
    return gpu.load(programs()), emulator.load(programs())


Both = tuple[LoadedModule, LoadedModule]


def on_both(both: Both, kernel: str, image: npt.NDArray[Any], where: Any, dtype: str = "f4", **options: Any) -> list[npt.NDArray[Any]]:
    """What the GPU and the emulator read from a texture of an image at coordinates."""
    return [read(kernels, kernel, kernels.target.texture(image, **options), *where, dtype=dtype) for kernels in both]


def assert_same(found: list[npt.NDArray[Any]], where: Any) -> None:
    real, emulated = (one.view(f"u{one.itemsize}").reshape(len(one), -1) for one in found)
    wrong = np.flatnonzero((real != emulated).any(axis=1))
    places = [tuple(float(np.broadcast_to(axis, len(real))[index]) for axis in where) for index in wrong[:5]]
    values = [(found[0][index].tolist(), found[1][index].tolist()) for index in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} of {len(real)} differ; at {places} GPU and emulator gave {values}"


def coordinates(shape: tuple[int, ...], normalized: bool, step: float | None) -> npt.NDArray[Any]:
    """Random coordinates in and around an image, x first: multiples of `step` in texels, or, without it, such as lie at least 1/100 of a
    texel from the next one, so that the rounding of a product does not decide."""
    random = np.random.default_rng(7)
    columns = []
    for extent in reversed(shape):
        texel = random.integers(-extent, 2 * extent, SAMPLES)
        within = random.uniform(0.01, 0.99, SAMPLES) if step is None else random.integers(0, round(1 / step), SAMPLES) * step
        columns.append(((texel + within) / (extent if normalized else 1)).astype(np.float32))
    return np.stack(columns)


def texels(shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return np.random.default_rng(5).uniform(-1, 1, shape).astype(np.float32)


# -- single texels -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("geometry", "modes", "normalized"), CHOICES)
def test_points_have_the_same_bits(both: Both, geometry: str, modes: tuple[str, ...], normalized: bool) -> None:
    shape = SHAPES[geometry]
    for step in (None,) if normalized else (None, 1 / 64):
        where = coordinates(shape, normalized, step)
        assert_same(on_both(both, f"read_{geometry}", texels(shape), where, address=modes, normalized=normalized), where)


def test_a_point_just_before_a_texel_is_the_one_before(both: Both) -> None:
    where = [np.nextafter(np.arange(1, 38, dtype=np.float32), np.float32(0))]
    assert_same(on_both(both, "read_1d", texels((37,)), where), where)


@pytest.mark.parametrize(("mode", "normalized"), [("clamp", False), ("border", False), ("clamp", True), ("wrap", True), ("mirror", True)])
def test_coordinates_that_are_no_numbers_or_far_away(both: Both, mode: str, normalized: bool) -> None:
    where = [np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9, 1e-40, -0.0], np.float32)]
    for filter in ("point", "linear"):
        found = on_both(both, "read_1d", np.arange(1, 9, dtype=np.float32), where, address=mode, normalized=normalized, filter=filter)
        assert_same(found, where)


WHOLE = [np.array([*range(-3, 12), 2.0**30, -(2.0**31)])]


def test_whole_coordinates(both: Both) -> None:
    assert_same(on_both(both, "fetch_float", texels((9,)), WHOLE, memory="linear"), WHOLE)


def test_one_whole_coordinate_finds_no_texel_of_an_array(both: Both) -> None:
    """The guide has no such fetch. So the emulator refuses it; what the GPU gives is noted here."""
    of_gpu, of_emulator = both
    assert not read(of_gpu, "fetch_float", of_gpu.target.texture(texels((9,))), *WHOLE).any()
    with pytest.raises(BadAccess, match="it takes a texture in linear memory"):
        read(of_emulator, "fetch_float", of_emulator.target.texture(texels((9,))), *WHOLE)


@pytest.mark.parametrize(
    ("geometry", "shape", "items"),
    [("2d", (5, 7), "%r1, %r2"), ("3d", (3, 5, 7), "%r1, %r2, %r3, %r3"), ("a2d", (4, 5, 7), "%r3, %r1, %r2, %r2")],
)
def test_whole_coordinates_of_an_image(gpu: Device, emulator: Target, geometry: str, shape: tuple[int, ...], items: str) -> None:
    """In and around a corner: thread by thread x goes from -1 to 6, y from 2 to 5."""
    body = f"""and.b32 %r1, %tid, 7; sub.s32 %r1, %r1, 1; shr.u32 %r2, %tid, 3; add.s32 %r2, %r2, 2; mov.u32 %r3, 1;
        tex.{geometry}.v4.s32.s32 {{%r4, %r5, %r6, %r7}}, [%rd1, {{{items}}}];
        mul.wide.u32 %rd2, %tid, 4; add.u64 %rd2, %rd2, %out; st.global.u32 [%rd2], %r4;"""
    image = np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape)
    found = []
    for target in (gpu, emulator):
        found.append(run_ptx(target, body, target.texture(image, layered=geometry.startswith("a")), words=32))
    assert found[0].tolist() == found[1].tolist()


@pytest.mark.parametrize(
    ("kernel", "dtype", "channels", "out"),
    [
        ("read_uchar", "u1", 1, "u1"),
        ("read_schar4", "i1", 4, "4i1"),
        ("read_ushort", "u2", 1, "u2"),
        ("read_short2", "i2", 2, "2i2"),
        ("read_uint", "u4", 1, "u4"),
        ("read_int", "i4", 1, "i4"),
        ("read_2d", "f2", 1, "f4"),
        ("read_float4", "f4", 4, "4f4"),
    ],
)
def test_every_type(both: Both, kernel: str, dtype: str, channels: int, out: str) -> None:
    bits = np.random.default_rng(2).integers(0, 256, (8, 16 * channels * np.dtype(dtype).itemsize), dtype=np.uint8)
    image = bits.view(dtype).reshape((8, 16, channels) if channels > 1 else (8, 16))
    image = np.where(np.isfinite(image), image, 1).astype(dtype)
    where = coordinates((8, 16), False, None)
    assert_same(on_both(both, kernel, image, where, dtype=out, channels=channels, address="border"), where)


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2"])
def test_integers_as_floats_are_off_by_one_unit_at_most(both: Both, dtype: str, record_property: Callable[[str, object], None]) -> None:
    image = np.arange(1 << (8 * np.dtype(dtype).itemsize)).astype(dtype)
    real, emulated = on_both(both, "fetch_float", image, [np.arange(len(image))], read="normalized_float", memory="linear")
    units = np.abs(real - emulated) / np.spacing(np.maximum(np.abs(emulated), np.float32(2.0**-24)))
    record_property("worst", float(units.max()))
    assert units.max() <= 1, f"worst: {units.max()} units in the last place, at {image[units.argmax()]}"


def test_gathers(both: Both) -> None:
    image = np.random.default_rng(4).uniform(-1, 1, (9, 12, 4)).astype(np.float32)
    where = coordinates((9, 12), False, 1 / 8)
    for channel in (0, 3):
        assert_same(on_both(both, f"gather_{channel}", image, where, dtype="4f4", channels=4), where)


def test_layers(both: Both) -> None:
    random = np.random.default_rng(6)
    layer = random.integers(0, 6, SAMPLES).astype(np.float32)  # of four: the last stands for those behind it
    x, y = coordinates((7, 9), False, None)
    assert_same(on_both(both, "read_a1d", texels((4, 9)), (x, y, layer), layered=True), (x, y, layer))
    assert_same(on_both(both, "read_a2d", texels((4, 7, 9)), (x, y, layer), layered=True), (x, y, layer))


def test_faces_of_a_cube(both: Both) -> None:
    """Points well inside a texel: near an edge the rounding of a quotient decides."""
    faces = texels((6, 8, 8))
    ways = np.random.default_rng(3).standard_normal((3, SAMPLES)).astype(np.float32)
    within = np.array([on_cube(*map(float, way))[1:] for way in ways.T]) * 8 % 1
    ways = ways[:, ((within > 0.01) & (within < 0.99)).all(axis=1)]
    assert_same(on_both(both, "read_cube", faces, ways, cube=True), ways)


# -- means -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f2", "u1", "u2"])
@pytest.mark.parametrize(("geometry", "modes", "normalized"), CHOICES)
def test_means_are_off_by_one_step_of_the_weights_at_most(
    both: Both, geometry: str, modes: tuple[str, ...], normalized: bool, dtype: str, record_property: Callable[[str, object], None]
) -> None:
    shape = SHAPES[geometry]
    image, reading = texels(shape).astype(dtype), "element"
    if dtype[0] == "u":
        image, reading = np.random.default_rng(5).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True), "normalized_float"
    options = {"filter": "linear", "address": modes, "normalized": normalized, "read": reading}
    values_range, worst = 1.0 if dtype[0] == "u" else 2.0, {}
    for name, step in (("anywhere", None), ("at multiples of 1/256", 1 / 256)):
        where = coordinates(shape, normalized, step)
        real, emulated = on_both(both, f"read_{geometry}", image, where, **options)
        worst[name] = float(np.abs(real - emulated).max())
    record_property("worst", worst)
    bound = len(shape) * values_range / 256
    assert max(worst.values()) <= bound, f"worst difference of {geometry} {dtype} textures: {worst}, the bound is {bound}"


def test_centres_of_texels_are_exact(both: Both) -> None:
    where = [np.arange(37) + 0.5]
    assert_same(on_both(both, "read_1d", texels((37,)), where, filter="linear"), where)


# -- surfaces ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "shape", "dtype", "channels", "layered", "by"),
    [
        ("copy_1d", (13,), "f4", 1, False, 0),
        ("copy_1d", (13,), "f4", 1, False, 3),
        ("copy_2d", (5, 7, 4), "u1", 4, False, 0),
        ("copy_2d", (5, 7, 4), "u1", 4, False, -2),
        ("copy_2d_clamp", (5, 7, 4), "u1", 4, False, 2),
        ("copy_2d_clamp", (5, 7, 4), "u1", 4, False, -3),
        ("shift_2d", (5, 7, 4), "u1", 4, False, 2),
        ("copy_3d", (3, 4, 5, 4), "i4", 4, False, 0),
        ("copy_a1d", (3, 6), "i2", 1, True, 0),
        ("copy_a2d", (3, 4, 5, 2), "f4", 2, True, 0),
    ],
)
def test_surfaces_are_copied(both: Both, kernel: str, shape: tuple[int, ...], dtype: str, channels: int, layered: bool, by: int) -> None:
    image = np.random.default_rng(8).integers(0, 100, shape).astype(dtype)
    found = []
    for kernels in both:
        target = kernels.target
        source = target.surface(image, channels=channels, layered=layered)
        goal = target.surface(np.full_like(image, 9), channels=channels, layered=layered)
        width, height, depth = source.texels.extents
        kernels[kernel][(1, height, max(depth, source.texels.layers)), 32](source, goal, width, height, by)
        found.append(goal.numpy())
    assert np.array_equal(*found)
    if by == 0:
        assert np.array_equal(found[0], image)


def run_ptx(target: Target, body: str, image: Any, words: int = 4) -> npt.NDArray[Any]:
    """The words that 32 threads of PTX leave at `%out`, with the handle of an image in `%rd1`."""
    text = program(f"ld.param.u64 %rd1, [image]; {body} ret;", params=".param .u64 out, .param .u64 image")
    text = re.sub(r"%tid(?![.\w])", "%thread", text)  # ptxas takes the emulator tests' name of a register for a special one
    out = target.zeros(words, np.int32)
    target.load(parse(text, "test.ptx"))["k"][1, 32](out, image)
    return out.numpy()


@pytest.mark.parametrize(
    ("dtype", "word"), [("u1", "300"), ("i1", "-300"), ("u2", "70000"), ("i2", "-5"), ("i4", "-5"), ("f2", "0f3EAAAAAB")]
)
def test_formatted_stores(gpu: Device, emulator: Target, dtype: str, word: str) -> None:
    body = f"mov.u32 %r1, 1; mov.b32 %r2, {word}; sust.p.1d.v4.b32.zero [%rd1, {{%r1}}], {{%r2, %r2, %r2, %r2}};"
    found = []
    for target in (gpu, emulator):
        surface = target.surface(np.zeros((3, 2), dtype), channels=2)
        run_ptx(target, body, surface)
        found.append(surface.numpy())
    assert np.array_equal(*found), found


@pytest.mark.parametrize("operation", ["add.1d.u32", "min.1d.s32", "max.1d.u32", "or.1d.b32", "and.1d.b32"])
def test_reductions(gpu: Device, emulator: Target, operation: str) -> None:
    body = f"mov.u32 %r1, 4; mad.lo.s32 %r2, %tid, -3, 40; sured.b.{operation}.zero [%rd1, {{%r1}}], %r2;"
    found = []
    for target in (gpu, emulator):
        surface = target.surface(np.full(3, 21, np.int32))
        run_ptx(target, body, surface)
        found.append(surface.numpy())
    assert np.array_equal(*found), found


def test_queries(gpu: Device, emulator: Target) -> None:
    body = "".join(f"txq.{name}.b32 %r1, [%rd1]; st.global.u32 [%out+{4 * place}], %r1;" for place, name in enumerate(("width", "height")))
    for target in (gpu, emulator):
        assert run_ptx(target, body, target.texture(np.zeros((7, 5), np.uint8))).tolist() == [5, 7, 0, 0]
        assert run_ptx(target, body.replace("txq", "suq"), target.surface(np.zeros((7, 5), np.uint8))).tolist() == [5, 7, 0, 0]


# -- the life of a texture -----------------------------------------------------------------------------------------------------------


def test_a_texture_shows_what_a_kernel_wrote_to_its_surface(both: Both) -> None:
    for kernels in both:
        target = kernels.target
        image = np.random.default_rng(9).integers(0, 256, (5, 7, 4), dtype=np.uint8)
        goal = target.surface(np.zeros_like(image), channels=4)
        texture = target.texture(goal, read="normalized_float")
        kernels["copy_2d"][(1, 5), 32](target.surface(image, channels=4), goal, 7, 5, 0)
        found = read(kernels, "read_float4", texture, np.arange(7) + 0.5, 3.5, dtype="4f4")
        assert np.array_equal(np.rint(found * 255).astype(np.uint8), image[3])


def test_textures_may_be_dropped_while_kernels_use_them(gpu: Device, both: Both) -> None:
    kernels, spin = both[0], 20_000_000
    delay = gpu.load(parse(PROGRAMS.read_text(encoding="utf-8"), PROGRAMS.name))["spin"]
    x, out = gpu.array(np.arange(64, dtype=np.float32)), gpu.zeros(64)
    texture = gpu.texture(np.arange(64, dtype=np.float32))
    delay[1, 32](spin)
    kernels["read_1d"][1, 64](texture, x, x, x, out, 64)
    del texture
    others = [gpu.texture(np.zeros(64, np.float32)) for _ in range(4)]
    assert np.array_equal(out.numpy(), np.arange(64))
    assert len({other.handle for other in others}) == 4

"""Surfaces: copies against NumPy, what each boundary mode does outside, formatted stores, reductions, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess
from memlane.launch import LoadedModule, Surface
from memlane.ptx import parse
from tests.emulate.running import emulator, program
from tests.emulate.texturing import line_of, programs, read


@pytest.fixture(scope="module")
def kernels() -> LoadedModule:
    return emulator().load(programs())


def pixels(height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (height, width, 4), dtype=np.uint8)


def copied(kernels: LoadedModule, kernel: str, image: np.ndarray, by: int = 0, channels: int = 4, layered: bool = False) -> np.ndarray:
    """What a kernel leaves in a surface of the same shape that was full of 9."""
    target = kernels.target
    source = target.surface(image, channels=channels, layered=layered)
    goal = target.surface(np.full_like(image, 9), channels=channels, layered=layered)
    width, height, depth = source.texels.extents
    kernels[kernel][(1, height, max(depth, source.texels.layers)), 32](source, goal, width, height, by)
    return goal.numpy()


# -- copies ------------------------------------------------------------------------------------------------------------------------


def test_every_shape_is_copied(kernels: LoadedModule) -> None:
    random = np.random.default_rng(1)
    for kernel, image, channels, layered in (
        ("copy_1d", random.standard_normal(13).astype(np.float32), 1, False),
        ("copy_2d", pixels(), 4, False),
        ("copy_3d", random.integers(-9, 9, (3, 4, 5, 4), dtype=np.int32), 4, False),
        ("copy_a1d", random.integers(-9, 9, (3, 6), dtype=np.int16), 1, True),
        ("copy_a2d", random.standard_normal((3, 4, 5, 2)).astype(np.float32), 2, True),
    ):
        assert np.array_equal(copied(kernels, kernel, image, 0, channels, layered), image), kernel


@pytest.mark.parametrize("by", [1, -2, 100])
def test_zero_reads_zeros_outside(kernels: LoadedModule, by: int) -> None:
    image = pixels()
    places = np.arange(7) + by
    wanted = np.where(((places >= 0) & (places < 7))[:, None], image[:, places.clip(0, 6)], 0)
    assert np.array_equal(copied(kernels, "copy_2d", image, by), wanted)


@pytest.mark.parametrize("by", [2, -3])
def test_clamp_reads_the_nearest_texel(kernels: LoadedModule, by: int) -> None:
    image = pixels()
    wanted = image[(np.arange(5) + by).clip(0, 4)][:, (np.arange(7) + by).clip(0, 6)]
    assert np.array_equal(copied(kernels, "copy_2d_clamp", image, by), wanted)


def test_zero_writes_nothing_outside(kernels: LoadedModule) -> None:
    image = pixels()
    wanted = np.full_like(image, 9)
    wanted[:-2, 2:] = image[2:, :-2]
    assert np.array_equal(copied(kernels, "shift_2d", image, 2), wanted)


# -- surfaces and the host -----------------------------------------------------------------------------------------------------------


def test_a_texture_shows_what_a_surface_holds(kernels: LoadedModule) -> None:
    target = kernels.target
    surface = target.surface(np.zeros((2, 3), np.float32))
    texture = target.texture(surface, filter="linear")
    surface.copy_from(np.array([[1, 2, 3], [5, 6, 7]]).astype(np.float32))
    assert read(kernels, "read_2d", texture, [0.5, 2, 2.5], [0.5, 1, 9]).tolist() == [1, 4.5, 7]


def test_a_surface_is_made_of_an_array_of_the_target() -> None:
    target = emulator()
    array = target.array(pixels())
    assert np.array_equal(target.surface(array, channels=4).numpy(), pixels())


def test_a_texture_keeps_its_surface_alive(kernels: LoadedModule) -> None:
    target = kernels.target
    texture = target.texture(target.surface(np.full((2, 2), 3, np.float32)))
    target.surface(np.zeros((2, 2), np.float32))
    assert read(kernels, "read_2d", texture, [0, 1], [1, 1]).tolist() == [3, 3]


# -- formatted stores and reductions -------------------------------------------------------------------------------------------------


def run_ptx(body: str, image: Surface, threads: int = 1) -> np.ndarray:
    """What a surface holds after threads of PTX with its handle in `%rd1`."""
    text = program(f"ld.param.u64 %rd1, [image]; {body} ret;", params=".param .u64 out, .param .u64 image")
    target = image.target
    target.load(parse(text, "test.ptx"))["k"][1, threads](target.zeros(1, np.uint64), image)
    return image.numpy()


STORE = "mov.u32 %r1, 1; mov.b32 %r2, {}; sust.p.1d.v4.b32.zero [%rd1, {{%r1}}], {{%r2, %r2, %r2, %r2}};"


@pytest.mark.parametrize(
    ("dtype", "word", "stored"),
    [
        ("u1", "300", 255),
        ("u1", "77", 77),
        ("i1", "-300", -128),
        ("i1", "300", 127),
        ("u2", "70000", 65535),
        ("i2", "-5", -5),
        ("i4", "-5", -5),
        ("f2", "0f3EAAAAAB", np.float16(1 / 3)),
        ("f4", "0f3EAAAAAB", np.float32(1 / 3)),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_formatted_stores_convert(dtype: str, word: str, stored: float, channels: int) -> None:
    image = np.zeros((3, channels) if channels > 1 else 3, dtype)
    found = run_ptx(STORE.format(word), emulator().surface(image, channels=channels))
    image[1] = stored
    assert np.array_equal(found, image)


COORDINATES = "mov.u32 %r1, 4; mov.u32 %r2, 1; mov.u32 %r7, 7; neg.s32 %r3, %tid; mul.lo.s32 %r4, %tid, -4; setp.ne.u32 %p1, %tid, 0;"


@pytest.mark.parametrize(
    ("instruction", "start", "wanted"),
    [
        ("sured.b.add.1d.u32.zero [%rd1, {%r1}], %r7", 5, [5, 5 + 32 * 7]),
        ("sured.b.min.1d.s32.zero [%rd1, {%r1}], %r3", 5, [5, -31]),
        ("@%p1 sured.b.max.1d.u32.zero [%rd1, {%r1}], %r3", 5, [5, -1]),
        ("sured.b.or.1d.b32.zero [%rd1, {%r1}], %tid", 64, [64, 64 + 31]),
        ("sured.b.and.1d.b32.zero [%rd1, {%r1}], %r7", 13, [13, 5]),
        ("sured.p.add.1d.b32.zero [%rd1, {%r2}], %r7", 5, [5, 5 + 32 * 7]),
        ("sured.b.add.1d.u32.zero [%rd1, {%r4}], %r7", 5, [5 + 7, 5]),  # only lane 0 lies inside
    ],
)
def test_reductions_of_a_whole_warp(instruction: str, start: int, wanted: list[int]) -> None:
    surface = emulator().surface(np.full(2, start, np.int32))
    assert run_ptx(f"{COORDINATES} {instruction};", surface, 32).tolist() == wanted


# -- what is refused -----------------------------------------------------------------------------------------------------------------


def refusal(kernels: LoadedModule, kernel: str, image: np.ndarray, by: int) -> str:
    with pytest.raises(BadAccess) as caught:
        copied(kernels, kernel, image, by)
    return str(caught.value)


def test_a_trap_names_the_thread_and_the_place(kernels: LoadedModule) -> None:
    line = line_of("COPY(copy_2d_trap,")
    assert refusal(kernels, "copy_2d_trap", pixels(), -2) == (
        f"kernel copy_2d_trap, textures.cu:{line}: block (0, 0, 0), thread (0, 0, 0) read a surface at (-8, 0), x in bytes "
        "(suld.b.2d.v4.b8.trap): out of bounds; the surface (2d image of u1 x 4, 7 x 5) has rows of 28 bytes"
    )
    assert "thread (5, 0, 0) read a surface at (28, 0)" in refusal(kernels, "copy_2d_trap", pixels(), 2)


def test_x_must_be_a_multiple_of_the_access() -> None:
    surface = emulator().surface(np.zeros((2, 8), np.uint8))
    with pytest.raises(BadAccess, match=r"thread \(1, 0, 0\) wrote a surface at \(1, 1\), x in bytes .*: x is not a multiple of the size"):
        run_ptx("mov.u32 %r1, 1; sust.b.2d.b32.trap [%rd1, {%tid, %r1}], %r1;", surface, 3)


def test_a_texture_is_no_surface(kernels: LoadedModule) -> None:
    target = kernels.target
    texture, surface = target.texture(pixels(), channels=4), target.surface(pixels(), channels=4)
    with pytest.raises(BadAccess, match=r"of a 2d texture \(2d image of u1 x 4, 7 x 5\); it takes a 2d surface$"):
        kernels["copy_2d"][1, 32](texture, surface, 7, 5, 0)


# -- on several cores ----------------------------------------------------------------------------------------------------------------


def test_blocks_on_several_cores_share_a_surface() -> None:
    target = emulator(threads=3)
    surface, blocks = target.surface(np.zeros(16, np.uint32)), 200
    body = """ld.param.u64 %rd1, [image]; mov.u32 %r1, %ctaid.x; add.u32 %r1, %r1, %tid; and.b32 %r1, %r1, 15; shl.b32 %r1, %r1, 2;
        sured.b.add.1d.u32.trap [%rd1, {%r1}], %tid; ret;"""
    text = program(body, params=".param .u64 out, .param .u64 image")
    target.load(parse(text, "test.ptx"))["k"][blocks, 64](target.zeros(1), surface)
    block, thread = np.divmod(np.arange(blocks * 64), 64)
    assert surface.numpy().tolist() == np.bincount((block + thread) % 16, weights=thread).tolist()

"""Textures: cases by hand, then random coordinates against the formulas of the programming guide."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.emulate import Emulator
from memlane.errors import BadAccess, UnsupportedPtx
from memlane.launch import Layers, LoadedModule, Observation, Surface, Texture
from memlane.measure import count, trace
from memlane.ptx import parse
from tests.emulate.checking import check
from tests.emulate.running import emulator, program
from tests.emulate.texturing import expected, line_of, on_cube, programs, read

INF, NAN = np.inf, np.nan
T = np.array([1, 2, 4, 8], np.float32)


@pytest.fixture(scope="module")
def kernels() -> LoadedModule:
    return emulator().load(programs())


def assert_same_bits(found: npt.NDArray[Any], wanted: npt.ArrayLike) -> None:
    assert found.astype(np.float32).view(np.uint32).tolist() == np.asarray(wanted, np.float32).view(np.uint32).tolist()


# -- by hand -----------------------------------------------------------------------------------------------------------------------

BY_HAND = [
    (
        "point",
        "clamp",
        False,
        [(0, 1), (0.5, 1), (0.99, 1), (1, 2), (3.99, 8), (-0.5, 1), (4, 8), (1e30, 8), (-INF, 1), (INF, 8), (NAN, 1)],
    ),
    ("point", "border", False, [(0, 1), (3.99, 8), (-1e-30, 0), (-0.5, 0), (4, 0), (INF, 0), (-INF, 0), (NAN, 1)]),
    ("point", "wrap", True, [(0, 1), (0.25, 2), (0.875, 8), (1, 1), (-0.125, 8), (-1e-30, 8), (5.5, 4), (-7.75, 2), (2e9, 1), (INF, 1)]),
    ("point", "mirror", True, [(0.25, 2), (1.125, 8), (1.875, 1), (2.125, 1), (-0.125, 1), (-0.875, 8), (-1.125, 8), (2e9, 1), (NAN, 1)]),
    ("point", "clamp", True, [(0, 1), (0.49, 2), (0.5, 4), (1, 8), (7, 8), (-7, 1)]),
    ("point", "border", True, [(0, 1), (0.999, 8), (1, 0), (-0.001, 0)]),
    # the centre of a texel is the texel; half way to the next is their mean; before the first centre there is only the first
    (
        "linear",
        "clamp",
        False,
        [(0.5, 1), (1.5, 2), (3.5, 8), (1, 1.5), (2, 3), (2.25, 3.5), (0, 1), (4, 8), (-9, 1), (INF, 8)],
    ),
    ("linear", "border", False, [(0.5, 1), (0, 0.5), (-0.25, 0.25), (-0.5, 0), (4, 4), (4.25, 2), (4.5, 0), (INF, 0)]),
    ("linear", "wrap", True, [(0.125, 1), (0, 4.5), (1, 4.5), (-1, 4.5), (0.25, 1.5), (1 / 16, 2.75)]),
    ("linear", "mirror", True, [(0.125, 1), (0, 1), (1, 8), (1.25, 6), (-0.25, 1.5), (2, 1)]),
    # weights are multiples of 1/256, rounded to the nearest
    ("linear", "clamp", False, [(0.5 + 1 / 256, 1 + 1 / 256), (0.5 + 1 / 600, 1), (0.5 + 1 / 500, 1 + 1 / 256), (1.5 - 1 / 600, 2)]),
]


@pytest.mark.parametrize(("filter", "address", "normalized", "cases"), BY_HAND)
def test_one_dimension_by_hand(
    kernels: LoadedModule, filter: str, address: str, normalized: bool, cases: list[tuple[float, float]]
) -> None:
    texture = kernels.target.texture(T, filter=filter, address=address, normalized=normalized)
    x, wanted = zip(*cases, strict=True)
    assert_same_bits(read(kernels, "read_1d", texture, x), wanted)


def test_whole_coordinates_name_a_texel_and_find_zero_outside(kernels: LoadedModule) -> None:
    texture = kernels.target.texture(T, memory="linear")
    assert_same_bits(read(kernels, "fetch_float", texture, [-1, 0, 3, 4, 2**31, -(2.0**31)]), [0, 1, 8, 0, 0, 0])


def test_linear_memory_is_read_where_it_lies(kernels: LoadedModule) -> None:
    array = kernels.target.array(np.arange(12, dtype=np.uint8).reshape(3, 4))
    texture = kernels.target.texture(array, channels=4, memory="linear")
    assert read(kernels, "fetch_uchar4", texture, [2, 0], dtype="4u1").tolist() == [[8, 9, 10, 11], [0, 1, 2, 3]]
    array.copy_from(np.full((3, 4), 7, np.uint8))
    assert read(kernels, "fetch_uchar4", texture, [2], dtype="4u1").tolist() == [[7, 7, 7, 7]]


def test_an_image_is_a_copy(kernels: LoadedModule) -> None:
    array = kernels.target.array(T)
    texture = kernels.target.texture(array)
    array.copy_from(np.zeros(4, np.float32))
    assert_same_bits(read(kernels, "read_1d", texture, [2.5]), [4])


@pytest.mark.parametrize(
    ("kernel", "dtype", "channels", "texel", "out"),
    [
        ("read_uchar", "u1", 1, 200, "u1"),
        ("read_schar4", "i1", 4, (-128, -1, 0, 127), "4i1"),
        ("read_ushort", "u2", 1, 65535, "u2"),
        ("read_short2", "i2", 2, (-32768, 12345), "2i2"),
        ("read_uint", "u4", 1, 4000000000, "u4"),
        ("read_int", "i4", 1, -2000000000, "i4"),
        ("read_2d", "f2", 1, -0.333251953125, "f4"),
        ("read_float4", "f4", 4, (1.5, -2, 1e-40, 3e38), "4f4"),
    ],
)
def test_elements_of_every_type(kernels: LoadedModule, kernel: str, dtype: str, channels: int, texel: Any, out: str) -> None:
    image = np.zeros((3, 5, channels) if channels > 1 else (3, 5), dtype)
    image[1, 3] = texel
    texture = kernels.target.texture(image, channels=channels)
    found = read(kernels, kernel, texture, [3.5, 4.5], 1.5, dtype=out)
    assert np.array_equal(found[0], image[1, 3])
    assert not found[1].any()


@pytest.mark.parametrize(
    ("dtype", "values", "wanted"),
    [
        ("u1", [0, 51, 255, 1], [0, np.float32(51) / np.float32(255), 1, np.float32(1) / np.float32(255)]),
        ("i1", [-128, -127, 127, 0], [-1, -1, 1, 0]),
        ("u2", [0, 65535, 1, 32768], [0, 1, np.float32(1) / np.float32(65535), np.float32(32768) / np.float32(65535)]),
        ("i2", [-32768, -32767, 32767, 1], [-1, -1, 1, np.float32(1) / np.float32(32767)]),
    ],
)
def test_integers_as_floats(kernels: LoadedModule, dtype: str, values: list[int], wanted: list[float]) -> None:
    for memory, kernel in (("array", "read_1d"), ("linear", "fetch_float")):
        texture = kernels.target.texture(np.array(values, dtype), read="normalized_float", memory=memory)
        assert_same_bits(read(kernels, kernel, texture, [0, 1, 2, 3]), wanted)


def test_an_infinity_without_weight_does_no_harm(kernels: LoadedModule) -> None:
    texture = kernels.target.texture(np.array([1, INF, 2], np.float32), filter="linear")
    assert_same_bits(read(kernels, "read_1d", texture, [0.5, 1, 2.5]), [1, INF, 2])


def test_levels_and_gradients_make_no_difference(kernels: LoadedModule) -> None:
    texture = kernels.target.texture(T.reshape(2, 2), filter="linear")
    for kernel in ("read_2d", "read_level", "read_gradient"):
        assert_same_bits(read(kernels, kernel, texture, [1, 0.5], [1, 0.5], [0, 3]), [15 / 4, 1])


def test_gather_takes_the_four_neighbours_from_the_lower_left_on(kernels: LoadedModule) -> None:
    image = np.arange(48, dtype=np.float32).reshape(3, 4, 4)
    texture = kernels.target.texture(image, channels=4)
    for channel in (0, 3):
        found = read(kernels, f"gather_{channel}", texture, [2.25, 0.25], [1.75, 1.75], dtype="4f4")
        assert_same_bits(found[0], [image[2, 1, channel], image[2, 2, channel], image[1, 2, channel], image[1, 1, channel]])
        assert_same_bits(found[1], [image[2, 0, channel], image[2, 0, channel], image[1, 0, channel], image[1, 0, channel]])


def test_layers_are_apart_and_the_last_one_stands_for_those_behind(kernels: LoadedModule) -> None:
    lines = np.arange(12, dtype=np.float32).reshape(3, 4)
    texture = kernels.target.texture(lines, layered=True, filter="linear")
    assert_same_bits(read(kernels, "read_a1d", texture, [1.5, 2, 4, 1.5], 0, [0, 1, 2, 9]), [1, 5.5, 11, 9])
    sheets = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    texture = kernels.target.texture(sheets, layered=True, filter="linear")
    assert_same_bits(read(kernels, "read_a2d", texture, [0.5, 1, 4], [0.5, 0.5, 3], [1, 1, 0]), [12, 12.5, 11])


def test_the_faces_of_a_cube(kernels: LoadedModule) -> None:
    faces = np.arange(6 * 4, dtype=np.float32).reshape(6, 2, 2)
    texture = kernels.target.texture(faces, cube=True)
    ways = [(1, 0.5, 0.5), (-1, 0.5, 0.5), (0.5, 1, 0.5), (0.5, -1, 0.5), (0.5, 0.5, 1), (0.5, 0.5, -1), (3, -1, 1)]
    # on +x, z goes to the left and y up: y = z = 1/2 is the upper left texel; and so on
    wanted = [faces[0, 0, 0], faces[1, 0, 1], faces[2, 1, 1], faces[3, 0, 1], faces[4, 0, 1], faces[5, 0, 0], faces[0, 1, 0]]
    assert_same_bits(read(kernels, "read_cube", texture, *np.transpose(ways)), wanted)


@pytest.mark.parametrize("filter", ["point", "linear"])
def test_random_directions(kernels: LoadedModule, filter: str) -> None:
    random = np.random.default_rng(5)
    faces = (random.integers(-500, 500, (6, 5, 5)) / 16).astype(np.float32)
    ways = random.standard_normal((3, 200)).astype(np.float32)
    found = read(kernels, "read_cube", kernels.target.texture(faces, cube=True, filter=filter), *ways)
    places = [on_cube(*map(float, way)) for way in ways.T]
    wanted = [float(expected(faces[face], ("clamp", "clamp"), filter == "linear", True, where)) for face, *where in places]
    assert_same_bits(found, wanted)


# -- at random ---------------------------------------------------------------------------------------------------------------------

SHAPES = {"1d": (7,), "2d": (5, 6), "3d": (3, 4, 5)}
CHOICES = [
    ("1d", ("clamp",), False),
    ("1d", ("border",), True),
    ("2d", ("clamp", "border"), False),
    ("2d", ("wrap", "mirror"), True),
    ("2d", ("mirror", "clamp"), True),
    ("3d", ("border", "clamp", "border"), False),
    ("3d", ("wrap", "border", "mirror"), True),
]


@pytest.mark.parametrize("filter", ["point", "linear"])
@pytest.mark.parametrize(("geometry", "modes", "normalized"), CHOICES)
def test_random_coordinates(kernels: LoadedModule, geometry: str, modes: tuple[str, ...], normalized: bool, filter: str) -> None:
    random = np.random.default_rng([len(geometry), len(modes), ord(modes[0][0]), normalized])
    shape = SHAPES[geometry]
    texels = (random.integers(-500, 500, shape) / 16).astype(np.float32)
    texture = kernels.target.texture(texels, filter=filter, address=modes, normalized=normalized)
    extents = np.array(shape[::-1]) if not normalized else np.ones(len(shape))
    where = (random.uniform(-1.5, 2.5, (150, len(shape))) * extents).astype(np.float32)
    found = read(kernels, f"read_{geometry}", texture, *where.T)
    wanted = [float(expected(texels, modes, filter == "linear", normalized, tuple(row))) for row in where]
    assert_same_bits(found, wanted)


# -- what PTX can say besides --------------------------------------------------------------------------------------------------------


def run_ptx(body: str, image: Texture | Surface, words: int = 4) -> list[int]:
    """Run a thread of PTX with the handle of an image in `%rd1`; the words that it left at `%out`."""
    target = image.target
    out = target.zeros(words, np.int32)
    text = program(f"ld.param.u64 %rd1, [image]; {body} ret;", params=".param .u64 out, .param .u64 image")
    target.load(parse(text, "test.ptx"))["k"][1, 1](out, image)
    return list(out.numpy())


def test_whole_coordinates_of_an_image() -> None:
    texture = emulator().texture(np.arange(12, dtype=np.int32).reshape(3, 4))
    body = """mov.u32 %r1, 3; mov.u32 %r2, 2; mov.u32 %r7, -1;
        tex.2d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r1, %r2}]; st.global.u32 [%out], %r3; st.global.u32 [%out+4], %r4;
        tex.2d.v4.s32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r7, %r2}]; st.global.u32 [%out+8], %r3;"""
    assert run_ptx(body, texture) == [11, 0, 0, 0]


def test_results_as_halves() -> None:
    texture = emulator().texture(np.array([[1.5, 1 / 3, -2, 1e6]], np.float32), channels=4, memory="linear")
    single, both = "tex.1d.v4.f16.s32 {%h1, %h2, %h3, %h4}", "tex.1d.v2.f16x2.s32 {%r2, %r3}"
    body = f"""mov.u32 %r1, 0; {single}, [%rd1, {{%r1}}]; st.global.u16 [%out], %h1; st.global.u16 [%out+2], %h2;
        {both}, [%rd1, {{%r1}}]; st.global.u32 [%out+4], %r2; st.global.u32 [%out+8], %r3;"""
    halves = np.array(run_ptx(body, texture), np.int32).view(np.float16)
    assert halves.tolist() == [1.5, np.float16(1 / 3), 1.5, np.float16(1 / 3), -2, np.inf, 0, 0]


def test_queries() -> None:
    names = ("width", "height", "depth", "array_size")
    body = "".join(f"txq.{name}.b32 %r1, [%rd1]; st.global.u32 [%out+{4 * place}], %r1;" for place, name in enumerate(names))
    target = emulator()
    assert run_ptx(body, target.texture(np.zeros((2, 3, 5), np.uint8))) == [5, 3, 2, 1]
    assert run_ptx(body, target.texture(np.zeros((7, 5), np.uint8), layered=True)) == [5, 0, 0, 7]
    assert run_ptx(body.replace("txq", "suq"), target.surface(np.zeros((3, 5, 4), np.uint8), channels=4)) == [5, 3, 0, 1]


@pytest.mark.parametrize(
    ("instruction", "named"),
    [
        ("tex.acube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1, %f2, %f3, %f3}]", "tex.acube.v4.f32.f32"),
        ("tex.2d.v2.f32.f32 {%f1, %f2}, [%rd1, {%f1, %f2}]", "tex.2d.v2.f32.f32"),
        ("txq.channel_order.b32 %r1, [%rd1]", "txq.channel_order.b32"),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, %rd2, {%f1, %f2}]", "tex.2d.v4.f32.f32 with a sampler of its own"),
    ],
)
def test_what_is_not_modelled_is_named(instruction: str, named: str) -> None:
    with pytest.raises(UnsupportedPtx, match=rf"the emulator does not model {named}(?!\.)"):
        run_ptx(f"{instruction};", emulator().texture(T))


# -- handles that are none -----------------------------------------------------------------------------------------------------------


def refused(kernels: LoadedModule, kernel: str, texture: object) -> str:
    """What a launch with a bad handle is told, behind its place."""
    with pytest.raises(BadAccess) as caught:
        read(kernels, kernel, texture, np.zeros(3))  # type: ignore[arg-type]
    text = str(caught.value)
    head = f"kernel {kernel}, textures.cu:{line_of(f'READ({kernel},')}: block (0, 0, 0), thread (0, 0, 0) executed tex."
    assert text.startswith(head)
    return text.partition(" with ")[2]


def test_a_number_is_no_handle(kernels: LoadedModule) -> None:
    assert refused(kernels, "read_2d", 77) == "the handle 0x4d, which is not a texture or surface of this target"


def test_another_shape_is_refused(kernels: LoadedModule) -> None:
    texture = kernels.target.texture(T)
    wanted = f"the handle {texture.handle:#x} of a 1d texture (1d image of f4, 4); it takes a 2d texture"
    assert refused(kernels, "read_2d", texture) == wanted


def test_linear_memory_has_no_real_coordinates(kernels: LoadedModule) -> None:
    texture = kernels.target.texture(T, memory="linear")
    assert refused(kernels, "read_1d", texture).endswith("of a texture in linear memory (1d image of f4, 4); it takes a 1d texture")


def test_one_whole_coordinate_reads_linear_memory_only(kernels: LoadedModule) -> None:
    texture = kernels.target.texture(T)
    assert refused(kernels, "fetch_float", texture) == (
        f"the handle {texture.handle:#x} of a 1d texture (1d image of f4, 4); "
        'it takes a texture in linear memory: target.texture(..., memory="linear")'
    )


def test_a_dropped_texture_is_noticed(kernels: LoadedModule) -> None:
    handle = kernels.target.texture(T).handle
    assert refused(kernels, "read_1d", handle).endswith(
        "of a texture (1d image of f4, 4) that no longer exists; keep the object that target.texture returned as long as kernels use it"
    )


def test_a_texture_may_go_whoever_is_making_one(kernels: LoadedModule) -> None:
    """The garbage collector may strike in a thread that holds a lock for which the maker waits."""
    target = kernels.target
    assert isinstance(target, Emulator)
    doomed = [target.texture(T)]
    handle = doomed[0].handle
    with target.textures._lock:
        dropping = threading.Thread(target=doomed.clear)
        dropping.start()
        dropping.join(5)
        assert not dropping.is_alive()
    kept = [target.texture(T) for _ in range(200)]
    assert "that no longer exists" in refused(kernels, "read_1d", handle)
    assert_same_bits(read(kernels, "read_1d", kept[-1], [0.5]), T[:1])


# -- the other layers ----------------------------------------------------------------------------------------------------------------


def call_of(kernels: LoadedModule, threads: int) -> Any:
    target = kernels.target
    arguments = target.texture(T.reshape(2, 2)), *(target.zeros(threads) for _ in range(4)), threads
    return kernels["read_2d"][1, threads], arguments


def test_fetches_are_counted(kernels: LoadedModule) -> None:
    call, arguments = call_of(kernels, 40)
    (site,) = [entry for entry in count(call, *arguments).sites if entry.site.space == "tex"]
    assert (site.requests, site.lanes, site.bytes, site.sectors, site.wavefronts) == (2, 40, 40 * 16, None, None)


def test_fetches_take_their_latency(kernels: LoadedModule) -> None:
    target = kernels.target
    chain = "tex.1d.v4.s32.s32 {%r1, %r2, %r3, %r4}, [%rd1, {%r1}];"
    cycles = []
    for length in (1, 11):
        text = program(
            f"ld.param.u64 %rd1, [image]; mov.u32 %r1, 0; {chain * length} st.global.u32 [%out], %r1; ret;",
            params=".param .u64 out, .param .u64 image",
        )
        out, texture = target.zeros(1, np.int32), target.texture(np.zeros(4, np.int32), memory="linear")
        seen: list[Observation] = []
        launch = target.load(parse(text, "test.ptx"))["k"][1, 1].bind(out, texture)
        target.launch(replace(launch, layers=Layers(clock=True, report=seen.append)))
        cycles.append(seen[0].cycles)
    assert cycles[1] - cycles[0] == 10 * round(target.chip.latency.texture)


def test_the_checker_finds_nothing_wrong_with_them(kernels: LoadedModule) -> None:
    call, arguments = call_of(kernels, 40)
    assert check(call, *arguments) == ()


def test_fetches_are_traced(kernels: LoadedModule) -> None:
    call, arguments = call_of(kernels, 40)
    recorded = trace(call, *arguments)
    (site,) = [site for site in recorded.sites if site.space == "tex"]
    assert (site.kind, site.op, site.nbytes, site.line) == ("load", "tex.2d.v4.f32.f32", 16, line_of("READ(read_2d,"))
    assert sum(recorded.table["site"].to_numpy() == site.id) == 2

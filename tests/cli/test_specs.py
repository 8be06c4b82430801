"""`--arg`, `--grid` and `--block`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlane.cli.arguments import ArgumentSpec, StructureSpec
from memlane.cli.specs import parse_argument, parse_extent
from memlane.errors import CommandError
from memlane.launch import DeviceArray, Target
from memlane.launch.tensor_map import TensorMap
from memlane.launch.texture import Sampling, Surface, Texture
from memlane.targets import target
from tests.cli.conftest import Command


def host_of(text: str) -> Any:
    spec = parse_argument(text)
    assert isinstance(spec, ArgumentSpec)
    return spec.host


def test_array_is_zeros_unless_told_otherwise() -> None:
    host = host_of("out:f4[4,3]")
    assert host.dtype == np.float32
    assert np.array_equal(host, np.zeros((4, 3)))


def test_arange_counts_in_row_major_order() -> None:
    assert np.array_equal(host_of("i8[2,3]=arange"), np.arange(6).reshape(2, 3))


def test_random_is_reproducible_by_its_seed() -> None:
    first, again, other = (host_of(f"x:f4[100]=random:{seed}") for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert 0 <= first.min() < first.max() < 1


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_random_floats_are_those_of_numpy(kind: str) -> None:
    assert np.array_equal(host_of(f"{kind}[3,100]=random:7"), np.random.default_rng(7).random((3, 100), kind))


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "i8", "u8"])
def test_random_integers_are_those_of_numpy(kind: str) -> None:
    assert np.array_equal(host_of(f"{kind}[3,100]=random:7"), np.random.default_rng(7).integers(0, 256, (3, 100), kind))


def test_random_integers_fit_the_type() -> None:
    host = host_of("i1[1000]=random:1")
    assert host.dtype == np.int8
    assert 0 <= host.min() < host.max() <= 127


def test_help_names_the_generator_of_random_numbers(memlane: Command) -> None:
    said = " ".join(memlane("count", "--help").out.split())
    assert "drawn by numpy.random.default_rng(SEED): floats from 0 to 1, integers from 0 to 255" in said


@pytest.mark.parametrize("command", ["count", "explain"])
def test_an_array_without_elements_is_an_empty_allocation(memlane: Command, tmp_path: Path, command: str) -> None:
    path = tmp_path / "write.cu"
    path.write_text('extern "C" __global__ void write(unsigned char* out) { out[threadIdx.x] = 1; }')
    answer = memlane(command, path, "--grid", 1, "--block", 1, "--arg", "u1[0]")
    assert answer.code == 1
    assert "block (0, 0, 0), thread (0, 0, 0) wrote 1 byte at 0x" in answer.err
    assert "just past the end of the empty allocation at 0x" in answer.err


def test_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    np.save(path, np.arange(5, dtype=np.int32))
    assert np.array_equal(host_of(f"x:i4[5]={path}"), np.arange(5))
    assert np.array_equal(host_of(f"x:i4[]={path}"), np.arange(5))


def test_number_keeps_its_type() -> None:
    value = host_of("1024:i4")
    assert isinstance(value, np.int32)
    assert value == 1024
    assert host_of("-0.5:f8") == -0.5
    assert host_of("0x10:u8") == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1024", r"--arg 1024: write \[NAME:\]DTYPE\[SHAPE\]"),
        ("x:q9[4]", "q9 is not a number type"),
        ("x:bf16[4]=random:1", "NumPy has no bf16: give its bits as u2, the upper halves of those of f4"),
        ("1:bfloat16", "NumPy has no bfloat16: give its bits as u2"),
        ("x:f4[4]=ones", "fill with zeros, arange, random:SEED or a .npy file, not 'ones'"),
        ("300:i1", "300 is not of type int8"),
        ("x:f4[4]=missing.npy", "cannot read missing.npy"),
    ],
)
def test_wrong_argument_is_told_what_to_write(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        parse_argument(text)


def test_file_of_another_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    np.save(path, np.zeros((2, 2)))
    with pytest.raises(CommandError, match=r"the array in .* is f8\[2, 2\]"):
        parse_argument(f"x:f4[2,2]={path}")


def test_extents() -> None:
    assert parse_extent("--grid", "32,16") == (32, 16)
    with pytest.raises(CommandError, match=r"--grid 'a,2': write X, X,Y or X,Y,Z"):
        parse_extent("--grid", "a,2")
    with pytest.raises(CommandError, match="--block is missing"):
        parse_extent("--block", "")


# -- structures, textures and tensor maps ------------------------------------------------------------------------------------------


class Sample(ctypes.Structure):
    """What C makes of `{ char tag; double weight; float* x; short n; }`."""

    _fields_ = (("tag", ctypes.c_int8), ("weight", ctypes.c_double), ("x", ctypes.c_void_p), ("n", ctypes.c_int16))


class Outer(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int32), ("inner", Sample), ("last", ctypes.c_uint8))


@pytest.fixture(scope="module")
def emulator() -> Target:
    return target("emulator:h200")


def test_members_lie_where_c_puts_them(emulator: Target) -> None:
    spec = parse_argument("{-3:i1, 2.5:f8, x:f4[8]=arange, 7:i2}")
    assert isinstance(spec, StructureSpec)
    assert (spec.nbytes, spec.alignment) == (ctypes.sizeof(Sample), ctypes.alignment(Sample))
    made = spec.on(emulator)
    read = Sample.from_buffer_copy(made)
    array = made.members[2]
    assert isinstance(array, DeviceArray)
    assert (read.tag, read.weight, read.x, read.n) == (-3, 2.5, array.address, 7)
    assert np.array_equal(array.numpy(), np.arange(8))


def test_structures_in_structures(emulator: Target) -> None:
    spec = parse_argument("p:{1:i4, {2:i1, 0.5:f8, 0:u8, 3:i2}, 255:u1}")
    assert isinstance(spec, StructureSpec)
    assert spec.offsets == (Outer.first.offset, Outer.inner.offset, Outer.last.offset)
    read = Outer.from_buffer_copy(spec.on(emulator))
    assert (read.first, read.inner.tag, read.inner.weight, read.inner.n, read.last) == (1, 2, 0.5, 3, 255)


def test_alignment_that_a_type_says_itself() -> None:
    vector = parse_argument("{1:i4, {1:f4, 2:f4, 3:f4, 4:f4}@16}")
    assert isinstance(vector, StructureSpec)
    assert (vector.offsets, vector.nbytes, vector.alignment) == ((0, 16), 32, 16)


def test_textures_have_the_options_of_the_target(emulator: Target) -> None:
    made = parse_argument("texture(f4[4,8]=arange, filter=linear, address=wrap, normalized)").on(emulator)
    assert isinstance(made, Texture)
    assert (str(made.texels), made.sampling) == ("2d image of f4, 8 x 4", Sampling("linear", ("wrap", "wrap", "clamp"), True))
    surface = parse_argument("s:surface(u1[4,8,4]=random:1, channels=4)").on(emulator)
    assert isinstance(surface, Surface)
    assert str(surface.texels) == "2d image of u1 x 4, 8 x 4"
    tiles = parse_argument("tensor_map(f4[64,64], box=16x8, swizzle=32B)").on(emulator)
    assert isinstance(tiles, TensorMap)
    assert tiles.tiling.box == (8, 16)  # innermost first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", r"--arg {}: write a structure as its members, separated by commas, for example '{f4\[1024\]=arange, 1024:i4}'"),
        ("{1:i4,}", "write a structure as its members, separated by commas"),
        ("{1:i4, 5}", r"--arg 5: write .* or a structure as '{f4\[1024\], 1024:i4}'"),
        ("{1:i4}@3", "the alignment of a structure is a power of two up to 128 bytes, not 3"),
        ("texture(5:i4)", r"a texture needs an array, for example 'texture\(f4\[64,64\]=random:7, filter=linear\)'"),
        ("texture(f4[8], filtr=linear)", "a texture takes no 'filtr'; it takes channels, filter, address, normalized"),
        ("texture(f4[8], normalized=maybe)", "normalized must be true or false, not 'maybe'"),
        ("surface(f4[8], channels=many)", "channels must be a number, not 'many'"),
        ("tensor_map(f4[8,8])", "a tensor map needs the shape of its box, as in 'tensor_map"),
        ("tensor_map(f4[8,8], box=8by8)", "write a box as 64x32, not '8by8'"),
    ],
)
def test_wrong_structure_or_image_is_told_what_to_write(text: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        parse_argument(text)


def test_image_that_the_target_refuses_is_an_error_of_the_command_line(emulator: Target) -> None:
    with pytest.raises(CommandError, match=r"--arg texture\(f8\[8\]\): a texture cannot hold float64"):
        parse_argument("texture(f8[8])").on(emulator)

"""Python values as kernel arguments: the bytes that the kernel gets, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.errors import BadLaunch
from memlane.launch import Argument, LoadedModule
from memlane.launch.arguments import pack
from memlane.ptx import Variable
from tests.launch.fake_target import FakeTarget


def bound(kernels: LoadedModule, name: str, *args: object) -> tuple[Argument, ...]:
    return kernels[name][1, 32].bind(*args).arguments


def one(type_: str, value: object) -> Argument:
    return pack("k", [Variable("param", type_, "p")], [value], FakeTarget())[0]


def test_array_integer_and_float(kernels: LoadedModule, target: FakeTarget) -> None:
    array = target.empty((4, 5), "f4")
    pointer, count, factor = bound(kernels, "scale", array, 20, 0.5)
    assert pointer.data == struct.pack("<Q", array.address)
    assert (pointer.text, pointer.memory, pointer.owner) == ("f4[4, 5]", (array.address, 80), array.owner)
    assert (count.data, count.text, count.memory) == (struct.pack("<I", 20), "20", None)
    assert (factor.data, factor.text) == (struct.pack("<f", 0.5), "0.5")


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", "sub")
@given(data=st.data())
def test_integers_are_little_endian_twos_complement(kind: str, bits: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(-(1 << (bits - 1)), (1 << bits) - 1))
    packed = one(f"{kind}{bits}", number).data
    assert len(packed) == bits // 8
    assert int.from_bytes(packed, "little") == number % (1 << bits)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("f32", 3, struct.pack("<f", 3)),
        ("f64", np.float64(0.1), struct.pack("<d", 0.1)),
        ("f16", 1.5, struct.pack("<e", 1.5)),
        ("b32", 0.1, struct.pack("<f", 0.1)),
        ("b64", 0.1, struct.pack("<d", 0.1)),
        ("b32", np.float32(0.1), np.float32(0.1).tobytes()),
        ("b16", np.float16(0.1), np.float16(0.1).tobytes()),
        ("u32", np.int32(-1), b"\xff\xff\xff\xff"),
        ("s16", True, b"\x01\x00"),
    ],
)
def test_numbers(type_: str, value: object, expected: bytes) -> None:
    assert one(type_, value).data == expected


def test_structures_are_bytes_or_numpy_values(kernels: LoadedModule) -> None:
    layout = np.dtype([("p", "<u8"), ("n", "<i4"), ("pad", "<i4"), ("x", "<f8")])
    value = np.array([(1, -2, 0, 0.5)], layout)[0]
    data = struct.pack("<Qiid", 1, -2, 0, 0.5)
    for given_ in (value, data, np.frombuffer(data, np.uint8)):
        first, *_ = bound(kernels, "record", given_, 1, 2.0, 3)
        assert first.data == data
        assert first.text == "24 bytes"


def test_null_is_a_pointer(kernels: LoadedModule) -> None:
    assert bound(kernels, "pointers", 0, 3)[0].data == bytes(8)


def test_foreign_arrays_are_asked_of_the_target(kernels: LoadedModule, target: FakeTarget) -> None:
    tensor = object()
    target.foreign[id(tensor)] = (0xABC00, 64, "f4[16]")
    argument = bound(kernels, "pointers", tensor, 16)[0]
    assert argument.data == struct.pack("<Q", 0xABC00)
    assert (argument.text, argument.memory) == ("f4[16]", (0xABC00, 64))
    assert argument.owner is tensor


Call = Callable[[LoadedModule, FakeTarget], object]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, t: bound(k, "scale", t.zeros(1)), "kernel scale takes 3 arguments (u64, u32, f32), got 1"),
        (lambda k, t: bound(k, "pointers"), "kernel pointers takes 2 arguments (u64 pointer, u64), got 0"),
        (lambda k, t: bound(k, "record", b""), "kernel record takes 4 arguments (24 bytes, s16, f64, b32), got 1"),
        (lambda k, t: bound(k, "plain", 1), "kernel plain takes 0 arguments (none), got 1"),
        (
            lambda k, t: bound(k, "scale", np.zeros(3), 1, 1.0),
            "argument 1 of scale is a NumPy array, which is in host memory; the parameter is u64: pass a number, or copy the array with "
            "target.array(x)",
        ),
        (lambda k, t: bound(k, "scale", "text", 1, 1.0), "argument 1 of scale is a str; the parameter is u64: pass a number, or copy"),
        (
            lambda k, t: bound(k, "scale", FakeTarget(name="other").zeros(1), 1, 1.0),
            "argument 1 of scale is on other, but the kernel is on fake; copy it with target.array(x.numpy()), or let the kernel "
            "access it with target.enable_peer(x.target)",
        ),
        (
            lambda k, t: bound(k, "scale", FakeTarget().zeros(1), 1, 1.0),
            "argument 1 of scale is on another fake, but the kernel is on fake; copy it",
        ),
        (lambda k, t: bound(k, "scale", 0, t.zeros(1), 1.0), "argument 2 of scale is an array, but the parameter is u32, a number"),
        (
            lambda k, t: bound(k, "record", bytes(24), 1, t.zeros(1), 1),
            "argument 3 of record is an array, but the parameter is f64, a number",
        ),
        (
            lambda k, t: bound(k, "pointers", 64, 1),
            "argument 1 of pointers is the number 64, but the parameter is a pointer: pass an array of",
        ),
        (lambda k, t: bound(k, "scale", 0, np.int64(1), 1.0), "argument 2 of scale is int64, 8 bytes, but the parameter is u32, 4 bytes"),
        (lambda k, t: bound(k, "scale", 0, 1, np.float64(1)), "argument 3 of scale is float64, 8 bytes, but the parameter is f32, 4 bytes"),
        (lambda k, t: bound(k, "scale", 0, 1.5, 1.0), "argument 2 of scale is the float 1.5, but the parameter is u32: pass an integer"),
        (lambda k, t: bound(k, "scale", 0, np.float32(2), 1.0), "argument 2 of scale is the float 2.0, but the parameter is u32: pass"),
        (lambda k, t: bound(k, "scale", 0, 1, 1e300), "argument 3 of scale is 1e+300, which does not fit f32"),
        (
            lambda k, t: bound(k, "scale", 0, np.complex64(1), 1.0),
            "argument 2 of scale is a complex64; the parameter is u32: pass a number",
        ),
        (lambda k, t: bound(k, "scale", 0, 1 << 32, 1.0), "argument 2 of scale is 4294967296, which does not fit u32"),
        (lambda k, t: bound(k, "record", bytes(24), -40000, 1.0, 1), "argument 2 of record is -40000, which does not fit s16"),
        (
            lambda k, t: bound(k, "record", 5, 1, 1.0, 1),
            "argument 1 of record is a int, but the parameter is a structure of 24 bytes: pass bytes or a NumPy value",
        ),
        (lambda k, t: bound(k, "record", bytes(23), 1, 1.0, 1), "argument 1 of record has 23 bytes, but the parameter has 24"),
    ],
)
def test_refusals_name_the_argument_and_what_would_do(kernels: LoadedModule, target: FakeTarget, call: Call, message: str) -> None:
    with pytest.raises(BadLaunch) as raised:
        call(kernels, target)
    assert str(raised.value).startswith(message)

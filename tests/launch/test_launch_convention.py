"""Kernels of front ends that pass arguments in their own way: what becomes of the values, the block and the shared memory."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from memlane.errors import BadLaunch
from memlane.launch import Kernel
from memlane.ptx import Convention, Function, Single, SpreadArray, parse, print_module
from tests.launch.fake_target import FakeTarget

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry spread(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4, .param .u64 p5, .param .u64 p6,
    .param .f32 factor, .param .u64 scratch) .maxntid 64, 2, 1 { ret; }
.visible .entry fixed(.param .u64 .ptr .global .align 1 out, .param .u32 n, .param .u64 scratch) .reqntid 128 { ret; }
"""
PARTS = ("zero", "size", "itemsize", "address", "shape", "strides")
MATRIX = SpreadArray("f4", 2, "C", PARTS[1:4] + PARTS[4:])
CONVENTIONS = {
    "spread": Convention((MATRIX, Single())),
    "fixed": Convention((Single("f4", multiple_of=16), Single(multiple_of=16)), block=(128, 1, 1), shared_bytes=400),
}


def kernel(target: FakeTarget, name: str, convention: Convention | None = None) -> Kernel:
    module = parse(PTX, "k.py")
    items = tuple(
        replace(item, convention=convention or CONVENTIONS[item.name]) if isinstance(item, Function) else item for item in module.items
    )
    return target.load(replace(module, items=items))[name]


def test_an_array_becomes_its_address_its_extents_and_its_strides(target: FakeTarget) -> None:
    array = target.empty((3, 5), "f4")
    arguments = kernel(target, "spread")[1, 32].bind(array, 0.5).arguments
    numbers = [struct.unpack("<q", argument.data)[0] for argument in arguments[:7]]
    assert numbers == [15, 4, array.address, 3, 5, 20, 4]
    assert arguments[7].data == struct.pack("<f", 0.5)
    assert arguments[8].data == bytes(8)
    assert [argument.memory for argument in arguments] == [None, None, (array.address, 60)] + [None] * 6
    assert arguments[2].owner is array.owner


def test_arrays_of_other_libraries_are_spread_too(target: FakeTarget) -> None:
    foreign = np.empty((2, 4), "f4")
    target.foreign[id(foreign)] = (0xABC00, 32, "f4[2, 4]")
    arguments = kernel(target, "spread")[1, 32].bind(foreign, 1).arguments
    assert [struct.unpack("<q", argument.data)[0] for argument in arguments[:7]] == [8, 4, 0xABC00, 2, 4, 16, 4]


def test_an_array_of_no_dimensions_has_no_extents(target: FakeTarget) -> None:
    scalar = target.empty((), "f4")
    convention = Convention((SpreadArray("f4", 0, "C", (*PARTS, "zero", "zero", "zero")), Single()))
    arguments = kernel(target, "spread", convention)[1, 32].bind(scalar, 1).arguments
    assert [struct.unpack("<q", argument.data)[0] for argument in arguments[:7]] == [0, 1, 4, scalar.address, 0, 0, 0]


def test_a_vector_lies_in_fortran_order_too(target: FakeTarget) -> None:
    fortran = Convention((replace(MATRIX, order="F"), Single()))
    row = target.empty((1, 5), "f4")
    arguments = kernel(target, "spread", fortran)[1, 32].bind(row, 1).arguments
    assert struct.unpack("<q", arguments[4].data)[0] == 5
    with pytest.raises(BadLaunch) as raised:
        kernel(target, "spread", fortran)[1, 32].bind(target.empty((2, 5), "f4"), 1)
    assert str(raised.value) == (
        "argument 1 of spread is in C order, but the kernel was compiled for Fortran order; compile it for C order"
    )


def test_a_call_without_a_grid_says_what_to_write(target: FakeTarget) -> None:
    for name, message in (
        ("fixed", "fixed needs a grid: write fixed[grid,](arguments)"),
        ("spread", "spread needs a grid and a block: write spread[grid, block](arguments)"),
    ):
        with pytest.raises(BadLaunch) as raised:
            kernel(target, name)(1)
        assert str(raised.value) == message


def test_the_block_and_the_shared_memory_need_not_be_named(target: FakeTarget) -> None:
    fixed, array = kernel(target, "fixed"), target.empty(4, "f4")
    for configuration in (7, (7,), (7, None), (7, 128), (7, (128, 1)), (7, None, None, 400)):
        launch = fixed[configuration].bind(array, 16)
        assert (launch.grid, launch.block, launch.shared_bytes) == ((7, 1, 1), (128, 1, 1), 400)
    assert fixed[(7, 2),].bind(array, 16).grid == (7, 2, 1)
    assert fixed[7, None, None, 500].bind(array, 16).shared_bytes == 500


def test_a_convention_outlives_rewriting_but_not_printing(target: FakeTarget) -> None:
    module = kernel(target, "fixed").module
    rewritten = replace(module, items=tuple(replace(i, linkage=()) if isinstance(i, Function) else i for i in module.items))
    assert rewritten.kernels["fixed"].convention == CONVENTIONS["fixed"]
    assert parse(print_module(module)).kernels["fixed"].convention is None
    assert parse(print_module(module)) == module


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("spread", (), "kernel spread takes 2 arguments (f4[:, :], f32), got 0"),
        ("spread", (3, 1.0), "argument 1 of spread is the number 3, but the kernel was compiled for an array, f4[:, :]"),
        ("spread", ((4, "f4"), 1.0), "argument 1 of spread is f4[4], but the kernel was compiled for f4[:, :]"),
        ("spread", (((4, 4), "f8"), 1.0), "argument 1 of spread is f8[4, 4], but the kernel was compiled for f4[:, :]"),
        ("spread", (((4, 4), "i4"), 1.0), "argument 1 of spread is i4[4, 4], but the kernel was compiled for f4[:, :]"),
        ("fixed", ((4, "f8"), 16), "argument 1 of fixed is f8[4], but the kernel was compiled for a pointer to f4"),
        ("fixed", ((4, "f4"), 24), "argument 2 of fixed is 24, but the kernel was compiled for multiples of 16"),
    ],
)
def test_arguments_that_do_not_fit(target: FakeTarget, name: str, values: tuple[object, ...], message: str) -> None:
    given = [target.empty(*value) if isinstance(value, tuple) else value for value in values]
    with pytest.raises(BadLaunch) as raised:
        kernel(target, name)[1, 128].bind(*given)
    assert str(raised.value) == message


def test_foreign_arrays_that_do_not_fit(target: FakeTarget) -> None:
    foreign = np.empty((2, 4), "f8")
    target.foreign[id(foreign)] = (0xABC08, 64, "f8[2, 4]")
    with pytest.raises(BadLaunch) as raised:
        kernel(target, "spread")[1, 128].bind(foreign, 1.0)
    assert str(raised.value) == "argument 1 of spread is f8[2, 4], but the kernel was compiled for f4[:, :]"
    with pytest.raises(BadLaunch) as raised:
        kernel(target, "fixed")[1, 128].bind(foreign, 16)
    assert str(raised.value) == "argument 1 of fixed is at address 0xabc08, but the kernel was compiled for multiples of 16"


@pytest.mark.parametrize(
    ("name", "configuration", "message"),
    [
        (
            "fixed",
            (1, 64),
            "fixed was compiled for blocks of 128x1x1 threads, got 64x1x1; write the grid alone, fixed[grid,], or fixed[(1, 64),] for a "
            "grid of 1x64",
        ),
        ("fixed", (1, (64, 2)), "fixed was compiled for blocks of 128x1x1 threads, got 64x2x1; write the grid alone, fixed[grid,]"),
        ("fixed", (1, 128, None, 399), "fixed needs 400 bytes of dynamic shared memory, got 399"),
        ("spread", (1, (32, 5)), "spread was compiled for blocks of at most 128 threads, got 32x5x1"),
        ("spread", 1, "write spread[grid, block], or [grid, block, stream, shared_bytes, cluster]"),
        ("spread", (1, None), "the block must be an int or a tuple of up to 3 ints, got None"),
    ],
)
def test_configurations_that_do_not_fit(target: FakeTarget, name: str, configuration: object, message: str) -> None:
    with pytest.raises(BadLaunch) as raised:
        kernel(target, name)[configuration].bind(*[target.empty((4, 4), "f4"), 16])
    assert str(raised.value) == message

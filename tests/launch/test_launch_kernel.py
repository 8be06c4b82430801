"""Kernel names, launch configurations, and launching."""

from __future__ import annotations

import re

import numpy as np
import pytest

from memlane.errors import BadLaunch
from memlane.launch import LoadedModule, Stream, Target, find_kernel, plain_name
from memlane.ptx import parse
from tests.launch.fake_target import FakeTarget


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("scale", "scale"),
        ("_Z3redILi256EEvPi", "_Z3redILi256EEvPi"),
        ("void red<512>(int*)", "_Z3redILi512EEvPi"),
        ("red<512>", "_Z3redILi512EEvPi"),
        ("ns::only(int*)", "_ZN2ns4onlyEPi"),
        ("ns::only", "_ZN2ns4onlyEPi"),
        ("only", "_ZN2ns4onlyEPi"),
    ],
)
def test_a_kernel_answers_to_its_names(kernels: LoadedModule, name: str, found: str) -> None:
    assert kernels[name].name == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("sum<8,int>", "_Z3sumILi8EiEvPT0_"),
        ("sum< 8 , int >", "_Z3sumILi8EiEvPT0_"),
        ("void sum<8,int>(int *)", "_Z3sumILi8EiEvPT0_"),
        ("sum<8, float>", "_Z3sumILi8EfEvPT0_"),
        ("pick<8>", "_ZN2ns4pickILj8EEEvPi"),
        ("ns::pick<8u>", "_ZN2ns4pickILj8EEEvPi"),
    ],
)
def test_a_kernel_answers_however_its_name_is_spaced(name: str, found: str) -> None:
    names = ("_Z3sumILi8EiEvPT0_", "_Z3sumILi8EfEvPT0_", "_ZN2ns4pickILj8EEEvPi")
    entries = "".join(f".visible .entry {name}(.param .u64 out) {{ ret; }}\n" for name in names)
    module = parse(f".version 8.0\n.target sm_90\n.address_size 64\n{entries}", "t.cu")
    assert find_kernel(module, name).name == found


def test_a_kernel_in_an_unnamed_namespace_answers_to_its_own_name() -> None:
    names = ("_ZN12_GLOBAL__N_16hiddenEPi", "_Z5shownPi")
    entries = "".join(f".visible .entry {name}(.param .u64 out) {{ ret; }}\n" for name in names)
    module = parse(f".version 8.0\n.target sm_90\n.address_size 64\n{entries}", "t.cu")
    assert [find_kernel(module, name).name for name in ("hidden", "shown")] == list(names)


def test_the_names_that_are_listed_can_be_typed(kernels: LoadedModule) -> None:
    assert list(kernels) == ["scale", "pointers", "record", "plain", "red<256>", "red<512>", "only"]
    assert [kernel.name for kernel in kernels.values()] == list(kernels.module.kernels)
    assert len(set(kernels)) == len(kernels)


def test_overloads_are_listed_with_their_parameters() -> None:
    names = ("_Z4fillPfi", "_Z4fillPii")
    entries = "".join(f".visible .entry {name}(.param .u64 out, .param .u32 n) {{ ret; }}\n" for name in names)
    target = FakeTarget()
    loaded = target.load(parse(f".version 8.0\n.target sm_90\n.address_size 64\n{entries}", "t.cu"))
    assert list(loaded) == ["fill(float*, int)", "fill(int*, int)"]
    assert [loaded[name].name for name in loaded] == list(names)


def test_an_unknown_name_lists_those_that_exist(kernels: LoadedModule) -> None:
    with pytest.raises(BadLaunch) as raised:
        kernels["scales"]
    listed = "scale, pointers, record, plain, red<256>, red<512>, only"
    assert str(raised.value) == f"no kernel 'scales' in k.cu; it has: {listed}"


def test_an_ambiguous_name_lists_those_that_answer(kernels: LoadedModule) -> None:
    with pytest.raises(BadLaunch) as raised:
        kernels["red"]
    assert str(raised.value) == "several kernels of k.cu match 'red': red<256>, red<512>; use the full name"


def test_of_many_instantiations_one_is_listed_for_each_template() -> None:
    """So that no template is missing from the list because another one has many instantiations."""
    names = [f"_Z{len(name)}{name}ILi{n}EEvPi" for name in ("red", "scan", "sort") for n in (1024, 128, 64, 32, 256, 512)] + ["_Z4copyPi"]
    entries = "\n".join(f".visible .entry {name}() {{ ret; }}" for name in names)
    module = parse(f".version 8.0\n.target sm_90\n.address_size 64\n{entries}\n", "k.ptx")
    listed = ", ".join(f"{name}<32> (1 of 6 with this name)" for name in ("red", "scan", "sort"))
    with pytest.raises(BadLaunch, match=rf"^no kernel 'blue' in k\.ptx; it has: {re.escape(listed)}, copy$"):
        find_kernel(module, "blue")
    with pytest.raises(BadLaunch, match=r": scan<32>, scan<64>, scan<128>, scan<256>, scan<512>, scan<1024>; use the full name$"):
        find_kernel(module, "scan")
    assert find_kernel(module, "scan<32>").name == names[9]


def test_of_many_kernels_the_first_are_listed_and_the_others_counted() -> None:
    entries = "\n".join(f".visible .entry _Z3redILi{n}EEvPi() {{ ret; }}" for n in range(30))
    module = parse(f".version 8.0\n.target sm_90\n.address_size 64\n{entries}\n", "k.ptx")
    with pytest.raises(BadLaunch, match=r"^several kernels of k\.ptx match 'red': red<0>, .*, red<11> and 18 more; use the full name$"):
        find_kernel(module, "red")
    with pytest.raises(BadLaunch, match=r"^no kernel 'blue' in k\.ptx; it has: red<0>, .*, red<11> and 18 more$"):
        find_kernel(module, "blue")


@pytest.mark.parametrize(
    ("title", "plain"),
    [
        ("naive", "naive"),
        ("naive(float*, float const*, int)", "naive"),
        ("void ns::red<256>(int*)", "red"),
        ("void block_sum<float>(float*, float const*, int)", "block_sum"),
        ("a::b::c(int)", "c"),
        ("(anonymous namespace)::hidden(int*)", "hidden"),
        ("void (anonymous namespace)::copy<3>(int*)", "copy"),
        ("void apply<float (*)(int), ns::op<1> >(int*)", "apply"),
    ],
)
def test_plain_names(title: str, plain: str) -> None:
    assert plain_name(title) == plain


def test_a_module_is_a_mapping(kernels: LoadedModule) -> None:
    assert len(kernels) == 7
    assert list(kernels)[:2] == ["scale", "pointers"]
    assert {kernel.module.name for kernel in kernels.values()} == {"k.cu"}


def test_launching_builds_a_launch(kernels: LoadedModule, target: FakeTarget) -> None:
    stream = target.stream()
    kernels["plain"][(2, 3), (32, 4, 2), stream, 100]()
    (launch,) = target.launches
    assert (launch.grid, launch.block, launch.shared_bytes, launch.stream) == ((2, 3, 1), (32, 4, 2), 100, stream)
    assert (launch.blocks, launch.threads_per_block, launch.warps_per_block) == (6, 256, 8)


def test_the_default_configuration(kernels: LoadedModule, target: FakeTarget) -> None:
    kernels["plain"][7, 33]()
    (launch,) = target.launches
    assert (launch.grid, launch.block, launch.shared_bytes) == ((7, 1, 1), (33, 1, 1), 0)
    assert launch.stream is target.default_stream
    assert launch.warps_per_block == 2


def test_binding_launches_nothing(kernels: LoadedModule, target: FakeTarget) -> None:
    assert kernels["plain"][1, 1].bind().kernel.name == "plain"
    assert not target.launches


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        (32, "write red[grid, block], or [grid, block, stream, shared_bytes, cluster]"),
        ((1,), "write red[grid, block], or [grid, block, stream, shared_bytes, cluster]"),
        ((1, 1, None, 0, 0, 0), "write red[grid, block], or [grid, block, stream, shared_bytes, cluster]"),
        ((1, 1, 5), "the number 5 is not a stream for fake: pass one of target.stream(), an object with __cuda_stream__, or its handle"),
        ((1, 1, None, -1), "the dynamic shared memory of void red<256>(int*) must be a number of bytes, got -1"),
        ((1, 1, None, "48k"), "the dynamic shared memory of void red<256>(int*) must be a number of bytes, got '48k'"),
        ((1.5, 1), "the grid must be an int or a tuple of up to 3 ints, got 1.5"),
        ((1, (1, 1, 1, 1)), "the block must be an int or a tuple of up to 3 ints, got (1, 1, 1, 1)"),
        ((1, ()), "the block must be an int or a tuple of up to 3 ints, got ()"),
        ((1, True), "the block must be an int or a tuple of up to 3 ints, got True"),
        (((4, 0), 1), "the grid must be positive in each dimension, got (4, 0)"),
    ],
)
def test_bad_configurations(kernels: LoadedModule, configuration: tuple[object, ...], message: str) -> None:
    with pytest.raises(BadLaunch) as raised:
        kernels["red<256>"][configuration]
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ((1, 2048), "block.x is 2048; h200 allows at most 1024"),
        ((1, (1, 1, 65)), "block.z is 65; h200 allows at most 64"),
        (((1, 65536), 1), "grid.y is 65536; h200 allows at most 65535"),
        ((1, (64, 32)), "a block of 64x32x1 has 2,048 threads; h200 allows at most 1024"),
        (
            (1, 1, None, 1001),
            "plain requests 1,001 bytes of dynamic shared memory; h200 has 1,000 left besides the kernel's static shared memory",
        ),
    ],
)
def test_what_the_chip_does_not_allow(kernels: LoadedModule, configuration: tuple[object, ...], message: str) -> None:
    with pytest.raises(BadLaunch) as raised:
        kernels["plain"][configuration].bind()
    assert str(raised.value) == message


def test_numpy_integers_are_extents(kernels: LoadedModule, target: FakeTarget) -> None:
    kernels["plain"][np.int64(4), (np.uint8(32), 2), Stream(3)]()
    assert (target.launches[0].grid, target.launches[0].block) == ((4, 1, 1), (32, 2, 1))
    assert type(target.launches[0].grid[0]) is int


def test_what_is_printed_of_targets_modules_and_kernels_is_one_line(kernels: LoadedModule) -> None:
    """Not the tree of the module, which has a line for each instruction."""
    module, name = kernels.module, kernels.target.name
    major, minor = module.version
    assert Target.__repr__(kernels.target) == f"<Target: {name}>"
    assert repr(module) == f"<Module: {module}>"
    assert str(module).startswith(f"{module.name}; scale, ")
    assert str(module).endswith(f"; PTX {major}.{minor} for {module.target[0]}")
    assert repr(kernels) == f"<LoadedModule: {module}; on {name}>"
    assert repr(kernels["red<512>"]) == f"<Kernel: void red<512>(int*); of {module.name}, on {name}>"
    assert "Instruction" not in repr(kernels["scale"][1, 32])

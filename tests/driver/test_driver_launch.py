"""What goes to the driver, as far as it can be seen without one: argument bytes, architectures, graph edges, array layouts."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.driver.foreign_arrays import _contiguous, device_memory
from memlane.driver.library import architecture
from memlane.driver.parameters import Parameters
from memlane.errors import BadLaunch
from memlane.ptx import parse


@given(st.lists(st.binary(min_size=1, max_size=70), max_size=8))
def test_each_pointer_leads_to_the_bytes_of_one_argument(arguments: list[bytes]) -> None:
    parameters = Parameters(arguments)
    pointers = (ctypes.c_void_p * len(arguments)).from_address(parameters.address) if arguments else []
    for pointer, data in zip(pointers, arguments, strict=True):
        assert ctypes.string_at(pointer, len(data)) == data


@pytest.mark.parametrize(
    ("target", "capability", "arch"),
    [
        ("sm_90", (9, 0), "sm_90"),
        ("sm_80", (9, 0), "sm_90"),
        ("sm_90a", (9, 0), "sm_90a"),
        ("sm_75", (10, 3), "sm_103"),
        ("sm_100f", (10, 3), "sm_103f"),
    ],
)
def test_modules_are_assembled_for_the_device(target: str, capability: tuple[int, int], arch: str) -> None:
    assert architecture(replace(parse(".version 8.0\n.target sm_90\n.address_size 64\n"), target=(target,)), capability) == arch


@pytest.mark.parametrize(("target", "capability"), [("sm_100", (9, 0)), ("sm_90a", (10, 0)), ("sm_100f", (12, 0)), ("sm_103f", (10, 0))])
def test_modules_for_other_gpus_are_refused(target: str, capability: tuple[int, int]) -> None:
    module = replace(parse(".version 8.0\n.target sm_90\n.address_size 64\n", "k.cu"), target=(target,))
    own = f"sm_{capability[0] * 10 + capability[1]}"
    with pytest.raises(BadLaunch, match=rf"^k.cu is for {target} and cannot run on a GPU of {own}; compile it with --arch {own}$"):
        architecture(module, capability)


@pytest.mark.parametrize(
    ("shape", "strides", "contiguous"),
    [
        ((4, 5), None, True),
        ((4, 5), (5, 1), True),
        ((4, 5), (1, 4), False),
        ((4, 5), (10, 2), False),
        ((4, 1, 5), (5, 99, 1), True),
        ((1, 5), (0, 1), True),
        ((0, 5), (1, 1), True),
        ((), (), True),
    ],
)
def test_contiguity(shape: tuple[int, ...], strides: tuple[int, ...] | None, contiguous: bool) -> None:
    assert _contiguous(shape, strides) is contiguous


class OnDevice:
    def __init__(self, kind: int, number: int) -> None:
        self.place = (kind, number)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place

    def __dlpack__(self, **options: object) -> object:
        raise BufferError("it requires a gradient")


def test_foreign_objects_that_have_no_device_memory() -> None:
    for value in (OnDevice(1, 0), OnDevice(10, 0), "text", 3.5, None):
        assert device_memory(value, 0, "cuda:0") is None


def test_foreign_arrays_elsewhere_are_refused() -> None:
    with pytest.raises(BadLaunch, match=r"^a OnDevice is on cuda:1, but the kernel is on cuda:0; copy it there first$"):
        device_memory(OnDevice(2, 1), 0, "cuda:0")


def test_foreign_arrays_that_keep_their_memory_are_refused() -> None:
    with pytest.raises(BadLaunch, match=r"^a OnDevice does not expose its memory: it requires a gradient$"):
        device_memory(OnDevice(2, 0), 0, "cuda:0")

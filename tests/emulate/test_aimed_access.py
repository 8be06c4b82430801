"""Which array a message names for an address that lies outside, or in another array than the one that the access was meant for."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.errors import BadAccess
from memlane.launch import DeviceArray
from tests.emulate.checking import check
from tests.emulate.running import emulator

SHIFTED = """
struct Arrays { float* out; const float* in; };
extern "C" __global__ void store(float* out, const float* in, int n) { out[threadIdx.x + n] = in[threadIdx.x]; }
extern "C" __global__ void load(float* out, const float* in, int n) { out[threadIdx.x] = in[(int)threadIdx.x + n]; }
extern "C" __global__ void member(Arrays a, int n) { a.out[threadIdx.x + n] = a.in[threadIdx.x]; }
"""


def _placed(target: Emulator) -> tuple[list[DeviceArray], int]:
    """Return two arrays of 100 floats, the lower one first, and the elements from one to the other."""
    lower, upper = sorted((target.zeros(100), target.zeros(100)), key=lambda one: one.address)
    return [lower, upper], (upper.address - lower.address) // 4


@pytest.mark.parametrize("name", ["store", "member"])
def test_a_store_shortly_before_the_next_array_is_past_the_end_of_its_own(name: str) -> None:
    target = emulator()
    (lower, upper), distance = _placed(target)
    arrays = [lower, upper] if name == "store" else [b"".join(one.address.to_bytes(8, "little") for one in (lower, upper))]
    kernel = target.load(cuda(SHIFTED, name="shifted.cu"))[name]
    past = (distance - 40) * 4 - 400
    place = f"{past:,} bytes past the end of the 400-byte allocation at {lower.address:#x}"
    (report,) = check(kernel[1, 32], *arrays, distance - 40)
    assert (report.kind, report.count) == ("out of bounds", 32)
    assert place in str(report)
    with pytest.raises(BadAccess, match=place):
        kernel[1, 32](*arrays, distance - 40)


def test_a_load_shortly_past_the_previous_array_is_before_its_own() -> None:
    target = emulator()
    (lower, upper), distance = _placed(target)
    kernel = target.load(cuda(SHIFTED, name="shifted.cu"))["load"]
    shift = 110 - distance
    (report,) = check(kernel[1, 32], lower, upper, shift)
    assert f"{-4 * shift:,} bytes before the 400-byte allocation at {upper.address:#x}, argument 2 (f4[100])" in str(report)


def test_a_value_of_the_next_array_is_past_the_end_of_its_own() -> None:
    """The next array was never written, which is not reported beside the overrun."""
    target = emulator()
    lower, upper = sorted((target.empty(100), target.empty(100)), key=lambda one: one.address)
    lower.copy_from(np.zeros(100, np.float32))
    distance = (upper.address - lower.address) // 4
    kernel = target.load(cuda(SHIFTED, name="shifted.cu"))["load"]
    (report,) = check(kernel[1, 32], upper, lower, distance)
    assert report.kind == "out of bounds"
    assert f"{4 * distance - 400:,} bytes past the end of the 400-byte allocation at {lower.address:#x}, argument 2 (f4[100])" in str(
        report
    )

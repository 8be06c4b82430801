"""An access that leaves its array for another valid one is out of bounds where the array is certain, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.launch import DeviceArray, Kernel, KernelCall
from tests.emulate.checking import check
from tests.emulate.running import emulator

TEXT = """
struct Pair { float* out; const float* in; };
extern "C" __global__ void store(float* out, const float* in, int shift) { out[(int)threadIdx.x + shift] = in[threadIdx.x]; }
extern "C" __global__ void load(float* out, const float* in, int shift) { out[threadIdx.x] = in[(int)threadIdx.x + shift]; }
extern "C" __global__ void member(Pair p, int shift) { p.out[(int)threadIdx.x + shift] = p.in[threadIdx.x]; }
extern "C" __global__ void indexed(float* out, const int* at) { out[at[threadIdx.x]] = 1; }
extern "C" __global__ void long_indexed(char* out, const long long* at) { out[at[threadIdx.x]] = 1; }
extern "C" __global__ void through_table(float** table, int which) { table[which][threadIdx.x] = 1; }
extern "C" __global__ void selected(float* a, float* b, int n) { (threadIdx.x < n ? a : b)[threadIdx.x] = 1; }
extern "C" __global__ void by_difference(float* a, float* b) { (a + (b - a))[threadIdx.x] = 1; }
extern "C" __global__ void as_number(unsigned long long a) { ((float*)a)[threadIdx.x] = 1; }
extern "C" __global__ void broadcast(float* a, float* b) {
    unsigned long long p = (unsigned long long)(threadIdx.x < 16 ? a : b);
    ((float*)__shfl_sync(~0u, p, 31))[threadIdx.x] = 1;
}
extern "C" __global__ void from_shared(float* a, float* b) {
    __shared__ float* kept[2];
    kept[0] = a;
    kept[1] = b;
    __syncwarp();
    kept[1][threadIdx.x] = 1;
}
__device__ float* chosen;
extern "C" __global__ void from_variable(float* a, float* b) {
    chosen = b;
    (threadIdx.x < 0 ? a : chosen)[threadIdx.x] = 1;
}
"""


@pytest.fixture(scope="module")
def target() -> Emulator:
    return emulator()


@pytest.fixture(scope="module")
def arrays(target: Emulator) -> tuple[DeviceArray, DeviceArray, int]:
    """Return two written arrays and the elements from the first to the second."""
    one, other = target.zeros(100), target.zeros(100)
    return one, other, (other.address - one.address) // 4


@pytest.fixture(scope="module")
def kernels(target: Emulator) -> dict[str, Kernel]:
    loaded = target.load(cuda(TEXT, name="overrun.cu"))
    return {name: loaded[name] for name in loaded}


def kinds(call: KernelCall, *arguments: object) -> list[str]:
    return [one.kind for one in check(call, *arguments)]


def test_a_store_into_another_array_names_both(kernels: dict[str, Kernel], arrays: tuple[DeviceArray, DeviceArray, int]) -> None:
    one, other, distance = arrays
    found = [each for each in check(kernels["store"][1, 32], one, other, distance + 50) if each.kind == "out of bounds"]
    (report,) = found
    assert report.count == 32
    assert "past the end of the 400-byte allocation" in report.what
    assert report.what.endswith("argument 1 (f4[100]), and inside another array, argument 2 (f4[100])")


@pytest.mark.parametrize("name", ["load", "member", "indexed"])
def test_members_loads_and_loaded_numbers_are_certain(
    target: Emulator, kernels: dict[str, Kernel], arrays: tuple[DeviceArray, DeviceArray, int], name: str
) -> None:
    one, other, distance = arrays
    members = np.array([one.address, one.address], np.uint64)
    given = {
        "load": (one, one, distance),
        "member": (members, distance),
        "indexed": (one, target.array(np.arange(32, dtype=np.int32) + distance)),
    }
    assert other.nbytes == 400
    assert kinds(kernels[name][1, 32], *given[name]) == ["out of bounds"]


def test_views_of_one_array_are_one(target: Emulator, kernels: dict[str, Kernel]) -> None:
    """Which part of an allocation an argument stands for is the program's own affair."""
    whole = target.zeros(300)
    for first, second, shift in ((0, 800, 120), (400, 800, -90), (1200 - 4, 0, -200)):
        members = np.array([whole.address + first, whole.address + second], np.uint64)
        assert kinds(kernels["member"][1, 32], members, shift) == []


def test_what_is_not_certain_is_no_overrun(
    target: Emulator, kernels: dict[str, Kernel], arrays: tuple[DeviceArray, DeviceArray, int]
) -> None:
    one, other, distance = arrays
    table = target.array(np.array([one.address, other.address], np.uint64))
    far = target.array(np.arange(32, dtype=np.int64) + 4 * distance)
    calls = {
        "through_table": (table, 1),
        "selected": (one, other, 16),
        "by_difference": (one, other),
        "as_number": (other.address,),
        "broadcast": (one, other),
        "from_shared": (one, other),
        "from_variable": (one, other),
        "long_indexed": (one, far),
    }
    for name, given in calls.items():
        assert "out of bounds" not in kinds(kernels[name][1, 32], *given), name

"""Arrays of other libraries as arguments, where those libraries are installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memlane.driver import Device
from memlane.errors import BadLaunch
from memlane.launch import LoadedModule

pytestmark = pytest.mark.gpu


class Interface:
    """An array that only has the CUDA array interface, as Numba's have."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": "<i4",
            "data": (address, False),
            "version": 3,
            "strides": strides,
            "stream": None,
        }


class Exporter:
    """An array that only has DLPack, over memory of ours."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(map(int, self.buffer.__dlpack_device__()))  # type: ignore[return-value]

    def __dlpack__(self, **options: Any) -> object:
        return self.buffer.__dlpack__(**options)


def test_the_cuda_array_interface(gpu: Device, on_gpu: LoadedModule) -> None:
    ours = gpu.array(np.arange(12, dtype="i4").reshape(3, 4))
    theirs = Interface(ours.address, (3, 4))
    assert gpu.device_pointer(theirs) == (ours.address, 48, "i4[3, 4]")
    on_gpu["add_one"][1, 32](theirs, theirs, 12)
    assert np.array_equal(ours.numpy().ravel(), np.arange(1, 13))


def test_dlpack(gpu: Device, on_gpu: LoadedModule) -> None:
    ours = gpu.array(np.arange(12, dtype="i4"))
    theirs = Exporter(ours.owner)
    assert gpu.device_pointer(theirs) == (ours.address, 48, "i1[48]")
    on_gpu["add_one"][1, 32](theirs, theirs, 12)
    assert np.array_equal(ours.numpy(), np.arange(1, 13))


def test_gaps_are_refused(gpu: Device) -> None:
    ours = gpu.zeros((4, 4), "i4")
    with pytest.raises(BadLaunch, match=r"^a Interface of shape \(4, 4\) is not C-contiguous \(strides \(1, 4\), in elements\), "):
        gpu.device_pointer(Interface(ours.address, (4, 4), (4, 16)))


def test_host_arrays_are_refused(gpu: Device, on_gpu: LoadedModule) -> None:
    with pytest.raises(BadLaunch, match=r"^argument 2 of add_one is a NumPy array, which is in host memory; "):
        on_gpu["add_one"][1, 32](gpu.zeros(1, "i4"), np.zeros(1, "i4"), 1)


def test_torch(gpu: Device, on_gpu: LoadedModule) -> None:
    torch = pytest.importorskip("torch")
    a = torch.arange(1000, dtype=torch.int32, device="cuda:0").reshape(10, 100)
    b = torch.empty_like(a)
    argument = on_gpu["add_one"][4, 256].bind(b, a, 1000).arguments[1]
    assert (argument.memory, argument.text) == ((a.data_ptr(), 4000), "i4[10, 100]")
    for _ in range(20):
        on_gpu["add_one"][4, 256](b, a, 1000)
        a = b * 2
        b = torch.empty_like(a)
    expected = np.arange(1000, dtype=np.int64)
    for _ in range(20):
        expected = 2 * (expected + 1)
    assert np.array_equal(a.cpu().numpy().ravel(), expected.astype(np.int32))
    with pytest.raises(BadLaunch, match=r"^a Tensor of shape \(100, 10\) is not C-contiguous"):
        on_gpu["add_one"][1, 32](b, a.t(), 1)
    with pytest.raises(BadLaunch, match=r"^argument 2 of add_one is a Tensor; the parameter is u64: "):
        on_gpu["add_one"][1, 32](b, a.cpu(), 1)
    half = torch.zeros(8, dtype=torch.bfloat16, device="cuda:0")
    found = gpu.device_pointer(half)
    assert found is not None
    assert found[:2] == (half.data_ptr(), 16)


def test_cupy(gpu: Device, on_gpu: LoadedModule) -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(0):
        a = cupy.arange(1000, dtype="i4")
        b = cupy.empty_like(a)
        for _ in range(20):
            on_gpu["add_one"][4, 256](b, a, 1000)
            a = b + 1
            b = cupy.empty_like(a)
        assert np.array_equal(cupy.asnumpy(a), np.arange(40, 1040))
        with pytest.raises(BadLaunch, match=r"is not C-contiguous"):
            on_gpu["add_one"][1, 32](b, a[::2], 1)

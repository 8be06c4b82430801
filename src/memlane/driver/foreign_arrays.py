"""Share memory with other libraries: accept their arrays (CuPy, PyTorch, Numba, JAX, ...) as kernel arguments, through DLPack or the CUDA
array interface, and allocate memory that other processes can map."""

from __future__ import annotations

import math
from typing import Any

from cuda.bindings import driver
from cuda.core.utils import StridedMemoryView

from memlane.driver.calls import checked
from memlane.driver.context import Context, release_with
from memlane.errors import BadLaunch

_CUDA, _CUDA_MANAGED = 2, 13
"""DLPack device types of the memory of one GPU, and of managed memory."""

_LEGACY_STREAM = 1
"""Identifier of the legacy default stream in both protocols; the owner makes it wait for the work that produces the array."""


def device_memory(value: Any, device: int, target: str) -> tuple[int, int, str] | None:
    """Return address, size in bytes and description of the device memory of a foreign array; None if it has none, or is not an array.

    Pending work on the owner's streams is ordered before later work on the legacy default stream, and so before everything that memlane
    launches. Raises BadLaunch for an array on another device, and for one that is not contiguous.
    """
    kind = _kind(value)
    if kind is None:
        return None
    if kind[0] == _CUDA and kind[1] != device:
        raise BadLaunch(f"a {type(value).__name__} is on cuda:{kind[1]}, but the kernel is on {target}; copy it there first")
    try:
        view = StridedMemoryView.from_any_interface(value, stream_ptr=_LEGACY_STREAM)
    except BufferError as refusal:
        raise BadLaunch(f"a {type(value).__name__} does not expose its memory: {refusal}") from refusal
    shape = tuple(int(extent) for extent in view.shape)
    itemsize, dtype = _element(view, value)
    if not _contiguous(shape, view.strides):
        raise BadLaunch(
            f"a {type(value).__name__} of shape {shape} is not C-contiguous (strides {tuple(view.strides)}, in elements), and a kernel "
            "gets only its address: pass a contiguous copy, or the array that it is a view of"
        )
    return int(view.ptr), math.prod(shape) * itemsize, f"{dtype}[{', '.join(map(str, shape))}]"


def _kind(value: Any) -> tuple[int, int] | None:
    """Return DLPack's device type and number of an array without exporting it; None if kernels cannot access it."""
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        return (int(kind), int(number)) if int(kind) in (_CUDA, _CUDA_MANAGED) else None
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else _kind_of_address(int(interface["data"][0]))


def _kind_of_address(address: int) -> tuple[int, int]:
    """Return DLPack's device type and number of an address. The address of an empty array is 0 and belongs to every device."""
    if address == 0:
        return _CUDA_MANAGED, 0
    attribute = driver.CUpointer_attribute
    managed = checked(driver.cuPointerGetAttribute(attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, address))
    number = checked(driver.cuPointerGetAttribute(attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address))
    return (_CUDA_MANAGED if managed else _CUDA), int(number)


def _element(view: Any, value: Any) -> tuple[int, str]:
    """Return size in bytes and name of the element type; the owner's name for types that NumPy lacks (bfloat16)."""
    try:
        return int(view.dtype.itemsize), str(view.dtype.str[1:])
    except (NotImplementedError, TypeError, AttributeError):
        return int(value.itemsize), str(value.dtype)


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Return whether elements are in C order without gaps. Strides count elements; those of extents of one do not matter."""
    if strides is None or 0 in shape:
        return True
    step = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


class MappableMemory:
    """Memory that other processes can map, which that of a pool is not: a CUDA-aware MPI then copies from GPU to GPU."""

    def __init__(self, nbytes: int, context: Context) -> None:
        """Allocate memory on the device whose context is current."""
        self.address = int(checked(driver.cuMemAlloc(max(1, nbytes))))
        release_with(self, context.handle, driver.cuMemFree, self.address)

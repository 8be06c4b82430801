"""Define the memory of a target, and arrays in it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import Chip
from memlane.errors import BadLaunch

_CLEAR_BYTES = 1 << 26


class Memory(ABC):
    """Memory of a target: allocates it, reads it and writes it from the host."""

    name: str
    """Name of the target, such as `emulator:h200` or `cuda:0`."""
    chip: Chip
    driver = ""
    """Version of the driver, such as `580.159.04, CUDA 13.0`; empty on a target that needs none."""

    def __repr__(self) -> str:
        return f"<Target: {self.name}>"

    def name_beside(self, other: Memory) -> str:
        """Return the name of this target for a message that also names `other`: two emulators may have the same name."""
        return f"another {self.name}" if self.name == other.name and self is not other else self.name

    @abstractmethod
    def allocate(self, nbytes: int) -> tuple[int, object]:
        """Allocate `nbytes` of memory with undefined contents; return its device address (a multiple of 256) and an object that keeps it
        alive."""

    @abstractmethod
    def read(self, address: int, host: npt.NDArray[Any]) -> None:
        """Fill the C-contiguous `host` from device memory, after all earlier work has finished."""

    @abstractmethod
    def write(self, address: int, host: npt.NDArray[Any]) -> None:
        """Copy the C-contiguous `host` to device memory, after all earlier work has finished."""

    @abstractmethod
    def device_pointer(self, value: object) -> tuple[int, int, str] | None:
        """Return address, size in bytes and description of the device memory of another library's object (CuPy, PyTorch, ...); None if it
        has none."""

    def reaches(self, other: Memory) -> bool:
        """Return whether kernels of this target can access memory of `other`: its own, or that of an enabled peer."""
        return other is self

    def host_bytes(self, address: int, nbytes: int, *, is_written: bool = False) -> npt.NDArray[np.uint8] | None:
        """Return device memory as bytes that the host accesses in place, for `is_written` also to write; None if it is not in memory of
        the host, as on a GPU."""
        return None

    def mappable(self) -> AbstractContextManager[None]:
        """Return a `with` block in which memory is allocated so that other processes can map it."""
        return nullcontext()

    def calling(self) -> AbstractContextManager[None]:
        """Return a `with` block in which functions of other libraries use this device where they call CUDA."""
        return nullcontext()

    def free_bytes(self) -> int | None:
        """Return how much device memory is free, in bytes; None if the target does not report it."""
        return None

    def allocate_cleared(self, nbytes: int) -> tuple[int, object]:
        """Allocate memory filled with zeros, like `allocate`."""
        address, owner = self.allocate(nbytes)
        self.clear(address, nbytes)
        return address, owner

    def clear(self, address: int, nbytes: int) -> None:
        """Fill device memory with zeros, after all earlier work has finished. Targets override it if they have a faster way than a copy."""
        zeros = np.zeros(min(nbytes, _CLEAR_BYTES), np.uint8)
        for start in range(0, nbytes, _CLEAR_BYTES):
            self.write(address + start, zeros[: nbytes - start])

    def array(self, host: npt.ArrayLike) -> DeviceArray:
        """Return a copy of `host` on the target."""
        source = np.asarray(host, order="C")
        if source.dtype.hasobject:
            raise BadLaunch(f"an array of dtype {source.dtype} contains Python objects and cannot be copied to {self.name}")
        array = self.empty(source.shape, source.dtype)
        if array.nbytes:
            self.write(array.address, np.ascontiguousarray(source))
        return array

    def adopt(self, value: object) -> DeviceArray:
        """Return an array of another library as an array of this target, without a copy. Raises BadLaunch for an array that is not in C
        order and for an object without memory here."""
        found = self.device_pointer(value)
        if found is None:
            raise BadLaunch(f"a {type(value).__name__} has no memory on {self.name}: copy it there with target.array")
        name = str(getattr(value, "dtype", "")).rpartition(".")[2]
        try:
            dtype = np.dtype(name)
        except TypeError:
            raise BadLaunch(
                f"NumPy has no type for the elements ({name or 'unknown type'}), so a target cannot hold such an array"
            ) from None
        return DeviceArray(self, found[0], tuple(int(extent) for extent in getattr(value, "shape", ())), dtype, value)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> DeviceArray:
        """Return an array on the target with undefined contents."""
        extents = (shape,) if isinstance(shape, int) else tuple(int(extent) for extent in shape)
        if any(extent < 0 for extent in extents):
            raise BadLaunch(f"an array cannot have the shape {extents}")
        kind = np.dtype(dtype)
        address, owner = self.allocate(int(np.prod(extents, dtype=np.int64)) * kind.itemsize)
        return DeviceArray(self, address, extents, kind, owner)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> DeviceArray:
        """Return an array on the target filled with zeros."""
        array = self.empty(shape, dtype)
        self.clear(array.address, array.nbytes)
        return array


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """C-contiguous array in the memory of a target. Pass it to a kernel where the kernel takes a pointer.

    a = target.array(host)                    # a copy; target.empty(shape, dtype), target.zeros(shape, dtype)
    kernel[grid, block](a, a.size)
    host = a.numpy()                          # a copy back; waits for the launch
    a.copy_from(host)

    `shape` and `dtype` are as in NumPy, `nbytes` is its size, `address` the device address of its first element.
    """

    target: Memory = field(repr=False)
    address: int
    """Device address of the first element; a multiple of 256 if the target allocated it."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object = field(default=None, repr=False)
    """Object that keeps the memory alive."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy on the host, made after all earlier work has finished."""
        host = np.empty(self.shape, self.dtype)
        self.target.read(self.address, host)
        return host

    def item(self) -> Any:
        """Return the only element as a Python number, after all earlier work has finished.

        Raises BadLaunch if the array does not have exactly one element.
        """
        if self.size != 1:
            raise BadLaunch(f"item() is for arrays of one element; this one has the shape {self.shape}")
        return self.numpy().item()

    def copy_from(self, host: npt.ArrayLike) -> None:
        """Overwrite the array with `host`. Values are converted by NumPy's `same_kind` casting.

        Raises BadLaunch if the shapes differ.
        """
        source = np.asarray(host)
        if source.shape != self.shape:
            raise BadLaunch(f"cannot copy an array of shape {source.shape} into one of shape {self.shape}")
        self.target.write(self.address, np.ascontiguousarray(source.astype(self.dtype, casting="same_kind", copy=False)))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("NumPy cannot use an array of a target without a copy; leave out copy=False")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

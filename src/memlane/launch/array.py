"""Arrays that live on a target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memlane.errors import BadLaunch

if TYPE_CHECKING:
    from memlane.launch.target import Target


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """A C-contiguous array in the memory of a target. Pass it to a kernel where the kernel takes a pointer.

    a = target.array(host)                    # a copy; target.empty(shape, dtype), target.zeros(shape, dtype)
    kernel[grid, block](a, a.size)
    host = a.numpy()                          # a copy back; waits for the launch
    a.copy_from(host)

    `shape` and `dtype` are as in NumPy, `nbytes` is its size, `address` that of its first element on the device.
    """

    target: Target = field(repr=False)
    address: int
    """Device address of the first element; where the target allocated it, a multiple of 256."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object = field(default=None, repr=False)
    """What keeps the memory alive."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the host, made after everything launched before has finished."""
        host = np.empty(self.shape, self.dtype)
        self.target.read(self.address, host)
        return host

    def item(self) -> Any:
        """The one element as a number of Python, after everything launched before has finished. BadLaunch if there is not one."""
        if self.size != 1:
            raise BadLaunch(f"item() is for arrays of one element; this one has the shape {self.shape}")
        return self.numpy().item()

    def copy_from(self, host: npt.ArrayLike) -> None:
        """Overwrite the array with `host`, which must have its shape; values are converted as NumPy's `same_kind` casting allows."""
        source = np.asarray(host)
        if source.shape != self.shape:
            raise BadLaunch(f"cannot copy an array of shape {source.shape} into one of shape {self.shape}")
        self.target.write(self.address, np.ascontiguousarray(source.astype(self.dtype, casting="same_kind", copy=False)))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("an array of a target cannot be seen by NumPy without a copy; leave out copy=False")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

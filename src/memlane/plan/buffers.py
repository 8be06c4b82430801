"""Name the memory of a plan: buffers with a home, and strided views of them, without addresses."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from memlane.errors import BadPlan
from memlane.number_format import plural
from memlane.source import shortened

Home = int | Literal["host", "pinned"]
"""Location of a buffer: the number of a device of the plan, pageable host memory, or pinned host memory."""

_BASE_ADDRESS = 1 << 60
"""Fictitious base address of buffers, far from every real one; nothing is read there."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory of a plan. Buffers with equal fields are the same buffer; names are unique in a plan."""

    name: str
    nbytes: int
    home: Home = 0

    def __post_init__(self) -> None:
        if not self.name:
            raise BadPlan("a buffer needs a name, so that memory can be bound to it")
        if not 0 <= self.nbytes <= _BASE_ADDRESS:
            raise BadPlan(f"buffer {self.name!r} cannot have {plural(self.nbytes, 'byte')}")
        if self.home not in ("host", "pinned") and not (isinstance(self.home, int) and self.home >= 0):
            raise BadPlan(f"buffer {self.name!r} cannot be placed on {self.home!r}; pass a device number, 'host' or 'pinned'")

    def __str__(self) -> str:
        return self.name

    @property
    def is_on_host(self) -> bool:
        return isinstance(self.home, str)

    def view(self, dtype: npt.DTypeLike = "u1", shape: int | tuple[int, ...] | None = None, offset: int = 0) -> View:
        """Return a C-contiguous view; without a shape, a one-dimensional view of all elements from `offset` (in bytes) on."""
        element = _element(dtype, self)
        if shape is None:
            shape = (self.nbytes - offset) // max(1, element.itemsize)
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        strides = tuple(element.itemsize * prod(extents[axis + 1 :]) for axis in range(len(extents)))
        return View(self, element.str.lstrip("<|="), extents, strides, offset)


@dataclass(frozen=True)
class View:
    """Elements of one buffer, strided like a NumPy array. Slices of a view are views: `view[8:16, ::2]`."""

    buffer: Buffer
    dtype: str
    """NumPy name of the element type, such as `f4`."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes from one element to the next along each axis; may be negative."""
    offset: int = 0
    """Bytes from the start of the buffer to the first element."""

    def __post_init__(self) -> None:
        element = _element(self.dtype, self.buffer)
        if element.hasobject or not element.itemsize:
            raise BadPlan(f"a view of {self.buffer} cannot have elements of type {self.dtype}")
        if len(self.shape) != len(self.strides):
            raise BadPlan(f"a view of {self.buffer} has {plural(len(self.shape), 'axis')} and {plural(len(self.strides), 'stride')}")
        if any(extent < 0 for extent in self.shape):
            raise BadPlan(f"a view of {self.buffer} cannot have the shape {self.shape}")
        # With an extent or stride of 0 the others are unconstrained, but NumPy, which slices and compares views, counts their bytes.
        if prod(max(1, extent) for extent in self.shape) * element.itemsize > _BASE_ADDRESS or any(
            abs(stride) > _BASE_ADDRESS for stride in self.strides
        ):
            raise BadPlan(
                f"a view of {self.buffer} has too many elements, or elements too far apart: shape {self.shape}, strides {self.strides}"
            )
        low, high = self.bounds
        if low < 0 or high > self.buffer.nbytes:
            raise BadPlan(
                f"{self} covers bytes {low} to {high} of buffer {self.buffer.name!r}, which has {self.buffer.nbytes}: "
                "make the buffer larger or the view smaller"
            )

    def __str__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        at = f" at {self.offset}" if self.offset else ""
        strided = "" if self.is_contiguous else f" strides ({', '.join(map(str, self.strides))})"
        return f"{self.buffer.name} {self.dtype}[{extents}]{at}{strided}"

    def __getitem__(self, index: Any) -> View:
        """Return the view of a basic slice, as in NumPy: integers, slices, `...` and `None`."""
        parts = index if isinstance(index, tuple) else (index,)
        # Indexing by arrays would copy the elements, which do not exist; with `...` a single element stays a view.
        if not all(part is None or part is ... or isinstance(part, int | np.integer | slice) for part in parts):
            raise BadPlan(f"index a view of {self.buffer} with integers and slices, not with {index!r}")
        try:
            part = self._fictitious_array()[parts if ... in parts else (*parts, ...)]
        except IndexError as error:
            raise BadPlan(f"no such part of {self}: {error}") from None
        offset = part.__array_interface__["data"][0] - _BASE_ADDRESS
        return View(self.buffer, self.dtype, part.shape, part.strides, offset if part.size else self.offset)

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without the gaps between them."""
        return self.size * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are contiguous in C order."""
        expected = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != expected:
                return self.size == 0
            expected *= extent
        return True

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """First byte of the buffer that the view covers, and the byte after the last; equal for a view without elements."""
        if not self.size:
            return self.offset, self.offset
        ends = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(end for end in ends if end < 0)
        return low, self.offset + sum(end for end in ends if end > 0) + self.itemsize

    def _fictitious_array(self) -> npt.NDArray[Any]:
        """Return a NumPy array of the same layout at a fictitious address.

        Only its shape, strides and address may be used, and it must not be kept: copying it would read unmapped memory.
        """
        return np.asarray(_Layout(self))

    def overlaps(self, other: View) -> bool:
        """Return whether the views share a byte. Exact for strided views too."""
        if self.buffer != other.buffer:
            return False
        (low, high), (other_low, other_high) = self.bounds, other.bounds
        if high <= other_low or other_high <= low:
            return False
        if self.is_contiguous and other.is_contiguous:
            return True
        return np.shares_memory(self._fictitious_array(), other._fictitious_array())


def _element(dtype: npt.DTypeLike, buffer: Buffer) -> np.dtype[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # turn warnings about deprecated dtype names into errors
            return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError, OverflowError, RecursionError, MemoryError, Warning):
        raise BadPlan(f"a view of {buffer} cannot have elements of type {shortened(str(dtype))}: use NumPy's names, such as f4") from None


class _Layout:
    """Array interface from which NumPy creates an array over existing memory."""

    def __init__(self, view: View) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (_BASE_ADDRESS + view.offset, False),
            "typestr": f"|V{view.itemsize}",
            "shape": view.shape,
            "strides": view.strides,
        }

"""Define layouts of arrays of one to four dimensions: the memory offset of each element, with up to 62 bits.

    layout = Permuted((1000, 34), (1, 0))           # column-major: each of the 34 columns is contiguous
    layout(3, 5), layout.inverse(5003)              # 5003, (3, 5)
    print(layout.cuda_source("place"))              # __host__ __device__ inline int place(int i, int j) ...

`memlane.layout.layout` is about tiles in shared memory, which are small and two-dimensional; `OfTile` turns a tile's layout into one of an
array. The families are in `array_families`, gathers in `selection`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, Literal

import numpy as np

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, name, number
from memlane.layout.layout import LARGEST_TABLE, Offsets, whole_number
from memlane.layout.program import Cost, Placement, Program
from memlane.number_format import plural

COORDINATES = ("i", "j", "k", "l")
"""Names of the coordinates in generated functions, the slowest first."""

Language = Literal["cuda", "numba", "triton"]


@dataclass(frozen=True)
class ArrayLayout(ABC):
    """A map from the elements of an array of `shape` to offsets in 0..size-1, counted in elements.

    A layout is a value: equal layouts compare equal. `outer @ inner` applies `inner` and uses the result as the row-major index of `outer`.
    Wrong shapes and indices raise LayoutError.
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", checked_shape(self.shape, type(self).__name__))
        self.check()

    def check(self) -> None:  # noqa: B027  # most families have nothing to check
        """Raise LayoutError if the fields are inconsistent."""

    @abstractmethod
    def offset(self, index: tuple[Expression, ...]) -> Expression:
        """Return the offset of the element with these coordinates: the definition of the layout."""

    def coordinates(self, offset: Expression) -> tuple[Expression, ...] | None:
        """Return the coordinates of the element at an offset that holds one; None if no formula is known."""
        return None

    @property
    def size(self) -> int:
        """Room that the array takes, in elements: offsets are 0..size-1."""
        return self.count

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """Shape of the memory in C order: the permuted extents, or one axis if the elements have no such order."""
        return (self.size,)

    @cached_property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def is_row_major(self) -> bool:
        """Whether the elements are in C order."""
        return False

    # -- as a function -----------------------------------------------------------------------------------------------------------

    def __call__(self, *index: Any) -> int | Offsets:
        """Return the offset of an element; integers give an integer, integer arrays broadcast against each other."""
        if len(index) != len(self.shape):
            raise LayoutError(f"{self} takes {plural(len(self.shape), 'coordinate')}, got {len(index)}")
        values = {
            word: _checked_index(f"coordinate {number} of {self}", given, extent)
            for number, (word, given, extent) in enumerate(zip(COORDINATES, index, self.shape, strict=False))
        }
        found = self._program.evaluate(values)
        shape = np.broadcast_shapes(*(np.shape(one) for one in values.values()))
        if not any(isinstance(one, np.ndarray) for one in values.values()):
            return int(found)
        return np.array(np.broadcast_to(np.asarray(found, np.int64), shape))

    def inverse(self, offset: Any) -> tuple[Any, ...]:
        """Return the coordinates of the element at an offset, or those of an array of offsets. Raises LayoutError if an offset holds
        none."""
        wanted = _checked_index(f"offset of {self}", offset, self.size)
        formula = self._inverse_programs
        if formula is None:
            flat = self._places[wanted]
            if np.any(flat < 0):
                raise LayoutError(f"there is no element at offset {np.asarray(wanted)[flat < 0].flat[0]} of {self}")
            found = np.unravel_index(flat, self.shape)
        else:
            found = tuple(_like(program.evaluate({"k": wanted}), wanted) for program in formula)
            inside = np.logical_and.reduce([(np.asarray(c) >= 0) & (np.asarray(c) < n) for c, n in zip(found, self.shape, strict=True)])
            if not np.all(inside) or not np.array_equal(self(*found), wanted):
                raise LayoutError(f"there is no element at offset {_first_wrong(self, wanted, found, inside)} of {self}")
        return tuple(np.asarray(c, np.int64) if isinstance(wanted, np.ndarray) else int(c) for c in found)

    @cached_property
    def table(self) -> Offsets:
        """The offsets of all elements as a read-only int64 array in the shape of the array, for at most 2^24 elements."""
        if self.count > LARGEST_TABLE:
            raise LayoutError(f"{self} has {plural(self.count, 'element')}; a table of its offsets may have at most {LARGEST_TABLE:,}")
        offsets = np.asarray(self(*np.ogrid[tuple(slice(extent) for extent in self.shape)]), np.int64)
        offsets.flags.writeable = False
        return offsets

    @cached_property
    def _places(self) -> Offsets:
        """Row-major index of the element at each offset, or -1."""
        places = np.full(self.size, -1, np.int64)
        places[self.table.ravel()] = np.arange(self.count)
        return places

    @cached_property
    def _program(self) -> Program:
        return Program(self.offset(names(self.shape)))

    @cached_property
    def _inverse_programs(self) -> tuple[Program, ...] | None:
        found = self.coordinates(name("k", self.size))
        return None if found is None else tuple(map(Program, found))

    @property
    def cost(self) -> Cost:
        """Cost of computing the offset from the coordinates in a kernel."""
        return self._program.cost

    def __matmul__(self, inner: ArrayLayout) -> ArrayLayout:
        return ComposedArray(inner.shape, self, inner) if isinstance(inner, ArrayLayout) else NotImplemented

    # -- in kernels --------------------------------------------------------------------------------------------------------------

    def cuda_source(self, function: str, *, tables: Placement = "global") -> str:
        """Return a `__host__ __device__ inline` function of CUDA C++ that takes one coordinate per axis, the slowest first.

        It computes in `int` if that holds every intermediate value, else in `long long`. `tables` is that of `Layout.cuda_source`.
        """
        return self._program.cuda(function, self._parameters, tables)

    def numba_source(self, function: str) -> str:
        """Return a device function for Numba kernels, after its lookup tables; it needs `cuda`, and `np` for tables."""
        tables = [f"{word} = np.array({values.tolist()}, np.int64)\n" for word, values in self._program.named_tables(function).items()]
        return "".join([*tables, "@cuda.jit(device=True)\n", self._program.python(function, self._parameters)])

    def triton_source(self, function: str) -> str:
        """Return a `@triton.jit` function of blocks of coordinates, which needs `triton` and `triton.language as tl`.

        Coordinates are of type int32, or are converted to int64 if offsets need it. Raises LayoutError for a layout with a table.
        """
        return self._program.triton(function, self._parameters)

    @property
    def _parameters(self) -> tuple[str, ...]:
        return COORDINATES[: len(self.shape)]

    def __str__(self) -> str:
        return f"{type(self).__name__}({self._described})"

    @property
    def _described(self) -> str:
        return "x".join(map(str, self.shape))


@dataclass(frozen=True)
class ComposedArray(ArrayLayout):
    """The composition `outer @ inner`: the offset from `inner` is the row-major index of an element of `outer`."""

    outer: ArrayLayout
    inner: ArrayLayout

    def check(self) -> None:
        if self.inner.size > self.outer.count:
            raise LayoutError(
                f"{self.inner} has offsets up to {self.inner.size - 1}, but {self.outer} has {plural(self.outer.count, 'element')}"
            )

    def offset(self, index: tuple[Expression, ...]) -> Expression:
        return self.outer.offset(split(self.inner.offset(index), self.outer.shape))

    def coordinates(self, offset: Expression) -> tuple[Expression, ...] | None:
        outer = self.outer.coordinates(offset)
        return None if outer is None else self.inner.coordinates(row_major_offset(outer, self.outer.shape))

    @property
    def size(self) -> int:
        return self.outer.size

    @property
    def storage_shape(self) -> tuple[int, ...]:
        return self.outer.storage_shape

    @property
    def is_row_major(self) -> bool:
        return self.outer.is_row_major and self.inner.is_row_major

    def __str__(self) -> str:
        return f"{self.outer} @ {self.inner}"


def sources(layouts: Mapping[str, ArrayLayout], language: Language = "cuda") -> str:
    """Return the index functions of several arrays in one text, named by their keys, for kernels that access several arrays."""
    writer = {"cuda": ArrayLayout.cuda_source, "numba": ArrayLayout.numba_source, "triton": ArrayLayout.triton_source}
    if language not in writer:
        raise LayoutError(f"unknown language {language!r}; choose from {', '.join(writer)}")
    return "\n".join(writer[language](layout, function) for function, layout in layouts.items())


_COMPARED = 1 << 16
"""Elements that are compared one by one; larger layouts are compared at as many random elements."""


def same_places(one: ArrayLayout, other: ArrayLayout) -> bool:
    """Return whether two layouts map the elements, by row-major index, to the same offsets, judged by up to 65,536 of them.

    Layouts with different numbers of elements, such as one of structures and one of their words, cannot be compared and count as equal.
    """
    return one == other or one.count != other.count or _same_places(one, other)


@lru_cache(maxsize=64)
def _same_places(one: ArrayLayout, other: ArrayLayout) -> bool:
    if one.count <= _COMPARED:
        flat = np.arange(one.count)
    else:
        flat = np.concatenate(([0, one.count - 1], np.random.default_rng(0).integers(0, one.count, _COMPARED)))
    first, second = (layout(*np.unravel_index(flat, layout.shape)) for layout in (one, other))
    return bool(np.array_equal(first, second))


def names(shape: tuple[int, ...]) -> tuple[Expression, ...]:
    """Return the coordinates of an array as expressions."""
    return tuple(name(word, extent) for word, extent in zip(COORDINATES, shape, strict=False))


def row_major_offset(index: tuple[Expression, ...], shape: tuple[int, ...]) -> Expression:
    """Return the row-major index of an element."""
    total = number(0)
    for one, extent in zip(index, shape, strict=True):
        total = total * extent + one
    return total


def split(flat: Expression, shape: tuple[int, ...]) -> tuple[Expression, ...]:
    """Return the coordinates of a row-major index: the inverse of `row_major_offset`."""
    found: list[Expression] = []
    for extent in reversed(shape[1:]):
        found.insert(0, flat % extent)
        flat = flat // extent
    return (flat, *found)


def checked_shape(shape: object, what: str) -> tuple[int, ...]:
    """Return a shape of one to four extents of at least 1. Raises LayoutError for anything else."""
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if not 1 <= len(given) <= 4:
        raise LayoutError(f"{what} is for arrays of 1 to 4 dimensions, not {len(given)}")
    for extent in given:
        whole_number(f"an extent of {what}", int(extent) if isinstance(extent, np.integer) else extent, 1)
    return tuple(int(extent) for extent in given)


def _checked_index(what: str, given: Any, count: int) -> Any:
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise LayoutError(f"{what} must be an integer or an array of integers, got {given!r}")
    wrong = array[(array < 0) | (array >= count)]
    if wrong.size:
        raise LayoutError(f"{what} is {wrong.flat[0]}, outside 0..{count - 1}")
    return array.astype(np.int64) if array.ndim else int(array)


def _like(found: Any, wanted: Any) -> Any:
    return np.broadcast_to(np.asarray(found, np.int64), np.shape(wanted)) if isinstance(wanted, np.ndarray) else found


def _first_wrong(layout: ArrayLayout, wanted: Any, found: tuple[Any, ...], inside: Any) -> int:
    """Return the first offset of `wanted` that holds no element."""
    for offset, fits, *index in zip(np.ravel(wanted), np.ravel(inside), *(np.ravel(one) for one in found), strict=True):
        if not fits or layout(*(int(one) for one in index)) != offset:
            return int(offset)
    raise AssertionError("there is an element at every offset")

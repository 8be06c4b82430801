"""Define the base class of tile layouts: a `Layout` maps element (i, j) of a tile to its offset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError, MissingDependency
from memlane.layout import picture
from memlane.layout.expression import Expression, name, table
from memlane.layout.program import Cost, Placement, Program
from memlane.number_format import plural

Index = int | np.integer | npt.NDArray[np.integer]
Offsets = npt.NDArray[np.int64]

LARGEST_TABLE = 1 << 24
"""Maximum elements of a tile that are examined one by one."""


@dataclass(frozen=True)
class Layout(ABC):
    """A map from the elements of a tile of `rows` x `columns` to offsets in 0..size-1, counted in elements.

        rap = RandomPermuteShift(32, 32, seed=7)
        rap(3, 5)                         # the offset of element (3, 5); arrays give arrays
        rap(101)                          # the same by the row-major index, 3 * 32 + 5
        rap.inverse(rap(3, 5))            # 101
        print(rap.cuda_source("shift"))   # __host__ __device__ inline int shift(int i, int j) ...

    A layout is a value: equal layouts compare equal, and `repr` is an expression that creates it. `outer @ inner` applies `inner` and uses
    the result as the row-major index of `outer`. Wrong extents and indices raise LayoutError.
    """

    rows: int
    columns: int

    def __post_init__(self) -> None:
        for extent, count in (("rows", self.rows), ("columns", self.columns)):
            whole_number(f"{extent} of {type(self).__name__}", count, 1)
        self.check()

    def check(self) -> None:  # noqa: B027  # most families have nothing to check
        """Raise LayoutError if the fields are inconsistent."""

    @abstractmethod
    def offset(self, i: Expression, j: Expression) -> Expression:
        """Return the offset of element (i, j): the definition of the layout."""

    def offset_of_index(self, k: Expression) -> Expression:
        """Return the offset for row-major index k; families with a simpler formula override this."""
        return self.offset(k // self.columns, k % self.columns)

    def index(self, offset: Expression) -> Expression | None:
        """Return the row-major index of the element at an offset, meaningless if there is none; None if no formula is known."""
        return None

    @property
    def size(self) -> int:
        """Room that the tile takes, in elements: offsets are 0..size-1."""
        return self.rows * self.columns

    # -- as a function -----------------------------------------------------------------------------------------------------------

    @overload
    def __call__(self, i: int, j: int | None = None) -> int: ...
    @overload
    def __call__(self, i: npt.NDArray[np.integer], j: Index | None = None) -> Offsets: ...
    @overload
    def __call__(self, i: int, j: npt.NDArray[np.integer]) -> Offsets: ...

    def __call__(self, i: Index, j: Index | None = None) -> int | Offsets:
        """Return the offset of (i, j), or of row-major index i; takes integers, or integer arrays that broadcast against each other."""
        if j is None:
            values = {"k": self._checked("index", i, self.rows * self.columns)}
            return _shaped(self._of_index.evaluate(values), values)
        values = {"i": self._checked("row", i, self.rows), "j": self._checked("column", j, self.columns)}
        return _shaped(self._of_pair.evaluate(values), values)

    def _checked(self, what: str, given: Index, count: int) -> Any:
        array = np.asarray(given)
        if array.dtype.kind not in "iu":
            article = "an" if what == "index" else "a"
            raise LayoutError(f"{article} {what} of {self} must be an integer or an array of integers, got {_kind(given)}")
        wrong = array[(array < 0) | (array >= count)]
        if wrong.size:
            raise LayoutError(f"{what} {wrong.flat[0]} is outside 0..{count - 1} of {self}")
        return array.astype(np.int64) if array.ndim else int(array)

    @cached_property
    def _of_pair(self) -> Program:
        return Program(self.offset(name("i", self.rows), name("j", self.columns)))

    @cached_property
    def _of_index(self) -> Program:
        return Program(self.offset_of_index(name("k", self.rows * self.columns)))

    @cached_property
    def table(self) -> Offsets:
        """Read-only int64[rows, columns]: the offsets of all elements."""
        self._check_listable()
        offsets = np.array(self(np.arange(self.rows)[:, None], np.arange(self.columns)[None, :]))
        offsets.flags.writeable = False
        return offsets

    def _check_listable(self) -> None:
        if self.rows * self.columns > LARGEST_TABLE:
            raise LayoutError(
                f"{self} has {plural(self.rows * self.columns, 'element')}; a table of its offsets may have at most {LARGEST_TABLE:,}"
            )

    # -- as a value --------------------------------------------------------------------------------------------------------------

    @cached_property
    def is_injective(self) -> bool:
        """Whether no two elements share an offset, determined by enumeration."""
        return bool(np.bincount(self.table.ravel(), minlength=self.size).max() <= 1)

    @cached_property
    def is_bijective(self) -> bool:
        """Whether the layout is injective and leaves no offset free."""
        return self.rows * self.columns == self.size and self.is_injective

    @cached_property
    def inverse(self) -> Layout:
        """The map from offsets to row-major indices, a layout of one row.

        For an offset without an element it raises LayoutError; in a kernel its result is meaningless there. Raises LayoutError if two
        elements share an offset.
        """
        return Inverse(1, self.size, self)

    def __matmul__(self, inner: Layout) -> Layout:
        return Composed(inner.rows, inner.columns, self, inner) if isinstance(inner, Layout) else NotImplemented

    @property
    def cost(self) -> Cost:
        """Cost of computing the offset from (i, j) in a kernel."""
        return self._of_pair.cost

    def __str__(self) -> str:
        own = [f"{field.name}={_short(getattr(self, field.name))}" for field in fields(self)[2:]]
        return f"{type(self).__name__}({', '.join([f'{self.rows}x{self.columns}', *own])})"

    # -- in kernels --------------------------------------------------------------------------------------------------------------

    def cuda_source(self, function: str, *, by_index: bool = False, tables: Placement = "global") -> str:
        """Return a `__host__ __device__ inline` function of CUDA C++: `function(i, j)`, or `function(k)` for row-major index k.

        Lookup tables are in global memory. With `tables="constant"` they are in constant memory, and the function is device-only; with
        `tables="argument"` its last parameters are pointers to the arrays that `lookup_tables` returns, wherever they are stored.
        """
        return self._of_index.cuda(function, ("k",), tables) if by_index else self._of_pair.cuda(function, ("i", "j"), tables)

    def lookup_tables(self, *, by_index: bool = False) -> tuple[Offsets, ...]:
        """Return the lookup tables of the function; none for most layouts."""
        return (self._of_index if by_index else self._of_pair).tables

    def python_source(self, function: str, *, by_index: bool = False) -> str:
        """Return a Python function that Numba can compile; its tables are global arrays `<function>_table<number>`."""
        return self._of_index.python(function, ("k",)) if by_index else self._of_pair.python(function, ("i", "j"))

    def numba_source(self, function: str, *, by_index: bool = False) -> str:
        """Return source code for a Numba file: the function of `python_source` as a device function, after its tables; it needs `cuda` of
        Numba, and `np` for tables."""
        program = self._of_index if by_index else self._of_pair
        tables = [f"{name} = np.array({values.tolist()}, np.int64)\n" for name, values in program.named_tables(function).items()]
        return "".join([*tables, "@cuda.jit(device=True)\n", self.python_source(function, by_index=by_index)])

    def numba(self, *, by_index: bool = False) -> Any:
        """Return a device function for Numba kernels, called as `f(i, j)` or `f(k)`. Raises MissingDependency without numba-cuda.

        Numba keeps the tables of a layout in constant memory, 64 KiB for all kernels of a module.
        """
        try:
            import numba_cuda  # noqa: F401
            from numba import cuda
        except ImportError as cause:
            raise MissingDependency("a layout for Numba", "numba") from cause
        return cuda.jit(device=True)(self.python_function(by_index=by_index))

    def python_function(self, *, by_index: bool = False) -> Callable[..., int]:
        """Return the function that `python_source` defines."""
        program, word = self._of_index if by_index else self._of_pair, "layout"
        scope: dict[str, Any] = dict(program.named_tables(word))
        source = self.python_source(word, by_index=by_index)
        exec(compile(source, f"<{self}>", "exec"), scope)  # the text is generated here, without user input
        function: Callable[..., int] = scope[word]
        return function

    def picture(self, *, element_bytes: int = 4, banks: int = 32, bank_bytes: int = 4) -> str:
        """Return the bank of each element's first byte as text, one line per row of the tile."""
        return picture.of_banks(self.table * element_bytes // bank_bytes % banks)


@dataclass(frozen=True)
class Composed(Layout):
    """The composition `outer @ inner`: the offset from `inner` is the row-major index of `outer`."""

    outer: Layout
    inner: Layout

    def check(self) -> None:
        room = self.outer.rows * self.outer.columns
        if self.inner.size > room:
            raise LayoutError(f"{self.inner} has offsets up to {self.inner.size - 1}, but {self.outer} takes indices up to {room - 1}")

    def offset(self, i: Expression, j: Expression) -> Expression:
        return self.outer.offset_of_index(self.inner.offset(i, j))

    def offset_of_index(self, k: Expression) -> Expression:
        return self.outer.offset_of_index(self.inner.offset_of_index(k))

    @property
    def size(self) -> int:
        return self.outer.size

    @cached_property
    def inverse(self) -> Layout:
        if self.is_bijective and self.inner.is_bijective:  # else an offset without an element would go unnoticed
            return self.inner.inverse @ self.outer.inverse
        return Inverse(1, self.size, self)

    def __str__(self) -> str:
        return f"{self.outer} @ {self.inner}"


@dataclass(frozen=True)
class Inverse(Layout):
    """The map from offsets of `of` to row-major indices."""

    of: Layout

    def check(self) -> None:
        if not self.of.is_injective:
            offsets = self.of.table.ravel()
            order = np.argsort(offsets, kind="stable")
            twice = int(np.flatnonzero(np.diff(offsets[order]) == 0)[0])
            first, second = (divmod(int(order[place]), self.of.columns) for place in (twice, twice + 1))
            raise LayoutError(f"{self.of} has no inverse: {first} and {second} lie at the same offset")

    def offset(self, i: Expression, j: Expression) -> Expression:
        return self.offset_of_index(j)

    def offset_of_index(self, k: Expression) -> Expression:
        formula = self.of.index(k)
        return table(self._indices, k) if formula is None else formula

    def index(self, offset: Expression) -> Expression | None:
        return self.of.offset_of_index(offset)

    @cached_property
    def _indices(self) -> tuple[int, ...]:
        indices = np.zeros(self.of.size, np.int64)
        indices[self.of.table.ravel()] = np.arange(self.of.rows * self.of.columns)
        return tuple(indices.tolist())

    @property
    def size(self) -> int:
        return self.of.rows * self.of.columns

    @cached_property
    def inverse(self) -> Layout:
        return self.of

    @cached_property
    def is_injective(self) -> bool:
        return True

    @cached_property
    def is_bijective(self) -> bool:
        return self.of.is_bijective

    def _checked(self, what: str, given: Index, count: int) -> Any:
        offset = super()._checked(what, given, count)
        if what != "row" and not self.of.is_bijective:
            holes = np.asarray(offset)[~self._is_taken[offset]]
            if holes.size:
                raise LayoutError(f"there is no element at offset {holes.flat[0]} of {self.of}")
        return offset

    @cached_property
    def _is_taken(self) -> npt.NDArray[np.bool_]:
        return np.bincount(self.of.table.ravel(), minlength=self.of.size) > 0

    def __str__(self) -> str:
        return f"inverse of {self.of}"


def whole_number(what: str, value: object, least: int) -> None:
    """Raise LayoutError unless `value` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise LayoutError(f"{what} must be an integer, got {_kind(value)}")
    if value < least:
        raise LayoutError(f"{what} must be at least {least}, got {value}")


def power_of_two(what: str, value: int) -> None:
    """Raise LayoutError unless `value` is a power of two."""
    if value < 1 or value & (value - 1):
        raise LayoutError(f"{what} must be a power of two, got {value}")


def _shaped(value: Any, given: dict[str, Any]) -> int | Offsets:
    """Broadcast a value to the requested shape: an expression may have dropped a coordinate without effect."""
    shape = np.broadcast_shapes(*(np.shape(one) for one in given.values()))
    if not any(isinstance(one, np.ndarray) for one in given.values()):
        return int(value)
    return value if np.shape(value) == shape else np.broadcast_to(np.asarray(value, np.int64), shape)


def _kind(value: object) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{value!r}"


def _short(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 16:
        return f"({', '.join(map(str, value[:4]))}, ... {plural(len(value), 'number')})"
    return str(value)

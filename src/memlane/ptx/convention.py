"""How a kernel is called, where its parameters alone do not tell.

CUDA C++ passes one argument as one parameter. Numba passes an array as its address, its shape and more; Triton appends pointers of its own
and has fixed the block. A front end that knows puts a `Convention` on the function it made, passes that rewrite the function keep it, and
launches follow it. PTX has no words for it: text that is printed and parsed again is called by its bare parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("zero", "address", "size", "itemsize", "shape", "strides")
"""What a parameter of a `SpreadArray` can hold: nothing; the address of the first element; how many elements there are; the bytes of one;
and, as one parameter for each dimension, extents in elements and distances in bytes."""


@dataclass(frozen=True, slots=True)
class Single:
    """An argument that is one parameter: a number, a pointer, a structure."""

    dtype: str | None = None
    """For a pointer: the elements it was compiled for, as NumPy writes them (`f4`); None if any will do."""
    multiple_of: int = 1
    """The kernel was compiled to rely on the number, or the address, being a multiple of this."""

    def width(self) -> int:
        """How many parameters it takes."""
        return 1


@dataclass(frozen=True, slots=True)
class SpreadArray:
    """An array that is several parameters."""

    dtype: str
    """Its elements as NumPy writes them, for example `f4`."""
    ndim: int
    order: str
    """The layout it was compiled for: `C`, `F`, or `A` for any strides."""
    parts: tuple[str, ...]
    """What the parameters hold, in their order, in the words of `PARTS`."""

    def width(self) -> int:
        """How many parameters it takes."""
        return sum(self.ndim if part in ("shape", "strides") else 1 for part in self.parts)


@dataclass(frozen=True, slots=True)
class SpreadTensorMap:
    """An array that is a tensor map, its extents and its strides in elements, one parameter for each dimension."""

    element: str
    """As PTX writes it, for example `bf16`."""
    box: tuple[int, ...]
    """What one copy moves, in the order of the array's axes."""
    swizzle: str
    """`none`, `32B`, `64B` or `128B`."""

    def width(self) -> int:
        """How many parameters it takes."""
        return 1 + 2 * len(self.box)


@dataclass(frozen=True, slots=True)
class Convention:
    """How one kernel is called."""

    arguments: tuple[Single | SpreadArray | SpreadTensorMap, ...]
    """What a caller passes, in order. Parameters beyond these are the compiler's own and are zero."""
    block: tuple[int, int, int] | None = None
    """The block it was compiled for; a launch need not name it."""
    scratch_bytes: int = 0
    """Of global memory that each block needs for itself: the first of the compiler's own parameters is the address of that of all of
    them."""
    shared_bytes: int = 0
    """Dynamic shared memory that each block needs; a launch need not name it."""
    language: str = ""
    """What the kernel was written in, `Numba` or `Triton`, where advice has to be given in that."""
    names: tuple[str, ...] = ()
    """What the arguments are called in the source, in order; empty where it is not known."""

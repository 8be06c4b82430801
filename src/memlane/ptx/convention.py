"""Describe how a kernel is called, where its parameters alone do not tell.

CUDA C++ passes one argument as one parameter. Numba passes an array as its address, its shape and more; Triton appends pointers of its own
and fixes the block size. The front end attaches a `Convention` to the function that it made, passes that rewrite the function keep it, and
launches follow it. PTX cannot express it: text that is printed and parsed again is called by its bare parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("zero", "address", "size", "itemsize", "shape", "strides")
"""The contents that a parameter of a `SpreadArray` can have: zero; the address of the first element; the number of elements; the bytes of
an element; and, one parameter per dimension, extents in elements and strides in bytes.
"""


@dataclass(frozen=True, slots=True)
class Single:
    """An argument passed as one parameter: a number, a pointer, a structure."""

    dtype: str | None = None
    """Element type that a pointer was compiled for, as NumPy writes it (`f4`); None if any will do."""
    multiple_of: int = 1
    """The kernel was compiled to rely on the number, or the address, being a multiple of this."""

    def width(self) -> int:
        """Return the number of parameters that the argument takes."""
        return 1


@dataclass(frozen=True, slots=True)
class SpreadArray:
    """An array passed as several parameters."""

    dtype: str
    """Element type as NumPy writes it, for example `f4`."""
    ndim: int
    order: str
    """Layout it was compiled for: `C`, `F`, or `A` for any strides."""
    parts: tuple[str, ...]
    """Contents of the parameters in their order, in the words of `PARTS`."""

    def width(self) -> int:
        """Return the number of parameters that the argument takes."""
        return sum(self.ndim if part in ("shape", "strides") else 1 for part in self.parts)


@dataclass(frozen=True, slots=True)
class SpreadTensorMap:
    """An array passed as a tensor map, followed by its extents and its strides in elements, one parameter per dimension."""

    element: str
    """Element type as PTX writes it, for example `bf16`."""
    box: tuple[int, ...]
    """Extents of the box that one copy moves, in the order of the array's axes."""
    swizzle: str
    """`none`, `32B`, `64B` or `128B`."""

    def width(self) -> int:
        """Return the number of parameters that the argument takes."""
        return 1 + 2 * len(self.box)


@dataclass(frozen=True, slots=True)
class Convention:
    """The calling convention of one kernel."""

    arguments: tuple[Single | SpreadArray | SpreadTensorMap, ...]
    """Arguments that a caller passes, in order. Parameters behind these are the compiler's own and are zero."""
    block: tuple[int, int, int] | None = None
    """Block size it was compiled for; a launch need not name it."""
    scratch_bytes: int = 0
    """Global memory that each block needs as scratch, in bytes; the first of the compiler's own parameters is the address of the scratch of
    all blocks.
    """
    shared_bytes: int = 0
    """Dynamic shared memory that each block needs, in bytes; a launch need not name it."""
    language: str = ""
    """Language of the kernel, `Numba` or `Triton`, where advice depends on it."""
    names: tuple[str, ...] = ()
    """Names of the arguments in the source, in order; empty where not known."""

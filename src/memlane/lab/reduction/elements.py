"""Define the types and operations of reductions, with the identity of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memlane.errors import BadLaunch

OPS = ("sum", "product", "min", "max", "argmin", "argmax")
"""Operations, in the order of their numbers in `values.cuh`."""
WITH_INDEX = ("argmin", "argmax")
WITHOUT_IDENTITY = ("min", "max", *WITH_INDEX)
"""Operations without a value for an empty array."""


@dataclass(frozen=True)
class Element:
    """A type of elements, in C."""

    stored: str
    computed: str
    wrapping: str
    """Type in which sums and products are computed, so that integers wrap."""
    lowest: str
    highest: str


ELEMENTS = {
    "int32": Element("int", "int", "unsigned", "(int)0x80000000", "0x7fffffff"),
    "int64": Element("long long", "long long", "unsigned long long", "(long long)0x8000000000000000ull", "0x7fffffffffffffffll"),
    "float32": Element("float", "float", "float", "__int_as_float(0xff800000)", "__int_as_float(0x7f800000)"),
    "float64": Element(
        "double", "double", "double", "__longlong_as_double(0xfff0000000000000ll)", "__longlong_as_double(0x7ff0000000000000ll)"
    ),
    "float16": Element("unsigned short", "float", "float", "__int_as_float(0xff800000)", "__int_as_float(0x7f800000)"),
}


@dataclass(frozen=True)
class Kind:
    """An operation on elements of a type."""

    element: str
    """A name of `ELEMENTS`."""
    op: str
    """One of `OPS`."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.element)

    @property
    def result(self) -> np.dtype[Any]:
        """Type of the result: the array's own; int64 for argmin and argmax."""
        return np.dtype(np.int64) if self.op in WITH_INDEX else self.dtype

    @property
    def partial_bytes(self) -> int:
        """Bytes of a partial result: halves are computed as float32, and an index adds 8 bytes."""
        return 16 if self.op in WITH_INDEX else max(4, self.dtype.itemsize)

    @property
    def per_load(self) -> int:
        """Number of elements in 16 bytes."""
        return 16 // self.dtype.itemsize

    def defines(self) -> list[str]:
        """Return the macros that `values.cuh` needs."""
        of = ELEMENTS[self.element]
        identity = {"sum": "0", "product": "1"}.get(self.op, of.highest if self.op in ("min", "argmin") else of.lowest)
        return [
            f"STORED={of.stored}",
            f"VALUE={of.computed}",
            f"UNSIGNED={of.wrapping}",
            f"IDENTITY={identity}",
            f"HALF={int(self.element == 'float16')}",
            f"OP={OPS.index(self.op)}",
        ]


def kind_of(dtype: np.dtype[Any], op: str) -> Kind:
    """Return the kind of a reduction. Raises BadLaunch for an unknown type or operation."""
    if op not in OPS:
        raise BadLaunch(f"unknown reduction {op!r}; choose from: {', '.join(OPS)}")
    if dtype.name not in ELEMENTS:
        raise BadLaunch(f"arrays of {dtype.name} cannot be reduced; convert them to one of: {', '.join(ELEMENTS)}")
    return Kind(dtype.name, op)


def first_lines(defines: Sequence[str]) -> str:
    """Return macro definitions as text."""
    return "".join(f"#define {name} {value}\n" for name, _, value in (one.partition("=") for one in defines))

"""What can be reduced: types and operations, with what each leaves unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memlane.errors import BadLaunch

OPS = ("sum", "product", "min", "max", "argmin", "argmax")
"""In the order of their numbers in `values.cuh`."""
WITH_INDEX = ("argmin", "argmax")
WITHOUT_IDENTITY = ("min", "max", *WITH_INDEX)
"""Of an empty array there is none."""


@dataclass(frozen=True)
class Element:
    """A type of elements, in C."""

    stored: str
    computed: str
    wrapping: str
    """In which sums and products are computed, so that integers wrap."""
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
        """Of the array's own type; of argmin and argmax int64."""
        return np.dtype(np.int64) if self.op in WITH_INDEX else self.dtype

    @property
    def partial_bytes(self) -> int:
        """What a value on its way takes: halves are computed as float32, and an index goes along with 8 bytes."""
        return 16 if self.op in WITH_INDEX else max(4, self.dtype.itemsize)

    @property
    def per_load(self) -> int:
        """Elements of 16 bytes."""
        return 16 // self.dtype.itemsize

    def defines(self) -> list[str]:
        """The macros that `values.cuh` asks for."""
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
    """What is asked for. BadLaunch for a type or an operation that there is not."""
    if op not in OPS:
        raise BadLaunch(f"unknown reduction {op!r}; choose from: {', '.join(OPS)}")
    if dtype.name not in ELEMENTS:
        raise BadLaunch(f"arrays of {dtype.name} cannot be reduced; convert them to one of: {', '.join(ELEMENTS)}")
    return Kind(dtype.name, op)


def first_lines(defines: Sequence[str]) -> str:
    """Macros as text."""
    return "".join(f"#define {name} {value}\n" for name, _, value in (one.partition("=") for one in defines))

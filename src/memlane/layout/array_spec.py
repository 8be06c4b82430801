"""Parse array layouts given by name, as in `ml.upload(..., layout="column-major")`.

row-major  column-major  permuted(2, 0, 1)  pad(3)  tiled(8, 4)  diagonal  soa
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import gcd

import numpy as np
import numpy.typing as npt

from memlane.errors import LayoutError
from memlane.layout.array_families import Blocked, OfTile, PaddedRows, Permuted, column_major, row_major
from memlane.layout.arrays import ArrayLayout, checked_shape
from memlane.layout.diagonal import DiagonalStrip
from memlane.layout.layout import Layout
from memlane.number_format import plural

Shape = tuple[int, ...]
LayoutLike = str | ArrayLayout | Layout | Callable[[Shape], ArrayLayout]
"""A layout as users specify it: a name, a layout, or a function from a shape to a layout."""


def array_layout(given: LayoutLike, shape: Shape) -> ArrayLayout:
    """Return the layout of an array of `shape` that `given` specifies. Raises LayoutError, naming both, if they do not fit."""
    if isinstance(given, str):
        layout = _named(given, checked_shape(shape, f"layout {given!r}"))
    elif isinstance(given, Layout):
        layout = OfTile((given.rows, given.columns), given)
    elif isinstance(given, ArrayLayout):
        layout = given
    elif callable(given):
        layout = given(shape)
        if not isinstance(layout, ArrayLayout):
            raise LayoutError(
                f"the function passed as layout= must return a layout of memlane.layout for {shape}, not {type(layout).__name__}"
            )
    else:
        raise LayoutError(f"a layout is a name, a layout or a function of the shape, not a {type(given).__name__}")
    if layout.shape != tuple(shape):
        raise LayoutError(f"{layout} is a layout for an array of shape {layout.shape}, not {tuple(shape)}")
    return layout


def _named(text: str, shape: Shape) -> ArrayLayout:
    match = re.fullmatch(r"\s*([a-z-]+)\s*(?:\(([^()]*)\))?\s*", text)
    family = match[1] if match else ""
    if family == "auto":
        raise LayoutError(
            "layout 'auto' depends on the kernels that read the array: call advice = ml.advise_layout(kernel[grid, block], ...), and "
            "upload with layout=advice.layout(launches)"
        )
    if match is None or family not in _FAMILIES:
        raise LayoutError(f"unknown array layout {text!r}; choose from {', '.join(_FAMILIES)}, some with numbers as in pad(3)")
    words = match[2].split(",") if match[2] and match[2].strip() else []
    if not all(re.fullmatch(r"\s*\d{1,9}\s*", word) for word in words):
        raise LayoutError(f"{text!r}: the numbers of a layout are integers with commas between them")
    numbers = tuple(int(word) for word in words)
    wanted = {"row-major": 0, "column-major": 0, "diagonal": 0, "soa": 0, "pad": 1}.get(family, len(shape))
    if len(numbers) != wanted:
        raise LayoutError(
            f"{text!r}: {family} takes {plural(wanted, 'number')} for an array of {plural(len(shape), 'dimension')}, got {len(numbers)}"
        )
    return _FAMILIES[family](shape, numbers)


def _diagonal(shape: Shape, numbers: Shape) -> ArrayLayout:
    if len(shape) != 2:
        raise LayoutError(f"the diagonal strip is for arrays of 2 dimensions, not {len(shape)}")
    return OfTile(shape, DiagonalStrip(*shape))


def _fields(shape: Shape, numbers: Shape) -> ArrayLayout:
    if len(shape) != 2:
        raise LayoutError(f"layout='soa' needs an array of structures, or an array of shape (structures, fields), not shape {shape}")
    return column_major(shape)


_FAMILIES: Mapping[str, Callable[[Shape, Shape], ArrayLayout]] = {
    "row-major": lambda shape, numbers: row_major(shape),
    "column-major": lambda shape, numbers: column_major(shape),
    "permuted": Permuted,
    "pad": lambda shape, numbers: PaddedRows(shape, numbers[0]),
    "tiled": Blocked,
    "diagonal": _diagonal,
    "soa": _fields,
}


def words_of_structure(dtype: npt.DTypeLike) -> tuple[np.dtype[np.void], tuple[int, ...]]:
    """Return the word in which a structure is moved (V1, V2, V4, V8 or V16) and the words of each of its fields, paddings included.

    Raises LayoutError for a structure whose fields overlap or hold Python objects.
    """
    kind = np.dtype(dtype)
    if kind.fields is None or kind.hasobject:
        raise LayoutError(f"elements of {kind} have no fields to store separately")
    places = sorted((int(offset), field.itemsize) for field, offset, *_ in kind.fields.values())
    ends = [0]
    for start, length in places:
        if start < ends[-1]:
            raise LayoutError(f"fields of {kind} overlap, so they cannot be stored separately")
        ends += [start, start + length]
    borders = sorted({*ends, kind.itemsize})
    word = gcd(16, *borders)
    return np.dtype(f"V{word}"), tuple((after - before) // word for before, after in pairwise(borders))

"""Parse layouts by name, for the command line.

    row-major  column-major  pad(1)  strided(33, 1)  skewed(1)  tiled(8, 4)  morton  diagonal-strip
    xor  Swizzle<3, 2, 3>  linear(19, 10, 13, 23, 8)  ras  ras(7)  rap  rap(7)

`linear` takes the image of each bit of the row. `ras` and `rap` without a seed stand for all seeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memlane.errors import LayoutError
from memlane.layout.bit_linear import BitLinear
from memlane.layout.diagonal import DiagonalStrip
from memlane.layout.layout import Layout
from memlane.layout.shifts import RandomPermuteShift, RandomShift, Skewed
from memlane.layout.strides import ColumnMajor, Padded, RowMajor, Strided
from memlane.layout.swizzles import Swizzle, XorSwizzle
from memlane.layout.tiles import Morton, Tiled

_FAMILIES: Mapping[str, tuple[Callable[..., Layout], tuple[int, ...]]] = {
    "row-major": (RowMajor, (0,)),
    "column-major": (ColumnMajor, (0,)),
    "pad": (Padded, (0, 1)),
    "strided": (Strided, (2,)),
    "skewed": (Skewed, (0, 1)),
    "tiled": (Tiled, (2,)),
    "morton": (Morton, (0,)),
    "diagonal-strip": (DiagonalStrip, (0,)),
    "xor": (XorSwizzle, (0,)),
    "swizzle": (Swizzle, (3,)),
    "ras": (RandomShift, (1,)),
    "rap": (RandomPermuteShift, (1,)),
}
"""Family -> constructor from rows, columns and the numbers in parentheses, and the allowed counts of these numbers."""
_RANDOM = ("ras", "rap")
NAMES = (*_FAMILIES, "linear")


@dataclass(frozen=True)
class Spec:
    """A layout for tiles of any size; with `random`, one for each seed."""

    name: str
    family: str
    numbers: tuple[int, ...]

    @property
    def random(self) -> bool:
        return self.family in _RANDOM and not self.numbers

    def of(self, rows: int, columns: int, seed: int = 0) -> Layout:
        """Return the layout of a tile; `seed` applies to random families without one. Raises LayoutError if the tile does not allow it."""
        if self.family == "linear":
            return BitLinear.of_rows(rows, columns, self.numbers)
        make, _ = _FAMILIES[self.family]
        return make(rows, columns, *(self.numbers or ((seed,) if self.random else ())))


def read_spec(text: str) -> Spec:
    """Parse a layout. Raises LayoutError, listing the known layouts, for anything else."""
    match = re.fullmatch(r"\s*([A-Za-z][A-Za-z-]*)\s*(?:[(<\[]([^()<>\[\]]*)[)>\]])?\s*", text)
    family = match[1].lower() if match else ""
    if match is None or family not in NAMES:
        raise LayoutError(f"unknown layout {text!r}; choose from {', '.join(NAMES)}, some with numbers as in pad(1) or Swizzle<3, 2, 3>")
    words = match[2].split(",") if match[2] and match[2].strip() else []
    if not all(re.fullmatch(r"[ \t]*-?[0-9]{1,9}[ \t]*", word) for word in words):
        raise LayoutError(f"{text!r}: the numbers of a layout are integers with commas between them")
    numbers = tuple(int(word) for word in words)
    allowed = (len(numbers),) if family == "linear" and numbers else (1,) if family == "linear" else _FAMILIES[family][1]
    if len(numbers) not in allowed and not (family in _RANDOM and not numbers):
        wanted = " or ".join(map(str, allowed))
        raise LayoutError(
            f"{text!r}: {family} takes {wanted} {'number' if allowed == (1,) else 'numbers'} in parentheses, got {len(numbers)}"
        )
    return Spec(text.strip(), family, numbers)

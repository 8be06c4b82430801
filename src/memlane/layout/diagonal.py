"""Define a layout with consecutive anti-diagonals."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.layout.expression import Expression
from memlane.layout.layout import Layout


@dataclass(frozen=True)
class DiagonalStrip(Layout):
    """Elements with equal i + j are contiguous, from the first row down: each wavefront of dynamic programming is one contiguous strip.

    This is the layout for such arrays in "Dymaxion: Optimizing Memory Access Patterns for Heterogeneous Systems" (SC 2011).
    """

    def offset(self, i: Expression, j: Expression) -> Expression:
        diagonal = i + j
        begin = _triangle(diagonal) - _triangle((diagonal - self.rows).maximum(0)) - _triangle((diagonal - self.columns).maximum(0))
        return begin + i - (diagonal - (self.columns - 1)).maximum(0)


def _triangle(n: Expression) -> Expression:
    """Return 1 + 2 + ... + n."""
    return n * (n + 1) >> 1

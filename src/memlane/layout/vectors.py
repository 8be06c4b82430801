"""Define layouts that move whole vectors instead of elements."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.errors import LayoutError
from memlane.layout.expression import Expression
from memlane.layout.layout import Layout, whole_number


@dataclass(frozen=True)
class OfVectors(Layout):
    """Each aligned group of `vector` neighbours in a row moves as one, as `of` maps its columns."""

    of: Layout
    vector: int

    def check(self) -> None:
        whole_number("the elements of a vector", self.vector, 1)
        if (self.rows, self.columns) != (self.of.rows, self.of.columns * self.vector):
            raise LayoutError(f"vectors of {self.vector} in the layout {self.of} do not form a tile of {self.rows}x{self.columns}")

    def offset(self, i: Expression, j: Expression) -> Expression:
        return self.of.offset(i, j // self.vector) * self.vector + j % self.vector

    def index(self, offset: Expression) -> Expression | None:
        group = self.of.index(offset // self.vector)
        return None if group is None else group * self.vector + offset % self.vector

    @property
    def size(self) -> int:
        return self.of.size * self.vector

    def __str__(self) -> str:
        return f"{self.of} of vectors of {self.vector}"

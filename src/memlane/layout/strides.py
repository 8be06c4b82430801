"""Define row-major, column-major, strided and padded layouts."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.layout.expression import Expression
from memlane.layout.layout import Layout, whole_number


@dataclass(frozen=True)
class RowMajor(Layout):
    """Consecutive rows, as in C."""

    def offset(self, i: Expression, j: Expression) -> Expression:
        return i * self.columns + j

    def offset_of_index(self, k: Expression) -> Expression:
        return k

    def index(self, offset: Expression) -> Expression | None:
        return offset


@dataclass(frozen=True)
class ColumnMajor(Layout):
    """Consecutive columns, as in Fortran."""

    def offset(self, i: Expression, j: Expression) -> Expression:
        return j * self.rows + i

    def index(self, offset: Expression) -> Expression | None:
        return offset % self.rows * self.columns + offset // self.rows


@dataclass(frozen=True)
class Strided(Layout):
    """Element (i, j) at i * row_stride + j * column_stride. Strides may be 0, and elements may then share an offset."""

    row_stride: int
    column_stride: int

    def check(self) -> None:
        whole_number("the row stride", self.row_stride, 0)
        whole_number("the column stride", self.column_stride, 0)

    def offset(self, i: Expression, j: Expression) -> Expression:
        return i * self.row_stride + j * self.column_stride

    @property
    def size(self) -> int:
        return (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1


@dataclass(frozen=True)
class Padded(Layout):
    """Consecutive rows with `pad` unused elements after each: an array of columns + pad columns, all included in its size."""

    pad: int = 1

    def check(self) -> None:
        whole_number("the padding", self.pad, 0)

    def offset(self, i: Expression, j: Expression) -> Expression:
        return i * (self.columns + self.pad) + j

    def offset_of_index(self, k: Expression) -> Expression:
        return k + k // self.columns * self.pad

    def index(self, offset: Expression) -> Expression | None:
        pitch = self.columns + self.pad
        return offset // pitch * self.columns + offset % pitch

    @property
    def size(self) -> int:
        return self.rows * (self.columns + self.pad)

"""Define layouts that are linear over F2: each bit of the offset is the XOR of some bits of the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, xor_all
from memlane.layout.layout import Layout, power_of_two
from memlane.layout.program import Program
from memlane.number_format import plural


@dataclass(frozen=True)
class BitLinear(Layout):
    """A layout whose offset is the XOR of matrix[b] over the bits b set in the row-major index.

    `matrix` has an image for each bit of the index, the lowest first. A singular matrix makes elements share offsets.
    """

    matrix: tuple[int, ...]

    @classmethod
    def of_rows(cls, rows: int, columns: int, images: Sequence[int]) -> BitLinear:
        """Return a row-major layout with column j of row i at j ^ s(i), where s(i) is the XOR of `images` over the bits of i, the lowest
        first.

        Bits of i without an image change nothing.
        """
        power_of_two("the rows of a bit-linear layout", rows)
        power_of_two("the columns of a bit-linear layout", columns)
        if len(images) > rows.bit_length() - 1:
            raise LayoutError(
                f"got {plural(len(images), 'image')} for the {plural(rows.bit_length() - 1, 'bit')} of a row number below {rows}"
            )
        for image in images:
            if not 0 <= image < columns:
                raise LayoutError(f"the image {image} of a bit of the row must be in 0..{columns - 1}")
        matrix = [1 << bit for bit in range((rows * columns).bit_length() - 1)]
        for bit, image in enumerate(images, columns.bit_length() - 1):
            matrix[bit] ^= image
        return cls(rows, columns, tuple(matrix))

    def check(self) -> None:
        object.__setattr__(self, "matrix", tuple(int(image) for image in self.matrix))
        power_of_two("the rows of a bit-linear layout", self.rows)
        power_of_two("the columns of a bit-linear layout", self.columns)
        bits = (self.rows * self.columns).bit_length() - 1
        if len(self.matrix) != bits:
            raise LayoutError(
                f"a bit-linear layout of {self.rows}x{self.columns} needs {plural(bits, 'image')}, one for each bit, got {len(self.matrix)}"
            )
        for image in self.matrix:
            if not 0 <= image < 1 << bits:
                raise LayoutError(f"the image {image} of a bit must be in 0..{(1 << bits) - 1}")

    @property
    def row_images(self) -> tuple[int, ...] | None:
        """The images with which `of_rows` makes this layout; None if the map does more than permute columns by row."""
        bits = self.columns.bit_length() - 1
        images = tuple(image ^ 1 << bit for bit, image in enumerate(self.matrix))
        return None if any(images[:bits]) or any(image >= self.columns for image in images) else images[bits:]

    def __str__(self) -> str:
        images = self.row_images
        return super().__str__() if images is None else f"linear({', '.join(map(str, images))}) of {self.rows}x{self.columns}"

    def offset(self, i: Expression, j: Expression) -> Expression:
        """Return the cheapest of three equivalent expressions of the offset."""
        k = i * self.columns + j
        column_bits = self.columns.bit_length() - 1
        changes = [image ^ 1 << bit for bit, image in enumerate(self.matrix)]
        apart = k ^ _xor_of_images(j, changes[:column_bits]) ^ _xor_of_images(i, changes[column_bits:])
        return min((self.offset_of_index(k), apart), key=_cost)

    def offset_of_index(self, k: Expression) -> Expression:
        changes = [image ^ 1 << bit for bit, image in enumerate(self.matrix)]
        return min((k ^ _xor_of_images(k, changes), _xor_of_images(k, self.matrix)), key=_cost)

    def index(self, offset: Expression) -> Expression | None:
        return BitLinear(self.rows, self.columns, self._inverted).offset_of_index(offset) if self.is_bijective else None

    @cached_property
    def is_bijective(self) -> bool:
        return rank(self.matrix) == len(self.matrix)

    @cached_property
    def _inverted(self) -> tuple[int, ...]:
        """Matrix of the inverse, by elimination on pairs of an image and its source."""
        pairs = [(image, 1 << bit) for bit, image in enumerate(self.matrix)]
        for bit in range(len(pairs)):
            pivot = next(place for place in range(bit, len(pairs)) if pairs[place][0] >> bit & 1)
            pairs[bit], pairs[pivot] = pairs[pivot], pairs[bit]
            image, origin = pairs[bit]
            pairs = [
                (one ^ image, source ^ origin) if place != bit and one >> bit & 1 else (one, source)
                for place, (one, source) in enumerate(pairs)
            ]
        return tuple(origin for _, origin in pairs)


def rank(images: Sequence[int]) -> int:
    """Return the number of images that are independent over F2."""
    basis: list[int] = []
    for image in images:
        for one in basis:
            image = min(image, image ^ one)
        if image:
            basis.append(image)
    return len(basis)


def _xor_of_images(x: Expression, images: Sequence[int]) -> Expression:
    """Return the XOR of images[b] over the set bits b of x; bits shifted by equal distances are shifted together."""
    moved: dict[int, int] = {}
    for bit, image in enumerate(images):
        for target in range(image.bit_length()):
            if image >> target & 1:
                moved[target - bit] = moved.get(target - bit, 0) | 1 << bit
    parts = []
    for distance, chosen in sorted(moved.items()):
        parts.append((x & chosen) << distance if distance >= 0 else x >> -distance & chosen >> -distance)
    return xor_all(parts)


def _cost(expression: Expression) -> tuple[int, int]:
    return Program(expression).cost

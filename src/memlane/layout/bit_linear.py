"""Maps that are linear over F2: each bit of the offset is the exclusive or of some bits of the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, total
from memlane.layout.layout import Layout, power_of_two
from memlane.layout.program import Program
from memlane.number_format import plural


@dataclass(frozen=True)
class BitLinear(Layout):
    """The offset is the exclusive or of matrix[b] over the bits b that are set in the row-major index.

    `matrix` has an image for each bit of the index, the lowest first. A matrix that cannot be inverted makes elements share offsets.
    """

    matrix: tuple[int, ...]

    @classmethod
    def of_rows(cls, rows: int, columns: int, images: Sequence[int]) -> BitLinear:
        """Row-major, column j of row i at j ^ s(i), where s(i) is the exclusive or of `images` over the bits of i, the lowest first.
        Bits of i without an image change nothing."""
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
        """What `of_rows` was or could have been given; None where the map does more than change the column by the row."""
        bits = self.columns.bit_length() - 1
        images = tuple(image ^ 1 << bit for bit, image in enumerate(self.matrix))
        return None if any(images[:bits]) or any(image >= self.columns for image in images) else images[bits:]

    def __str__(self) -> str:
        images = self.row_images
        return super().__str__() if images is None else f"linear({', '.join(map(str, images))}) of {self.rows}x{self.columns}"

    def offset(self, i: Expression, j: Expression) -> Expression:
        """The cheapest of three ways to say it."""
        k = i * self.columns + j
        column_bits = self.columns.bit_length() - 1
        changes = [image ^ 1 << bit for bit, image in enumerate(self.matrix)]
        apart = k ^ _image(j, changes[:column_bits]) ^ _image(i, changes[column_bits:])
        return min((self.offset_of_index(k), apart), key=_cost)

    def offset_of_index(self, k: Expression) -> Expression:
        changes = [image ^ 1 << bit for bit, image in enumerate(self.matrix)]
        return min((k ^ _image(k, changes), _image(k, self.matrix)), key=_cost)

    def index(self, offset: Expression) -> Expression | None:
        return BitLinear(self.rows, self.columns, self._inverted).offset_of_index(offset) if self.is_bijective else None

    @cached_property
    def is_bijective(self) -> bool:
        return rank(self.matrix) == len(self.matrix)

    @cached_property
    def _inverted(self) -> tuple[int, ...]:
        """The matrix of the inverse, by elimination on pairs of an image and what it is the image of."""
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
    """How many of the images are independent over F2."""
    basis: list[int] = []
    for image in images:
        for one in basis:
            image = min(image, image ^ one)
        if image:
            basis.append(image)
    return len(basis)


def _image(x: Expression, images: Sequence[int]) -> Expression:
    """The exclusive or of images[b] over the set bits b of x: bits that move equally far move together."""
    moved: dict[int, int] = {}
    for bit, image in enumerate(images):
        for target in range(image.bit_length()):
            if image >> target & 1:
                moved[target - bit] = moved.get(target - bit, 0) | 1 << bit
    parts = []
    for distance, chosen in sorted(moved.items()):
        parts.append((x & chosen) << distance if distance >= 0 else x >> -distance & chosen >> -distance)
    return total(parts)


def _cost(expression: Expression) -> tuple[int, int]:
    return Program(expression).cost

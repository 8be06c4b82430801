"""Enumerate all swizzles of a few terms: the index XORed with some of its own bits, shifted by some distances.

A term takes some index bits that select the row of banks and shifts them, by one distance, onto bits that select the bank. Every map that
is linear over F2, keeps each element in its row of banks and is the identity in the first row is a combination of such terms; those with
few terms are the cheap ones. CuTe's Swizzle is one term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import numpy.typing as npt

from memlane.layout import BitLinear, Cost
from memlane.layout.expression import Expression, name
from memlane.layout.program import Program

Images = npt.NDArray[np.int64]
"""int64[candidates, bits]: image of each bit of the row of banks, in elements."""


@dataclass(frozen=True)
class Bits:
    """The bits of a row-major index: those below `low` stay, those below `high` select the bank, those up to `top` the row of banks."""

    low: int
    high: int
    top: int

    @property
    def distances(self) -> range:
        """Distances by which a row bit can shift down to become a bank bit."""
        return range(1, self.top - self.low)

    def sources(self, distance: int) -> list[int]:
        """Return the row bits that become bank bits when shifted down by `distance`."""
        return [bit for bit in range(self.high, self.top) if self.low <= bit - distance < self.high]


@dataclass(frozen=True)
class Batch:
    """Swizzles of equal cost."""

    cost: Cost
    images: Images

    def tables(self, bits: Bits) -> Images:
        """Return int64[candidates, rows of banks]: the XOR mask for the offsets of each row."""
        tables = np.zeros((len(self.images), 1), np.int64)
        for bit in range(bits.top - bits.high):
            tables = np.concatenate([tables, tables ^ self.images[:, bit, None]], axis=1)
        return tables


def batches(bits: Bits, rows: int, columns: int, terms: int) -> list[Batch]:
    """Return all swizzles of exactly `terms` terms, the cheapest first."""
    cost_model = _CostModel(bits, rows, columns)
    found: dict[Cost, list[Images]] = {}
    for distances in combinations(bits.distances, terms):
        for cost, images in _of_distances(bits, distances, cost_model):
            found.setdefault(cost, []).append(images)
    return [Batch(cost, np.concatenate(parts)) for cost, parts in sorted(found.items())]


def count_swizzles(bits: Bits, terms: int) -> int:
    """Return the number of swizzles of one to `terms` terms."""
    exactly = [1, *[0] * terms]  # of 0, 1, ... terms among the distances seen so far
    for distance in bits.distances:
        masks = 2 ** len(bits.sources(distance)) - 1
        exactly = [count + (exactly[number - 1] * masks if number else 0) for number, count in enumerate(exactly)]
    return sum(exactly[1:])


def layout_of(bits: Bits, rows: int, columns: int, images: npt.NDArray[np.int64]) -> BitLinear:
    """Return the swizzle with these images of the row bits."""
    matrix = [1 << bit for bit in range(bits.top)]
    for bit, image in enumerate(images.tolist(), bits.high):
        matrix[bit] ^= image
    return BitLinear(rows, columns, tuple(matrix))


def _of_distances(bits: Bits, distances: tuple[int, ...], cost_model: _CostModel) -> Iterator[tuple[Cost, Images]]:
    """Yield the swizzles with exactly these distances, grouped by cost."""
    choices = [_nonempty_masks(bits.sources(distance)) for distance in distances]
    if not all(choices):
        return
    found: dict[Cost, list[tuple[int, ...]]] = {}
    for chosen in product(*choices):
        found.setdefault(cost_model.of(tuple(zip(distances, chosen, strict=True))), []).append(chosen)
    for cost, several in found.items():
        masks = np.array(several, np.int64)
        images = np.zeros((len(masks), bits.top - bits.high), np.int64)
        for column, distance in enumerate(distances):
            for bit in bits.sources(distance):
                images[:, bit - bits.high] |= (masks[:, column] >> bit & 1) << bit - distance
        yield cost, images


def _nonempty_masks(sources: list[int]) -> list[int]:
    """Return all non-empty masks of the bits."""
    masks = [0]
    for bit in sources:
        masks += [mask | 1 << bit for mask in masks]
    return masks[1:]


class _CostModel:
    """Cost of a swizzle from the cost of its terms, as `BitLinear` writes it, from the index or from the row."""

    def __init__(self, bits: Bits, rows: int, columns: int) -> None:
        self._k, self._i = name("k", rows * columns), name("i", rows)
        self._column_bits = columns.bit_length() - 1
        self._from_row = bits.high >= self._column_bits
        self._base = 2 if rows > 1 and columns > 1 else 0
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def of(self, terms: tuple[tuple[int, int], ...]) -> Cost:
        cost_model = [self._term(distance, mask) for distance, mask in terms]
        return Cost(0, self._base + len(terms) + min(sum(price[way] for price in cost_model) for way in (0, 1)))

    def _term(self, distance: int, mask: int) -> tuple[int, int]:
        if (distance, mask) not in self._known:
            from_index = _operations(self._k >> distance & mask >> distance)
            from_row = from_index
            if self._from_row:
                move, chosen = self._column_bits - distance, mask >> self._column_bits
                from_row = _operations((self._i & chosen) << move if move >= 0 else self._i >> -move & chosen >> -move)
            self._known[distance, mask] = from_index, from_row
        return self._known[distance, mask]


def _operations(expression: Expression) -> int:
    return Program(expression).cost.operations

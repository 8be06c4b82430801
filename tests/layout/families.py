"""Every family of layouts with a second definition of it: where each element lies, found by another way than an expression.

A new family needs one entry in `FAMILIES`; `test_layouts`, `test_roads` and the tests on a GPU then try it on all roads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from memlane.layout import (
    BitLinear,
    ColumnMajor,
    DiagonalStrip,
    Gather,
    Layout,
    Morton,
    OfVectors,
    Padded,
    RandomPermuteShift,
    RandomShift,
    RowMajor,
    ShiftTable,
    Skewed,
    Strided,
    Swizzle,
    Tiled,
    XorSwizzle,
)


@dataclass(frozen=True)
class Known:
    """A layout, and the offsets of its elements as integers [rows, columns]."""

    layout: Layout
    table: np.ndarray


def each(rows: int, columns: int, where: Callable[[int, int], int]) -> np.ndarray:
    return np.array([[where(i, j) for j in range(columns)] for i in range(rows)])


def extents(random: Random) -> tuple[int, int]:
    return random.randint(1, 40), random.randint(1, 40)


def powers(random: Random) -> tuple[int, int]:
    return 1 << random.randint(0, 6), 1 << random.randint(0, 6)


def row_major(random: Random) -> Known:
    rows, columns = extents(random)
    return Known(RowMajor(rows, columns), np.arange(rows * columns).reshape(rows, columns))


def column_major(random: Random) -> Known:
    rows, columns = extents(random)
    return Known(ColumnMajor(rows, columns), np.arange(rows * columns).reshape(columns, rows).T)


def strided(random: Random) -> Known:
    rows, columns = extents(random)
    a, b = random.randint(0, 50), random.randint(0, 50)
    return Known(Strided(rows, columns, a, b), np.add.outer(np.arange(rows) * a, np.arange(columns) * b))


def padded(random: Random) -> Known:
    rows, columns = extents(random)
    pad = random.randint(0, 5)
    return Known(Padded(rows, columns, pad), np.arange(rows * (columns + pad)).reshape(rows, -1)[:, :columns])


def skewed(random: Random) -> Known:
    rows, columns = extents(random)
    step = random.randint(0, 50)
    table = [[row * columns + place for place in np.roll(range(columns), -row * step)] for row in range(rows)]
    return Known(Skewed(rows, columns, step), np.array(table))


def tiled(random: Random) -> Known:
    (high, wide), (down, across) = ((random.randint(1, 6), random.randint(1, 6)) for _ in range(2))
    count = high * wide * down * across
    table = np.arange(count).reshape(down, across, high, wide).transpose(0, 2, 1, 3).reshape(down * high, across * wide)
    return Known(Tiled(down * high, across * wide, high, wide), table)


def morton(random: Random) -> Known:
    rows, columns = powers(random)

    def where(i: int, j: int) -> int:
        """Takes turns at the two, the column first, for as long as both have bits."""
        left = {"j": [j >> bit & 1 for bit in range(columns.bit_length() - 1)], "i": [i >> bit & 1 for bit in range(rows.bit_length() - 1)]}
        bits = []
        while left["j"] or left["i"]:
            bits += [left[word].pop(0) for word in "ji" if left[word]]
        return sum(bit << place for place, bit in enumerate(bits))

    return Known(Morton(rows, columns), each(rows, columns, where))


def xor_swizzle(random: Random) -> Known:
    rows, columns = random.randint(1, 70), 1 << random.randint(0, 6)
    return Known(XorSwizzle(rows, columns), each(rows, columns, lambda i, j: i * columns + (j ^ (i & (columns - 1)))))


def swizzle(random: Random) -> Known:
    bits, base = random.randint(0, 3), random.randint(0, 2)
    shift = random.choice([-1, 1]) * random.randint(bits, 4)
    unit = 1 << bits + base + max(0, -shift)
    rows, columns = random.randint(1, 4) * unit, random.choice([1, 3, 8])

    def where(i: int, j: int) -> int:
        """Bit by bit, as CuTe's documentation draws it: bits ZZZ are replaced by ZZZ ^ YYY."""
        k = offset = i * columns + j
        for bit in range(bits):
            source, target = base + bit + max(0, shift), base + bit + max(0, -shift)
            if k >> source & 1:
                offset ^= 1 << target
        return offset

    return Known(Swizzle(rows, columns, bits, base, shift), each(rows, columns, where))


def rotated(layout: RandomShift | RandomPermuteShift | ShiftTable) -> Known:
    table = [[row * layout.columns + place for place in np.roll(range(layout.columns), -by)] for row, by in enumerate(layout.shifts)]
    return Known(layout, np.array(table))


def random_shift(random: Random) -> Known:
    return rotated(RandomShift(*extents(random), random.randint(0, 1 << 70)))


def random_permute_shift(random: Random) -> Known:
    return rotated(RandomPermuteShift(*extents(random), random.randint(0, 1000)))


def shift_table(random: Random) -> Known:
    rows, columns = extents(random)
    return rotated(ShiftTable(rows, columns, tuple(random.randrange(columns) for _ in range(rows))))


def bit_linear(random: Random) -> Known:
    rows, columns = powers(random)
    bits = (rows * columns).bit_length() - 1
    matrix = tuple(random.randrange(1 << bits) for _ in range(bits))
    if random.random() < 0.7:  # of a triangle with ones, whose rows are then shuffled: always invertible
        matrix = tuple(random.sample([1 << bit | random.randrange(1 << bit) for bit in range(bits)], bits))

    def where(i: int, j: int) -> int:
        offset = 0
        for bit, image in enumerate(matrix):
            offset ^= image * (i * columns + j >> bit & 1)
        return offset

    return Known(BitLinear(rows, columns, matrix), each(rows, columns, where))


def linear_rows(random: Random) -> Known:
    rows, columns = powers(random)
    images = [random.randrange(columns) for _ in range(rows.bit_length() - 1)]

    def where(i: int, j: int) -> int:
        for bit, image in enumerate(images):
            j ^= image * (i >> bit & 1)
        return i * columns + j

    return Known(BitLinear.of_rows(rows, columns, images), each(rows, columns, where))


def diagonal_strip(random: Random) -> Known:
    rows, columns = extents(random)
    order = sorted(((i, j) for i in range(rows) for j in range(columns)), key=lambda at: (at[0] + at[1], at[0]))
    table = np.zeros((rows, columns), int)
    for place, at in enumerate(order):
        table[at] = place
    return Known(DiagonalStrip(rows, columns), table)


def gather(random: Random) -> Known:
    rows, columns = extents(random)
    indices = random.sample(range(rows * columns), rows * columns)
    return Known(Gather(rows, columns, indices), np.array(indices).reshape(rows, columns))


def of_vectors(random: Random) -> Known:
    inner, vector = random.choice([swizzle, padded, random_permute_shift])(random), random.choice([1, 2, 3, 4])
    rows, columns = inner.table.shape
    table = (inner.table[:, :, None] * vector + np.arange(vector)).reshape(rows, -1)
    return Known(OfVectors(rows, columns * vector, inner.layout, vector), table)


def composed(random: Random) -> Known:
    inner = random.choice([tiled, column_major, padded, random_shift, gather])(random)
    size = inner.layout.size
    outer = Gather(1, size, random.sample(range(size), size)) if random.random() < 0.5 else Skewed(size, 2, 1)
    return Known(outer @ inner.layout, outer.table.ravel()[inner.table])


FAMILIES: dict[str, Callable[[Random], Known]] = {
    one.__name__: one
    for one in (
        row_major, column_major, strided, padded, skewed, tiled, morton, xor_swizzle, swizzle, random_shift, random_permute_shift,
        shift_table, bit_linear, linear_rows, diagonal_strip, gather, of_vectors, composed,
    )
}  # fmt: skip


def a_few(seeds: Sequence[int] = (0, 1, 2)) -> list[Known]:
    """For each seed one of each family, and their inverses where they have one."""
    found = [make(Random(f"{name} {seed}")) for name, make in FAMILIES.items() for seed in seeds]
    for known in list(found):
        if known.layout.is_bijective:
            found.append(Known(known.layout.inverse, np.argsort(known.table.ravel())[None, :]))
    return found

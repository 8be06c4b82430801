"""Define layouts with rotated rows: skewed, and the random shifts of Nakano, Matsumae and Ito.

RAS: "The Random Address Shift to Reduce the Memory Access Congestion on the Discrete Memory Machine", CANDAR 2013. RAP: "Random Address
Permute-Shift Technique for the Shared Memory on GPUs", ICPP Workshops 2014.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from memlane.errors import LayoutError
from memlane.layout.expression import Expression, table
from memlane.layout.layout import Layout, whole_number
from memlane.number_format import plural

_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class RotatedRows(Layout):
    """Row-major with column j of row i at (j + shift of the row) mod columns."""

    @abstractmethod
    def shift(self, i: Expression) -> Expression:
        """Return the shift of row i, in 0..columns-1."""

    def offset(self, i: Expression, j: Expression) -> Expression:
        return i * self.columns + (j + self.shift(i)) % self.columns

    def index(self, offset: Expression) -> Expression | None:
        i, j = offset // self.columns, offset % self.columns
        return i * self.columns + (j + self.columns - self.shift(i)) % self.columns


@dataclass(frozen=True)
class Skewed(RotatedRows):
    """Row i rotated by step * i: the bank assignment of a padded tile without the room for padding."""

    step: int = 1

    def check(self) -> None:
        whole_number("the step of a skewed layout", self.step, 0)

    def shift(self, i: Expression) -> Expression:
        return i * (self.step % self.columns) % self.columns


@dataclass(frozen=True)
class RandomShift(RotatedRows):
    """RAS: each row rotated by an independent random number. The same seed gives the same shifts on every system."""

    seed: int = 0

    def check(self) -> None:
        whole_number("the seed", self.seed, 0)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        draw = _draws(self.seed)
        return tuple(_below(self.columns, draw) for _ in range(self.rows))

    def shift(self, i: Expression) -> Expression:
        return table(self.shifts, i)


@dataclass(frozen=True)
class RandomPermuteShift(RotatedRows):
    """RAP: rows rotated by the numbers of a random permutation.

    Each group of `columns` rows, aligned to `columns`, has its own permutation, so its shifts are distinct. The same seed gives the same
    shifts on every system.
    """

    seed: int = 0

    def check(self) -> None:
        whole_number("the seed", self.seed, 0)

    @cached_property
    def shifts(self) -> tuple[int, ...]:
        draw = _draws(self.seed)
        shifts: list[int] = []
        while len(shifts) < self.rows:
            group = list(range(self.columns))
            for last in range(self.columns - 1, 0, -1):
                chosen = _below(last + 1, draw)
                group[last], group[chosen] = group[chosen], group[last]
            shifts += group
        return tuple(shifts[: self.rows])

    def shift(self, i: Expression) -> Expression:
        return table(self.shifts, i)


@dataclass(frozen=True)
class ShiftTable(RotatedRows):
    """Each row rotated by a given number."""

    shifts: tuple[int, ...]

    def check(self) -> None:
        object.__setattr__(self, "shifts", tuple(int(shift) for shift in self.shifts))
        if len(self.shifts) != self.rows:
            raise LayoutError(f"{plural(len(self.shifts), 'shift')} for {plural(self.rows, 'row')}; give one for each")
        for row, shift in enumerate(self.shifts):
            if not 0 <= shift < self.columns:
                raise LayoutError(f"the shift of row {row} is {shift}; it must be in 0..{self.columns - 1}")

    def shift(self, i: Expression) -> Expression:
        return table(self.shifts, i)


def _draws(seed: int) -> Iterator[int]:
    """Yield random 64-bit words from SplitMix64, which gives the same numbers with every version of every library."""
    state = seed & _WORD
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _WORD
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
        yield mixed ^ mixed >> 31


def _below(count: int, draw: Iterator[int]) -> int:
    """Return a uniform random number in 0..count-1; words of an incomplete last range are redrawn."""
    rounds = (_WORD + 1) // count * count
    return next(word for word in draw if word < rounds) % count


def random_words(below: int, count: int, seed: int = 0) -> list[int]:
    """Return `count` random numbers in 0..below-1, the same on every system."""
    draw = _draws(seed)
    return [_below(below, draw) for _ in range(count)]

"""Wavefronts of patterns under layouts: by hand, by the arithmetic of one access at a time, by probability, and as published."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import comb, factorial

import numpy as np
import pytest

from memlane import chip
from memlane.chip import AccessKind, access
from memlane.errors import LayoutError
from memlane.layout import (
    BitLinear,
    Layout,
    OfVectors,
    Padded,
    RandomPermuteShift,
    RandomShift,
    RowMajor,
    Swizzle,
    XorSwizzle,
    count,
    count_drawn,
    pattern,
)

H200 = chip.load("h200")
ALL = 0xFFFFFFFF
DRAWS = 1500
REFERENCE = BitLinear.of_rows(32, 32, [19, 10, 13, 23, 8])


def ways(layout: Layout, word: str, width: int = 4, name: str = "h200", kind: AccessKind = "load") -> tuple[float, int]:
    found = count(layout, pattern(word, layout.rows, layout.columns), chip.load(name), width, kind)
    return round(found.mean, 2), found.worst


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (RowMajor(32, 32), {"row": 1, "column": 32, "diagonal": 1, "antidiagonal": 1, "xordiagonal": 1, "block4x8": 4, "block16x2": 16}),
        (Padded(32, 32), {"row": 1, "column": 1, "diagonal": 2, "antidiagonal": 32, "block4x8": 4, "block8x4": 4, "block16x2": 2}),
        (XorSwizzle(32, 32), {"row": 1, "column": 1, "xordiagonal": 32, "block4x8": 4, "block8x4": 4, "block16x2": 2}),
    ],
    ids=str,
)
def test_known_layouts_by_hand(layout: Layout, expected: dict[str, int]) -> None:
    assert {word: ways(layout, word) for word in expected} == {word: (number, number) for word, number in expected.items()}


def test_neither_padding_nor_xor_is_safe() -> None:
    """Each has a diagonal on which all lanes meet in one bank."""
    for layout, word in ((Padded(32, 32), "antidiagonal"), (XorSwizzle(32, 32), "diagonal"), (XorSwizzle(32, 32), "antidiagonal")):
        assert ways(layout, word)[1] == 32


def test_a_linear_layout_is_good_for_all_at_once() -> None:
    words = ["row", "column", "xordiagonal", "block2x16", "block4x8", "block8x4", "block16x2"]
    assert [ways(REFERENCE, word)[1] for word in words] == [1] * 7
    assert [ways(REFERENCE, word)[1] for word in ("diagonal", "antidiagonal", "(r + t, c + 2 * t)")] == [2] * 3
    assert max(ways(REFERENCE, f"anyblock{high}x{32 // high}")[1] for high in (2, 4, 8, 16)) == 3


# -- random shifts ---------------------------------------------------------------------------------------------------------------


def to_the_32nd(series: Sequence[Fraction]) -> list[Fraction]:
    """The first 33 coefficients, by squaring five times."""
    found = [*series, *[Fraction(0)] * (33 - len(series))]
    for _ in range(5):
        found = [sum((found[a] * found[n - a] for a in range(n + 1)), Fraction(0)) for n in range(33)]
    return found


@cache
def fullest_of_independent_banks() -> float:
    """The mean of the fullest bank when 32 lanes choose one of 32 banks each."""
    mean = Fraction(0)
    for most in range(32):
        ways_in = to_the_32nd([Fraction(1, factorial(k)) for k in range(most + 1)])[32] * factorial(32)
        mean += 1 - ways_in / Fraction(32) ** 32
    return float(mean)


@cache
def fullest_of_random_elements() -> float:
    """The same when they choose one of 32 x 32 elements each, and those that choose the same are served together."""
    new = [Fraction(1)]  # chances of 0, 1, ... different elements
    for _ in range(32):
        stay = [chance * Fraction(number, 1024) for number, chance in enumerate(new)] + [Fraction(0)]
        new = [old + (new[number - 1] * Fraction(1025 - number, 1024) if number else 0) for number, old in enumerate(stay)]
    mean = Fraction(0)
    for most in range(32):
        ways_in = to_the_32nd([Fraction(comb(32, k)) for k in range(most + 1)])
        mean += 1 - sum(chance * ways_in[number] / comb(1024, number) for number, chance in enumerate(new))
    return float(mean)


def drawn(kind: type[RandomShift] | type[RandomPermuteShift], word: str) -> tuple[float, int]:
    found = count_drawn(draws_of(kind), "drawn", pattern(word, 32, 32), H200, 4)
    assert (found.accesses, found.draws, found.ideal) == (DRAWS, DRAWS, pytest.approx(1, abs=0.01))
    return found.mean, found.worst


@cache
def draws_of(kind: type[RandomShift] | type[RandomPermuteShift]) -> list[Layout]:
    return [kind(32, 32, seed) for seed in range(DRAWS)]


def test_published_numbers_are_the_exact_means() -> None:
    """Published for 32 banks (CANDAR 2013, ICPP Workshops 2014): 3.436 simulated for RAS, 3.53 as the expectation for any access under
    RAP. The first is that of 32 random elements, among which equal ones are served together; where no two lanes share an element, as in a
    column or a diagonal, the mean of 32 independent banks is the second."""
    assert fullest_of_random_elements() == pytest.approx(3.436, abs=0.01)
    assert fullest_of_independent_banks() == pytest.approx(3.53, abs=0.005)


def test_ras() -> None:
    """By simulation: column and diagonal 3.53, random 3.43."""
    assert drawn(RandomShift, "row") == (1, 1)
    for word in ("column", "diagonal", "antidiagonal"):
        assert drawn(RandomShift, word)[0] == pytest.approx(fullest_of_independent_banks(), abs=0.08)
    assert drawn(RandomShift, "random")[0] == pytest.approx(fullest_of_random_elements(), abs=0.08)


def test_rap() -> None:
    """1 for rows and columns; diagonals 3.61, a little more than with independent shifts, because t + p(t) of a permutation p is no
    independent choice. Here beside a simulation by NumPy's permutations."""
    assert drawn(RandomPermuteShift, "row") == drawn(RandomPermuteShift, "column") == (1, 1)
    generator = np.random.default_rng(5)
    banks = (np.arange(32) + np.array([generator.permutation(32) for _ in range(20_000)])) % 32
    simulated = np.mean([np.bincount(row, minlength=32).max() for row in banks])
    assert simulated == pytest.approx(3.61, abs=0.02)
    for word in ("diagonal", "antidiagonal"):
        assert drawn(RandomPermuteShift, word)[0] == pytest.approx(simulated, abs=0.08)
    assert drawn(RandomPermuteShift, "random")[0] == pytest.approx(fullest_of_random_elements(), abs=0.08)


# -- widths, kinds, chips --------------------------------------------------------------------------------------------------------

STRIDES = (0, 1, 2, 3, 4, 8, 16, 31, 32, 33)
# What tensor-layouts 0.3.2 (`bank_conflicts(Layout(32, stride), element_bytes=...)["max_ways"]`) says of 32 lanes by stride.
TENSOR_LAYOUTS = {
    2: (1, 1, 1, 2, 2, 4, 8, 2, 16, 1),
    4: (1, 1, 2, 1, 4, 8, 16, 1, 32, 1),
    8: (1, 2, 4, 2, 8, 16, 32, 2, 32, 2),
    16: (1, 4, 8, 4, 16, 32, 32, 4, 32, 4),
}
# And of `compose(Swizzle(B, M, S), Layout(32, stride))` with elements of 4 bytes, by stride 32, 33, 1.
TENSOR_LAYOUTS_SWIZZLED = {(5, 0, 5): (1, 32, 1), (3, 0, 5): (4, 8, 1), (2, 0, 5): (8, 4, 1), (3, 2, 3): (4, 1, 1)}


def test_strides_as_another_library_counts_them() -> None:
    """The ways that it counts are wavefronts, and they agree but for one: 16 bytes of one place, which take two passes on an H200. It calls
    any number above 1 a conflict; here a conflict is what exceeds the ideal, so dense float2 and float4 have none."""
    layout = RowMajor(32, 64)
    for width, theirs in TENSOR_LAYOUTS.items():
        found = [count(layout, pattern(f"(t * {stride})", 32, 64), H200, width) for stride in STRIDES]
        assert [one.worst for one in found] == [2 if width == 16 else theirs[0], *theirs[1:]]
        dense = found[1]
        assert dense.conflicts == 0
        assert dense.mean == dense.ideal == max(1, width // 4)


@pytest.mark.parametrize("numbers", TENSOR_LAYOUTS_SWIZZLED)
def test_swizzled_strides_too(numbers: tuple[int, int, int]) -> None:
    layout = Swizzle(64, 32, *numbers)
    found = [count(layout, pattern(f"(t * {stride})", 64, 32), H200, 4).worst for stride in (32, 33, 1)]
    assert tuple(found) == TENSOR_LAYOUTS_SWIZZLED[numbers]


@pytest.mark.parametrize("name", ["h200", "gtx680", "gtx480", "s1070"])
@pytest.mark.parametrize("kind", ["load", "store"])
def test_counts_are_those_of_each_access(name: str, kind: AccessKind) -> None:
    """At a few offsets, by the reference arithmetic of one access."""
    rule = chip.load(name)
    for layout, word, width in ((Padded(16, 16), "diagonal", 8), (XorSwizzle(16, 16), "column", 4), (RowMajor(16, 16), "(t // 2, c)", 16)):
        one = pattern(word, 16, 16)
        lanes = layout(one.i, one.j) * width
        each = [access.wavefronts(rule, row.tolist(), ALL, width, kind) for row in lanes]
        found = count(layout, one, rule, width, kind)
        assert found.mean == pytest.approx(np.mean(each))
        assert found.worst == max(each)
        assert found.worst_at == divmod(each.index(max(each)), 16)
        assert found.accesses == 256


def test_loads_of_neighbours_share_a_pass_and_stores_do_not() -> None:
    assert ways(RowMajor(32, 32), "(r, t // 2)", 16) == (2, 2)
    assert ways(RowMajor(32, 32), "(r, t // 2)", 16, kind="store") == (4, 4)


def test_vectors_of_a_tile_of_elements() -> None:
    """A row by float4 and a column by float of the same tile."""
    floats, vectors = pattern("column", 32, 32), pattern("row", 32, 8)
    keeps = OfVectors(32, 32, XorSwizzle(32, 8), 4)
    assert count(keeps, vectors, H200, 16, element=4).worst == 4
    assert count(keeps, floats, H200, 4, element=4).worst == 4
    assert count(Swizzle(32, 32, 3, 2, 3), vectors, H200, 16, element=4).worst == 4
    with pytest.raises(LayoutError, match=r"^XorSwizzle\(32x32\) splits vectors of 4 elements, the first at \(1, 0\): their elements"):
        count(XorSwizzle(32, 32), vectors, H200, 16, element=4)


@pytest.mark.parametrize(
    ("width", "element", "message"),
    [
        (12, None, "a lane cannot access 12 bytes; choose one of 1, 2, 4, 8, 16"),
        (16, 3, "a lane cannot hold elements of 3 bytes; choose one of 1, 2, 4, 8, 16"),
        (4, 8, "an access of 4 bytes does not hold whole elements of 8 bytes"),
        (8, 4, "RowMajor(32x32) has 32x32 elements, but the pattern row is for a tile of 32x64"),
    ],
)
def test_widths_that_do_not_fit(width: int, element: int | None, message: str) -> None:
    with pytest.raises(LayoutError) as raised:
        count(RowMajor(32, 32), pattern("row", 32, 32), H200, width, element=element)
    assert message in str(raised.value)

"""The search: its certificate is what every offset says, it finds what is known to exist, and it says where RAP is not beaten."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from memlane import chip
from memlane.chip import access
from memlane.errors import LayoutError
from memlane.layout import BitLinear, Cost, Layout, Padded, RowMajor, XorSwizzle, check_vectors, count, pattern
from memlane.optimize import Certificate, search_layout
from memlane.optimize.goals import Trial, goals
from memlane.optimize.swizzles import Bits, batches, count_swizzles, layout_of

H200 = chip.load("h200")
ISSUE = ("row", "column", "diagonal", "antidiagonal", "block8x4")


def worst(found: Certificate) -> dict[str, int]:
    return {entry.pattern: entry.worst for entry in found.entries}


def by_brute_force(layout: Layout, word: str, width: int) -> int:
    """Every offset, one access at a time, by the reference arithmetic."""
    one = pattern(word, layout.rows, layout.columns)
    rows = {tuple(row) for row in (layout(one.i, one.j) * width).tolist()}
    return max(access.wavefronts(H200, row, 0xFFFFFFFF, width) for row in rows)


@pytest.fixture(scope="module")
def found() -> Certificate:
    return search_layout(ISSUE, width=4)


def test_it_is_as_good_as_the_known_linear_layout(found: Certificate) -> None:
    known = BitLinear.of_rows(32, 32, [19, 10, 13, 23, 8])
    assert worst(found) == {"row": 1, "column": 1, "diagonal": 2, "antidiagonal": 2, "block8x4": 1}
    assert all(entry.worst <= count(known, pattern(entry.pattern, 32, 32), H200, 4).worst for entry in found.entries)
    assert found.layout.is_bijective
    assert found.extra.operations < known.cost.operations - RowMajor(32, 32).cost.operations
    assert found.beats_rap
    assert found.verdict.startswith("Better than RAP: 7 wavefronts for one access of each pattern; RAP is expected to take 11.")


def test_the_certificate_is_what_every_offset_says(found: Certificate) -> None:
    assert [entry.accesses for entry in found.entries] == [1024, 1024, 1024, 1024, 32]
    for entry in found.entries:
        assert entry.worst == by_brute_force(found.layout, entry.pattern, 4)
    assert [entry.worst for entry in found.plain] == [1, 32, 1, 1, 8]
    assert found.extra == Cost(0, found.layout.cost.operations - 2)


def test_all_blocks_and_the_xor_diagonal_too() -> None:
    words = (*ISSUE, "block2x16", "block4x8", "block16x2", "xordiagonal")
    found = worst(search_layout(words))
    assert found == {word: 2 if word in ("diagonal", "antidiagonal") else 1 for word in words}


def test_patterns_named_first_matter_more() -> None:
    """No cheap layout has 1 for columns and both diagonals: the order decides which of them takes 2."""
    first = worst(search_layout(("row", "diagonal", "antidiagonal", "column")))
    assert first == {"row": 1, "diagonal": 1, "antidiagonal": 1, "column": 2}
    assert worst(search_layout(("row", "column", "diagonal", "antidiagonal")))["column"] == 1


def test_the_cheapest_of_the_best_is_taken() -> None:
    found = search_layout(("row", "column"))
    assert np.array_equal(found.layout.table, XorSwizzle(32, 32).table)
    assert found.extra == Cost(0, 1)
    assert search_layout(("row",)).layout == RowMajor(32, 32)
    padded = search_layout(("row", "column"), padding=True)
    assert padded.layout == Padded(32, 32, 1)
    assert padded.extra == Cost(0, 0)


def test_it_says_when_rap_is_not_beaten() -> None:
    equal = search_layout(("row", "column"))
    assert not equal.beats_rap
    assert equal.verdict == "No layout is better than RAP: both take 2 wavefronts for one access of each pattern, but RAP needs a table."
    # Any two rows meet in every bank: half of a warp in one row of banks, half in another, each offset another half.
    lost = search_layout(("(r + t * c, c * t * t + r * t)",), terms=1)
    assert not lost.beats_rap
    assert "Nothing better than RAP was found: it is expected to take" in lost.verdict
    assert lost.verdict.endswith("Use RAP with a seed of your own.")


@pytest.mark.parametrize("width", [8, 16])
def test_wide_elements(width: int) -> None:
    found = search_layout(("row", "column"), width=width)
    for entry in found.entries:
        assert entry.worst == entry.ideal_worst == width // 4
    assert {entry.kind for entry in found.entries} == {"load", "store"}
    assert by_brute_force(found.layout, "column", width) == width // 4


def test_vectors_stay_whole() -> None:
    found = search_layout(("row@16", "column@4", "column@16"))
    check_vectors(found.layout, 4)
    assert {(entry.pattern, entry.width): entry.worst for entry in found.entries} == {("row", 16): 4, ("column", 4): 4, ("column", 16): 4}
    groups = found.layout.table.reshape(32, 8, 4)
    assert (groups[..., 0] % 4 == 0).all()
    assert (groups - groups[..., :1] == np.arange(4)).all()


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (64, 16), (32, 128), (16, 32)])
def test_other_tiles(rows: int, columns: int) -> None:
    found = search_layout(("row", "column"), rows=rows, columns=columns, terms=2)
    assert worst(found) == {"row": 1, "column": 1}
    assert (found.layout.rows, found.layout.columns, found.layout.size) == (rows, columns, rows * columns)


def test_other_chips() -> None:
    for name in ("gtx480", "gtx680", "gtx680-8byte"):
        found = search_layout(("row", "column"), chip=chip.load(name), kinds=("load",), terms=1)
        for entry in found.entries:
            assert entry.worst == entry.ideal_worst, name


@pytest.mark.parametrize(("name", "width"), [("h200", 4), ("h200", 16), ("gtx480", 16), ("gtx680", 4), ("gtx680-8byte", 8), ("v100", 2)])
def test_trials_count_as_the_rule_does(name: str, width: int) -> None:
    """Many swizzles at once against each by itself, loads whose passes merge among them."""
    words = ("column", "diagonal", "(t // 2 + r, c)", "(t % 4, c + t // 8)")
    rows = columns = 16
    wanted = goals(words, rows, columns, chip.load(name), width, None, ("load", "store"))
    row = wanted[0].row_elements
    bits = Bits(max(0, (4 // width).bit_length() - 1), row.bit_length() - 1, 8)
    rng = np.random.default_rng(1)
    for batch in batches(bits, rows, columns, 2)[:3]:
        chosen = rng.integers(len(batch.images), size=2)
        tables = batch.tables(bits)[chosen]
        layouts = [layout_of(bits, rows, columns, batch.images[one]) for one in chosen]
        for goal in wanted:
            trial = Trial(goal, columns)
            assert trial.worst(tables, 0, trial.offsets).tolist() == [goal.count(layout).worst for layout in layouts]
        assert all(layout.cost <= batch.cost for layout in layouts)


def test_all_swizzles_of_few_terms_are_looked_at() -> None:
    """For two bits of the bank and two of the row: 15 matrices besides the identity, three distances."""
    bits = Bits(0, 2, 4)
    found = [tuple(row) for terms in (1, 2, 3) for batch in batches(bits, 4, 4, terms) for row in batch.images.tolist()]
    images = set(found)
    assert len(images) == len(found) == count_swizzles(bits, 3)
    assert images == {(a, b) for a in range(4) for b in range(4)} - {(0, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("words", [("row", "column", "diagonal", "antidiagonal"), ("column", "(2 * t + r, c + t // 4)", "diagonal", "row")])
def test_no_swizzle_is_better(words: tuple[str, ...]) -> None:
    """Of a tile small enough to count each of the 512 swizzles at every offset."""
    found = search_layout(words, width=16, rows=8, columns=8, kinds=("load",), terms=4)
    bits = Bits(0, 3, 6)

    def key(layout: Layout) -> tuple[float, ...]:
        counted = [count(layout, pattern(word, 8, 8), H200, 16) for word in words]
        ratios = [entry.worst / entry.ideal_worst for entry in counted]
        return (max(ratios), *ratios, *layout.cost)

    every = [layout_of(bits, 8, 8, np.array(images)) for images in product(range(8), repeat=3)]
    few = [one for one in every if sum(any(image >> bit & 1 for bit, image in moved_by(one, by)) for by in range(1, 6)) <= 4]
    assert len(few) == count_swizzles(bits, 4) + 1
    assert key(found.layout) <= min(map(key, few))


def moved_by(layout: BitLinear, distance: int) -> list[tuple[int, int]]:
    """For each source bit that a term of this distance has: where it lands, and what is joined there."""
    return [(bit - distance, layout.matrix[bit] ^ 1 << bit) for bit in range(3, 6) if 0 <= bit - distance < 3]


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    found = search_layout(ISSUE, terms=2, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (found.examined, found.examined)
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patterns": ()}, "no pattern to search for; name at least one, as in --patterns row,column"),
        ({"patterns": ("row", "row")}, "the pattern row is named twice"),
        ({"patterns": ("row", "column", "Stride@4")}, "column and Stride@4 are the same pattern; name it once"),
        ({"patterns": ("row", "random@8")}, "random accesses cost the same under every fixed layout"),
        ({"patterns": ("random",)}, "random accesses cost the same under every fixed layout, so there is nothing to search for"),
        ({"patterns": ("row",), "rows": 24}, "the rows of a tile to search for must be a power of two, got 24"),
        ({"patterns": ("row",), "columns": 0}, "the columns of a tile to search for must be at least 1, got 0"),
        ({"patterns": ("row",), "columns": -32}, "the columns of a tile to search for must be at least 1, got -32"),
        ({"patterns": ("row",), "terms": 5}, "a search covers swizzles of up to 4 terms, got 5"),
        ({"patterns": ("row",), "terms": 0}, "the terms of a swizzle must be at least 1, got 0"),
        ({"patterns": ("row",), "width": 12}, "a lane cannot access 12 bytes; choose one of 1, 2, 4, 8, 16"),
        ({"patterns": ("row@3",)}, "'row@3': a lane cannot access 3 bytes; choose one of 1, 2, 4, 8, 16"),
        ({"patterns": ("row@16",), "element": 4, "columns": 2}, "row with 16 bytes does not divide rows of 2 elements of 4 bytes"),
        ({"patterns": ("row",), "chip": chip.load("s1070")}, "the bank rule of s1070 is too slow to evaluate"),
    ],
)  # fmt: skip
def test_what_cannot_succeed_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError) as raised:
        search_layout(**options)  # type: ignore[arg-type]
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)

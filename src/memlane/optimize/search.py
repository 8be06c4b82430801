"""Search a layout of a tile in shared memory for a set of patterns, and certify the result by exhaustion.

Candidates, the cheapest first: row-major, rows skewed by every step, every padding if allowed, and all swizzles of up to `terms` terms, or
of fewer if these would exceed a million. The best candidate minimises, in this order: the worst ratio of any pattern to its ideal, these
ratios in the order of the patterns, table look-ups and operations of the address, room. A candidate is dropped only when some offset proves
that it cannot win, so the result is the best of all candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, AccessKind, Chip, load
from memlane.errors import LayoutError
from memlane.layout import Cost, Layout, OfVectors, Padded, RandomPermuteShift, RowMajor, Skewed, Wavefronts, check_vectors
from memlane.layout.layout import power_of_two, whole_number
from memlane.layout.patterns import plain_name
from memlane.number_format import rounded
from memlane.optimize.goals import Counts, Goal, Trial, goals
from memlane.optimize.swizzles import Batch, Bits, batches, count_swizzles, layout_of

DRAWS = 500
"""Number of random layouts averaged for the expectation of RAP."""
MOST_TERMS = 4
MOST_SWIZZLES = 1_000_000
"""Maximum number of swizzles; above it, swizzles have fewer terms."""
_STAGES = (1, 4, 16, 64, 256)
"""Offsets evaluated after each stage of sifting; survivors are evaluated at all offsets."""
_TOGETHER = 1 << 14
"""Candidates evaluated together."""
_LANES_AT_ONCE = 1 << 20
"""Bound on the memory of a search, in lanes."""

Progress = Callable[[int, int], None]
"""A callback with the number of examined candidates and their total."""


@dataclass(frozen=True)
class Certificate:
    """A layout with the cost of each pattern, counted at every offset by the chip's rule."""

    layout: Layout
    entries: tuple[Wavefronts, ...]
    rap: tuple[Wavefronts, ...]
    """Wavefronts under RAP, over random draws."""
    plain: tuple[Wavefronts, ...]
    """Wavefronts under the row-major layout."""
    extra: Cost
    """Additional cost of the address over that of the row-major layout."""
    examined: int
    """Number of examined candidates."""
    exhaustive: str
    """Families of candidates, in words."""

    @property
    def worst(self) -> int:
        return max(entry.worst for entry in self.entries)

    @property
    def beats_rap(self) -> bool:
        """Whether the layout takes fewer wavefronts than RAP's expectation, with equal weight for each pattern."""
        return _expected(self.entries) < _expected(self.rap) - 0.01

    @property
    def verdict(self) -> str:
        """Comparison of the layout with RAP, in a sentence."""
        ours, theirs = (rounded(_expected(one)) for one in (self.entries, self.rap))
        each = "for one access of each pattern"
        if self.beats_rap:
            return f"Better than RAP: {ours} wavefronts {each}; RAP is expected to take {theirs}."
        if _expected(self.entries) <= _expected(self.rap) + 0.01:
            return f"No layout is better than RAP: both take {ours} wavefronts {each}, but RAP needs a table."
        return (
            f"Nothing better than RAP was found: it is expected to take {theirs} wavefronts {each}, this layout takes "
            f"{ours}. Use RAP with a seed of your own."
        )


def search_layout(
    patterns: Sequence[str],
    *,
    width: int = 4,
    element: int | None = None,
    rows: int = 32,
    columns: int = 32,
    chip: Chip | None = None,
    kinds: Sequence[AccessKind] = ("load", "store"),
    padding: bool = False,
    terms: int = 3,
    progress: Progress | None = None,
) -> Certificate:
    """Return the best layout of a tile of `rows` x `columns` elements of `element` bytes (None: the narrowest access), with its
    certificate.

    `patterns` are names known to `memlane.layout.pattern`, accessed by `width` bytes per lane or by the number after `@`: `row@16`. Vectors
    that an access needs stay contiguous. `chip`: the chip whose rules count; default the H200. `padding` allows layouts that need more
    room, up to one more vector per row for each bank. `terms`: the maximum terms of a swizzle, 1 to 4. Raises LayoutError if the search
    cannot succeed: extents that are not powers of two, a pattern that no layout changes, too many elements.
    """
    chip = chip or load("h200")
    _check(patterns, rows, columns, chip, terms)
    wanted = goals(patterns, rows, columns, chip, width, element, kinds)
    return _Search(wanted, rows, columns, padding, terms, progress or (lambda done, total: None)).run()


def _check(patterns: Sequence[str], rows: int, columns: int, chip: Chip, terms: int) -> None:
    if not patterns:
        raise LayoutError("no pattern to search for; name at least one, as in --patterns row,column")
    for what, extent in (("rows", rows), ("columns", columns)):
        whole_number(f"the {what} of a tile to search for", extent, 1)
        power_of_two(f"the {what} of a tile to search for", extent)
    whole_number("the terms of a swizzle", terms, 1)
    if terms > MOST_TERMS:
        raise LayoutError(f"a search covers swizzles of up to {MOST_TERMS} terms, got {terms}")
    if any(plain_name(word.partition("@")[0]) == "random" for word in patterns):
        raise LayoutError(
            "random accesses cost the same under every fixed layout, so there is nothing to search for; leave random "
            "out, and count its cost with memlane banks"
        )
    if chip.banks.broadcast != "every word":
        raise LayoutError(f"the bank rule of {chip.name} is too slow to evaluate for a search; memlane banks counts by it")


class _Search:
    def __init__(self, wanted: Sequence[Goal], rows: int, columns: int, padding: bool, terms: int, progress: Progress) -> None:
        self._goals, self._rows, self._columns = tuple(wanted), rows, columns
        self._padding, self._terms, self._progress = padding, terms, progress
        self._vector = max(goal.width // goal.element for goal in wanted)
        self._samples = tuple(goal.sampled(_STAGES[2]) for goal in wanted)
        self._trials = [Trial(goal, columns) for goal in wanted]
        self._best: tuple[float, ...] = (np.inf,) * (len(wanted) + 4)
        self._layout: Layout = RowMajor(rows, columns)
        self._plain = self._layout
        self.examined = 0

    def run(self) -> Certificate:
        for layout in self._simple():
            self._consider(layout)
        bits = self._bits()
        total = self.examined + count_swizzles(bits, self._limit_terms(bits))
        for number in range(1, self._terms + 1):
            # A term is an exclusive or and, but for one distance, at least a shift, so with ideal wavefronts more terms only cost more.
            if not (self._is_ideal and self._layout.cost.operations <= self._plain.cost.operations + 2 * number - 1):
                for batch in batches(bits, self._rows, self._columns, number):
                    self._sift(batch, bits, total)
        self._progress(self.examined, self.examined)
        return self._certificate()

    def _limit_terms(self, bits: Bits) -> int:
        """Reduce the number of terms until the swizzles can be examined in seconds, and return it."""
        if not bits.top > bits.high > bits.low:
            self._terms = 0
        while self._terms > 1 and count_swizzles(bits, self._terms) > MOST_SWIZZLES:
            self._terms -= 1
        return self._terms

    def _simple(self) -> Iterator[Layout]:
        """Yield the candidates that are not swizzles. Rows move by whole vectors."""
        yield RowMajor(self._rows, self._columns)
        for step in range(self._vector, self._columns, self._vector):
            yield Skewed(self._rows, self._columns, step)
        if self._padding:
            for pad in range(self._vector, self._goals[0].row_elements + 1, self._vector):
                yield Padded(self._rows, self._columns, pad)

    def _bits(self) -> Bits:
        """Return the bits of the index; bits below those of a vector, and of a word, stay fixed."""
        goal = self._goals[0]
        word = max(1, goal.chip.bank_rule(goal.kind).bank_bytes // goal.element)
        return Bits(*((count).bit_length() - 1 for count in (max(self._vector, word), goal.row_elements, self._rows * self._columns)))

    @property
    def _is_ideal(self) -> bool:
        return self._best[0] == 1.0

    def _consider(self, layout: Layout) -> None:
        self.examined += 1
        cost = layout.cost
        worst = np.ones((len(self._trials), 1), np.int64)
        for wanted in (self._samples, self._goals):
            for number, goal in enumerate(wanted):
                worst[number] = goal.count(layout).worst
                if not self._may_win(worst, cost, layout.size)[0]:
                    return
        ratios = [float(found[0] / trial.ideal) for found, trial in zip(worst, self._trials, strict=True)]
        self._best, self._layout = (max(ratios), *ratios, *cost, layout.size), layout

    def _sift(self, batch: Batch, bits: Bits, total: int) -> None:
        """Evaluate the swizzles of one cost on more and more offsets; survivors of the last stage are considered."""
        for first in range(0, len(batch.images), _TOGETHER):
            part = Batch(batch.cost, batch.images[first : first + _TOGETHER])
            alive, tables = np.arange(len(part.images)), part.tables(bits)
            worst = np.zeros((len(self._trials), len(part.images)), np.int64)
            begin = 0
            for end in _STAGES:
                alive = self._survivors(worst, alive, tables, begin, end, batch.cost)
                begin = end
            for survivor in sorted(alive.tolist(), key=lambda number: tuple(worst[:, number])):
                if self._may_win(worst[:, [survivor]], batch.cost)[0]:
                    self._consider(layout_of(bits, self._rows, self._columns, part.images[survivor]))
                    self.examined -= 1
            self.examined += len(part.images)
            self._progress(self.examined, total)

    def _survivors(self, worst: Counts, alive: Counts, tables: Counts, begin: int, end: int, cost: Cost) -> Counts:
        """Return the candidates that may still win after the offsets begin..end-1, and update `worst`."""
        for number, trial in enumerate(self._trials):
            if begin >= trial.offsets:
                continue
            span = max(1, _LANES_AT_ONCE // (LANES * (end - begin)))
            for first in range(0, len(alive), span):
                some = alive[first : first + span]
                worst[number, some] = np.maximum(worst[number, some], trial.worst(tables[some], begin, min(end, trial.offsets)))
            alive = alive[self._may_win(worst[:, alive], cost)]
        return alive

    def _may_win(self, worst: Counts, cost: Cost, size: int | None = None) -> npt.NDArray[np.bool_]:
        """Return for each candidate whether it can still become the best: its known wavefronts are a lower bound."""
        ideal = np.array([trial.ideal for trial in self._trials])[:, None]
        ratios = np.maximum(worst, ideal) / ideal
        best_most, *best = self._best
        known = [ratios.max(axis=0), *ratios]
        wins = np.full(worst.shape[1], (*cost, size or self._plain.size) < tuple(best[len(ratios) :]))
        for mine, theirs in zip(reversed(known), reversed([best_most, *best[: len(ratios)]]), strict=True):
            wins = (mine < theirs) | ((mine == theirs) & wins)
        return wins

    def _certificate(self) -> Certificate:
        if self._vector > 1:
            check_vectors(self._layout, self._vector)
        drawn = _raps(self._rows, self._columns, self._vector)
        cost, plain = self._layout.cost, self._plain
        return Certificate(
            self._layout,
            tuple(goal.count(self._layout) for goal in self._goals),
            tuple(goal.count_drawn(drawn, "RAP") for goal in self._goals),
            tuple(goal.count(plain) for goal in self._goals),
            Cost(cost.lookups - plain.cost.lookups, cost.operations - plain.cost.operations),
            self.examined,
            self._families(),
        )

    def _families(self) -> str:
        paddings, plural = ", all paddings" if self._padding else "", "" if self._terms == 1 else "s"
        return f"row-major, all skews{paddings} and all swizzles of up to {self._terms} term{plural}"


@lru_cache(maxsize=4)
def _raps(rows: int, columns: int, vector: int) -> tuple[Layout, ...]:
    """Return RAP layouts of whole vectors with `DRAWS` seeds."""
    shifted = [RandomPermuteShift(rows, columns // vector, seed) for seed in range(DRAWS)]
    return tuple(OfVectors(rows, columns, one, vector) if vector > 1 else one for one in shifted)


def _expected(entries: Sequence[Wavefronts]) -> float:
    return sum(entry.mean for entry in entries)

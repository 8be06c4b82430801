"""Prepare access patterns as goals of a layout, so that thousands of swizzles are evaluated at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, AccessKind, BankRule, Chip, batch
from memlane.chip.model import WIDTHS
from memlane.errors import LayoutError
from memlane.layout import Layout, Pattern, Wavefronts, count, count_drawn, pattern
from memlane.layout.patterns import plain_name
from memlane.layout.shifts import random_words
from memlane.layout.wavefronts import EVERY_LANE
from memlane.number_format import plural

Counts = npt.NDArray[np.int64]
Tables = npt.NDArray[np.int64]
"""int64[candidates, rows of banks]: XOR mask of each swizzle for the offsets in each row of the banks, in elements."""


@dataclass(frozen=True, eq=False)
class Goal:
    """One access pattern of a tile, with width and kind of access."""

    pattern: Pattern
    chip: Chip
    width: int
    kind: AccessKind
    element: int

    @property
    def row_elements(self) -> int:
        """Elements across all banks."""
        rule = self.chip.bank_rule(self.kind)
        return rule.banks * rule.bank_bytes // self.element

    def sampled(self, offsets: int) -> Goal:
        """Return the goal restricted to `offsets` evenly spaced offsets."""
        some = np.linspace(0, self.pattern.offsets - 1, offsets).astype(int)
        one = self.pattern
        return replace(self, pattern=replace(one, i=one.i[some], j=one.j[some], at=one.at[some]))

    def count(self, layout: Layout) -> Wavefronts:
        return count(layout, self.pattern, self.chip, self.width, self.kind, self.element)

    def count_drawn(self, layouts: Sequence[Layout], label: str) -> Wavefronts:
        return count_drawn(layouts, label, self.pattern, self.chip, self.width, self.kind, self.element)


class Trial:
    """A goal evaluated for many swizzles: wavefronts at some offsets, in a fixed random order."""

    def __init__(self, goal: Goal, columns: int) -> None:
        self.goal = goal
        self._rule = goal.chip.bank_rule(goal.kind)
        order = np.argsort(np.array(random_words(1 << 30, goal.pattern.offsets, seed=1)), kind="stable")
        vector = goal.width // goal.element
        places = (goal.pattern.i * columns + goal.pattern.j * vector)[order]
        self._row, self._column = np.divmod(places, goal.row_elements)
        self.ideal = self._ideal(places)
        self._unit = max(goal.width, self._rule.bank_bytes) // goal.element or 1
        self._passes = np.broadcast_to(np.arange(LANES) // self._rule.lanes(goal.width), places.shape)
        self._plain = self._is_plain(places)
        self._fresh = _first_of_each(places // self._unit, self._passes)

    @property
    def offsets(self) -> int:
        return len(self._row)

    def worst(self, tables: Tables, begin: int, end: int) -> Counts:
        """Return int64[candidates]: the maximum wavefronts over the offsets begin..end-1."""
        swizzled = self._column[None, begin:end] ^ tables[:, self._row[begin:end]]
        if not self._plain:
            return self._by_definition(swizzled, begin, end)
        banks = self._rule.banks * self._rule.bank_bytes // (self._unit * self.goal.element)
        passes = LANES // self._rule.lanes(self.goal.width)
        accesses = np.arange(swizzled.shape[0] * swizzled.shape[1]).reshape(*swizzled.shape[:2], 1)
        slots = (accesses * passes + self._passes[begin:end]) * banks + swizzled // self._unit
        full = np.bincount(slots[:, self._fresh[begin:end]].ravel(), minlength=accesses.size * passes * banks)
        degrees = full.reshape(*swizzled.shape[:2], passes, banks).max(axis=-1)
        degrees += (degrees > 0) * self._rule.extra(self.goal.width)
        counts: Counts = degrees.sum(axis=-1).max(axis=-1) * (self._rule.times or 1)
        return counts

    def _by_definition(self, swizzled: Counts, begin: int, end: int) -> Counts:
        places = self._row[begin:end] * self.goal.row_elements + swizzled
        counts = self._evaluate(batch.wavefronts, places.reshape(-1, LANES))
        worst: Counts = counts.reshape(swizzled.shape[:2]).max(axis=-1)
        return worst

    def _evaluate(self, rule: Callable[..., Counts], places: Counts) -> Counts:
        masks = np.full(len(places), EVERY_LANE, np.uint32)
        starts = (places * self.goal.element).astype(np.uint64)
        return rule(self.goal.chip, starts, masks, self.goal.width, self.goal.kind)

    def _ideal(self, places: Counts) -> int:
        """Return the maximum of ideal wavefronts over the offsets, a lower bound for every injective layout."""
        return int(self._evaluate(batch.ideal_wavefronts, places).max())

    def _is_plain(self, places: Counts) -> bool:
        """Return whether the fullest banks of fixed lane groups give the exact count.

        That requires that no two rows of banks are delivered together, that equal words are served together, and that no passes are joined,
        for which neighbours would have to agree in their address. (A layout keeps equal addresses equal and distinct ones distinct, so this
        holds for all layouts or for none.)
        """
        rule = self._rule
        may_join = rule.merge != "never" and rule.lanes(self.goal.width) < LANES
        lane = np.arange(LANES)
        agree = may_join and any((places == places[:, lane ^ step]).reshape(len(places), -1, 4).all(axis=2).any() for step in (1, 2))
        return rule.row_words == 1 and rule.same_word == "together" and not agree


def goals(
    words: Sequence[str], rows: int, columns: int, chip: Chip, width: int, element: int | None, kinds: Sequence[AccessKind]
) -> tuple[Goal, ...]:
    """Return a goal for each pattern and kind of access. `row@16` is the row accessed by 16 bytes per lane; the default is `width`.

    Stores are a separate goal only where they may cost more than loads.
    """
    if width not in WIDTHS:
        raise LayoutError(f"a lane cannot access {plural(width, 'byte')}; choose one of {', '.join(map(str, WIDTHS))}")
    named = [_with_width(word, width) for word in words]
    seen: dict[tuple[str, int], str] = {}
    for word, (name, wide) in zip(words, named, strict=True):
        if (first := seen.get((plain_name(name), wide))) is not None:
            raise LayoutError(
                f"the pattern {word} is named twice" if first == word else f"{first} and {word} are the same pattern; name it once"
            )
        seen[plain_name(name), wide] = word
    element = element or min(wide for _, wide in named)
    found = []
    for word, wide in named:
        if wide % element or columns % (wide // element):
            raise LayoutError(
                f"{word} with {plural(wide, 'byte')} does not divide rows of {plural(columns, 'element')} of {plural(element, 'byte')}"
            )
        one = pattern(word, rows, columns // (wide // element))
        rules: list[BankRule] = []
        for kind in kinds:
            rule = chip.bank_rule(kind)
            if not any(rule == other or (rule.lanes(wide) == LANES and _differs_only_in_merging(rule, other)) for other in rules):
                found.append(Goal(one, chip, wide, kind, element))
            rules.append(rule)
    return tuple(found)


def _with_width(word: str, width: int) -> tuple[str, int]:
    name, at, given = word.rpartition("@")
    if not at:
        return word, width
    if given not in ("1", "2", "4", "8", "16"):
        raise LayoutError(f"{word!r}: a lane cannot access {given} bytes; choose one of 1, 2, 4, 8, 16")
    return name, int(given)


def _differs_only_in_merging(one: BankRule, other: BankRule) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in BankRule.__slots__ if field != "merge")


def _first_of_each(cells: Counts, passes: Counts) -> npt.NDArray[np.bool_]:
    """Return a mask of the lanes that are the first of their pass to access their cell."""
    first = np.ones(cells.shape, np.bool_)
    for lane in range(1, LANES):
        before = slice(0, lane)
        again = (cells[:, before] == cells[:, lane, None]) & (passes[:, before] == passes[:, lane, None])
        first[:, lane] = ~again.any(axis=1)
    return first

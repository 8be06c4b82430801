"""Choose the part of a large trace that the timeline draws: whole multiprocessors if one fits, else whole warps, without gaps.

A page must be small enough to send. Numbers, histograms and the overview of all multiprocessors use every record; only the drawing of
single accesses is reduced, and the page says to what.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.number_format import plural

Ints = npt.NDArray[np.int64]

WARP_COST = 2
"""Cost of a warp, in accesses: its life, block and number."""


@dataclass(frozen=True, eq=False)
class DrawnWarps:
    """The warps to draw, and the number of accesses of each, from its first on."""

    lives: Ints
    counts: Ints
    sms: tuple[int, ...]
    """Multiprocessors that are complete: every warp with every access."""
    how: str
    """Text on the accesses left out and the rule; empty if nothing was."""


def choose_warps(sm: Ints, counts: Ints, longest: Ints, budget: int) -> DrawnWarps:
    """Choose the warps of one launch to draw within `budget` accesses.

    Per warp: `sm`, its multiprocessor; `counts`, its number of accesses; `longest`, its longest access in cycles.
    """
    cost = counts + WARP_COST
    sms = np.unique(sm)
    if int(cost.sum()) <= budget:
        return DrawnWarps(np.arange(len(sm)), counts, tuple(sms.tolist()), "")
    of_sm = np.bincount(np.searchsorted(sms, sm), cost)
    order = _spread_order(len(sms), int(np.searchsorted(sms, sm[int(np.argmax(longest))])))
    fits = np.cumsum(of_sm[order]) <= budget
    fits = np.minimum.accumulate(fits)
    if fits.any():
        chosen = np.sort(sms[order[fits]])
        lives = np.flatnonzero(np.isin(sm, chosen))
        how = (
            f"the accesses of all warps of {len(chosen):,} of {plural(len(sms), 'multiprocessor')}: the one with the longest access, "
            "and others spread evenly over the rest"
        )
        return DrawnWarps(lives, counts[lives], tuple(chosen.tolist()), how)
    return _some_warps(np.flatnonzero(sm == sms[order[0]]), counts, budget, int(sms[order[0]]))


def _some_warps(own: Ints, counts: Ints, budget: int, sm: int) -> DrawnWarps:
    """Choose every n-th warp of one multiprocessor; if not even one fits, the first accesses of the first."""
    cost = counts[own] + WARP_COST
    every = 1
    while every < len(own) and int(cost[::every].sum()) > budget:
        every += 1
    lives = own[::every]
    kept = np.minimum(counts[lives], max(0, budget - WARP_COST))
    lives, kept = (lives[:1], kept[:1]) if int((kept + WARP_COST).sum()) > budget else (lives, kept)
    cut = int(counts[lives].sum() - kept.sum())
    how = f"the accesses of multiprocessor {sm} alone, {'each warp' if every == 1 else f'one warp in {every:,}'} in block order"
    return DrawnWarps(lives, kept, (), f"the first accesses of one warp of multiprocessor {sm} alone" if cut else how)


def _spread_order(count: int, first: int) -> Ints:
    """Return the numbers below `count` with `first` in front, and every prefix of the rest spread evenly (van der Corput's sequence)."""
    bits = max(1, (count - 1).bit_length())
    reversed_bits = [int(format(number, f"0{bits}b")[::-1], 2) for number in range(1 << bits)]
    rest = [number for number in reversed_bits if number < count and number != first]
    return np.array([first, *rest], np.int64)


def divide_budget(needs: list[int], budget: int) -> list[int]:
    """Divide `budget` fairly: an entry that needs less than an equal part leaves the rest to the others."""
    given = [0] * len(needs)
    for left, index in enumerate(sorted(range(len(needs)), key=needs.__getitem__)):
        given[index] = min(needs[index], budget // (len(needs) - left))
        budget -= given[index]
    return given

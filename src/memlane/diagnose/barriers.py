"""Compute what the excess cycles of an access cost the warps of its blocks that wait for each other at barriers.

A barrier opens when its last warp arrives. So excess cycles of that warp delay all warps of the block, and those of a warp that arrives
earlier delay none: it would wait longer at the barrier instead. The emulator's clock records when each warp arrived and when the barrier
opened; a trace of a GPU does not hold that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.diagnose.evidence import Evidence, Numbers, Rows
from memlane.number_format import plural

LONGEST_OPENING = 64
"""Maximum cycles from the last arrival of a waiting warp until the barrier opens. If it takes longer, a warp that does not wait itself
(`bar.arrive`) came last, and its accesses are not followed."""


@dataclass(frozen=True)
class Held:
    """How excess cycles reach the lifetimes of warps, through the barriers of their blocks."""

    phase: npt.NDArray[np.int64]
    """For each chosen record, the row of `evidence.barriers` at which its warp waits next; -1 if it waits at none."""
    opening: npt.NDArray[np.int64]
    """For each row of `evidence.barriers`, the number of the opening that it belongs to."""
    arrived: Numbers
    waiting: npt.NDArray[np.int64]
    """Warps that wait for each opening."""
    last: Numbers
    """Last arrival before each opening."""
    is_known: npt.NDArray[np.bool_]
    """Whether a waiting warp came last, by opening."""

    def saved(self, excess: Numbers) -> float:
        """Return the warp cycles that are saved if each chosen record takes so much less.

        Each warp arrives at its next barrier earlier by its excess; the barrier opens when the last one then arrives, and all warps that
        wait there go on earlier. After its last barrier, a warp saves its own excess.
        """
        inside = self.phase >= 0
        earlier = np.bincount(self.phase[inside], excess[inside], len(self.arrived))
        last = np.full(len(self.last), -np.inf)
        np.maximum.at(last, self.opening, self.arrived - earlier)
        return float(((self.last - last) * self.waiting)[self.is_known].sum()) + float(excess[~inside].sum())

    @property
    def waited(self) -> float:
        """Return the cycles from the arrivals of warps until the last one's, at openings where that one made a chosen record before.

        If the warps shared their work evenly, all would arrive at the mean of their arrivals: this is how much earlier, summed.
        """
        made = np.zeros(len(self.arrived), bool)
        made[self.phase[self.phase >= 0]] = True
        is_last = self.arrived == self.last[self.opening]
        by_last = np.zeros(len(self.last), bool)
        by_last[self.opening[made & is_last]] = True
        return float((self.last[self.opening] - self.arrived)[by_last[self.opening]].sum())

    @property
    def openings(self) -> int:
        """Number of openings of barriers that chosen records come before."""
        return len(np.unique(self.opening[self.phase[self.phase >= 0]]))


def held_at_barriers(evidence: Evidence, chosen: npt.NDArray[np.bool_]) -> Held | None:
    """Return how the chosen records hold up barriers; None if waits are not known, or no warp waits at one after such a record."""
    rows, barriers = evidence.rows, evidence.barriers
    if rows is None or barriers is None or not len(barriers) or not chosen.any():
        return None
    phase = _next_waits(rows, chosen, barriers)
    if not (phase >= 0).any():
        return None
    keys = np.stack([barriers[name].astype(np.int64) for name in ("launch", "block", "opened")])
    _, opening = np.unique(keys, axis=1, return_inverse=True)
    opening = opening.ravel()
    arrived = barriers["arrived"].astype(np.float64)
    last = np.full(int(opening.max()) + 1, -np.inf)
    np.maximum.at(last, opening, arrived)
    opened = np.zeros(len(last))
    opened[opening] = barriers["opened"]
    return Held(phase, opening, arrived, np.bincount(opening), last, opened - last <= LONGEST_OPENING)


def method_at_barriers(held: Held) -> str:
    """Return a clause that says how waiting at barriers enters a cost."""
    return (
        f"before a barrier ({plural(held.openings, 'opening')}), instead the time by which it would open earlier, for each warp that waits "
        "there, because it opens when the last warp arrives"
    )


def _next_waits(rows: Rows, mine: npt.NDArray[np.bool_], barriers: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return for each chosen record the row of the first barrier at which its warp arrives after the start; -1 if there is none."""
    blocks = 1 + max(int(rows.block.max()), int(barriers["block"].max()))
    warps = 1 + max(int(rows.warp.max()), int(barriers["warp"].max()))
    of_row = (rows.launch[mine] * blocks + rows.block[mine]) * warps + rows.warp[mine]
    of_wait = (barriers["launch"].astype(np.int64) * blocks + barriers["block"]) * warps + barriers["warp"]
    order = np.lexsort((barriers["arrived"], of_wait))
    first = int(min(rows.end[mine].min(), barriers["arrived"].min()))
    span = int(max(rows.end[mine].max(), barriers["arrived"].max())) - first + 1
    keys = of_wait[order] * span + (barriers["arrived"][order] - first)
    place = np.searchsorted(keys, of_row * span + (rows.end[mine] - first))
    found = order[np.minimum(place, len(order) - 1)]
    return np.where((place < len(order)) & (of_wait[found] == of_row), found, -1)

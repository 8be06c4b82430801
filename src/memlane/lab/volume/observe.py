"""Derive access times from a trace of a rendering: mean, share of the warps' time, and the same warp by warp.

As in the published evaluation the *access time* of a warp is the mean over its accesses, an access from start to end by the scheme's
stamps; the *access frequency* is the reciprocal of the access time. Over several warps every access has the same weight. Warps without any
access (their rays miss the volume) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.lab.volume.correlation import NORMAL_95
from memlane.lab.volume.renderer import FETCHES, Renderer
from memlane.lab.volume.scene import View
from memlane.measure import trace
from memlane.record import Perturbation, Trace

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Observed:
    """Accesses of the traced warps of a rendering."""

    warp: Integers
    """Numbers of the traced warps with accesses, ascending: block * warps of a block + warp."""
    accesses: Integers
    """Number of accesses of each warp."""
    cycles: Integers
    """Cycles of its accesses together."""
    life: Integers
    """Cycles from the first instruction of each warp to its last."""
    idle: int
    """Number of traced warps without accesses."""
    lost: int
    """Number of records lost for lack of room."""
    weight: float
    """Number of warps that each traced one represents."""
    probes: Perturbation | None
    """Cost of the probes; None where not known."""
    of: Trace

    @property
    def access_time(self) -> float:
        """Mean cycles of an access."""
        return float(self.cycles.sum() / self.accesses.sum())

    @property
    def within(self) -> float:
        """Half of the 95 % interval of the access time in cycles, if traced warps represent others.

        Whole warps vary, so it is the interval of a ratio of sums over warps. 0 for a single warp.
        """
        count = len(self.warp)
        if count < 2:
            return 0.0
        apart = self.cycles - self.access_time * self.accesses
        return float(NORMAL_95 * np.sqrt(count / (count - 1) * (apart * apart).sum()) / self.accesses.sum())

    @property
    def frequency(self) -> float:
        """Accesses per 1000 cycles: the reciprocal of the access time."""
        return 1000.0 / self.access_time

    @property
    def other_time(self) -> float:
        """Mean cycles of a warp's life outside accesses, per access: arithmetic, waiting for an issue slot, and the probes."""
        return float((self.life.sum() - self.cycles.sum()) / self.accesses.sum())

    @property
    def share(self) -> float:
        """Share of the warps' life that is in accesses."""
        return float(self.cycles.sum() / self.life.sum())

    @property
    def means(self) -> Floats:
        """Access time of each warp."""
        means: Floats = self.cycles / self.accesses
        return means

    @property
    def chosen(self) -> int:
        """Index of the warp to examine, chosen as in the publication: many accesses, and a long access time.

        It is the warp with the longest access time among those with at least nine tenths of the most accesses.
        """
        many = np.flatnonzero(10 * self.accesses >= 9 * self.accesses.max())
        return int(many[np.argmax(self.means[many])])

    def series(self, index: int) -> Integers:
        """Return the cycles of each access of a warp, in their order."""
        table, launch = self.of.table, self.of.launches[0]
        number = table["block"].to_numpy().astype(np.int64) * launch.warps_per_block + table["warp"].to_numpy()
        rows = np.flatnonzero(number == self.warp[index])
        start, end = table["start"].to_numpy()[rows], table["end"].to_numpy()[rows]
        order = np.argsort(start, kind="stable")
        cycles: Integers = (end - start)[order]
        return cycles


def observed(trace: Trace) -> Observed | None:
    """Return the observations of a trace of one launch; None if no access was recorded."""
    table, warps, launch = trace.table, trace.warps, trace.launches[0]
    per_block = launch.warps_per_block
    number = table["block"].to_numpy().astype(np.int64) * per_block + table["warp"].to_numpy()
    if not len(number):
        return None
    found, place = np.unique(number, return_inverse=True)
    cycles = np.bincount(place, weights=table["end"].to_numpy() - table["start"].to_numpy()).astype(np.int64)
    life = dict(zip((warps["block"].astype(np.int64) * per_block + warps["warp"]).tolist(), _lives(warps), strict=True))
    lives = np.array([life[one] for one in found.tolist()], np.int64)
    weight = launch.sample.weight if launch.sample else 1.0
    return Observed(found, np.bincount(place), cycles, lives, len(warps) - len(found), trace.lost, weight, launch.perturbation, trace)


def trace_fetches(renderer: Renderer, view: View, shape: str, scheme: str, every: int = 1, sms: str | None = None) -> Observed | None:
    """Render once with probes around the fetches: in one of `every` warps, or in those on some SMs."""
    room = renderer.scene.most_samples
    found = trace(
        renderer.call(shape), *renderer.arguments(view), scheme=scheme, selection=FETCHES, records_per_warp=room, every=every, sms=sms
    )
    return observed(found)


def _lives(warps: npt.NDArray[np.void]) -> list[int]:
    lives: list[int] = (warps["end_cycles"].astype(np.int64) - warps["begin_cycles"].astype(np.int64)).tolist()
    return lives

"""Estimate the cost of an inefficiency in warp cycles, the same scale for all findings: the cycles by which the warps' lifetimes would be
shorter, summed.

With recorded times, the cost is the measured time of the accesses minus a modelled time without the excess; `method` says how that was
modelled, `low` and `high` are its bounds. Without them, only the cycles for which the excess transactions occupy the memory path are
charged, a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.chip import SECTOR_BYTES, Chip
from memlane.diagnose.barriers import held_at_barriers, method_at_barriers
from memlane.diagnose.evidence import Evidence, Numbers
from memlane.number_format import plural
from memlane.record import Site, SiteCounts

MIN_NOTICEABLE = 0.002
"""Minimum upper bound of a measured cost, as a share of the warps' lifetimes, to report."""

MIN_SHARE = 0.01
"""Minimum excess as a share of all sectors or wavefronts of the kernel to report, unless the measured cost is this share of the warps'
lifetimes."""


@dataclass(frozen=True)
class Cost:
    """A cost in warp cycles, with its bounds."""

    cycles: float
    low: float
    high: float | None
    """Upper bound; None if there is none."""
    method: str
    """How the cost was found: a clause."""
    measured: bool = True
    """Whether times were recorded, rather than only transactions counted."""


def levels(chip: Chip) -> dict[str, float]:
    """Return the latency of global memory in cycles, by the level that serves it."""
    return {"L1": chip.latency.l1, "L2": chip.latency.l2, "DRAM": chip.latency.dram}


def level_of(chip: Chip, cycles: float) -> str:
    """Return the level whose latency is nearest by ratio: an estimate, since an access that waits in a queue looks farther away."""
    return min(levels(chip), key=lambda name: abs(np.log(max(cycles, 1.0) / levels(chip)[name])))


def nearest_latency(chip: Chip, cycles: Numbers) -> Numbers:
    """Return for each time the latency of the level nearest by ratio."""
    known = np.array(list(levels(chip).values()))
    distance = np.abs(np.log(np.maximum(cycles, 1.0))[:, None] - np.log(known)[None, :])
    return np.asarray(known[distance.argmin(1)], np.float64)


def between_l1_and_l2(chip: Chip) -> float:
    """Return the cycles below which an access counts as an L1 hit: the geometric mean of the two latencies."""
    return float(np.sqrt(chip.latency.l1 * chip.latency.l2))


def sector_cycles(chip: Chip) -> float:
    """Return the cycles for which one sector occupies a multiprocessor's share of the device memory bandwidth."""
    rate = chip.copy_gb_per_s or chip.dram_gb_per_s
    return SECTOR_BYTES * chip.sm_count * chip.clock_mhz / (1000 * rate)


def untimed_reason(chip: Chip | None) -> str:
    """Return the reason why no time is modelled."""
    return "the time of completion is not known" if chip is not None else "there is no chip file"


def of_sectors(evidence: Evidence, counts: SiteCounts) -> Cost:
    """Return the cost of the excess sectors of one access."""
    excess, sectors = counts.excess_sectors or 0, counts.sectors or 1
    chip = evidence.chip
    each = 1.0 if chip is None else sector_cycles(chip)
    busy = excess * each
    net = evidence.cycles(counts.site)
    if chip is None or not len(net):
        rate = "one cycle" if chip is None else f"{each:.2g} cycles, the rate of the device memory,"
        return Cost(busy, busy, None, f"{rate} for each excess sector; {untimed_reason(chip)}", measured=False)
    part = excess / sectors * counts.requests
    share = part * float(np.maximum(net - nearest_latency(chip, net), 0.0).mean())
    quickest = float(nearest_latency(chip, np.percentile(net, [10]))[0])
    cycles = max(busy, share)
    alone = Cost(
        cycles,
        min(busy, share),
        max(cycles, part * max(0.0, float(net.mean()) - quickest)),
        f"the excess sectors' share of the time above the latency of the nearest memory level, but at least {each:.2g} cycles for each "
        "excess sector, the rate of device memory; upper bound: their share of the time above the fastest tenth of the accesses",
    )
    waited = np.maximum(net - nearest_latency(chip, net), 0.0)
    return with_waiting_warps(evidence, counts.site, alone, waited if waited.any() else np.ones_like(net))


def of_wavefronts(evidence: Evidence, counts: SiteCounts) -> Cost:
    """Return the cost of the excess wavefronts of one access."""
    excess, requests = counts.conflicts or 0, counts.requests
    chip = evidence.chip
    net = evidence.cycles(counts.site)
    if chip is None or not len(net):
        return Cost(float(excess), float(excess), None, f"one cycle for each excess wavefront; {untimed_reason(chip)}", measured=False)
    latency = chip.latency.shared_atomic if counts.site.is_atomic else chip.latency.shared
    taken, least = (counts.wavefronts or 0) / requests, (counts.ideal_wavefronts or 0) / requests
    mean = float(net.mean())
    queue = max(0.0, mean - latency - (taken - 1))
    left = (evidence.wavefronts - excess) / max(evidence.wavefronts, 1)
    modelled = min(mean, latency + (least - 1) + queue * left)
    cycles = max((mean - modelled) * requests, float(excess))
    high = max((mean - min(mean, latency + least - 1)) * requests, cycles)
    alone = Cost(
        cycles,
        float(excess),
        high,
        f"mean of {plural(round(mean), 'cycle')} minus the {modelled:.0f} modelled without conflicts (latency {latency:.0f} with the "
        "fewest wavefronts, and a correspondingly shorter wait for other warps)",
    )
    return with_waiting_warps(evidence, counts.site, alone, np.maximum(net - modelled, 0.0))


def with_waiting_warps(evidence: Evidence, site: Site, alone: Cost, excess: Numbers) -> Cost:
    """Return the cost of an access including the other warps of its blocks that wait for the warps that make it, at barriers.

    If one warp of 32 makes an access between two barriers, each cycle that it loses costs 32 warp cycles; and if a warp would wait at the
    barrier anyway, its own loss costs nothing. `excess`: how the cost is distributed over the complete records of the access, as weights.
    """
    if evidence.barriers is None:
        return _with_idle_warps(evidence, site, alone)
    return at_barriers(evidence, alone, evidence.excess(site, excess))


def at_barriers(evidence: Evidence, alone: Cost, excess: Numbers) -> Cost:
    """Return a measured cost as what its excess costs through the barriers of its blocks; unchanged if no waits at barriers are known.

    `excess`: how the cost is distributed over the records of the kernel, as weights.
    """
    held = held_at_barriers(evidence, excess > 0) if alone.measured else None
    if held is None:
        return alone
    parts = excess[excess > 0] / excess.sum()
    cycles, low = held.saved(alone.cycles * parts), held.saved(alone.low * parts)
    high = None if alone.high is None else max(held.saved(alone.high * parts), cycles)
    return Cost(cycles, min(low, cycles), high, f"{alone.method}; {method_at_barriers(held)}")


def _with_idle_warps(evidence: Evidence, site: Site, alone: Cost) -> Cost:
    """Return the cost of an access including the other warps of its blocks, which may wait meanwhile: an estimate without barriers."""
    waiting = _waiting_warps(evidence, site) if alone.high else None
    if waiting is None or alone.high is None:
        return alone
    making, idle, others = waiting
    return Cost(
        alone.cycles * (1 + idle / making),
        alone.low,
        alone.high * (1 + others / making),
        f"{alone.method}; {making} of the {plural(making + others, 'warp')} in these blocks make the access, and an estimated "
        f"{plural(round(idle), 'warp')} wait meanwhile; upper bound: all others wait",
    )


def _waiting_warps(evidence: Evidence, site: Site) -> tuple[int, float, int] | None:
    """Return how many warps make an access, how many of the same blocks wait meanwhile (an estimate), and how many do not make it.

    A warp may wait if it outlives the last access of its block; it counts with the share of its life in which it has no access in flight.
    Returns None if all warps make the access, or if the lives of warps are unknown.
    """
    rows, lives = evidence.rows, evidence.lives
    if rows is None or lives is None or not len(lives):
        return None
    most = max(int(rows.warp.max()), int(lives["warp"].max())) + 1
    blocks = max(int(rows.block.max()), int(lives["block"].max())) + 1
    block_of_row, block_of_life = rows.launch * blocks + rows.block, lives["launch"].astype(np.int64) * blocks + lives["block"]
    mine = rows.of(evidence.numbers(site))
    made_in, number = np.unique(block_of_row[mine], return_inverse=True)
    makers = np.unique(block_of_row[mine] * most + rows.warp[mine])
    warp_of_life = block_of_life * most + lives["warp"]
    other = np.isin(block_of_life, made_in) & ~np.isin(warp_of_life, makers)
    if not other.any():
        return None
    last = np.full(len(made_in), np.iinfo(np.int64).min)
    np.maximum.at(last, number, rows.end[mine])
    ends, begins = (lives[name][other].astype(np.int64) for name in ("end_cycles", "begin_cycles"))
    outlives = ends > last[np.searchsorted(made_in, block_of_life[other])]
    busy = _busy_cycles(block_of_row * most + rows.warp, rows.cycles, warp_of_life[other])
    idle = np.clip(1 - busy / np.maximum(ends - begins, 1), 0, 1)
    return len(makers), float(idle[outlives].sum()), int(other.sum())


def _busy_cycles(warp: npt.NDArray[np.int64], cycles: Numbers, wanted: npt.NDArray[np.int64]) -> Numbers:
    """Return the cycles that each wanted warp spends in accesses. `warp`: warp of each row."""
    known, number = np.unique(warp, return_inverse=True)
    total = np.bincount(number, cycles, len(known))
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, total[place], 0.0)


def is_negligible_share(evidence: Evidence, cost: Cost, excess_share: float) -> bool:
    """Return whether an access causes too small a share of a kernel's excess transactions to matter, and costs too little measured time.

    A few accesses of one warp are a small share of all transactions, but may hold up the whole block.
    """
    return excess_share < MIN_SHARE and not (cost.measured and cost.cycles >= MIN_SHARE * evidence.life > 0)


def is_noticeable(evidence: Evidence, cost: Cost) -> bool:
    """Return whether a cost may have a noticeable effect; true for costs that were not measured."""
    return not cost.measured or cost.high is None or cost.high >= MIN_NOTICEABLE * evidence.life


def idle_share(memory_share: float, warps_per_scheduler: float) -> float:
    """Return the share of time in which all warps of a scheduler wait, if each waits independently for `memory_share` of its time."""
    return float(memory_share ** max(warps_per_scheduler, 1.0))

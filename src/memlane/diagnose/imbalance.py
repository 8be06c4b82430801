"""Find imbalance: some warps of a block, or some multiprocessors, make many more accesses than others, which wait for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from memlane.diagnose.barriers import held_at_barriers
from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import TIMES, WHOLE, Evidence, Rows
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import rounded

MIN_RATIO = 1.5
"""Minimum ratio of the busiest to the mean number of accesses, so that noise in times alone is not a finding.

For multiprocessors the busiest block must exceed it too: with equal blocks, some multiprocessors get one more because the last wave is not
full, which the kernel cannot control.
"""
MIN_SHARE = 0.15
"""Minimum upper bound of the waiting time, as a share of the warps' lifetimes."""
MIN_WAITED = 0.25
"""Minimum share of the lifetimes that warps wait at barriers for the busiest one, where its accesses alone take less than `MIN_SHARE`."""

_BUSIEST = "the busiest one is still working"
_WITH_PROBES = "measured with probes"


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the larger of the two imbalances of a kernel, between warps or between multiprocessors."""
    rows = evidence.rows
    if rows is None or evidence.lives is None:
        return
    found = [one for one in (_of_warps(evidence, rows), _of_multiprocessors(evidence, rows)) if one is not None]
    if found:
        yield max(found, key=lambda one: one.cost.cycles)


def _of_warps(evidence: Evidence, rows: Rows) -> Verdict | None:
    """Return the imbalance between the warps of a block; None if there is none."""
    warps = int(rows.warp.max()) + 1 if len(rows.warp) else 0
    if warps < 2 or evidence.lives is None:
        return None
    stride = int(rows.block.max()) + 1
    block = (rows.launch * stride + rows.block).astype(np.int64)
    blocks, number = np.unique(block, return_inverse=True)
    shape = (len(blocks), warps)
    accesses = np.bincount(number * warps + rows.warp, minlength=len(blocks) * warps).reshape(shape)
    shared = _can_be_shared(evidence, rows)
    busy = np.bincount(number * warps + rows.warp, np.where(shared, rows.cycles, 0.0), len(blocks) * warps).reshape(shape)
    ratio = float((accesses.max(1) / np.maximum(accesses.mean(1), 1)).mean())
    behind = busy.max(1)[:, None] - busy
    excess = float(behind.sum())
    waited = float(np.clip(_lived(evidence.lives, stride, blocks, warps) - busy, 0, behind).sum())
    method = (
        f"the time for which warps have finished their accesses but not exited while {_BUSIEST}, summed over the warps; upper bound: as if "
        f"no warp exited early; {_WITH_PROBES}"
    )
    held = held_at_barriers(evidence, shared)
    if held is not None:
        waited = held.waited
        method = f"the time for which warps wait at barriers for a warp that makes these accesses; {_WITH_PROBES}"
    if ratio < MIN_RATIO or (excess < MIN_SHARE * evidence.life and waited < MIN_WAITED * evidence.life):
        return None
    group = number * warps + rows.warp
    waited = min(waited, evidence.life)
    return _verdict(
        evidence,
        rows,
        group,
        Cost(waited, 0.0, max(excess, waited), method),
        f"the busiest warp of a block makes {rounded(ratio)} times as many accesses as the average one",
        "Share the work evenly among the warps of a block, for example by striding over all of it with the whole block.",
        ratio,
    )


def _can_be_shared(evidence: Evidence, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return a mask of the records whose accesses another warp could make instead.

    An access that a warp makes once between two barriers cannot be shared: the last steps of a tree reduction are too small for more than
    one warp.
    """
    steps = [one.id for one in evidence.sites if one.once_between_barriers]
    return ~np.isin(rows.site, steps)


def _lived(lives: npt.NDArray[np.void], stride: int, blocks: npt.NDArray[np.int64], warps: int) -> npt.NDArray[np.float64]:
    """Return the lifetime of each warp in cycles, by block and warp; a warp that has exited no longer waits."""
    key = lives["launch"].astype(np.int64) * stride + lives["block"]
    known = lives[(lives["block"] < stride) & (lives["warp"] < warps) & np.isin(key, blocks)]
    lived = np.full((len(blocks), warps), np.inf)
    row = np.searchsorted(blocks, known["launch"].astype(np.int64) * stride + known["block"])
    lived[row, known["warp"]] = known["end_cycles"] - known["begin_cycles"]
    return lived


def _of_multiprocessors(evidence: Evidence, rows: Rows) -> Verdict | None:
    """Return the imbalance between the multiprocessors that had blocks; None if there is none."""
    sms, group = np.unique(rows.sm, return_inverse=True)
    if len(sms) < 2 or evidence.lives is None:
        return None
    accesses = np.bincount(group)
    ratio = float(accesses.max() / accesses.mean())
    lives = evidence.lives
    lasted = np.array([_lasted(lives[lives["sm"] == sm]) for sm in sms.tolist()])
    warps = np.array([float((lives["sm"] == sm).sum()) for sm in sms.tolist()])
    resident = np.minimum(warps, (evidence.resident_warps() or (np.inf, False))[0])
    excess = float(((lasted.max() - lasted) * resident).sum())
    if min(ratio, _of_busiest_block(rows, lives)) < MIN_RATIO or excess < MIN_SHARE * evidence.life:
        return None
    return _verdict(
        evidence,
        rows,
        group.astype(np.int64),
        Cost(
            min(evidence.life * float(1 - lasted.mean() / lasted.max()), excess),
            0.0,
            excess,
            "the lifetimes of all warps times the share by which the busiest multiprocessor runs longer than the average one; upper "
            f"bound: the time for which the others are idle while {_BUSIEST}, for all warps that they can hold; {_WITH_PROBES}",
        ),
        f"the busiest multiprocessor makes {rounded(ratio)} times as many accesses as the average one",
        "Give all blocks the same amount of work, use more and smaller blocks, or distribute the work at run time.",
        ratio,
    )


def _of_busiest_block(rows: Rows, lives: npt.NDArray[np.void]) -> float:
    """Return the accesses of the busiest block divided by the mean."""
    block = rows.launch * (int(rows.block.max()) + 1) + rows.block
    blocks = len(np.unique(lives[["launch", "block"]]))
    return float(np.unique_counts(block).counts.max() * blocks / len(block))


def _lasted(lives: npt.NDArray[np.void]) -> float:
    return float(lives["end_cycles"].max()) - float(lives["begin_cycles"].min()) if len(lives) else 0.0


def _verdict(
    evidence: Evidence,
    rows: Rows,
    group: npt.NDArray[np.int64],
    cost: Cost,
    what: str,
    remedy: str,
    ratio: float,
) -> Verdict:
    """Return the verdict at the access where the groups differ most."""
    groups = int(group.max()) + 1
    spread = []
    for one in evidence.own_accesses:
        chosen = rows.of(evidence.numbers(one))
        spread.append(float(np.ptp(np.bincount(group[chosen], rows.cycles[chosen], groups))))
    site = evidence.own_accesses[int(np.argmax(spread))]
    return in_cycles(
        site,
        evidence.life,
        cost,
        what,
        "the number of executions differs most at this line",
        remedy,
        int(rows.of(evidence.numbers(site)).sum()),
        **{"accesses of the busiest over the mean": ratio},
    )


RULE = Rule("imbalance", "imbalance", examine, (TIMES, WHOLE))

"""Find divergence: lanes of a warp take different branches, one after the other, and access memory with part of the lanes at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.chip import LANES
from memlane.diagnose.cost import Cost, nearest_latency
from memlane.diagnose.evidence import BRANCHES, COUNTS, TIMES, Evidence, Numbers
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import plural, rounded
from memlane.record import BranchCounts, SiteCounts

MAX_ACTIVE = 0.75
"""Maximum share of a warp's threads that are active in an access, on average, to examine it."""
MIN_DIVERGENT = 0.1
"""Minimum share of divergent executions of a branch."""
MIN_SHARE = 0.055
"""Minimum cost as a share of the warps' lifetimes."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the divergent branches of a kernel, with the accesses after each."""
    branches = _divergent(evidence.branches)
    by_branch: dict[tuple[str, int], list[SiteCounts]] = {}
    for entry in evidence.accesses:
        if (
            entry.requests
            and 1 <= entry.lanes / entry.requests <= MAX_ACTIVE * _threads_per_warp(evidence, [entry])
            and not _is_leader_update(entry)
        ):
            branch = _nearest(branches, entry)
            if branch is not None:
                by_branch.setdefault((branch.file, branch.line), []).append(entry)
    for (_, line), entries in by_branch.items():
        found, measured = _cost(evidence, entries)
        if found.cycles < MIN_SHARE * evidence.life:
            continue
        requests = sum(entry.requests for entry in entries)
        lanes = sum(entry.lanes for entry in entries) / requests
        branch = branches[(entries[0].site.file, line)]
        existing = _threads_per_warp(evidence, entries)
        verdict = in_cycles(
            max(entries, key=lambda entry: entry.requests).site,
            measured,
            found,
            f"accesses after the branch at line {line} have {rounded(lanes)} of {plural(existing, 'lane')} active",
            f"the lanes of a warp take both sides of that branch, one after the other, in {branch.divergent:,} of "
            f"{plural(branch.executions, 'execution')}",
            "Let all lanes of a warp take the same branch: sort or compact the work by the branch condition, or give each branch its own "
            "threads.",
            requests,
            **{"lanes per request": lanes, "divergent executions": float(branch.divergent), "executions": float(branch.executions)},
        )
        yield Verdict(**{**vars(verdict), "line": line})


def _is_leader_update(entry: SiteCounts) -> bool:
    """Return whether a leader lane updates something for its whole warp, while the others have nothing to do."""
    return entry.site.is_atomic and entry.lanes == entry.requests


def _divergent(branches: tuple[BranchCounts, ...]) -> dict[tuple[str, int], BranchCounts]:
    """Return the branches that diverge often enough, summed by file and line."""
    found: dict[tuple[str, int], BranchCounts] = {}
    for one in branches:
        key = (one.file, one.line)
        old = found.get(key)
        if old is not None:
            one = BranchCounts(one.kernel, one.file, one.line, old.executions + one.executions, old.divergent + one.divergent)
        found[key] = one
    return {key: one for key, one in found.items() if one.executions and one.divergent >= MIN_DIVERGENT * one.executions}


def _nearest(branches: dict[tuple[str, int], BranchCounts], entry: SiteCounts) -> BranchCounts | None:
    """Return the nearest divergent branch at or before the access in the source; None if there is none."""
    before = [one for (file, line), one in branches.items() if file == entry.site.file and line <= entry.site.line]
    return max(before, key=lambda one: one.line, default=None)


def _threads_per_warp(evidence: Evidence, entries: list[SiteCounts]) -> float:
    """Return the threads per warp, on average over the executions of some accesses: 32, or fewer in small blocks, whose missing lanes are
    not divergence."""
    assert evidence.rows is not None
    rows = evidence.rows
    chosen = rows.of([number for entry in entries for number in evidence.numbers(entry.site)])
    return float(np.average(evidence.lanes_of_warps()[chosen], weights=rows.weight[chosen])) if chosen.any() else float(LANES)


def _cost(evidence: Evidence, entries: list[SiteCounts]) -> tuple[Cost, float]:
    """Return the cost, and the measured cycles of the accesses."""
    assert evidence.rows is not None
    rows, threads = evidence.rows, evidence.lanes_of_warps()
    idle = total = 0.0
    for entry in entries:
        chosen = rows.of(evidence.numbers(entry.site))
        cycles, weight = rows.cycles[chosen], rows.weight[chosen]
        inactive = 1 - rows.lanes[chosen] / threads[chosen]
        idle += float(((cycles - _own_sector_cycles(evidence, entry, cycles)) * weight * inactive).sum())
        total += float((cycles * weight).sum())
    # Waits at barriers do not count: idle lanes do not make the access of the others longer.
    return Cost(
        idle,
        0.0,
        total,
        "the measured time of the accesses, without the wait of lanes for sectors that no other lane touches, times the share of their "
        "warps' threads that were inactive",
    ), total


def _own_sector_cycles(evidence: Evidence, entry: SiteCounts, cycles: Numbers) -> Numbers:
    """Return the cycles above the latency that lanes wait for sectors of their own: full warps would move as many sectors."""
    chip = evidence.chip
    if chip is None or not entry.sectors or not entry.lanes or entry.site.space not in ("global", "generic"):
        return np.zeros_like(cycles)
    return np.maximum(cycles - nearest_latency(chip, cycles), 0.0) * min(1.0, entry.sectors / entry.lanes)


RULE = Rule("divergence", "divergent lanes", examine, (COUNTS, BRANCHES, TIMES))

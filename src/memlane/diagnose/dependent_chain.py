"""Find dependent chains: each access takes its address from the value loaded by the previous one, with too few warps to hide the
latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from memlane.diagnose.cost import Cost, at_barriers, idle_share
from memlane.diagnose.evidence import CALIBRATION, ORIGINS, RESIDENCY, TIMES, Evidence
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import plural
from memlane.record import Site
from memlane.walks import reachable

MIN_LENGTH = 4.0
"""Minimum accesses in a chain per warp, on average."""
MIN_SHARE = 0.02
"""Minimum cost as a share of the warps' lifetimes."""

_METHOD = (
    "the measured time of the chain minus one of its accesses, times the share of the time in which the other warps of a scheduler also "
    "wait, assuming that warps wait independently"
)


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the dependent chains of a kernel."""
    chained = _in_cycles(evidence.own_sites)
    accesses = list(dict.fromkeys(evidence.sites_of_access(site)[0] for site in chained))
    warps = evidence.resident_warps()
    if not accesses or warps is None or evidence.chip is None or evidence.rows is None or evidence.lives is None:
        return
    per_scheduler = warps[0] / evidence.chip.schedulers
    others_wait = idle_share(evidence.memory_share, max(per_scheduler, 1.0)) / max(evidence.memory_share, 1e-9)
    for site in accesses:
        chosen = evidence.rows.of(evidence.numbers(site), complete=True)
        length = float(chosen.sum()) / max(len(evidence.lives), 1)
        total = evidence.rows.total(chosen)
        found = total * (1 - 1 / max(length, 1.0)) * others_wait
        if length < MIN_LENGTH or found < MIN_SHARE * evidence.life:
            continue
        each = total / float((evidence.rows.weight[chosen]).sum())
        yield in_cycles(
            site,
            total,
            at_barriers(evidence, Cost(found, 0.0, total, _METHOD), np.where(chosen, evidence.rows.cycles, 0.0)),
            f"a chain of {plural(length, 'access')} per warp, {plural(round(each), 'cycle')} each, with {plural(warps[0], 'warp')} per "
            "multiprocessor",
            "each address depends on the value that the previous access loaded, so a warp never has two of them in flight",
            "Follow several chains in each thread, give a multiprocessor more warps, or change the structure so that addresses are known "
            "beforehand (an array instead of a list, a wider node).",
            int(chosen.sum()),
            **{"accesses in a chain": length, "cycles per access": each, "warps per multiprocessor": warps[0]},
        )


def _in_cycles(sites: tuple[Site, ...]) -> list[Site]:
    """Return the sites whose address depends, through other sites, on their own value."""
    loads: Mapping[int, tuple[int, ...]] = {one.instruction: one.address_loads for one in sites}

    def behind(number: int) -> tuple[int, ...]:
        return loads.get(number, ())

    return [one for one in sites if one.kind in ("load", "atomic") and one.instruction in reachable(behind(one.instruction), behind)]


RULE = Rule("dependent-chain", "dependent chain of accesses", examine, (TIMES, ORIGINS, RESIDENCY, CALIBRATION))

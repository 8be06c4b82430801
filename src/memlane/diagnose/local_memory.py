"""Find local memory accesses: per-thread variables that live in memory instead of registers, through run-time indexing or spills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from memlane.diagnose.cost import Cost, at_barriers, untimed_reason
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import plural
from memlane.record import SiteCounts

MIN_SHARE = 0.01
"""Minimum share of the kernel's requests."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the local memory accesses of a kernel."""
    for entry in evidence.accesses:
        if entry.site.space != "local" or entry.requests < max(1.0, MIN_SHARE * evidence.requests):
            continue
        found = _cost(evidence, entry)
        verdict = in_cycles(
            entry.site,
            found.cycles,
            found,
            _describe(entry.requests),
            "a per-thread array is indexed by a value known only at run time, or more values are live than fit in the registers",
            "Unroll the loops that index it, so that every index is known to the compiler, make it smaller, or keep it in shared memory, "
            "one column for each thread.",
            entry.requests,
            **{"requests to local memory": float(entry.requests), "local bytes of a thread": float(_stack(evidence))},
        )
        yield replace(verdict, is_of_access=True, retell=_describe)


def _describe(requests: int) -> str:
    return f"{plural(requests, 'request')} to local memory"


def _cost(evidence: Evidence, entry: SiteCounts) -> Cost:
    """Return the whole cost of the access, since registers would avoid all of it."""
    chip, numbers = evidence.chip, evidence.numbers(entry.site)
    latency = 1.0 if chip is None or entry.site.kind != "load" else chip.latency.l1
    rows = evidence.rows
    if rows is not None:
        chosen = rows.of(numbers)
        if chosen.any():
            mean = float(rows.cycles[chosen].mean())
            cycles = max(mean, 1.0) * entry.requests
            alone = Cost(
                cycles,
                min(cycles, float(entry.requests)),
                cycles,
                f"all {plural(round(mean), 'cycle')} of the mean access, because a register takes none",
            )
            return at_barriers(evidence, alone, rows.placed(chosen, np.maximum(rows.cycles[chosen], 1.0)))
    cycles = latency * entry.requests
    return Cost(
        cycles, float(entry.requests), None, f"{plural(round(latency), 'cycle')} for each request; {untimed_reason(chip)}", measured=False
    )


def _stack(evidence: Evidence) -> int:
    """Return the local bytes per thread in the assembled code; 0 if it was not read."""
    plain = [one.perturbation.plain for one in evidence.launches if one.perturbation is not None and one.perturbation.plain is not None]
    return max((one.local_bytes for one in plain), default=0)


RULE = Rule("local-memory", "local memory instead of registers", examine, (COUNTS,))

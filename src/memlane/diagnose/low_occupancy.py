"""Find low occupancy: a multiprocessor holds few warps of the kernel although blocks are waiting, and the warps wait for memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.chip import resident_blocks
from memlane.diagnose.cost import Cost, idle_share
from memlane.diagnose.evidence import CALIBRATION, RESIDENCY, TIMES, Evidence
from memlane.diagnose.rule import Rule, Verdict, in_cycles
from memlane.number_format import percent, plural, rounded

MAX_SHARE = 0.25
"""Maximum share of the possible warps that are resident."""
COMPARED = 0.5
"""Share of the possible warps that the kernel is compared with."""
MIN_SHARE = 0.05
"""Minimum cost as a share of the warps' lifetimes."""


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield a verdict if the kernel's occupancy is low."""
    found, chip, rows = evidence.resident_warps(), evidence.chip, evidence.rows
    if found is None or chip is None or rows is None:
        return
    warps, blocks_wait = found
    most = chip.max_warps_per_sm
    if not blocks_wait or warps > MAX_SHARE * most:
        return
    share = evidence.memory_share
    now, then = (idle_share(share, number / chip.schedulers) for number in (warps, COMPARED * most))
    excess = (now - then) * evidence.life
    if excess < MIN_SHARE * evidence.life:
        return
    totals = np.bincount(rows.site, rows.cycles * rows.weight * rows.complete, len(evidence.sites))
    site = evidence.sites[int(totals.argmax())]
    yield in_cycles(
        site,
        evidence.life,
        Cost(
            excess,
            0.0,
            now * evidence.life,
            f"all warps of a scheduler wait at the same time for {percent(now)} of the time, and for {percent(then)} with half of the "
            f"possible warps; this assumes that each warp waits independently for {percent(share)} of its time, as traced",
        ),
        f"{rounded(warps)} of {plural(most, 'possible warp')} are resident on a multiprocessor, and they wait longest here",
        _cause(evidence),
        "Use less of the limiting resource per block, or choose another number of threads, so that more warps fit. Or keep more accesses "
        "of each thread in flight.",
        int(rows.of([site.id]).sum()),
        **{"resident warps": warps, "possible warps": float(most), "share of the time waiting for memory": share},
    )


def _cause(evidence: Evidence) -> str:
    chip, launch = evidence.chip, evidence.launches[0]
    plain = None if launch.perturbation is None else launch.perturbation.plain
    threads = int(np.prod(launch.block))
    blocks = launch.resident_blocks
    of_threads = f"of {plural(threads, 'thread')} fit, limited by"
    if chip is not None and plain is not None:
        limits = resident_blocks(chip, threads, plain.registers, plain.shared_bytes).limited_by
        return f"no more than {plural(plain.resident_blocks, 'block')} {of_threads} {' and '.join(limits)}"
    return f"no more than {plural(blocks or 0, 'block')} {of_threads} shared memory, registers or the number of blocks"


RULE = Rule("low-occupancy", "low occupancy", examine, (TIMES, RESIDENCY, CALIBRATION))

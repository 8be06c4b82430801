"""Find contended atomics: lanes of a warp, or lanes of many warps, update the same address or the same line, and the updates serialise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlane.diagnose import cost
from memlane.diagnose.busy_address import Busy, BusyLine, busy, busy_line
from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import COUNTS, Evidence
from memlane.diagnose.finding import LANES
from memlane.diagnose.rule import Rule, Verdict
from memlane.number_format import percent, plural, rounded
from memlane.record import SiteCounts

MIN_LANES_PER_ADDRESS = 4.0
"""Minimum lanes per address and request, on average, to report."""
MIN_SHARE = 0.01
"""Minimum share of the kernel's requests."""


def is_contended(entry: SiteCounts) -> bool:
    """Return whether many lanes of a request update the same address."""
    return entry.site.is_atomic and (entry.lanes_per_address or 0.0) >= MIN_LANES_PER_ADDRESS


def examine(evidence: Evidence) -> Iterator[Verdict]:
    """Yield the contended atomics of a kernel."""
    for entry in evidence.accesses:
        found, line = busy(evidence, entry), busy_line(evidence, entry)
        if not is_contended(entry):
            if found is not None:
                yield _of_warps(evidence, entry, found)
            elif line is not None:
                yield _of_line(evidence, entry, line)
            continue
        if entry.requests < MIN_SHARE * evidence.requests:
            continue
        addresses = entry.addresses or 1
        site = entry.site
        yield Verdict(
            site=site,
            unit=LANES,
            transactions=entry.lanes,
            ideal=addresses,
            what=(
                f"{plural(entry.lanes_per_address, 'lane')} of a request update the same address one after the other (on average over "
                f"{plural(entry.requests, 'request')})"
            ),
            cause="the lanes do not combine their updates first",
            remedy=_remedy(site.space.startswith("shared")),
            cost=_cost(
                evidence, entry, float(entry.lanes - addresses), max(one.share for one in (found, line) if one) if found or line else 0.0
            ),
            requests=entry.requests,
            bytes_requested=entry.bytes,
            numbers={"lanes per address": entry.lanes / addresses, "most lanes at one address": float(entry.most_lanes_at_address or 0)},
        )


_LESS_OFTEN = (
    "Update it less often: accumulate over several iterations, and over the block in shared memory, before one thread of the block updates "
)
_COPIES = "Or spread the updates over several copies and add these up at the end."


def _of_line(evidence: Evidence, entry: SiteCounts, found: BusyLine) -> Verdict:
    ideal = max(round(found.addresses), 1) * len(evidence.launches)
    return Verdict(
        site=entry.site,
        unit=LANES,
        transactions=max(entry.addresses or 0, ideal + 1),
        ideal=ideal,
        what=(
            f"updates of one 128-byte line keep it busy for {percent(found.share)} of the launch's time "
            f"({plural(round(found.sectors), 'sector')} at {rounded(found.rate)} per cycle)"
        ),
        cause="updates of one line run one after the other, also those of different warps",
        remedy=f"{_LESS_OFTEN}each address. {_COPIES}",
        cost=_cost(evidence, entry, float((entry.addresses or 0) - ideal), found.share),
        requests=entry.requests,
        bytes_requested=entry.bytes,
        numbers={"sectors of updates of a line": found.sectors, "share of the time that it is busy": found.share},
    )


def _of_warps(evidence: Evidence, entry: SiteCounts, found: Busy) -> Verdict:
    each = found.updates / found.addresses
    ideal = max(round(found.addresses), 1) * len(evidence.launches)
    return Verdict(
        site=entry.site,
        unit=LANES,
        transactions=max(entry.addresses or 0, ideal + 1),
        ideal=ideal,
        what=(
            f"the updates of one address take {percent(found.share)} of the launch's time "
            f"({plural(round(each), 'update')} or more of each address of its array, one per cycle)"
        ),
        cause="updates of one address run one after the other, also those of different warps",
        remedy=f"{_LESS_OFTEN}the address. {_COPIES}",
        cost=_cost(evidence, entry, float((entry.addresses or 0) - ideal), found.share),
        requests=entry.requests,
        bytes_requested=entry.bytes,
        numbers={"updates of an address": each, "share of the time that it is busy": found.share},
    )


def _cost(evidence: Evidence, entry: SiteCounts, beyond: float, busy_share: float) -> Cost:
    """Return the cost: one cycle for each of `beyond` updates, or the measured time above the latency of one update.

    The end of an update without a result cannot be measured. While an address is busy, for `busy_share` of the launch, all warps stay
    alive.
    """
    excess = max(beyond, 0.0)
    net, chip = evidence.cycles(entry.site), evidence.chip
    held = min(busy_share, 1.0) * evidence.life
    if chip is not None and not len(net) and held > excess:
        return Cost(
            held,
            excess,
            evidence.life,
            f"the lifetimes of all warps times the {percent(min(busy_share, 1.0))} of the launch for which the address is busy; at least "
            "one cycle for each update after the first",
        )
    if chip is None or not len(net):
        return Cost(excess, excess, None, f"one cycle for each update after the first; {cost.untimed_reason(chip)}", measured=False)
    if entry.site.space == "shared" and entry.wavefronts:
        return cost.of_wavefronts(evidence, entry)
    latency = chip.latency.shared_atomic if entry.site.space == "shared" else chip.latency.global_atomic
    if entry.site.space == "shared::cluster":
        latency = chip.latency.shared_cluster or latency
    beyond_one = np.maximum(net - latency, 0.0)
    waited = float(beyond_one.mean()) * entry.requests
    alone = Cost(
        max(excess, waited),
        min(excess, waited),
        max(excess, waited),
        (
            "the larger of two: one cycle for each update after the first, and the time of the accesses above the "
            f"{plural(round(latency), 'cycle')} of one update"
        ),
    )
    return cost.at_barriers(evidence, alone, evidence.excess(entry.site, beyond_one))


def _remedy(shared: bool) -> str:
    first = "Add up in registers first (a warp reduction, such as `__reduce_add_sync`), and let one lane update the address"
    return f"{first}." if shared else f"{first}; or collect the updates in shared memory and update global memory once for each block."


RULE = Rule("contended-atomics", "atomics on one address", examine, (COUNTS,))

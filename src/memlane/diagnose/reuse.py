"""How often the sectors of an array are loaded by one access, and by which level of the caches: what two rules ask.

An array has so many sectors, as the arguments of the launch tell. An access that loads more than that loads some of them again, whatever
its addresses are; so the numbers here are the least that is certain. Latencies tell, as a guess, what serves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memlane.diagnose.cost import between_l1_and_l2
from memlane.diagnose.evidence import Evidence
from memlane.record import Place, Site

AT_LEAST_TWICE = 2.0


@dataclass(frozen=True)
class Reuse:
    """The loads of one place that read an array several times."""

    site: Site
    requests: int
    times: float
    """How often each sector of the array is loaded, at least, over the launch."""
    times_per_sm: float
    """How often by one multiprocessor, at least: what follows from the size of the array, or twice where a loop of the kernel repeats the
    access at the same addresses."""
    fits_l1: bool
    """Whether all arrays of the launch together are smaller than L1, so that none of it has to go."""
    from_l1: float
    """Share of the accesses that are as quick as L1."""
    cycles: float
    """Net, of all of them."""
    mean: float


def reuses(evidence: Evidence) -> Iterator[Reuse]:
    """Of each place of global memory whose loads are complete and whose arrays have a known size."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    sms = max(len({*rows.sm.tolist()}), 1)
    by_place: dict[Place, list[Site]] = {}
    for site in evidence.own_sites:
        if site.kind == "load" and site.space == "global":
            by_place.setdefault((*site.place[:4], f"{site.space} {site.address_parameters}"), []).append(site)
    for sites in by_place.values():
        whole = evidence.array_sectors(sites[0])
        counted = [evidence.by_site[one.instruction] for one in sites if one.instruction in evidence.by_site]
        loaded = sum(one.ideal_sectors or 0 for one in counted) / max(len(evidence.launches), 1)
        chosen = rows.of([one.id for one in sites], complete=True)
        if not whole or not loaded or not chosen.any():
            continue
        cycles = rows.cycles[chosen]
        yield Reuse(
            sites[0],
            sum(one.requests for one in counted),
            loaded / whole,
            max(loaded / whole / sms, min(loaded / whole, AT_LEAST_TWICE) if all(one.address_repeats for one in sites) else 0.0),
            evidence.array_bytes() <= chip.l1_bytes,
            float((cycles < between_l1_and_l2(chip)).mean()),
            rows.total(chosen),
            float(cycles.mean()),
        )

"""How often the sectors of an array are loaded by one access, and by which level of the caches: what two rules ask.

An array has so many sectors, as the arguments of the launch tell. An access that loads more than that loads some of them again, whatever
its addresses are; so the numbers here are the least that is certain. Latencies tell, as a guess, what serves it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from memlane.chip import SECTOR_BYTES, Chip
from memlane.chip.floors import L2_READS
from memlane.diagnose.cost import between_l1_and_l2
from memlane.diagnose.evidence import Evidence, Numbers
from memlane.record import Site

AT_LEAST_TWICE = 2.0


@dataclass(frozen=True)
class Reuse:
    """The loads of one place that read an array several times."""

    site: Site
    about: tuple[Site, ...]
    """All sites of the place that load the array."""
    requests: int
    times: float
    """How often each sector of the array is loaded, at least, over the launch."""
    times_per_sm: float
    """How often by one multiprocessor, at least: what follows from the size of the array, or twice where a loop of the kernel repeats the
    access at the same addresses."""
    fits_l1: bool
    """Whether nothing has to go for want of room: all arrays of the launch together are smaller than L1, or all the different
    sectors that one multiprocessor moves."""
    from_l1: float
    """Share of the accesses that are as quick as L1."""
    not_from_l2: float
    """Share of the accesses that L1 serves, however long they take: an access to a line that is on its way waits for it. Where it is known
    how much was read from L2, on the emulator, those for which that is too little; else those that are as quick as L1."""
    again: Numbers
    """Net cycles of the accesses that load what their multiprocessor has loaded before. They are taken to be the quickest, for the first
    load of a sector is a slow one; how many they are lies between two bounds, see `_again`."""
    certain: int
    """How many of `again` are certain: the first of them."""
    cycles: float
    """Net, of all of them."""
    mean: float
    ideal_sectors: int
    """That the loads would touch if their lanes lay side by side, over all launches."""
    sectors: int
    """That the loads touch, over all launches."""
    of_neighbours: bool
    """Whether no single instruction loads each sector twice or more: then the place names elements that lie near each other, as stencils
    do."""


def reuses(evidence: Evidence) -> Iterator[Reuse]:
    """Of each place of global memory whose loads are complete and whose arrays have a known size."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    sms = max(len({*rows.sm.tolist()}), 1)
    held = min(evidence.array_bytes(), _held_by_busiest(evidence)) <= chip.l1_bytes
    arrays: dict[Hashable, list[Site]] = {}
    for site in evidence.own_sites:
        if site.kind == "load" and site.space == "global" and not site.is_of_compiler:
            arrays.setdefault((site.place, site.array, site.address_parameters), []).append(site)
    for sites in arrays.values():
        whole = evidence.array_sectors(sites[0])
        counted = [evidence.by_site[one.instruction] for one in sites if one.instruction in evidence.by_site]
        loaded = sum(one.ideal_sectors or 0 for one in counted) / max(len(evidence.launches), 1)
        chosen = rows.of([one.id for one in sites], complete=True)
        if not whole or not loaded or not chosen.any():
            continue
        cycles = rows.cycles[chosen]
        times = loaded / whole
        times_per_sm = max(times / sms, min(times, AT_LEAST_TWICE) if all(one.address_repeats for one in sites) else 0.0)
        from_l1 = float((cycles < between_l1_and_l2(chip)).mean())
        sectors = sum(one.sectors or 0 for one in counted)
        certain, likely = _again(times, times_per_sm, from_l1)
        yield Reuse(
            sites[0],
            tuple(sites),
            sum(one.requests for one in counted),
            times,
            times_per_sm,
            held,
            from_l1,
            max(from_l1, 1.0 - _read_from_l2(evidence, chip) / max(sectors, 1)),
            np.sort(cycles)[: round(len(cycles) * likely)],
            round(len(cycles) * certain),
            rows.total(chosen),
            float(cycles.mean()),
            sum(one.ideal_sectors or 0 for one in counted),
            sectors,
            max(one.ideal_sectors or 0 for one in counted) < AT_LEAST_TWICE * whole * max(len(evidence.launches), 1),
        )


def _read_from_l2(evidence: Evidence, chip: Chip) -> float:
    """Sectors that the launches read from L2, at most, by the emulator's model of time; infinite where there is none, as on a GPU."""
    rate = chip.bandwidth.rate("l2", "read")
    if rate is None or any(one.time is None or any(L2_READS in part for part in one.time.missing) for one in evidence.launches):
        return math.inf
    floors = (floor for one in evidence.launches if one.time for floor in one.time.floors)
    return rate * sum(floor.cycles for floor in floors if floor.name == L2_READS)


def _again(times: float, times_per_sm: float, from_l1: float) -> tuple[float, float]:
    """Shares of the accesses that load what their multiprocessor has loaded before: what is certain, and what is likely.

    Certain is what L1 serves, for it has been loaded, and what is left when every multiprocessor has loaded the whole array once. If each
    loads a part of its own, it is what is left when the launch has loaded it once; likely is the geometric mean of both.
    """
    whole, part = max(times_per_sm, 1.0), max(times, 1.0)
    certain = max(1 - 1 / whole, min(from_l1, 1 - 1 / part))
    return certain, max(certain, 1 - 1 / math.sqrt(whole * part))


def _held_by_busiest(evidence: Evidence) -> float:
    """Bytes of different sectors that one multiprocessor moves in a launch, at most: of each array no more than it has, and no more than
    the share of its accesses that the multiprocessor with the most records has."""
    assert evidence.rows is not None
    counts = np.unique_counts(evidence.rows.sm).counts
    share = float(counts.max() / counts.sum()) if len(counts) else 1.0
    moved: dict[tuple[int, ...], float] = {}
    whole: dict[tuple[int, ...], float] = {}
    for entry in evidence.entries:
        if entry.site.space != "local":
            key = entry.site.address_parameters
            moved[key] = moved.get(key, 0.0) + (entry.sectors or 0) * share / max(len(evidence.launches), 1)
            whole[key] = evidence.array_sectors(entry.site) or math.inf
    return SECTOR_BYTES * sum(min(moved[key], whole[key]) for key in moved)

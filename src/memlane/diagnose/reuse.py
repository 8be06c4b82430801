"""Compute how often one access loads the sectors of an array, and which cache level serves it, for two rules.

The launch arguments give an array's sectors. An access that loads more than that loads some again, whatever its addresses are, so the
numbers here are lower bounds. The serving level is estimated from latencies.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memlane.chip import SECTOR_BYTES, Chip
from memlane.chip.floors import L2_READS
from memlane.diagnose.cost import between_l1_and_l2
from memlane.diagnose.evidence import Evidence, Numbers
from memlane.record import Site

AT_LEAST_TWICE = 2.0


@dataclass(frozen=True)
class Reuse:
    """Loads at one place that read an array several times."""

    site: Site
    about: tuple[Site, ...]
    """All sites of the place that load the array."""
    requests: int
    times: float
    """Lower bound of the loads of each sector of the array per launch."""
    times_per_sm: float
    """Lower bound of the loads of each sector by one multiprocessor: from the size of the array, or 2 if a loop of the kernel repeats the
    access at the same addresses."""
    fits_l1: bool
    """Whether L1 evicts nothing for lack of capacity: all arrays of the launch, or all distinct sectors moved by one multiprocessor,
    fit."""
    from_l1: float
    """Share of the accesses that are as quick as L1."""
    not_from_l2: float
    """Share of the accesses that L1 serves, including those that wait for a line in flight. On the emulator, where the sectors read from L2
    are known, those for which these do not suffice; else those as quick as L1."""
    again: Numbers
    """Net cycles of the accesses that reload data of their multiprocessor, taken to be the quickest, since first loads are slow; their
    number lies between two bounds, see `_repeated_shares`."""
    certain: int
    """How many of `again`, from the first on, are certain."""
    records: npt.NDArray[np.bool_]
    """Which records of the kernel are its loads."""
    cycles: float
    """Total net cycles of the accesses."""
    mean: float
    ideal_sectors: int
    """Sectors that the loads would touch with contiguous lanes, over all launches."""
    sectors: int
    """Sectors that the loads touch, over all launches."""
    of_neighbours: bool
    """Whether no single instruction loads each sector twice or more, so that the place reads neighbouring elements, as stencils do."""


def reuses(evidence: Evidence) -> Iterator[Reuse]:
    """Yield the reuse of each place in global memory whose loads are complete and whose arrays have a known size."""
    rows, chip = evidence.rows, evidence.chip
    if rows is None or chip is None:
        return
    sms = max(len({*rows.sm.tolist()}), 1)
    held = min(evidence.array_bytes(), _max_distinct_bytes(evidence)) <= chip.l1_bytes
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
        certain, likely = _repeated_shares(times, times_per_sm, from_l1)
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
            chosen,
            rows.total(chosen),
            float(cycles.mean()),
            sum(one.ideal_sectors or 0 for one in counted),
            sectors,
            max(one.ideal_sectors or 0 for one in counted) < AT_LEAST_TWICE * whole * max(len(evidence.launches), 1),
        )


def _read_from_l2(evidence: Evidence, chip: Chip) -> float:
    """Return an upper bound of the sectors that the launches read from L2, by the emulator's time model; infinite if there is none, as on a
    GPU."""
    rate = chip.bandwidth.rate("l2", "read")
    if rate is None or any(one.time is None or any(L2_READS in part for part in one.time.missing) for one in evidence.launches):
        return math.inf
    floors = (floor for one in evidence.launches if one.time for floor in one.time.floors)
    return rate * sum(floor.cycles for floor in floors if floor.name == L2_READS)


def _repeated_shares(times: float, times_per_sm: float, from_l1: float) -> tuple[float, float]:
    """Return the certain and the likely share of the accesses that reload data of their multiprocessor.

    Certain are L1 hits, and the accesses left once every multiprocessor has loaded the whole array. If each loads a part of its own, the
    bound is the accesses left once the launch has loaded the array; likely is the geometric mean of both.
    """
    whole, part = max(times_per_sm, 1.0), max(times, 1.0)
    certain = max(1 - 1 / whole, min(from_l1, 1 - 1 / part))
    return certain, max(certain, 1 - 1 / math.sqrt(whole * part))


def _max_distinct_bytes(evidence: Evidence) -> float:
    """Return an upper bound of the distinct sectors, in bytes, that one multiprocessor moves per launch.

    Of each array it is at most the array's size, and at most the share of accesses of the multiprocessor with the most records.
    """
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

"""Measure the truth, and what every scheme records of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memlane.errors import MemlaneError
from memlane.instrument import SCHEMES, Decoded, Selection, TraceOptions
from memlane.lab.latency import chains
from memlane.lab.latency.places import Place, Walker
from memlane.lab.latency.window import CHAINS, NOTHING, extrapolated, with_fillers
from memlane.lab.probing import recorded
from memlane.launch import LoadedModule, Target
from memlane.measure.instrumented_module import InstrumentedModule, probe
from memlane.number_format import plural
from memlane.record import COMPLETE

QUICK_CHAINS = (4, 12)
"""Lengths of the fillers of a quick run."""


@dataclass(frozen=True)
class Effort:
    """Amount of measurement."""

    turns: int
    rounds: int
    fillers: tuple[int, int]
    schemes: tuple[str, ...]


FULL = Effort(256, 5, CHAINS, tuple(SCHEMES))
QUICK = Effort(4, 1, QUICK_CHAINS, ("dependent",))


@dataclass(frozen=True)
class Recorded:
    """Record of a step by one scheme: cycles, raw."""

    mean: float
    median: float
    parts: Mapping[str, float]
    """Mean by kind of access, if a step has several."""
    window: float | None
    """Empty window of the scheme; None if it could not be measured."""
    completeness: Mapping[str, str]
    """Completeness that the scheme states, by kind of access."""
    problem: str = ""
    """Reason why there is no result; the numbers are NaN then."""


@dataclass(frozen=True)
class Measured:
    """Results for one place: the truth of each round, and the records of the schemes in the same rounds."""

    place: Place
    steps: int
    truths: tuple[float, ...]
    recorded: Mapping[str, Recorded]

    @property
    def truth(self) -> float:
        return statistics.fmean(self.truths)


def measure(target: Target, place: Place, effort: Effort, loaded: LoadedModule | None = None) -> Measured:
    """Walk in rounds, without probes and with each scheme, starting each round with a different one.

    Where time is real, one round before them is discarded.
    """
    walker = Walker(target, place, effort.turns, loaded)
    probed: dict[str, InstrumentedModule] = {}
    failed: dict[str, str] = {}
    for scheme in effort.schemes:
        try:
            probed[scheme] = probe(walker.loaded, TraceOptions(scheme, Selection(lines=place.chain.timed_lines)))
        except MemlaneError as error:
            failed[scheme] = str(error)
    seen: dict[str, list[Decoded]] = {scheme: [] for scheme in probed}
    truths: list[float] = []
    walkers: list[str | None] = [None, *probed]
    for number in range(0 if target.modelled else -1, effort.rounds):
        first = number % len(walkers)
        for one in [*walkers[first:], *walkers[:first]]:
            if one is None:
                average = walker.average()
                truths += [average] if number >= 0 else []
            else:
                found = _records(walker, probed[one])
                seen[one] += [found] if number >= 0 else []
    windows = {scheme: _window(walker, twin, effort.fillers) for scheme, twin in probed.items()}
    said = {scheme: _summary(walker, probed[scheme], seen[scheme], windows[scheme]) for scheme in probed}
    nothing = float("nan")
    said |= {scheme: Recorded(nothing, nothing, {}, None, {}, reason) for scheme, reason in failed.items()}
    return Measured(place, walker.steps, tuple(truths), said)


def _records(walker: Walker, probed: InstrumentedModule) -> Decoded:
    """Walk once with probes and return the records.

    Raises MemlaneError if a record is missing: a mean over some of the accesses would not be that of all.
    """
    expected = walker.steps * len(walker.place.chain.step)
    seen = recorded(walker.launch(probed.loaded), probed, expected)
    if seen.lost or len(seen.records) != expected:
        raise MemlaneError(f"{walker.place.name}: {plural(len(seen.records), 'record')} for {plural(expected, 'access')}, {seen.lost} lost")
    return seen


def _kinds(probed: InstrumentedModule) -> Mapping[int, str]:
    """Return the kind of each timed site, by number."""
    return {site.id: site.kind for site in probed.traced.sites if site.scheme}


def _cycles(seen: Sequence[Decoded], kinds: Mapping[int, str]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return end - start of all records, by kind of access."""
    records = np.concatenate([one.records for one in seen])
    cycles = (records["end"] - records["start"]).astype(np.int64)
    kind_of = np.array([kinds[site] for site in records["site"].tolist()])
    return {kind: cycles[kind_of == kind] for kind in dict.fromkeys(kinds.values())}


def _window(walker: Walker, probed: InstrumentedModule, fillers: tuple[int, int]) -> float:
    """Return the empty window of a step in cycles: the sum over its accesses.

    Where an access is waited for, fillers are chains, extrapolated to length 0; else they are empty. Where time is real, a first run is
    discarded.
    """
    kinds = _kinds(probed)
    waits = any(site.completeness == COMPLETE for site in probed.traced.sites if site.scheme)
    totals: dict[int, float] = {}
    for filler in fillers if waits else (NOTHING,):
        empty = with_fillers(probed, "walk", filler, walker.place.chain.fixed)
        if not walker.target.modelled:
            _records(walker, empty)
        totals[filler] = sum(float(cycles.mean()) for cycles in _cycles([_records(walker, empty)], kinds).values())
    return extrapolated(totals, fillers) if waits else totals[NOTHING]


def _summary(walker: Walker, probed: InstrumentedModule, seen: Sequence[Decoded], window: float) -> Recorded:
    parts = _cycles(seen, _kinds(probed))
    means = {kind: float(cycles.mean()) for kind, cycles in parts.items()}
    median = sum(float(np.median(cycles)) for cycles in parts.values())
    completeness = {site.kind: site.completeness for site in probed.traced.sites if site.scheme}
    return Recorded(sum(means.values()), median, means, window, completeness)


@dataclass(frozen=True)
class Fenced:
    """Result for a fence between two clock reads with a load in flight: means, in cycles."""

    level: str
    fence: str
    recorded: float
    empty: float
    """Mean without a load."""
    truth: float

    @property
    def waits(self) -> bool:
        """Whether the second clock read waited for the load, by the numbers: no earlier than 90 % of its latency."""
        return self.recorded >= 0.9 * self.truth


def fences(target: Target, place: Place, truth: float, effort: Effort) -> list[Fenced]:
    """Measure each fence at one level."""
    found = []
    for fence in chains.FENCES:
        values = []
        for empty in (False, True):
            chain = chains.fenced(place.chain, fence, empty)
            walker = Walker(target, Place(place.name, chain, place.rows, place.row_bytes, place.warm, place.fresh), effort.turns)
            rounds = [walker.added_up() for _ in range(effort.rounds + (not target.modelled))]
            values.append(statistics.fmean(rounds[not target.modelled :]))
        found.append(Fenced(place.name, fence, values[0], values[1], truth))
    return found

"""Compute lower bounds of a launch's time: sectors over the bandwidths of L2 and DRAM, wavefronts over the rate of the load-store units.

The floors are plain arithmetic on the traffic of a launch (`Traffic`), for the chip and for the multiprocessor with the longest time. Reads
from L2 and writes to it use different paths, so each has its own floor. A floor is not a prediction: it leaves out queues, conflicts in the
banks of L2 and the rows of DRAM, and TLB misses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memlane.chip.model import SECTOR_BYTES, Chip
from memlane.number_format import duration, percent, plural, rounded

LATENCY = "latency"
"""Limit of a launch where no floor dominates: its warps wait for each other, for issue slots and for the latency of their accesses."""
L2_READS = "L2 reads"
"""Name of the floor of reads from L2 by all multiprocessors."""
ATOMICS_OF_ONE_LINE = "atomics of one line"
"""Name of the floor of the line of L2 with the most atomic operations."""
RULING_SHARE = 0.7
"""Share of the modelled time from which on a floor is reported as the limit."""


@dataclass(frozen=True)
class Traffic:
    """Traffic of a launch, by part of the chip."""

    sms: Mapping[str, Sequence[int]]
    """Counts per multiprocessor, by name: sectors `read` from L2, `written` to it whole, `partly_written`, `atomic`; the lines of these
    sectors, once per request, `read_lines`, `written_lines`, `partly_written_lines`; `partly_written_bytes`, stored to the latter lines;
    `wavefronts` of the load-store unit."""
    fetched: int
    """Sectors that L2 read from DRAM."""
    written_back: int
    """Sectors that L2 wrote to DRAM while the launch ran."""
    hottest: int = 0
    """Sectors of requests with atomic operations in the line of L2 that has the most of them."""
    wavefront_cycles: int = 1
    fetched_pairs: int = 0
    """Aligned pairs of sectors that L2 read from DRAM: the unit in which DRAM delivers on recent chips."""
    allocated: int = 0
    """Sectors that stores brought into L2 without a fetch."""
    allocated_pairs: int = 0

    def total(self, name: str) -> int:
        return sum(self.sms[name])


@dataclass(frozen=True)
class Floor:
    """Least time that one part of the chip needs for its traffic."""

    name: str
    """`DRAM`, `L2 reads`, `L2 writes`, `L2 reads of one SM`, `L2 writes of one SM`, `atomics of one line`, `LSU of one SM`."""
    cycles: float
    moved: str
    """Amount and rate, in words."""


@dataclass(frozen=True)
class ModelledTime:
    """Time of a launch by the clock of the emulator, and its limits."""

    cycles: int
    """Maximum of the floors and `scoreboard`."""
    scoreboard: int
    """Cycles that the warps took: latencies, issue slots, conflicts, and waits in the queues of L2 and DRAM."""
    floors: tuple[Floor, ...]
    """Floors, longest first; parts without traffic are left out."""
    missing: tuple[str, ...] = ()
    """Traffic whose floor could not be computed because the file of the chip has no rate, as in `lines read (L2 reads)`."""
    chip: str = ""

    @property
    def limited_by(self) -> str:
        """Return the name of the longest floor if it takes at least `RULING_SHARE` of the time, else `latency`."""
        return self.floors[0].name if self.floors and self.floors[0].cycles >= RULING_SHARE * self.cycles else LATENCY

    @property
    def short(self) -> str:
        """Describe in a few words what limited the launch."""
        return f"limited by {self.limited_by}" + (f", {plural(len(self.missing), 'limit')} not known" if self.missing else "")

    def sentence(self, clock_mhz: float) -> str:
        """Describe the time, what limited it, and which limits are not known."""

        def time(cycles: float) -> str:
            return duration(1e3 * cycles / clock_mhz)

        first = self.floors[0] if self.floors else None
        if first is None:
            parts = [f"{time(self.cycles)}, limited by latency: no sectors or wavefronts were moved"]
        elif self.limited_by == LATENCY:
            share = percent(first.cycles / max(self.cycles, 1))
            parts = [f"{time(self.cycles)}, limited by latency; the busiest part, {first.name}, needs {share} of that time ({first.moved})"]
        else:
            rest = f"; without this limit {time(self.scoreboard)}" if self.scoreboard < self.cycles else ""
            parts = [f"{time(self.cycles)}, limited by {first.name} ({first.moved}{rest})"]
        if self.missing:
            parts.append(f"not all limits are known: the file of {self.chip} has no rate for {', '.join(self.missing)}")
        return "; ".join(parts)


def modelled_time(chip: Chip, scoreboard: int, traffic: Traffic) -> ModelledTime:
    """Return the time of a launch whose warps took `scoreboard` cycles: at least its longest floor."""
    found, missing = [], []
    for one in (*_of_dram(chip, traffic), *_of_l2(chip, traffic), *_of_lsu(traffic)):
        if isinstance(one, str):
            missing.append(one)
        elif one.cycles > 0:
            found.append(one)
    found.sort(key=lambda floor: -floor.cycles)
    longest = max([float(scoreboard), *(floor.cycles for floor in found)])
    return ModelledTime(math.ceil(longest), scoreboard, tuple(found), tuple(missing), chip.name)


_Found = Iterator[Floor | str]
"""Floors, and the names of traffic without a known rate."""


def _of_dram(chip: Chip, traffic: Traffic) -> _Found:
    read, write = (rate or chip.dram_gb_per_s for rate in (chip.bandwidth.dram_read, chip.bandwidth.dram_write))
    ns = (traffic.fetched / read + traffic.written_back / write) * SECTOR_BYTES
    moved = (
        f"{plural(traffic.fetched, 'sector')} read at {rounded(read)} GB/s and {traffic.written_back:,} written at {rounded(write)} GB/s"
    )
    yield Floor("DRAM", ns * chip.clock_mhz / 1000, moved)


_L2: dict[str, tuple[tuple[tuple[str, str, str], ...], ...]] = {
    L2_READS: ((("read", "read", "sectors read"),), (("read_lines", "read_lines", "lines read"),)),
    "L2 writes": (
        (
            ("written", "write", "sectors written"),
            ("partly_written", "partial_write", "sectors written in part"),
            ("atomic", "atomic", "sectors of atomics"),
        ),
        (
            ("written_lines", "write_lines", "lines written"),
            ("partly_written_lines", "partial_write_lines", "lines written in part"),
        ),
    ),
}
"""Limits of each direction, each a sum of amounts over rates. Triples hold the names in `Traffic` and in `Bandwidth`, and words for it."""


def _of_l2(chip: Chip, traffic: Traffic) -> _Found:
    for name, limits in _L2.items():
        yield from _direction(chip, traffic, name, "l2", limits)
        yield from _direction(chip, traffic, f"{name} of one SM", "sm", limits)
    if traffic.hottest:
        name, rate = ATOMICS_OF_ONE_LINE, chip.bandwidth.line_atomic
        yield (
            name
            if rate is None
            else Floor(
                name, traffic.hottest / rate, f"{plural(traffic.hottest, 'sector')} requested from the busiest line at {rate:g} per clock"
            )
        )


def _direction(
    chip: Chip, traffic: Traffic, name: str, where: Literal["l2", "sm"], limits: Sequence[Sequence[tuple[str, str, str]]]
) -> _Found:
    """Yield the longest floor of one direction among those with known rates, and the names of traffic without a rate."""
    known = []
    for limit in limits:
        moved = [(counted, chip.bandwidth.rate(where, way), words) for counted, way, words in limit if traffic.total(counted)]
        lacking = [words for _, rate, words in moved if rate is None]
        yield from (f"{words} ({name})" for words in lacking)
        rated = [(counted, rate, words) for counted, rate, words in moved if rate is not None]
        if rated and not lacking:
            known += [_sum(name, rated, amounts) for amounts in _amounts(traffic, where, [counted for counted, _, _ in rated])]
    if known:
        yield max(known, key=lambda floor: floor.cycles)


def _amounts(traffic: Traffic, where: Literal["l2", "sm"], names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the counts called `names`: one tuple for the whole chip, or one for each multiprocessor."""
    if where == "l2":
        return [tuple(traffic.total(name) for name in names)]
    return list(zip(*(traffic.sms[name] for name in names), strict=True))


def _sum(name: str, rated: Sequence[tuple[str, float, str]], amounts: Sequence[int]) -> Floor:
    pairs = [(amount, rate, words) for amount, (_, rate, words) in zip(amounts, rated, strict=True) if amount]
    told = " and ".join(f"{amount:,} {words} at {rate:g} per clock" for amount, rate, words in pairs)
    return Floor(name, sum(amount / rate for amount, rate, _ in pairs), told)


def _of_lsu(traffic: Traffic) -> _Found:
    most, cycles = max(traffic.sms["wavefronts"], default=0), traffic.wavefront_cycles
    yield Floor("LSU of one SM", float(most * cycles), f"{plural(most, 'wavefront')} of {plural(cycles, 'clock')}")

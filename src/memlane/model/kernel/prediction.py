"""Predict the time of a launch: until its last block ends by the clock layer, where accesses queue for shared resources, plus the launch
overhead.

The busy time of each part is a lower bound. Only atomic operations do not queue in the clock layer: those at one place are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memlane.chip import Chip
from memlane.model.kernel.memory import CONTENDED_ATOMICS, FABRIC, shared_parts
from memlane.model.kernel.multiprocessor import Part, Sampled, parts_of, whole_cycles
from memlane.number_format import duration, percent, plural

LIMITING_SHARE = 0.6
"""Minimum busy share of the time for a part to count as the limiter; below it, latency limits, as in Nsight Compute's guide."""
ELAPSED_CYCLES, ACTIVE_CYCLES = 3200, 500
"""Cycles that Nsight Compute counts in addition to those of a launch here, before the first block starts and after the last ends, and those
of them in which a multiprocessor is active, by `launches` and `bank conflicts` in benchmarks/results/h200/predict_measured.json."""
LATENCY = "latency"
BLOCKS = "beginning of blocks"
WARPS = "warps"
NOT_MODELLED = (
    "descriptors of arrays and bulk prefetches",
    "texture caches",
    "TLBs, and conflicts in the rows and banks of DRAM",
    "instruction fetch",
)
GROUPS: Mapping[str, str] = {"issue slots": "SM", "barriers": "SM", "L1 and shared memory": "L1", "L2": "L2", "DRAM": "DRAM"}
"""Part -> Nsight Compute's throughput unit; all pipes belong to SM, all parts of L2 to L2."""


@dataclass(frozen=True)
class Wait:
    """A cause of stalls, with its share of the warps' time."""

    cause: str
    """`global memory`, `shared memory`, ... of the instruction that produces the awaited result; `issue slots and pipes`; `instructions`;
    `barriers and branches`."""
    place: str
    """Source line of that instruction, such as `transpose.cu:18`; empty if there is none, or several."""
    share: float
    """Share of the time of all warps."""


@dataclass(frozen=True)
class Prediction:
    """Predicted duration of a launch on a chip with warm caches, with its explanation."""

    chip: str
    us: float
    """Time between two events around the launch, in us."""
    cycles: float
    """Cycles of the launch itself."""
    launch_us: float
    """Overhead of the events and of the launch's start, in us."""
    warps_cycles: float
    """Cycles that the warps of a multiprocessor take by themselves: stalls, issue slots, pipes and wavefronts."""
    parts: tuple[Part, ...]
    """Busy cycles of each part of the chip, the longest first."""
    spread_us: float = 0.0
    """Standard deviation over windows of the sample; 0 if all blocks ran."""
    share: float = 1.0
    """Share of the blocks that ran for the prediction."""
    missing: tuple[str, ...] = ()
    """Rates missing in the chip file."""
    assumed: tuple[str, ...] = ()
    """Assumed rates of the chip file, neither measured nor published, as names of its entries: `bandwidth.l2_read`."""
    rates: int = 0
    """Number of rates in the chip file."""
    throughputs: Mapping[str, float] = field(default_factory=dict)
    """Throughputs of `SM`, `L1`, `L2` and `DRAM` as in Nsight Compute, 1 for the maximum. Block starts belong to none."""
    moved_bytes: float = 0.0
    """Bytes moved between the multiprocessors and L2."""
    kernel: str = ""
    not_sampled: str = ""
    """Why all blocks ran instead of a sample, as a clause; empty otherwise."""
    waits: tuple[Wait, ...] = ()
    """Causes of the warps' stalls, the longest first."""

    @property
    def group(self) -> str:
        """The limiter in Nsight Compute's terms: the unit with the highest throughput, or `latency` if none exceeds 60 %."""
        busiest = max(self.throughputs, key=lambda name: self.throughputs[name], default=LATENCY)
        return busiest if self.throughputs.get(busiest, 0.0) >= LIMITING_SHARE else LATENCY

    @property
    def doubts(self) -> list[str]:
        """Rates that the chip file lacks, and how many of its rates are assumed, in a sentence each."""
        lines = [f"the file of {self.chip} has no rate for {', '.join(self.missing)}"] if self.missing else []
        if self.assumed:
            lines.append(f"{len(self.assumed)} of the {plural(self.rates, 'rate')} in the file of {self.chip} are assumed, not measured")
        return lines

    @property
    def limiting(self) -> str:
        """The limiter: the busiest part, or `latency` if none is busy for `LIMITING_SHARE` of the time."""
        busiest = next((part for part in self.parts if part.name != FABRIC), None)
        return busiest.name if busiest is not None and busiest.cycles >= LIMITING_SHARE * self.cycles else LATENCY

    def __str__(self) -> str:
        """Describe the time, the limiter, the load of each part and the warps' stalls."""
        name = f"{self.kernel}: " if self.kernel else ""
        lines = [f"{name}{duration(1e3 * self.us)} (predicted for {self.chip}, limited by {self.limiting})"]
        lines += [
            f"  {part.name}: busy {percent(self.utilization(part))}" + (f", {part.moved}" if part.moved else "") for part in self.parts
        ]
        lines += [f"  warps: {percent(one.share)} {one.cause}{f', {one.place}' if one.place else ''}" for one in self.waits]
        if self.not_sampled:
            lines.append(f"  all blocks ran, {self.not_sampled}")
        if self.share < 1:
            spread = duration(1e3 * self.spread_us)
            lines.append(f"  {percent(self.share)} of the blocks ran; predictions from parts of this sample differ by +-{spread}")
        return "\n".join([*lines, *(f"  {one}" for one in self.doubts)])

    def utilization(self, part: Part) -> float:
        """Return the busy share of a part."""
        return part.cycles / self.cycles if self.cycles else 0.0


def predicted(chip: Chip, sampled: Sampled) -> Prediction:
    """Predict the time of a launch from its events in the clock layer, or from those of a sample of its blocks."""
    warps, spread = whole_cycles(chip, sampled.events)
    shared, missing = shared_parts(chip, sampled), []
    blocks = None if chip.bandwidth.blocks is None else sampled.events.blocks / chip.bandwidth.blocks
    if blocks is None:
        missing.append("blocks that begin")
    at_one_place = sum(part.cycles for part in shared.parts if part.name == CONTENDED_ATOMICS)
    together = max([warps, *(part.cycles for part in shared.parts if part.name not in (FABRIC, CONTENDED_ATOMICS))]) + at_one_place
    launch_us = chip.links.event_us
    if launch_us is None:
        launch_us = chip.links.launch_us or 0.0
        missing.append("what a launch takes between events")
    parts = [
        *parts_of(chip, sampled),
        *shared.parts,
        *([] if blocks is None else [Part(BLOCKS, blocks, f"{sampled.events.blocks:,} blocks")]),
    ]
    parts.sort(key=lambda part: -part.cycles)
    us = launch_us + together / chip.clock_mhz
    busy = tuple(part for part in parts if part.cycles > 0)
    rates = [name for name in chip.facts if name.startswith("bandwidth.") or name == "links.event_us"]
    return Prediction(
        chip.name,
        us,
        together,
        launch_us,
        warps,
        busy,
        spread / chip.clock_mhz,
        sampled.events.fraction,
        (*shared.missing, *missing),
        tuple(name for name in chip.assumed if name in rates),
        len(rates),
        _throughputs(chip, busy, together, shared.seen_dram),
        shared.moved_bytes,
    )


def _throughputs(chip: Chip, parts: Sequence[Part], cycles: float, seen_dram: float) -> dict[str, float]:
    """Return the throughputs of the chip's units as in Nsight Compute.

    They refer to its elapsed time, for L1 to the active time of the multiprocessors, for DRAM to the rated bandwidth and to the share of
    its bytes that are moved during the launch.
    """
    rated = seen_dram * (chip.bandwidth.dram_mixed or chip.dram_gb_per_s) / chip.dram_gb_per_s
    found = dict.fromkeys(("SM", "L1", "L2", "DRAM"), 0.0)
    for part in parts:
        group = GROUPS.get(part.name) or ("SM" if part.name.endswith("pipe") else "L2")
        if part.name not in (BLOCKS, CONTENDED_ATOMICS):
            elapsed = cycles + (ACTIVE_CYCLES if group == "L1" else ELAPSED_CYCLES)
            found[group] = max(found[group], part.cycles * (rated if group == "DRAM" else 1.0) / elapsed)
    return {group: min(1.0, share) for group, share in found.items()}

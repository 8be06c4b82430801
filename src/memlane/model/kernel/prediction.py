"""The time of a launch: until its last block ends by the clock layer, in which accesses queue for what all multiprocessors share, and what
every launch takes besides.

What a part is busy for bounds the time from below. Only atomic operations have no queue in the clock: those at one place are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memlane.chip import Chip
from memlane.model.kernel.memory import AT_ONE_PLACE, FABRIC, shared_parts
from memlane.model.kernel.multiprocessor import Part, Sampled, parts_of, whole_cycles
from memlane.number_format import duration, percent

LIMITING_SHARE = 0.6
"""Of the time, for which a part has to be busy to be called the one that limits; below that, latency does, as Nsight Compute's guide
says."""
ELAPSED_CYCLES, ACTIVE_CYCLES = 3200, 500
"""Cycles that Nsight Compute counts besides those that a launch takes here: until the first block begins and after the last has ended, and
those of them in which a multiprocessor is busy, by `launches` and `bank conflicts` in benchmarks/results/h200/predict_measured.json."""
LATENCY = "latency"
BLOCKS = "beginning of blocks"
WARPS = "warps"
NOT_MODELLED = (
    "bulk copies and the tensor memory accelerator",
    "texture caches",
    "TLBs, and conflicts in the rows and banks of DRAM",
    "instruction fetch",
)
GROUPS: Mapping[str, str] = {"issue slots": "SM", "barriers": "SM", "L1 and shared memory": "L1", "L2": "L2", "DRAM": "DRAM"}
"""Parts by what Nsight Compute calls the throughput that they belong to; pipes belong to SM, all of L2 to L2."""


@dataclass(frozen=True)
class Wait:
    """What the warps of a launch spent a share of their time on."""

    cause: str
    """`global memory`, `shared memory`, ... of the instruction whose result is waited for; `issue slots and pipes`; `instructions`;
    `barriers and branches`."""
    place: str
    """The source line of that instruction, `transpose.cu:18`; empty where there is none, or many."""
    share: float
    """Of the time of all warps."""


@dataclass(frozen=True)
class Prediction:
    """How long a launch would take on a chip with warm caches, and why."""

    chip: str
    us: float
    """Between two events around the launch."""
    cycles: float
    """Of the launch itself."""
    launch_us: float
    """What the events and the start of the launch take."""
    warps_cycles: float
    """What the warps of a multiprocessor take for themselves: waiting, issue slots, pipes and wavefronts."""
    parts: tuple[Part, ...]
    """For how long each part of the chip is busy; the longest first."""
    spread_us: float = 0.0
    """Standard deviation between parts of the sample; 0 where all blocks ran."""
    share: float = 1.0
    """Of the blocks that ran for this."""
    missing: tuple[str, ...] = ()
    """Rates that the file of the chip lacks."""
    throughputs: Mapping[str, float] = field(default_factory=dict)
    """Of `SM`, `L1`, `L2` and `DRAM`, as Nsight Compute would show it, 1 being all. Blocks that begin are none of these."""
    moved_bytes: float = 0.0
    """Between the multiprocessors and L2."""
    kernel: str = ""
    not_sampled: str = ""
    """Why all blocks ran where a sample would have stood for them, as a clause; empty otherwise."""
    waits: tuple[Wait, ...] = ()
    """What the warps spent their time on; the longest first."""

    @property
    def group(self) -> str:
        """What limits in the words of Nsight Compute: the unit with the highest throughput, or `latency` where none is above 60 %."""
        busiest = max(self.throughputs, key=lambda name: self.throughputs[name], default=LATENCY)
        return busiest if self.throughputs.get(busiest, 0.0) >= LIMITING_SHARE else LATENCY

    @property
    def limiting(self) -> str:
        """The part that limits: the busiest one, or `latency` where none is busy for `LIMITING_SHARE` of the time."""
        busiest = self.parts[0] if self.parts else None
        return busiest.name if busiest is not None and busiest.cycles >= LIMITING_SHARE * self.cycles else LATENCY

    def __str__(self) -> str:
        """The time, what limits it, what each part of the chip does, and what the warps wait for."""
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
            lines.append(f"  {percent(self.share)} of the blocks ran; parts of this sample differ by +-{spread}")
        lines += [f"  the file of {self.chip} has no rate for {', '.join(self.missing)}"] if self.missing else []
        return "\n".join(lines)

    def utilization(self, part: Part) -> float:
        """The share of the time for which a part is busy."""
        return part.cycles / self.cycles if self.cycles else 0.0


def predicted(chip: Chip, sampled: Sampled) -> Prediction:
    """Predict the time of a launch from what the clock layer saw of it, or of a sample of its blocks."""
    warps, spread = whole_cycles(chip, sampled.events)
    shared, missing = shared_parts(chip, sampled), []
    blocks = None if chip.bandwidth.blocks is None else sampled.events.blocks / chip.bandwidth.blocks
    if blocks is None:
        missing.append("blocks that begin")
    at_one_place = sum(part.cycles for part in shared.parts if part.name == AT_ONE_PLACE)
    together = max([warps, *(part.cycles for part in shared.parts if part.name not in (FABRIC, AT_ONE_PLACE))]) + at_one_place
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
        _throughputs(chip, busy, together),
        shared.moved_bytes,
    )


def _throughputs(chip: Chip, parts: Sequence[Part], cycles: float) -> dict[str, float]:
    """The throughputs of the chip's units, as Nsight Compute has them: of the time that it measures, but those of L1 of the time in which
    the multiprocessors are busy, and DRAM's of its rated bandwidth."""
    rated = (chip.bandwidth.dram_mixed or chip.dram_gb_per_s) / chip.dram_gb_per_s
    found = dict.fromkeys(("SM", "L1", "L2", "DRAM"), 0.0)
    for part in parts:
        group = GROUPS.get(part.name) or ("SM" if part.name.endswith("pipe") else "L2")
        if part.name not in (BLOCKS, AT_ONE_PLACE):
            elapsed = cycles + (ACTIVE_CYCLES if group == "L1" else ELAPSED_CYCLES)
            found[group] = max(found[group], part.cycles * (rated if group == "DRAM" else 1.0) / elapsed)
    return {group: min(1.0, share) for group, share in found.items()}

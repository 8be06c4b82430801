"""Does the trace say how long a memory access takes?

Question 1: alone. One warp follows a ring of absolute 64-bit addresses in shared memory, L1, L2 and DRAM. The truth is the chain average
of the kernel as it was compiled, without a probe: the cycles between two clock reads around the whole walk, the second ordered after the
last value, divided by the number of loads. The trace of the same kernel over the same addresses in the same round gives one record for
each load; their mean, less the empty window of the scheme (`lab/latency/window.py`), should be the truth. One round is: empty the L2 where
DRAM is to answer, walk without probes, then the same with each scheme, beginning with another one each time. Ten rounds, on ten stretches
of the ring; intervals are 95 % of the mean over rounds, from its standard error.

The loads of the chase follow each other as closely as the records allow. A further row, `dependent after a pause`, has some 200 cycles of
arithmetic between the record and the next probe, which is outside the window and not in the truth: it asks whether the clock reads are
right, the others what they say right behind a record. The window is the chain of operations extrapolated to length 0.

Prediction, from single measurements that led to the design: `dependent` reads 27 / 36 / 287 / 705 cycles against 23.7 / 34.3 / 283 / 713,
within 5 cycles or 2 % everywhere, with and without the pause. `consume` is as good or better. `simple` and `paper` end when the access has
been issued, and begin before its address is there: in shared memory and L1 they read a few cycles, in L2 and DRAM the wait for the access
*before*, less the work between the two. That looks like a latency and is none. (On this chip the fence of `paper` does not wait; 2012's
did.)

Question 2: under load. As many warps as fit walk at once, each lane on its own word (8 sectors a request). Little's law: the mean time in
the system times the rate of arrivals is the mean number inside. It holds as an identity if all three numbers are taken from the
same intervals, so they are not: the time is the mean of `end - start` over the records; the rate comes from geometry and other clocks (the
loads which the launch makes on an SM by construction, over the time between the first and the last clock read of the kernel itself on that
SM); the number inside is sampled from the records, at instants on each SM's clock. What this can refute: records that are lost, doubled,
filed under another warp, SM or clock, or stamped outside their warp's walk. What it cannot: two stamps of one record that are late by the
same time; question 1 is for that. A second row, without a reach, sets the recorded mean under load beside the chain average under load of
the kernel without probes, in which every warp has exactly one load outstanding at any time: the probe itself changes the load, because
between two loads of a warp it writes a record.

Prediction: within 1 % where nothing is lost.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from chase import BLOCK, LEVELS, QUICK_LEVELS, Chase, Level, read_times
from harness import Row
from probing import recorded
from running import failed, measure, parser

from memlane.instrument import SCHEMES, Decoded
from memlane.lab.latency.window import FILLERS, ONE_OPERATION, SWITCHED_OFF, extrapolated, scheduled_window, with_fillers, with_pauses
from memlane.launch import DeviceArray, Launch
from memlane.measure.instrumented_module import InstrumentedModule
from memlane.targets import target

SOURCES = [
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/measure",
    "src/memlane/ptx",
    "src/memlane/driver",
    "benchmarks/accuracy.py",
    "benchmarks/chase.py",
    "src/memlane/lab/probing.py",
    "src/memlane/lab/latency/places.py",
    "src/memlane/lab/latency/window.py",
    "benchmarks/kernels/chase.cu",
]
ROUNDS = 10
REACH_CYCLES, REACH_SHARE = 5.0, 0.02
PAUSED = "dependent after a pause"
LOAD_STEPS = 96
LITTLE_REACH = 0.10


# -- alone ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Walks:
    """The mean time of one load for each round at one level."""

    truth: list[float] = field(default_factory=list)
    recorded: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def chain_average(times: DeviceArray, steps: int) -> float:
    """Return the cycles of one load of a walk that has just been launched, by the kernel's own clock reads."""
    walked = read_times(times)[0]
    return float(int(walked["end"]) - int(walked["begin"])) / steps


def mean_cycles(seen: Decoded, expected: int) -> float:
    """Return the mean of end - start. Raises if a record is missing, because the mean would then not be over all loads."""
    records = seen.records
    if seen.lost or len(records) != expected:
        raise RuntimeError(f"{len(records)} records for {expected} loads, {seen.lost} lost")
    return float((records["end"] - records["start"]).mean())


def walk_alone(chase: Chase, level: Level, probed: dict[str, InstrumentedModule], rounds: int) -> Walks:
    """Run the rounds of one level.

    The first walk of a round finds fewer address translations cached, so each round begins with another scheme. The first round does not
    count.
    """
    ring, walks = chase.ring(level), Walks(recorded={scheme: [] for scheme in probed})
    walkers: list[str | None] = [None, *probed]
    for number in range(-1, rounds):
        launch, times = chase.launch(level, ring, (number + 1) * level.steps)
        first = number % len(walkers)
        for scheme in [*walkers[first:], *walkers[:first]]:
            if scheme in walks.notes:
                continue
            chase.prepare(level)
            try:
                mean = _walk(launch, times, level.steps, None if scheme is None else probed[scheme])
            except Exception as error:
                if scheme is None:
                    raise
                walks.notes[scheme] = f"{type(error).__name__}: {error}"
                continue
            if number >= 0:
                (walks.truth if scheme is None else walks.recorded[scheme]).append(mean)
    return walks


def _walk(launch: Launch, times: DeviceArray, steps: int, probed: InstrumentedModule | None) -> float:
    """Return the mean cycles of one load: from the kernel's own clock reads without probes, from the records with them."""
    if probed is not None:
        return mean_cycles(recorded(launch, probed, steps), steps)
    launch.kernel.target.launch(launch)
    return chain_average(times, steps)


_NAMES = {SWITCHED_OFF: "switched off", ONE_OPERATION: "one operation"}


@dataclass(frozen=True)
class Window:
    """The empty window of a scheme, in cycles, and what it was made of."""

    cycles: float
    records: dict[int, float]
    """Mean record by filler of `memlane.lab.latency.window`."""
    scheduled: tuple[int, int]
    """The least and the most cycles by the control words of the assembled code."""

    def __str__(self) -> str:
        names = [f"{_NAMES.get(filler, f'chain of {filler}')} {mean:.2f}" for filler, mean in self.records.items()]
        return f"{', '.join(names)}; {self.cycles:.2f} at length 0, {self.scheduled[0]} to {self.scheduled[1]} by the control words"


def windows(chase: Chase, level: Level, probed: dict[str, InstrumentedModule]) -> dict[str, Window]:
    """Return the windows by scheme, from the mean records of the fillers, after a first run of each that does not count."""
    ring = chase.ring(level)
    launch, _ = chase.launch(level, ring, 0)
    found: dict[str, Window] = {}
    for scheme, twin in probed.items():
        records = {}
        try:
            for filler in FILLERS:
                empty = with_fillers(twin, launch.kernel.name, filler)
                recorded(launch, empty, level.steps)
                records[filler] = mean_cycles(recorded(launch, empty, level.steps), level.steps)
        except Exception as error:
            print(f"no window of {scheme}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        major, minor = chase.target.chip.compute_capability
        found[scheme] = Window(extrapolated(records), records, scheduled_window(twin, launch.kernel.name, f"sm_{major}{minor}"))
    return found


def accuracy_row(level: Level, scheme: str, walks: Walks, window: Window | None) -> Row:
    """Return a row of the mean recorded time minus the window against the truth, for one scheme at one level."""
    case = f"{scheme}, {level.name}"
    if scheme in walks.notes or window is None:
        return failed(case, walks.notes.get(scheme, "no empty window could be measured"))
    empty = window.cycles
    errors = [mean - empty - truth for mean, truth in zip(walks.recorded[scheme], walks.truth, strict=True)]
    truth, mean, error = (statistics.fmean(values) for values in (walks.truth, walks.recorded[scheme], errors))
    reach = max(REACH_CYCLES, REACH_SHARE * truth) if scheme.startswith("dependent") else None
    peer = {"truth": truth, "truth, half interval": half_interval(walks.truth), "recorded": mean, "window": empty}
    peer |= {"net": mean - empty, "error": error, "error, half interval": half_interval(errors), "error, %": 100 * error / truth}
    note = f"{len(errors)} rounds of {level.steps} loads; window from: {window}"
    return Row(case, "error of the mean", abs(error), "cycles", reach, peer=rounded(peer), note=note)


def half_interval(values: Sequence[float]) -> float:
    """Return half the 95 % interval of the mean, from the standard error."""
    return 1.96 * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items() if not math.isnan(value)}


def alone(level: Level, options: argparse.Namespace) -> list[Row]:
    """Run all schemes at one level."""
    chase = Chase(target(options.target), (8 << 20) if options.quick else (512 << 20))
    # Where a window closes in front of the consumer, what is recorded is no latency of the access alone.
    probed = {name: chase.probed(name) for name, scheme in SCHEMES.items() if scheme.deferred is None}
    kernel = chase.launch(level, None if level.name == "shared" else chase.ring(level), 0)[0].kernel.name
    probed[PAUSED] = with_pauses(chase.loaded, kernel, chase.options("dependent"))
    walks = walk_alone(chase, level, probed, 2 if options.quick else ROUNDS)
    found = windows(chase, next(one for one in levels(options) if one.name == ("shared" if level.name == "shared" else "L1")), probed)
    return [accuracy_row(level, scheme, walks, found.get(scheme)) for scheme in probed]


# -- under load ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """The three numbers of Little's law on one SM, in cycles of its clock."""

    latency: float
    rate: float
    """Loads for each cycle."""
    outstanding: float


def loads_by_sm(records: npt.NDArray[np.void], walked: npt.NDArray[np.void], steps: int, samples: int = 2000) -> list[Load]:
    """Apply Little's law on each SM. `records`: with the fields sm, start, end. `walked`: clock reads of the same launch's warps."""
    sms, starts, ends = records["sm"], records["start"], records["end"]
    found = []
    for sm in np.unique(walked["sm"]):
        warps, own = walked[walked["sm"] == sm], sms == sm
        first, last = int(warps["begin"].min()), int(warps["end"].max())
        instants = np.linspace(first, last, samples, endpoint=False) + (last - first) / samples / 2
        began = np.searchsorted(np.sort(starts[own]), instants, side="right")
        ended = np.searchsorted(np.sort(ends[own]), instants, side="right")
        latency = float((ends[own] - starts[own]).mean())
        found.append(Load(latency, len(warps) * steps / (last - first), float((began - ended).mean())))
    return found


def loaded(level: Level, options: argparse.Namespace) -> list[Row]:
    """Apply Little's law to `dependent` at one level with all SMs occupied."""
    chase = Chase(target(options.target), (8 << 20) if options.quick else (512 << 20))
    steps = 8 if options.quick else LOAD_STEPS
    twin = chase.probed("dependent")
    ring = chase.ring(level)
    launch, _ = chase.launch(level, ring, 0)
    resident = chase.target.resident_blocks(twin.loaded[launch.kernel.name], BLOCK, launch.shared_bytes)
    blocks = 2 if options.quick else resident * chase.target.chip.sm_count
    launch, times = chase.launch(level, ring, 0, steps=steps, warps=blocks * BLOCK // 32)
    chase.prepare(level)
    chase.target.launch(launch)
    walked = read_times(times)
    unprobed = float((walked["end"] - walked["begin"]).mean()) / steps
    chase.prepare(level)
    seen = recorded(launch, twin, steps)
    walked = read_times(times)
    found = loads_by_sm(seen.records, walked, steps)
    deviations = [abs(one.latency * one.rate / one.outstanding - 1) for one in found]
    latency = float((seen.records["end"] - seen.records["start"]).mean())
    peer = {
        "mean latency, cycles": latency,
        "loads per cycle and SM": statistics.fmean(one.rate for one in found),
        "latency x rate": statistics.fmean(one.latency * one.rate for one in found),
        "outstanding per SM": statistics.fmean(one.outstanding for one in found),
        "warps per SM": len(walked) / len(found),
        "worst SM, %": 100 * max(deviations),
    }
    note = f"{len(found)} SMs, {len(seen.records)} records, {seen.lost} lost"
    case = f"under load, {level.name}"
    return [
        Row(case, "Little's law, mean deviation", statistics.fmean(deviations), "share", LITTLE_REACH, peer=rounded(peer), note=note),
        Row(case, "recorded mean over chain average without probes", latency / unprobed, "ratio", peer=rounded({"unprobed": unprobed})),
    ]


# -- the benchmark -------------------------------------------------------------------------------------------------------------


def levels(options: argparse.Namespace) -> tuple[Level, ...]:
    return QUICK_LEVELS if options.quick else LEVELS


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    kind, _, wanted = name.partition(", ")
    level = next(level for level in levels(options) if level.name == wanted)
    return alone(level, options) if kind == "alone" else loaded(level, options)


def main() -> None:
    options = parser(__doc__).parse_args()
    names = [f"alone, {level.name}" for level in LEVELS] + [f"under load, {name}" for name in ("shared", "L2", "DRAM")]
    measure("accuracy", names, run_case, options)


if __name__ == "__main__":
    main()

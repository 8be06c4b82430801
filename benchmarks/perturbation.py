"""What does tracing change: time, registers, resident blocks, and is anything lost?

Every launch of every example is timed as it is, with probes of the default scheme around all its accesses, with those in one warp of 32,
and with those in all warps of one block of 32, in turn, each between two events of a graph, with the memory put to what it was; ratios are
medians of the paired ratios. The buffer is the one that a user gets. The matrix product is timed with its shared loads alone traced too.
Records and losses come from the timed launches, registers and resident blocks from the assembled code.

The sizes of the examples are those that a reader wants to look at, so most launches last 5 to 10 us and leave the chip half empty. So each
is launched once more with as much work as fills it many times over, without the trace of every access, which would write a gigabyte of
records each round. A sample has reaches for launches of 5 to 10 us and for those over 50 us, whatever they are: in some of them one warp
of 32 is all of the launch, and no sample. Launches of many warps have medians of their own, without reaches.

`--parts` times two samples more, which take no warp and no block: what they cost is the decision and the registers. `--hits` makes each
launch once more each way under Nsight Compute, for the hit rate of the L1 cache.

The last case asks whether what is recorded is still right: a warp follows a ring of addresses in shared memory, L1, L2 and DRAM, traced as
a whole and as the one warp that a sample takes (`accuracy.py` says how the truth is known).

Prediction, from the assembled code and a trial on an H100: no record is lost and no kernel spills. A warp that is not traced made its
decision by 33 instructions, of which two waited for the constants of the trace, and then jumped over the traced body; it makes it by 30
that read none, and goes on (17 for blocks). A traced warp waited for an atomic addition (0.076 of a launch of 5 to 10 us) and does not any
more. So one warp in 32 costs 1.12 in launches of 5 to 10 us (1.23 before; 1.10 to be reached), one block 1.12 (1.21), every access 1.27
(1.35; 1.2 to be reached), the matrix product with all shared loads 2.0 (2.1; 1.8 to be reached). Launches over 50 us: one warp 1.2 and one
block 1.12 (1.26 and 1.22; 1.05 to be reached). There a block waits for its traced warp, and a kernel whose blocks all stay until the end
for the traced one, which no way to begin a warp changes; what the limit of registers changes is `interleaved`, from 1.37 to 1.2. Bias as in
`accuracy.py`, and the same in a sample.

Measured on an H200 on 2026-11-26: right for launches over 50 us (one warp 1.20, one block 1.18, `interleaved` 1.17) and for the bias, but
not for launches of 5 to 10 us (1.24, 1.25, every access 1.40), because what a launch takes besides is in neither time inside a graph.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import perturbation_hits
from accuracy import accuracy_row, walk_alone, windows
from chase import LEVELS, QUICK_LEVELS, Chase
from harness import Row, median_ratio
from replay import each_launch
from running import EXAMPLES, example, example_arguments, failed, measure, parser

from memlane.instrument import Sampling, Selection, TraceOptions
from memlane.launch import Launch
from memlane.measure.arena import Arena
from memlane.measure.instrumented_module import InstrumentedModule, borrow_instrumented, probe
from memlane.measure.memory import Snapshot
from memlane.measure.perturbation import perturbation_of
from memlane.record import Footprint, Perturbation, kernel_label
from memlane.targets import target

SOURCES = [
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/measure",
    "src/memlane/driver",
    "examples",
    "benchmarks/perturbation.py",
    "benchmarks/perturbation_hits.py",
    "benchmarks/replay.py",
    "benchmarks/ncu.py",
]
SCHEME = "dependent"
EVERY = 32
ALL, SAMPLED, SHARED = "every access", f"one warp of {EVERY}", "all shared loads"
BLOCKS = f"one block of {EVERY}"
NONE, NO_BLOCK = "a sample that takes no warp", "a sample that takes no block"
NOTHING = Sampling(every=1 << 30, seed=5)
"""Sample that selects no warp or block of any launch here."""
STAGED = "every access through shared memory"
WAYS = {
    ALL: TraceOptions(SCHEME, tagged=True),
    SAMPLED: TraceOptions(SCHEME, sampling=Sampling(every=EVERY), tagged=True),
    BLOCKS: TraceOptions(SCHEME, sampling=Sampling(every=EVERY, whole_blocks=True), tagged=True),
    NONE: TraceOptions(SCHEME, sampling=NOTHING, tagged=True),
    NO_BLOCK: TraceOptions(SCHEME, sampling=replace(NOTHING, whole_blocks=True), tagged=True),
    SHARED: TraceOptions(SCHEME, Selection(spaces={"shared"}, kinds={"load"}), tagged=True),
    STAGED: TraceOptions(SCHEME, staging="shared", tagged=True),
}
MATRIX_PRODUCT = "matmul"
REACH_ALL, REACH_SHARED = 1.2, 1.8
"""Largest acceptable medians: over all launches of the examples, and for the matrix product with its shared loads traced."""
DURATIONS = {"of 5 to 10 us": (5.0, 10.0, 1.10), "over 50 us": (50.0, float("inf"), 1.05)}
"""Launches by their time without probes, in us, and the reach of a sample's median over them."""
LARGE = "large"
LARGE_SIZES = {
    "copies": 1 << 22,
    "histogram": 1 << 24,
    "matmul": 1024,
    "reduction": 1 << 25,
    "spmv": 1 << 18,
    "stencil": 256,
    "transpose": 4096,
}
"""Arguments of the example scripts, but of the one that is meant for a single warp."""
ROUNDS, LARGE_ROUNDS = 15, 7
MANY_WARPS = 32 * EVERY
"""Launches of so many have a median of their own."""
LOST, TIME = "records lost", "time with probes over time without"
BIAS = "bias"
BIAS_ROUNDS = 5
BIAS_REACHES = {"shared": 1.0, "L1": 1.0, "L2": 2.0, "DRAM": 3.0}


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run all launches of one example."""
    if name == BIAS:
        return bias(options)
    if options.profiled:
        perturbation_hits.launch_each_way(name, options, [WAYS[way] for way in ways_of(name, options)])
        return []
    rows: list[Row] = []
    rates = perturbation_hits.of_example(name, options, len(ways_of(name, options)))

    def visit(number: int, launch: Launch) -> None:
        case = f"{name} {number}: {kernel_label(launch.kernel.title)}"
        rounds = 1 if options.quick else ROUNDS
        rows.extend(rows_of(case, launch, ways_of(name, options), rounds, rates.of(number), options.quick))

    each_launch(example(name), example_arguments(name, options.quick), options.target, visit)
    if name in LARGE_SIZES and options.target.startswith("cuda") and not options.quick:
        rows += large(name, options)
    return [replace(row, note=f"{row.note}; {rates.unknown}") if rates.unknown and row.metric == TIME else row for row in rows]


def large(name: str, options: argparse.Namespace) -> list[Row]:
    """Run all launches of one example at a large size."""
    rows: list[Row] = []
    ways = [way for way in ways_of(name, options) if way not in (ALL, SHARED, STAGED)]

    def visit(number: int, launch: Launch) -> None:
        case = f"{name} {number}, {LARGE}: {kernel_label(launch.kernel.title)}"
        rows.extend(rows_of(case, launch, ways, LARGE_ROUNDS, (), quick=False))

    each_launch(example(name), [str(LARGE_SIZES[name])], options.target, visit)
    return rows


def ways_of(name: str, options: argparse.Namespace) -> list[str]:
    parts = [NONE, NO_BLOCK, *([STAGED] if name in (MATRIX_PRODUCT, "copies") else [])]
    return [ALL, SAMPLED, BLOCKS, *([SHARED] if name == MATRIX_PRODUCT else []), *(parts if options.parts else [])]


@dataclass(frozen=True)
class Timed:
    """A launch with one kind of probes, timed."""

    times: list[float]
    """Times in ns, one for each round."""
    records: int
    lost: int
    """Records that the last round lost."""
    change: Perturbation


def timed(launch: Launch, ways: Sequence[str], rounds: int) -> tuple[list[float], list[Timed]]:
    """Time a launch without probes and with each kind of probes, in turn. The first round does not count."""
    device, before = launch.kernel.target, Snapshot(launch)
    sent: list[tuple[Launch, Arena | None, InstrumentedModule | None]] = [(launch, None, None)]
    times: list[list[float]] = [[] for _ in range(1 + len(ways))]
    with ExitStack() as borrowed:
        for way in ways:
            probed = borrowed.enter_context(borrow_instrumented(launch.kernel.loaded, WAYS[way]))
            arena = Arena(probed, None)
            borrowed.callback(arena.close)
            room = arena.make_room(replace(launch, runs_once=True))  # Once for each time that the buffer is emptied.
            probed.twin.copy_constants()
            sent.append((probed.twin_of(launch, first=room.first), arena, probed))
        for turn in range((0 if device.modelled else 1) + rounds):
            for (one, arena, _), samples in zip(sent, times, strict=True):
                if arena is not None:
                    arena.discard()
                before.restore()  # Last, so that each launch finds its arrays in the caches alike.
                [found] = device.time_launches([one])
                if turn or device.modelled:
                    samples.append(found.elapsed_ns)
        before.restore()
        results = []
        for (_, arena, probed), samples in zip(sent[1:], times[1:], strict=True):
            assert arena is not None
            assert probed is not None
            decoded = arena.collect()
            records, lost = sum(len(one.records) for one in decoded), sum(one.lost for one in decoded)
            results.append(Timed(samples, records, lost, perturbation_of(launch, probed)))
    return times[0], results


def rows_of(case: str, launch: Launch, ways: Sequence[str], rounds: int, rates: Sequence[float], quick: bool) -> list[Row]:
    """Return rows for each kind of probes: losses, and the ratio of times with other changes. `rates`: hit rates of one launch."""
    try:
        plain, results = timed(launch, ways, rounds)
    except Exception as error:
        return [failed(case, f"{type(error).__name__}: {error}")]
    rows = []
    for number, (way, one) in enumerate(zip(ways, results, strict=True)):
        ratio, low, high = median_ratio(one.times, plain)
        microseconds = {
            label: round(statistics.median(each) / 1e3, 2) for label, each in (("original, us", plain), ("traced, us", one.times))
        }
        hits = {"L1 hits, %, original": rates[0], "L1 hits, %, traced": rates[1 + number]} if rates else {}
        warps, records = float(launch.blocks * launch.warps_per_block), float(one.records)
        peer = {"warps": warps, "records": records, **microseconds, **hits, **footprints(one.change)}
        note = f"{rounds} rounds, 10 % to 90 %: {low:.2f} to {high:.2f}"
        lost = "the buffer was full" if one.lost else ""
        rows.append(Row(f"{case}, {way}", LOST, float(one.lost), "records", 0.0, peer={"records": records}, note=lost))
        reach = REACH_SHARED if way == SHARED and not quick else None
        rows.append(Row(f"{case}, {way}", TIME, round(ratio, 3), "ratio", reach, peer=peer, note=note))
    return rows


def footprints(found: Perturbation) -> dict[str, float]:
    """Return registers, local memory and resident blocks without and with probes, if there is assembled code."""
    if found.plain is None or found.probed is None:
        return {}
    return _named("original", found.plain) | _named("traced", found.probed)


def _named(which: str, footprint: Footprint) -> dict[str, float]:
    numbers = {
        "registers": footprint.registers,
        "local bytes": footprint.local_bytes,
        "blocks": footprint.resident_blocks,
    }
    return {f"{name}, {which}": float(value) for name, value in numbers.items()}


def medians(rows: Sequence[Row], quick: bool) -> list[Row]:
    """Return medians over all launches of the examples, over those of each duration, and over those of many warps."""
    found = []
    ratios = [row for row in rows if row.metric == TIME and row.value is not None]
    for way in (ALL, SAMPLED, BLOCKS, NONE, NO_BLOCK):
        every = [row for row in ratios if row.case.endswith(f", {way}")]
        small = [row for row in every if f", {LARGE}: " not in row.case]
        found += median_of(f"median of the examples, {way}", small, REACH_ALL if way == ALL and not quick else None)
        for duration, (low, high, reach) in DURATIONS.items():
            alike = [row for row in every if low <= row.peer["original, us"] <= high]
            has_reach = way in (SAMPLED, BLOCKS) and not quick
            found += median_of(f"median of the launches {duration}, {way}", alike, reach if has_reach else None)
            many = [row for row in alike if row.peer["warps"] >= MANY_WARPS]
            found += median_of(f"median of the launches {duration} with {MANY_WARPS:,} warps or more, {way}", many, None)
    return found


def median_of(case: str, rows: Sequence[Row], reach: float | None) -> list[Row]:
    ratios = sorted(row.value for row in rows if row.value is not None)
    if not ratios:
        return []
    note = f"{len(ratios)} launches, from {ratios[0]:.3g} to {ratios[-1]:.3g}"
    return [Row(case, TIME, round(statistics.median(ratios), 3), "ratio", reach, note=note)]


def bias(options: argparse.Namespace) -> list[Row]:
    """Return the error of a recorded time, of a warp in a launch that is traced as a whole and of one that a sample takes."""
    chase = Chase(target(options.target), (8 << 20) if options.quick else (512 << 20))
    whole = f"{SCHEME}, {ALL}"
    probed = {whole: chase.probed(SCHEME), f"{SCHEME}, {SAMPLED}": probe(chase.loaded, sampled(chase))}
    rows, empty = [], {}
    for level in QUICK_LEVELS if options.quick else LEVELS:
        walks = walk_alone(chase, level, probed, 2 if options.quick else BIAS_ROUNDS)
        if level.name in ("shared", "L1"):
            empty = windows(chase, level, {whole: probed[whole]})
        for way in probed:
            row = accuracy_row(level, way, walks, empty.get(whole))
            reach: Mapping[str, float] = {} if options.quick else BIAS_REACHES
            rows.append(replace(row, reach=reach.get(level.name)) if row.value is not None else row)
    return rows


def sampled(chase: Chase) -> TraceOptions:
    """Measure with probes in one warp of 32, which includes the only warp of the chase."""
    seed = next(seed for seed in range(1000) if Sampling(every=EVERY, seed=seed).chosen(1, 1).warps)
    return replace(chase.options(SCHEME), sampling=Sampling(every=EVERY, seed=seed))


def main() -> None:
    options_of = parser(__doc__)
    options_of.add_argument("--parts", action="store_true", help="time samples that take nothing, and records through shared memory, too")
    options_of.add_argument("--hits", action="store_true", help="read the hit rate of the L1 cache by Nsight Compute, too")
    options_of.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    options = options_of.parse_args()
    forward = [name for name in ("--parts", "--hits") if getattr(options, name[2:])]
    over_all = partial(medians, quick=options.quick)
    measure("perturbation", (*EXAMPLES, BIAS), run_case, options, forward, over_all=over_all)


if __name__ == "__main__":
    main()

"""What does tracing change: time, registers, resident blocks, and is anything lost?

Every launch of every example is timed as it is, with probes of the default scheme around all its accesses, with those in one warp of 32,
and with those in all warps of one block of 32, in turn, each between two events of a graph, with the memory put to what it was; ratios are
medians of the paired ratios. The buffer is the one that a user gets. The matrix product is timed with its shared loads alone traced too.
Records and losses come from a trace of the launch, registers and resident blocks from the assembled code. Where Nsight Compute is
installed, each launch is made once more each way under it, for the hit rate of the L1 cache. Launches of few warps have a median of their
own: where one warp of 32 is all or most of the launch, a sample of it is no sample.

The sizes of the examples are those that a reader wants to look at, so most launches last 5 to 10 us and leave the chip half empty. So each
is launched once more with as much work as fills it many times over, where the shared loads of a matrix product, say, compete for the same
issue slots as the probes around them. These rows have no reach, and medians of their own.

Prediction: no record is lost, no kernel spills, and the blocks on a multiprocessor stay the same except where a kernel of 32 registers or
fewer gets more than 32 in blocks that would fill the multiprocessor. Every access: 1.4 in the median (1.77 while all warps took their
slices from one counter, and each probe voted and branched for itself; 1.43 while each stored its record at once). The shared loads of the
matrix product: 2.2, because a record is stored a window late and the next access no longer waits for that store, nor the probe for its
registers (2.33 before that). Through shared memory: slower, because the stage needs the same stores and more instructions. Far above 2.5
stay kernels that overlap their loads where the probe waits for each (csr_scalar, marching). One warp of 32: launches of 5 us end with their
last warp, and that is one with probes, so 1.23 in the median (1.25 while the decision read its numbers from constant memory: 46
instructions, now 33, and 18 for blocks); of that 0.03 is the decision and the registers (a sample that takes no warp or block at all), and
0.05 the code of the second body. Blocks of 32: no less, for the same reason. Large launches: every access 3 to 5 where a kernel keeps the
pipe of loads and stores or the issue slots busy (matmul, the transposes, the copies), since some 14 instructions and a store stand around
each access; one warp of 32 1.25, because a block waits for its traced warp and most blocks have one; one block of 32 1.05 to 1.1, which is
a 32nd of what every access costs, the decision, and a last block that lasts longer. The hit rate of the L1 cache rises where a kernel has
none, because the stores of records count as hits, and changes by less than 10 points elsewhere.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import ncu
from harness import Row, median_ratio
from replay import each_launch
from running import EXAMPLES, example, example_arguments, failed, measure, parser

from memlane.instrument import Sampling, Selection, TraceOptions
from memlane.lab.profiler import UNTOUCHED, find
from memlane.launch import Launch
from memlane.measure import Tracer
from memlane.measure.memory import Snapshot
from memlane.measure.perturbation import rehearsed
from memlane.record import Footprint, Perturbation, Trace, kernel_label

SOURCES = [
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/measure",
    "src/memlane/driver",
    "examples",
    "benchmarks/perturbation.py",
    "benchmarks/replay.py",
    "benchmarks/ncu.py",
]
ROUNDS = 15
SCHEME = "dependent"
EVERY = 32
ALL, SAMPLED, SHARED = "every access", f"one warp of {EVERY}", "all shared loads"
BLOCKS = f"one block of {EVERY}"
NONE, NO_BLOCK = "a sample that takes no warp", "a sample that takes no block"
NOTHING = Sampling(every=1 << 30, seed=5)
"""Of which no launch here has the warp or block that is drawn."""
STAGED = "every access through shared memory"
WAYS = {
    ALL: TraceOptions(SCHEME),
    SAMPLED: TraceOptions(SCHEME, sampling=Sampling(every=EVERY)),
    BLOCKS: TraceOptions(SCHEME, sampling=Sampling(every=EVERY, whole_blocks=True)),
    NONE: TraceOptions(SCHEME, sampling=NOTHING),
    NO_BLOCK: TraceOptions(SCHEME, sampling=replace(NOTHING, whole_blocks=True)),
    SHARED: TraceOptions(SCHEME, Selection(spaces={"shared"}, kinds={"load"})),
    STAGED: TraceOptions(SCHEME, staging="shared"),
}
REACHES = {ALL: 2.5, SAMPLED: 1.05, BLOCKS: 1.05}
"""Of the median over all launches; that of every access holds for the shared loads of the matrix product too."""
MATRIX_PRODUCT = "matmul"
LARGE = "large"
LARGE_SIZES = {
    "copies": 1 << 22,
    "histogram": 1 << 24,
    "matmul": 1024,
    "reduction": 1 << 26,
    "spmv": 1 << 18,
    "stencil": 256,
    "transpose": 4096,
}
"""Arguments of the example scripts, but of the one that is meant for a single warp."""
LARGE_ROUNDS = 7
PLAIN_WAYS = (ALL, SAMPLED, BLOCKS, NONE, NO_BLOCK)
STAGED_TOO = (MATRIX_PRODUCT, "copies")
"""Examples that are traced with stages in shared memory too: one of long loops, one of short kernels."""
MANY_WARPS = 32 * EVERY
"""Launches of so many have a median of their own."""
HIT_RATE = "l1tex__t_sector_hit_rate.pct"
LOST, TIME = "records lost", "time with probes over time without"


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """All launches of one example."""
    if options.profiled:
        each_launch(example(name), example_arguments(name, options.quick), options.target, partial(each_way, ways_of(name)))
        return []
    rows: list[Row] = []
    rates = hit_rates(name, options)

    def visit(number: int, launch: Launch) -> None:
        case = f"{name} {number}: {kernel_label(launch.kernel.title)}"
        try:
            reaches = {} if options.quick else {SHARED: REACHES[ALL]}
            rows.extend(of_launch(case, launch, ways_of(name), 1 if options.quick else ROUNDS, rates.of(number), reaches))
        except Exception as error:
            rows.append(failed(case, f"{type(error).__name__}: {error}"))

    each_launch(example(name), example_arguments(name, options.quick), options.target, visit)
    if name in LARGE_SIZES and options.target.startswith("cuda") and not options.quick:
        rows += large(name, options.target)
    return [replace(row, note=f"{row.note}; {rates.unknown}") if rates.unknown and row.metric == TIME else row for row in rows]


def large(name: str, target: str) -> list[Row]:
    """All launches of one example with much to do."""
    rows: list[Row] = []

    def visit(number: int, launch: Launch) -> None:
        case = f"{name} {number}, {LARGE}: {kernel_label(launch.kernel.title)}"
        try:
            rows.extend(of_launch(case, launch, PLAIN_WAYS, LARGE_ROUNDS, (), {}))
        except Exception as error:
            rows.append(failed(case, f"{type(error).__name__}: {error}"))

    each_launch(example(name), [str(LARGE_SIZES[name])], target, visit)
    return rows


def ways_of(name: str) -> list[str]:
    return [*PLAIN_WAYS, *([SHARED] if name == MATRIX_PRODUCT else []), *([STAGED] if name in STAGED_TOO else [])]


def each_way(ways: Sequence[str], _: int, launch: Launch) -> None:
    """The launch as it is and with probes, once each, for a profiler that watches this process."""
    target, before = launch.kernel.target, Snapshot(launch)
    target.launch(launch)
    before.restore()
    for way in ways:
        traced(launch, WAYS[way])
        before.restore()


@dataclass(frozen=True)
class HitRates:
    """Of the L1 cache, in the order of the launches: for each of the script those of `each_way`, then its own. Or why there are none."""

    percent: Sequence[float] = ()
    each: int = 1
    """Launches for one of the script."""
    unknown: str = field(default="")

    def of(self, launch: int) -> Sequence[float]:
        """As it is, and each way; empty if they are not known."""
        return self.percent[launch * self.each : (launch + 1) * self.each]


def hit_rates(name: str, options: argparse.Namespace) -> HitRates:
    """What the profiler reads of all launches of one example."""
    program = find() if options.target.startswith("cuda") and not options.quick else None
    if program is None:
        return HitRates()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        script = [sys.executable, sys.argv[0], "--target", options.target, "--case", name, "--profiled", "--rows", str(rows)]
        command = [program, *UNTOUCHED, "--metrics", HIT_RATE, "--csv", "--page", "raw", *script]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit / 2)
        except subprocess.TimeoutExpired:
            return HitRates(unknown="the profiler took too long for the hit rate of L1")
    percent = [one.metrics[HIT_RATE] for one in ncu.parse(done.stdout) if HIT_RATE in one.metrics]
    each = 1 + len(ways_of(name)) + 1
    if not percent or len(percent) % each:
        said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        return HitRates(unknown=f"the profiler gave {len(percent)} hit rates of L1 for launches in {each} ways, and said: {said[-1]}")
    return HitRates(percent, each)


def of_launch(
    case: str, launch: Launch, ways: Sequence[str], rounds: int, rates: Sequence[float], reaches: Mapping[str, float]
) -> list[Row]:
    """For each way losses, and the ratio of times with what was changed besides. `rates`: as the hit rates of one launch; `reaches`: of the
    ratio, for ways that have one."""
    before = Snapshot(launch)
    plain, *probed = rehearsed(launch, [WAYS[way] for way in ways], None, rounds)
    rows = []
    warps = launch.blocks * launch.warps_per_block
    for number, (way, times) in enumerate(zip(ways, probed, strict=True)):
        made = traced(launch, WAYS[way])
        before.restore()
        records = float(made.table.num_rows)
        ratio, low, high = median_ratio(times, plain)
        microseconds = {label: round(statistics.median(each) / 1e3, 2) for label, each in (("original, us", plain), ("traced, us", times))}
        hits = {"L1 hits, %, original": rates[0], "L1 hits, %, traced": rates[1 + number]} if rates else {}
        peer = {
            "warps": float(warps),
            "records": records,
            **microseconds,
            **hits,
            **footprints(made.launches[0].perturbation if made.launches else None),
        }
        note = f"{rounds} rounds, 10 % to 90 %: {low:.2f} to {high:.2f}"
        lost = "the buffer was full" if made.lost else ""
        rows.append(Row(f"{case}, {way}", LOST, float(made.lost), "records", 0.0, peer={"records": records}, note=lost))
        rows.append(Row(f"{case}, {way}", TIME, round(ratio, 3), "ratio", reaches.get(way), peer=peer, note=note))
    return rows


def traced(launch: Launch, options: TraceOptions) -> Trace:
    """Send the launch out with probes; the memory is as it leaves it."""
    tracer = Tracer(options)
    launch.kernel.target.launch(tracer.launching(launch))
    return tracer.finish()


def footprints(found: Perturbation | None) -> dict[str, float]:
    """Registers, local memory and resident blocks without and with probes, where there is assembled code to tell."""
    if found is None or found.plain is None or found.probed is None:
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
    """Over all launches of the examples, over those of many warps among them, and over the large ones."""
    found = []
    for way in PLAIN_WAYS:
        every = [row for row in rows if row.metric == TIME and row.case.endswith(f", {way}") and row.value is not None]
        timed = [row for row in every if f", {LARGE}: " not in row.case]
        many = [row for row in timed if row.peer["warps"] >= MANY_WARPS]
        found += median_of(f"median of the examples, {way}", timed, None if quick else REACHES.get(way))
        found += median_of(f"median of the launches of {MANY_WARPS:,} warps or more, {way}", many, None)
        found += median_of(f"median of the large launches, {way}", [row for row in every if row not in timed], None)
    return found


def median_of(case: str, rows: Sequence[Row], reach: float | None) -> list[Row]:
    ratios = sorted(row.value for row in rows if row.value is not None)
    if not ratios:
        return []
    note = f"{len(ratios)} launches, from {ratios[0]:.3g} to {ratios[-1]:.3g}"
    return [Row(case, TIME, round(statistics.median(ratios), 3), "ratio", reach, note=note)]


def main() -> None:
    options_of = parser(__doc__)
    options_of.set_defaults(limit=180.0)  # The large launches write a gigabyte of records each round.
    options_of.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    options = options_of.parse_args()
    measure("perturbation", EXAMPLES, run_case, options, over_all=partial(medians, quick=options.quick))


if __name__ == "__main__":
    main()

"""What does tracing change: time, registers, resident blocks, and is anything lost?

Every launch of every example is timed as it is, with probes of the default scheme around all its accesses, and with those in one warp of
32, in turn, each between two events of a graph, with the memory put to what it was; ratios are medians of the paired ratios. The buffer is
the one that a user gets. The matrix product is timed with its shared loads alone traced too. Records and losses come from a trace of the
launch, registers and resident blocks from the assembled code. Where Nsight Compute is installed, each launch is made once more each way
under it, for the hit rate of the L1 cache. Launches of few warps have a median of their own: where one warp of 32 is all or most of
the launch, a sample of it is no sample.

Prediction: no record is lost, no kernel spills, and the blocks on a multiprocessor stay the same except where a kernel of 32 registers
or fewer gets more than 32 in blocks that would fill the multiprocessor. Every access: 1.5 in the median (1.77 while all warps took their
slices from one counter, and each probe voted and branched for itself), the transposes 1.3 to 2.5 instead of 3.5 to 8.2. The shared loads
of the matrix product: with probes that reserve their places together 23 us instead of 26, no more, because two stores of 16 bytes a record
kept the pipe of loads and stores busy; with one, 17 to 20 us, so 2.1 to 2.5. Through shared memory: slower, because the stage needs the
same stores and more instructions. Far above 2.5 stay kernels that overlap their loads where the probe waits for each (csr_scalar,
marching). One warp of 32: launches of 5 us end with their last warp, and that is one with probes, so 1.25 to 1.3 in the median, and less
for those of 1,024 warps or more; 1.05 only for launches that last some 30 us. The hit rate of the L1 cache rises where a kernel has none,
because the stores of records count as hits, and changes by less than 10 points elsewhere.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
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
from memlane.record import Footprint, Perturbation, Trace
from memlane.record.site import kernel_label

SOURCES = [
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
STAGED = "every access through shared memory"
WAYS = {
    ALL: TraceOptions(SCHEME),
    SAMPLED: TraceOptions(SCHEME, sampling=Sampling(every=EVERY)),
    SHARED: TraceOptions(SCHEME, Selection(spaces={"shared"}, kinds={"load"})),
    STAGED: TraceOptions(SCHEME, staging="shared"),
}
REACHES = {ALL: 2.5, SAMPLED: 1.05}
"""Of the median over all launches; that of every access holds for the shared loads of the matrix product too."""
MATRIX_PRODUCT = "matmul"
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
            rows.extend(of_launch(case, launch, ways_of(name), options.quick, rates.of(number)))
        except Exception as error:
            rows.append(failed(case, f"{type(error).__name__}: {error}"))

    each_launch(example(name), example_arguments(name, options.quick), options.target, visit)
    return [replace(row, note=f"{row.note}; {rates.unknown}") if rates.unknown and row.metric == TIME else row for row in rows]


def ways_of(name: str) -> list[str]:
    return [ALL, SAMPLED, *([SHARED] if name == MATRIX_PRODUCT else []), *([STAGED] if name in STAGED_TOO else [])]


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


def of_launch(case: str, launch: Launch, ways: Sequence[str], quick: bool, rates: Sequence[float]) -> list[Row]:
    """For each way losses, and the ratio of times with what was changed besides. `rates`: as the hit rates of one launch."""
    rounds, before = 1 if quick else ROUNDS, Snapshot(launch)
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
        reach = REACHES[ALL] if way == SHARED and not quick else None
        rows.append(Row(f"{case}, {way}", TIME, round(ratio, 3), "ratio", reach, peer=peer, note=note))
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
    """Over all launches of the examples, and over those of many warps."""
    found = []
    for way, reach in REACHES.items():
        timed = [row for row in rows if row.metric == TIME and row.case.endswith(f", {way}") and row.value is not None]
        many = [row for row in timed if row.peer["warps"] >= MANY_WARPS]
        found += median_of(f"median of the examples, {way}", timed, None if quick else reach)
        found += median_of(f"median of the launches of {MANY_WARPS:,} warps or more, {way}", many, None)
    return found


def median_of(case: str, rows: Sequence[Row], reach: float | None) -> list[Row]:
    ratios = sorted(row.value for row in rows if row.value is not None)
    if not ratios:
        return []
    note = f"{len(ratios)} launches, from {ratios[0]:.3g} to {ratios[-1]:.3g}"
    return [Row(case, TIME, round(statistics.median(ratios), 3), "ratio", reach, note=note)]


def main() -> None:
    options_of = parser(__doc__)
    options_of.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    options = options_of.parse_args()
    measure("perturbation", EXAMPLES, run_case, options, over_all=partial(medians, quick=options.quick))


if __name__ == "__main__":
    main()

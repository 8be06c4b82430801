"""What does tracing change: time, registers, resident blocks, and is anything lost?

Every launch of every example is timed as it is, with probes of the default scheme around all its accesses, and with those in one warp of
32, in turn, each between two events of a graph, with the memory put to what it was; ratios are medians of the paired ratios. The buffer is
the one that a user gets. The matrix product is timed with its shared loads alone traced too. Records and losses come from a trace of the
launch, registers and resident blocks from the assembled code. No counter of the hardware is read, so nothing is said of the L1 cache.

Prediction: no record is lost, no kernel spills, and the blocks on a multiprocessor stay the same except where a kernel of 32 registers
or fewer gets more than 32 in blocks that would fill the multiprocessor. Every access: 1.1 to 2.5 for most launches, so that the median
is below 2. Far above lie kernels that overlap their loads where the probe waits for each (csr_scalar, marching: 4 to 7; they were above 10
while their warps without lane 0 went to memory for the place of each record), and short ones of many warps, each of which takes its slice
by an atomic addition to one address, some 0.8 ns a warp (transposes: 2 to 5). The shared loads of the matrix product: 3 to 4. One warp of
32: the other 31 pay one hash and one branch where they begin, and the median is below 1.05, if launches of 5 us tell 1.05 from 1.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from functools import partial

from harness import Row, median_ratio
from replay import each_launch
from running import EXAMPLES, example, example_arguments, failed, measure, parser

from memlane.instrument import Sampling, Selection, TraceOptions
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
]
ROUNDS = 15
SCHEME = "dependent"
EVERY = 32
ALL, SAMPLED, SHARED = "every access", f"one warp of {EVERY}", "all shared loads"
WAYS = {
    ALL: TraceOptions(SCHEME),
    SAMPLED: TraceOptions(SCHEME, sampling=Sampling(every=EVERY)),
    SHARED: TraceOptions(SCHEME, Selection(spaces={"shared"}, kinds={"load"})),
}
REACHES = {ALL: 2.5, SAMPLED: 1.05}
"""Of the median over all launches; that of every access holds for the shared loads of the matrix product too."""
MATRIX_PRODUCT = "matmul"
LOST, TIME = "records lost", "time with probes over time without"


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """All launches of one example."""
    rows: list[Row] = []
    ways = [ALL, SAMPLED, *([SHARED] if name == MATRIX_PRODUCT else [])]

    def visit(number: int, launch: Launch) -> None:
        case = f"{name} {number}: {kernel_label(launch.kernel.title)}"
        try:
            rows.extend(of_launch(case, launch, ways, options.quick))
        except Exception as error:
            rows.append(failed(case, f"{type(error).__name__}: {error}"))

    each_launch(example(name), example_arguments(name, options.quick), options.target, visit)
    return rows


def of_launch(case: str, launch: Launch, ways: Sequence[str], quick: bool) -> list[Row]:
    """For each way losses, and the ratio of times with what was changed besides."""
    rounds, before = 1 if quick else ROUNDS, Snapshot(launch)
    plain, *probed = rehearsed(launch, [WAYS[way] for way in ways], None, rounds)
    rows = []
    for way, times in zip(ways, probed, strict=True):
        made = traced(launch, WAYS[way])
        before.restore()
        records = float(made.table.num_rows)
        ratio, low, high = median_ratio(times, plain)
        microseconds = {label: round(statistics.median(each) / 1e3, 2) for label, each in (("original, us", plain), ("traced, us", times))}
        peer = {"records": records, **microseconds, **footprints(made.launches[0].perturbation if made.launches else None)}
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
    """Over all launches of the examples."""
    found = []
    for way, reach in REACHES.items():
        ratios = sorted(row.value for row in rows if row.metric == TIME and row.case.endswith(f", {way}") and row.value is not None)
        if ratios:
            note = f"{len(ratios)} launches, from {ratios[0]:.3g} to {ratios[-1]:.3g}"
            found.append(
                Row(
                    f"median of the examples, {way}",
                    TIME,
                    round(statistics.median(ratios), 3),
                    "ratio",
                    None if quick else reach,
                    note=note,
                )
            )
    return found


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("perturbation", EXAMPLES, run_case, options, over_all=partial(medians, quick=options.quick))


if __name__ == "__main__":
    main()

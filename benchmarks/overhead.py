"""What does tracing cost, and is anything lost?

Every launch of every example is timed as it is and with probes of the default scheme around all its accesses, in turn, each
between two events of a graph, with the memory put to what it was; the ratio is the median of the paired ratios. Records and losses come
from one trace with the buffer that a user gets.

Prediction: no record is lost. The ratio follows the accesses per instruction: 2 to 5 for kernels that do little but access memory (each
access writes a record of 32 bytes and waits for its value), above 10 for the inner loop of the matrix product, whose shared loads no
longer overlap.
"""

from __future__ import annotations

import argparse

from harness import Row, interleaved, median_ratio
from probing import ProbedLaunch
from replay import each_launch, traced
from running import EXAMPLES, example, example_arguments, failed, measure, parser

from memlane.instrument import TraceOptions
from memlane.launch import Launch, Schedule, Step
from memlane.measure.probed import probe
from memlane.record.site import kernel_label

SOURCES = [
    "src/memlane/instrument",
    "src/memlane/measure",
    "src/memlane/driver",
    "examples",
    "benchmarks/overhead.py",
    "benchmarks/probing.py",
    "benchmarks/replay.py",
]
ROUNDS = 15
SCHEME = "dependent"


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """All launches of one example."""
    rows: list[Row] = []

    def visit(number: int, launch: Launch) -> None:
        case = f"{name} {number}: {kernel_label(launch.kernel.title)}"
        try:
            rows.extend(of_launch(case, launch, 1 if options.quick else ROUNDS))
        except Exception as error:
            rows.append(failed(case, f"{type(error).__name__}: {error}"))

    each_launch(example(name), example_arguments(name, options.quick), options.target, visit)
    return rows


def of_launch(case: str, launch: Launch, rounds: int) -> list[Row]:
    """Records, losses and the ratio of times of one launch."""
    trace = traced(launch, SCHEME)
    # Room for exactly what it records; the trace has shown how much that is.
    probed = ProbedLaunch(launch, probe(launch.kernel.loaded, TraceOptions(SCHEME)), int(trace.warps["kept"].max(initial=1)))

    def plain_ns() -> float:
        return elapsed_ns(launch)

    def traced_ns() -> float:
        probed.reset()
        return elapsed_ns(probed.launch)

    if not launch.kernel.target.modelled:
        interleaved(2, {"plain": plain_ns, "traced": traced_ns})
    times = interleaved(rounds, {"plain": plain_ns, "traced": traced_ns})
    ratio, low, high = median_ratio(times["traced"], times["plain"])
    middle = sorted(times["plain"])[rounds // 2], sorted(times["traced"])[rounds // 2]
    peer = {"original, us": round(middle[0] / 1e3, 2), "traced, us": round(middle[1] / 1e3, 2), "records": float(len(trace.table))}
    note = f"{rounds} rounds, 10 % to 90 %: {low:.2f} to {high:.2f}; 32 bytes a record"
    return [
        Row(
            case,
            "records lost",
            float(trace.lost),
            "records",
            0.0,
            peer={"records": float(len(trace.table))},
            note="the buffer was full" if trace.lost else "",
        ),
        Row(case, "traced time over original time", round(ratio, 3), "ratio", peer=peer, note=note),
    ]


def elapsed_ns(launch: Launch) -> float:
    """Of one launch, between two events."""
    return launch.kernel.target.run_steps(Schedule((Step(launch),))).elapsed_ns


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("overhead", EXAMPLES, run_case, options)


if __name__ == "__main__":
    main()

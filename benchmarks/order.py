"""Do modelled times order kernels that do the same job as a GPU does?

Every example with several kernels for one job, at the sizes of the other benchmarks: each kernel is timed on the GPU, in a row of
launches with warm caches, and modelled on the emulator of that chip with the same arrays, also as the second launch of two, all blocks of
it. Then each pair of kernels whose measured times differ by 1.3 times or more is in the right order or not. Without a GPU the times are
only modelled, and compared with measured ones of an earlier run where `--measured` names its result file.

Prediction (written before the first run). Measured before by hand, transpose of 4096 x 4096: naive 256, tiled 134, padded 78 us; all
three pairs come out right once writes have a floor, and naive does not without one for sectors of which only a part is written. The
strided copy is the slowest of its four for the same reason. The other pairs differ by latency, conflicts or bytes, which the clock has:
all pairs right but for kernels of some us, where a launch takes what no clock of a multiprocessor counts.

    python benchmarks/order.py
    python benchmarks/order.py --target emulator:h200 --measured benchmarks/results/h200/order.json --out /tmp/order
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from harness import Row
from replay import each_launch, elsewhere
from running import QUICK_SIZES, example, measure, parser

from memlane.emulate import Emulator
from memlane.launch import Launch
from memlane.record import kernel_label

SOURCES = ["src/memlane/emulate", "src/memlane/chip", "examples", "benchmarks/order.py", "benchmarks/replay.py"]

APART = 1.3
"""Measured times that differ by so much must come out in the same order."""
WARM_UP, ROUNDS = 3, 20
MEASURED = "measured us"


@dataclass(frozen=True)
class Job:
    """Launches of an example script that do the same."""

    example: str
    size: int
    launches: tuple[int, ...]
    """Numbers of the launches in the script."""

    @property
    def name(self) -> str:
        return f"{self.example} {self.size}"


JOBS = (
    Job("transpose", 4096, (0, 1, 2)),
    Job("transpose", 1024, (0, 1, 2)),
    Job("copies", 1 << 24, (0, 1, 2, 3)),
    Job("copies", 1 << 22, (0, 1, 2, 3)),
    Job("histogram", 1 << 22, (0, 1)),
    Job("reduction", 1 << 22, (0, 2)),
    Job("reduction", 1 << 22, (4, 6)),
    Job("spmv", 65536, (0, 1)),
    Job("stencil", 256, (0, 1)),
)
CASES = {f"{job.name}, launches {', '.join(map(str, job.launches))}": job for job in JOBS}


def durations_us(launch: Launch, rounds: int) -> list[float]:
    """Return the times of `rounds` consecutive launches."""
    return [one.elapsed_ns / 1e3 for one in launch.kernel.target.time_launches([launch] * rounds)]


def rows_of(job: Job, options: argparse.Namespace, known: Mapping[str, float]) -> list[Row]:
    rows = []

    def visit(number: int, launch: Launch) -> None:
        if number not in job.launches:
            return
        case, peer, there = f"{job.name}: {kernel_label(launch.kernel.title)}", {}, launch
        if launch.kernel.target.modelled:
            peer = {MEASURED: known[case]} if case in known else {}
        else:
            peer = {MEASURED: statistics.median(durations_us(launch, WARM_UP + ROUNDS)[WARM_UP:])}
            there = elsewhere(launch, Emulator(launch.kernel.target.chip))
        cold, warm = durations_us(there, 2)
        if peer:
            peer["modelled over measured"] = warm / peer[MEASURED]
        rows.append(Row(case, "modelled time", round(warm, 3), "us", peer={**peer, "with cold caches, us": cold}))

    size = QUICK_SIZES[job.example] if options.quick else job.size
    each_launch(example(job.example), [str(size)], options.target, visit)
    return [*rows, *pairs(rows)]


def pairs(rows: Sequence[Row]) -> list[Row]:
    """Return for each two measured kernels of a job whether the model orders them alike."""
    found = []
    for one, other in combinations(rows, 2):
        if MEASURED in one.peer and MEASURED in other.peer:
            found.append(_pair(*sorted((one, other), key=lambda row: row.peer[MEASURED])))
    return found


def _pair(quick: Row, slow: Row) -> Row:
    """Return the row of the kernel that was measured to be faster, and the slower one."""
    measured = slow.peer[MEASURED] / quick.peer[MEASURED]
    modelled = (slow.value or 0.0) / (quick.value or 1.0)
    reach = 1.0 if measured >= APART else None
    case = f"{quick.case} before {slow.case.rpartition(': ')[2]}"
    note = f"measured {measured:.3g} times apart, modelled {modelled:.3g}"
    return Row(case, ORDER, float(modelled > 1), "", reach, "higher", {"measured": measured, "modelled": modelled}, note)


ORDER = "in the right order"


def over_all(rows: Sequence[Row]) -> list[Row]:
    """Return rows with the number of required pairs that are ordered correctly."""
    judged = [row for row in rows if row.metric == ORDER and row.reach is not None]
    if not judged:
        return []
    right, note = sum(row.holds for row in judged), f"of {len(judged)} pairs that were measured {APART} times apart or more"
    return [Row("all examples", "pairs in the right order", float(right), "pairs", float(len(judged)), "higher", note=note)]


def measured_before(path: Path | None) -> dict[str, float]:
    """Return the measured times in a result file of this benchmark, by case."""
    rows = json.loads(path.read_text())["rows"] if path is not None else []
    return {row["case"]: row["peer"][MEASURED] for row in rows if MEASURED in row["peer"]}


def main() -> None:
    options_parser = parser(__doc__)
    options_parser.add_argument("--measured", type=Path, help="result file of this benchmark whose measured times are compared with")
    options_parser.set_defaults(limit=150.0)
    options = options_parser.parse_args()
    known = measured_before(options.measured)
    measure("order", list(CASES), lambda name, options: rows_of(CASES[name], options, known), options, over_all=over_all)


if __name__ == "__main__":
    main()

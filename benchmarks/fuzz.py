"""Does everything that reads what comes from outside refuse what it cannot read in one sentence, and soon?

A million mutated inputs for each reader of `tests/fuzz`: PTX, programs, cubins, listings, record files and their headers, counts, chips,
arrays, names, the profiler's table, and what stands on a command line. A failure is any exception that is not a MemlaneError, an input
that takes over 3 s of processor time or 512 MiB, a message that is empty, endless or without a place, and a process that dies or hangs.
PTX that was accepted is also printed and parsed again, and given to the passes that do not run it; a smaller number is instrumented by
every scheme, and fewer are lowered to machine code.

`--readers` takes only some, and `--keep FILE` puts their rows in the place of those in an earlier result, whose other rows then say at
which commit they were made.

`--number` says how many inputs, `--seconds` how long a reader may have, `--jobs` how many processes share its inputs: where there is not
time for all, the row tells the number that was reached.

Prediction: no failure in 10^6 inputs of each; 10^4 instrumented, 10^3 lowered.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

from harness import ROOT, Row
from running import measure, parser

sys.path.insert(0, str(ROOT))
from tests.fuzz.engine import Tally
from tests.fuzz.readers import READERS
from tests.fuzz.watch import fuzz

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/source.py",
    "src/memlane/compile",
    "src/memlane/sass",
    "src/memlane/record",
    "src/memlane/chip",
    "src/memlane/layout",
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/cli/specs.py",
    "src/memlane/diagnose/side.py",
    "src/memlane/plan",
    "src/memlane/emulate/run/printf.py",
    "tests/fuzz",
    "benchmarks/fuzz.py",
]
INPUTS = 1_000_000
FEWER = {"ptx instrumented": 10_000, "ptx lowered": 1_000}
"""Readers whose inputs take long."""
QUICK = 200


def run_reader(name: str, options: argparse.Namespace) -> list[Row]:
    """Return two rows: the number of ways in which inputs failed, and the number of inputs."""
    reach = FEWER.get(name, INPUTS)
    count = QUICK if options.quick else min(reach, options.number or reach)
    began = time.monotonic()
    tally = fuzz_at_once(name, options.seed, count, options.seconds, max(1, min(options.jobs, count // 100)))
    return rows_of(name, tally, time.monotonic() - began, None if options.quick else reach)


def fuzz_at_once(name: str, seed: int, count: int, seconds: float, jobs: int) -> Tally:
    """Give a reader inputs in several processes, of which each has a part of the numbers."""
    parts = [range(count * job // jobs, count * (job + 1) // jobs) for job in range(jobs)]
    total = Tally()
    with ThreadPoolExecutor(jobs) as pool:
        for tally in pool.map(lambda part: fuzz(name, seed, len(part), part.start, seconds), parts):
            total.add(tally)
    return total


def rows_of(name: str, tally: Tally, took: float, reach: int | None) -> list[Row]:
    """Return the rows of a reader."""
    rate = tally.inputs / took
    peer = {
        "accepted": float(tally.accepted),
        "failed": float(tally.failed),
        "slowest, s": round(tally.slowest_s, 3),
        "inputs a second": round(rate, 1),
        "most memory for one, MiB": round(tally.grown_bytes / (1 << 20), 1),
    }
    kinds = "; ".join(f"{one.key} (input {one.number})" for one in tally.failures.values())
    missing = "" if reach is None or tally.inputs >= reach else f"stopped after {took:.0f} s, at {rate:,.0f} inputs a second"
    return [
        Row(name, "ways to fail", float(len(tally.failures)), "", 0.0, peer=peer, note=kinds[:1000]),
        Row(name, "inputs", float(tally.inputs), "", None if reach is None else float(reach), "higher", note=missing),
    ]


def main() -> None:
    """Fuzz every reader, or the one of `--case`, and store the rows."""
    options = parser(__doc__, "emulator")
    options.add_argument("--seed", type=int, default=0, help="what the inputs follow from (default 0)")
    options.add_argument("--number", type=int, default=0, help="inputs for each reader instead of as many as were predicted")
    options.add_argument("--jobs", type=int, default=1, help="processes for each reader (default 1)")
    options.add_argument("--seconds", type=float, default=float("inf"), help="seconds for each reader")
    options.add_argument("--readers", help="names of readers with commas between them (default all)")
    options.add_argument("--keep", type=Path, help="an earlier result that has the rows of the other readers")
    given = options.parse_args()
    chosen = given.readers.split(",") if given.readers else list(READERS)
    if unknown := set(chosen) - set(READERS):
        raise SystemExit(f"there is no reader {', '.join(sorted(unknown))}; choose among {', '.join(READERS)}")
    kept = kept_rows(given.keep, chosen) if given.keep else []
    measure("fuzz", chosen, run_reader, given, over_all=lambda rows: kept)


def kept_rows(path: Path, chosen: Collection[str]) -> list[Row]:
    """Return the rows of an earlier result of readers that are not chosen, each with the commit that it is from."""
    earlier = json.loads(path.read_text(encoding="utf-8"))
    names = {field.name for field in fields(Row)}
    rows = [Row(**{name: value for name, value in row.items() if name in names}) for row in earlier["rows"] if row["case"] not in chosen]
    return [replace(row, note="; ".join(filter(None, (row.note, f"measured at {earlier['commit'][:7]}")))) for row in rows]


if __name__ == "__main__":
    main()

"""How long do the kernels take by which modelled times are judged, and what limits them?

The measuring half of `predict.py`; it needs a GPU. Each variant of `predict_kernels` is launched again and again with warm caches: the
value is the median of the times between CUDA events. Where Nsight Compute is installed, another process launches each variant once under
it; its throughputs stand beside (`SM %`, `L1 %`, `L2 %`, `DRAM %`), with its own duration, cycles and traffic. All in about three minutes.

    python benchmarks/predict_measured.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness import Row, show, store
from predict_kernels import FAMILIES, VARIANTS, Variant
from running import failed, machine, parser

from memlane.errors import MemlaneError
from memlane.lab.profiler import UNTOUCHED, Profiled, find, parse
from memlane.launch import Target, plain_name
from memlane.targets import target as named_target

SOURCES = [
    "benchmarks/predict_measured.py",
    "benchmarks/predict_kernels.py",
    "benchmarks/predict_families.py",
    "benchmarks/kernels/predict.cu",
    "benchmarks/kernels/predict",
]

WARM_UP, ROUNDS = 3, 20
GROUP = 6
"""Families that are profiled by one process."""
METRICS = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM %",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "L1 %",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 %",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM %",
    "gpu__time_duration.sum": "profiled ns",
    "sm__cycles_elapsed.max": "cycles",
    "smsp__inst_executed.sum": "instructions",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps %",
    "l1tex__t_sector_hit_rate.pct": "L1 hits %",
    "l1tex__data_pipe_lsu_wavefronts.sum": "LSU wavefronts",
    "lts__t_sectors.sum": "L2 sectors",
    "lts__t_sector_hit_rate.pct": "L2 hits %",
    "dram__bytes_read.sum": "DRAM bytes read",
    "dram__bytes_write.sum": "DRAM bytes written",
    "launch__registers_per_thread": "registers",
}
LAUNCHED = "launched: "


def timed(variant: Variant, target: Target) -> Row:
    """Return the row of the median time of consecutive launches."""
    try:
        launch = variant.launch(target)
        times = [one.elapsed_ns / 1e3 for one in target.time_launches([launch] * (WARM_UP + ROUNDS))[WARM_UP:]]
    except MemlaneError as error:
        return failed(variant.title, f"{type(error).__name__}: {error}")
    peer = {"shortest": min(times), "longest": max(times)}
    return Row(variant.title, "measured time", round(statistics.median(times), 4), "us", peer=peer)


def launch_plainly(families: Sequence[str], target: Target) -> None:
    """Launch each variant once, and print its title and the name of its kernel."""
    for family in families:
        for variant in FAMILIES[family]:
            launch = variant.launch(target)
            print(f"{LAUNCHED}{plain_name(launch.kernel.title)}\t{variant.title}", flush=True)
            target.launch(launch)
            target.sync()


def profiled(families: Sequence[str], options: argparse.Namespace) -> tuple[dict[str, dict[str, float]], str]:
    """Return the profiler's counts by the title of the variant, and the reason if there are none."""
    program = find()
    if program is None:
        return {}, "ncu was not found on PATH"
    table = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS)]
    own = [sys.executable, sys.argv[0], "--target", options.target, "--plain", ";".join(families)]
    try:
        done = subprocess.run(
            [program, *UNTOUCHED, *table, *own], capture_output=True, text=True, timeout=options.limit, env=dict(os.environ)
        )
    except subprocess.TimeoutExpired:
        return {}, f"ncu did not end within {options.limit:g} s"
    launches = [line.removeprefix(LAUNCHED).split("\t") for line in done.stdout.splitlines() if line.startswith(LAUNCHED)]
    found = dict(joined(launches, parse(done.stdout)))
    return found, "" if found else f"ncu counted nothing: {(done.stdout + done.stderr)[-300:]}"


def joined(launches: Sequence[Sequence[str]], seen: Sequence[Profiled]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield titles with the profiler's counts of their launches, by the names of `METRICS`."""
    for title, metrics in joined_metrics(launches, seen):
        yield title, {words: metrics[metric] for metric, words in METRICS.items() if metric in metrics}


def joined_metrics(launches: Sequence[Sequence[str]], seen: Sequence[Profiled]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield titles with all metrics of their launches. Other kernels, such as ones that fill memory, may come between."""
    left = iter(seen)
    for name, title in launches:
        one = next((one for one in left if plain_name(one.kernel) == name), None)
        if one is None:
            return
        yield title, one.metrics


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--plain", help=argparse.SUPPRESS)
    arguments.add_argument("--no-profiler", action="store_true", help="times only")
    arguments.set_defaults(limit=75.0)
    options = arguments.parse_args()
    target = named_target(options.target)
    if options.plain is not None:
        launch_plainly(options.plain.split(";"), target)
        return
    head: dict[str, Any] = machine(options)
    wanted = [VARIANTS[options.case]] if options.case else list(VARIANTS.values())
    rows = {variant.title: timed(variant, target) for variant in wanted}
    store("predict_measured", list(rows.values()), **head)
    names = [] if options.no_profiler or options.case else list(FAMILIES)
    for first in range(0, len(names), GROUP):
        found, reason = profiled(names[first : first + GROUP], options)
        if reason:
            print(reason, file=sys.stderr)
        for title, counted in found.items():
            rows[title] = replace(rows[title], peer={**rows[title].peer, **counted})
        store("predict_measured", list(rows.values()), **head)
    show(list(rows.values()))


if __name__ == "__main__":
    main()

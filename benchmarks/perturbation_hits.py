"""Read the hit rate of the L1 cache from Nsight Compute for each launch of an example, without and with probes (`perturbation.py`)."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ncu
from replay import each_launch
from running import example, example_arguments

from memlane.instrument import TraceOptions
from memlane.lab.profiler import UNTOUCHED, find
from memlane.launch import Launch
from memlane.measure import Tracer
from memlane.measure.memory import Snapshot

HIT_RATE = "l1tex__t_sector_hit_rate.pct"


@dataclass(frozen=True)
class HitRates:
    """Hit rates in the order of the launches: for each launch of the script those of `each_way`, then its own; or the reason why there are
    none."""

    percent: Sequence[float] = ()
    each: int = 1
    """Launches for one of the script."""
    unknown: str = ""

    def of(self, launch: int) -> Sequence[float]:
        """Return the hit rates of a launch without probes and in each way; empty if they are not known."""
        return self.percent[launch * self.each : (launch + 1) * self.each]


def of_example(name: str, options: argparse.Namespace, ways: int) -> HitRates:
    """Return the profiler's hit rates of all launches of one example, each without probes and in several ways."""
    program = find() if options.hits and options.target.startswith("cuda") and not options.quick else None
    if program is None:
        return HitRates()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        script = [sys.executable, sys.argv[0], "--target", options.target, "--case", name, "--profiled", "--rows", str(rows)]
        script += ["--parts"] if options.parts else []
        command = [program, *UNTOUCHED, "--metrics", HIT_RATE, "--csv", "--page", "raw", *script]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit / 2)
        except subprocess.TimeoutExpired:
            return HitRates(unknown="the profiler took too long for the hit rate of L1")
    percent = [one.metrics[HIT_RATE] for one in ncu.parse(done.stdout) if HIT_RATE in one.metrics]
    each = 1 + ways + 1
    if not percent or len(percent) % each:
        said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        return HitRates(unknown=f"the profiler gave {len(percent)} hit rates of L1 for launches in {each} ways, and said: {said[-1]}")
    return HitRates(percent, each)


def launch_each_way(name: str, options: argparse.Namespace, ways: Sequence[TraceOptions]) -> None:
    """Make each launch of an example as it is and with each kind of probes, once each, for a profiler that watches this process."""
    each_launch(example(name), example_arguments(name, options.quick), options.target, partial(_each_way, ways))


def _each_way(ways: Sequence[TraceOptions], _: int, launch: Launch) -> None:
    target, before = launch.kernel.target, Snapshot(launch)
    target.launch(launch)
    before.restore()
    for options in ways:
        tracer = Tracer(options)
        target.launch(tracer.launching(launch))
        tracer.finish()
        before.restore()

"""Run the cases of a benchmark so that one that fails does not end the others.

A kernel that goes wrong leaves a GPU's context unusable for the rest of its process. So on a GPU each case runs in a process of its own,
under a time limit, and a case that fails is a row without a value, with the reason in its note. On the emulator all run in this process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import ROOT, Row, show, store

from memlane.lab.result import cuda_version, driver_version
from memlane.targets import target

EXAMPLES = ("chase", "copies", "histogram", "matmul", "reduction", "spmv", "stencil", "transpose")

QUICK_SIZES = {
    "chase": 16,
    "copies": 4096,
    "histogram": 2048,
    "matmul": 32,
    "reduction": 2048,
    "spmv": 128,
    "stencil": 8,
    "transpose": 64,
}
"""Arguments of the example scripts that make them small."""

RunCase = Callable[[str, argparse.Namespace], list[Row]]


def parser(description: str | None, target_name: str = "cuda:0") -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    result = argparse.ArgumentParser(description=(description or "").strip().partition("\n")[0])
    result.add_argument("--target", default=target_name, help=f"where to measure (default {target_name})")
    result.add_argument("--quick", action="store_true", help="small sizes: seconds on the emulator; shows that it works, measures nothing")
    result.add_argument("--limit", type=float, default=60.0, help="seconds that one case may take")
    result.add_argument("--case", help="run only this case")
    result.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    result.add_argument("--out", type=Path, help="directory of the result instead of benchmarks/results/<chip>")
    return result


def example(name: str) -> Path:
    """Return the script of an example."""
    return ROOT / "examples" / f"{name}.py"


def example_arguments(name: str, quick: bool) -> list[str]:
    return [str(QUICK_SIZES[name])] if quick else []


def measure(
    benchmark: str,
    names: Sequence[str],
    run: RunCase,
    options: argparse.Namespace,
    forward: Sequence[str] = (),
    at_once: int = 1,
    over_all: Callable[[Sequence[Row]], list[Row]] = lambda rows: [],
) -> None:
    """Run the cases of a benchmark, or the one that `--case` names, and store and print their rows.

    The result file is written again after each case, so that it holds what is known whenever the process is stopped. `forward`: options
    for the processes of the cases besides those of `parser`. `at_once`: how many of these may run at a time; more than one only where
    nothing is timed. `over_all`: the rows that follow from those of all cases.
    """
    if options.case is not None:
        if options.case not in names:
            raise SystemExit(f"there is no case {options.case!r}; choose among: {'; '.join(names)}")
        names = [options.case]
    if options.rows is not None:
        options.rows.write_text(json.dumps([asdict(row) for name in names for row in run(name, options)]))
        return
    head = machine(options)
    rows: list[Row] = []
    for found in each_case(names, run, options, forward, at_once):
        rows += found
        store(benchmark, [*rows, *over_all(rows)], **head)
    show([*rows, *over_all(rows)])


def each_case(
    names: Sequence[str], run: RunCase, options: argparse.Namespace, forward: Sequence[str] = (), at_once: int = 1
) -> Iterator[list[Row]]:
    """Yield the rows of each case in turn."""
    alone = options.target.startswith("cuda")

    def rows_of(name: str) -> list[Row]:
        began = time.perf_counter()
        rows = _in_own_process(name, options, forward) if alone else _here(name, run, options)
        print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        return rows

    if at_once == 1 or not alone:
        yield from map(rows_of, names)
        return
    with ThreadPoolExecutor(at_once) as workers:
        yield from workers.map(rows_of, names)


def _here(name: str, run: RunCase, options: argparse.Namespace) -> list[Row]:
    try:
        return run(name, options)
    except Exception as error:
        return [failed(name, f"{type(error).__name__}: {error}")]


def _in_own_process(name: str, options: argparse.Namespace, forward: Sequence[str]) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, sys.argv[0], "--target", options.target, "--case", name, "--rows", str(rows)]
        command += [*forward, *(["--quick"] if options.quick else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
        except subprocess.TimeoutExpired:
            return [failed(name, f"took longer than {options.limit:g} s")]
        if done.returncode != 0 or not rows.exists():
            print(done.stderr[-4000:], file=sys.stderr)
            return [failed(name, (done.stderr.strip().splitlines() or ["no message"])[-1])]
        return [Row(**row) for row in json.loads(rows.read_text())]


def failed(name: str, reason: str) -> Row:
    """Return the row of a case that could not be measured. It has a reach, so that it is not taken for a result."""
    return Row(name, "not measured", None, "", reach=0.0, note=reason[:300])


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """Return chip, driver and CUDA version for the head of the result file, and its folder. Results of the emulator belong to the CPU."""
    if not options.target.startswith("cuda"):
        return {"chip": "cpu", "directory": options.out}
    return {"chip": target(options.target).chip.name, "driver": driver_version(), "cuda": cuda_version(), "directory": options.out}

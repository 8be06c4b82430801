"""Time replayed graphs and single calls, interleaved with those of other libraries."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from memlane.chip import LANES
from memlane.compile import cuda
from memlane.lab.reduction.module_cache import load_cached
from memlane.launch import DeviceArray, Launch, Target
from memlane.ptx import Module

SOURCE = Path(__file__).with_name("bandwidth.cu")
THREADS, UNROLL = 512, 8
Run = Callable[[], object]


def interleaved(target: Target, runs: Mapping[str, tuple[Run, int]], rounds: int) -> dict[str, list[float]]:
    """Return the microseconds of each run per repeat, one sample per round, all in turn; one round before them is discarded."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, (run, repeats) in runs.items():
            elapsed = target.elapsed_ns(run) / 1e3 / repeats
            if number:
                found[name].append(elapsed)
    return found


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median of the paired ratios."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def replayed(target: Target, launches: Sequence[Launch], repeats: int) -> tuple[Run, int]:
    """Return the replay of a graph that repeats the launches, and the number of repeats."""
    return target.graph(tuple(launches) * repeats).replay, repeats


def repeats_for(nbytes: int) -> int:
    """Return the number of sums in one graph: ten, or two of the largest."""
    return 10 if nbytes < 1 << 29 else 2


def _compiled() -> Module:
    return cuda(f"#define UNROLL {UNROLL}\n" + SOURCE.read_text(encoding="utf-8"), name=SOURCE.name)


def read_launch(array: DeviceArray) -> Launch:
    """Return the launch of a kernel that only loads the array."""
    words = array.nbytes // 16
    grid = max(1, -(-words // (THREADS * UNROLL)))
    return load_cached(array.target, _compiled)["read"][grid, THREADS].bind(array.target.empty(1, np.uint32), array, words)


def copy_launch(out: DeviceArray, array: DeviceArray) -> Launch:
    """Return the launch of a kernel that copies the array: it reads and writes as many bytes."""
    words = array.nbytes // 16
    grid = max(1, -(-words // (THREADS * UNROLL)))
    return load_cached(array.target, _compiled)["copy"][grid, THREADS].bind(out, array, words)


def empty_launch(target: Target) -> Launch:
    """Return the launch of a kernel that does nothing."""
    return load_cached(target, _compiled)["empty"][1, LANES].bind()

"""Measure how near generated stencils come to a copy, and what several steps in one launch gain.

Each case measures in turn, round by round: a copy of as many bytes as one step reads and writes of its fields (16 bytes a thread),
launches of one step, launches of several steps where the reach names those, and peers on the same grid. All are plans of many launches
that run as graphs for some 40 ms between two readings of the host's clock (peers: six calls between two synchronisations); medians of 9
rounds, and the median of the paired ratios to the copy. Variants are the fastest of a few that `variant="timed"` tries, too. Peers:
PyTorch slices, which make an array for each operation, and its conv3d; Triton by hand, a program for each 1024 cells, without reuse in
registers; JAX, CuPy and numba.cuda (`stencil_others`); for Himeno CUDA by hand, one thread a cell; and where they were built, EBISU and
gpu-himeno. Grids are filled with random numbers, Himeno's with its own initial values. `bitwise` compares runs on the device with NumPy,
cell by cell; `first step` is the time from the first line of a rule to the end of its first step on a grid of 256^3, in a process whose
CUDA context exists.

Prediction (written before the first run), for an H200 whose copy makes 4.2 TB/s: 7-point fp32 by one step 460 Gcell/s at 512^3 and 430 at
1024^3; by three steps 740 and 970; 13-point fp64 155; 7-point fp64 220; 27-point fp32 285; 5-point in two dimensions 495, and 1,850 by six
steps; Himeno 2.6 TFLOPS at L and XL. The model keeps Himeno and the 27-point rule at one step.

    python benchmarks/stencil.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from harness import Row, interleaved, median_ratio
from running import measure, parser
from stencil_others import programs_of
from stencil_peers import peers_of
from stencil_rules import RULES

import memlane as ml
from memlane.launch import Target
from memlane.plan import PlanBuilder
from memlane.stencils import Code, DirectKernel, FusedKernel, Problem, Stage, Variant
from memlane.stencils.choice import direct_variants, estimates
from memlane.stencils.geometry import stored_shape
from memlane.targets import BoundPlan
from memlane.targets import target as named_target
from memlane.timeloop.engine import Engine
from memlane.timeloop.memory import upload

SOURCES = [
    "src/memlane/stencils",
    "src/memlane/timeloop",
    "src/memlane/plan",
    "src/memlane/targets/plans.py",
    "benchmarks/stencil.py",
    "benchmarks/stencil_rules.py",
    "benchmarks/stencil_peers.py",
    "benchmarks/stencil_others.py",
    "benchmarks/stencil_triton.py",
]

COPY = """
extern "C" __global__ void copy(float4* __restrict__ to, const float4* __restrict__ of, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) to[i] = of[i];
}
__device__ unsigned mixed(unsigned x) { x ^= x >> 16; x *= 0x7feb352dU; x ^= x >> 15; x *= 0x846ca68bU; return x ^ (x >> 16); }
extern "C" __global__ void fill_f4(float* data, long long n, float value, int random) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) data[i] = random ? mixed((unsigned)i) * 0x1p-32f : value;
}
extern "C" __global__ void fill_f8(double* data, long long n, double value, int random) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) data[i] = random ? mixed((unsigned)i) * 0x1p-32 : value;
}
"""
ROUNDS = 9
HIMENO_FLOPS = 34
"""Operations of a cell as the benchmark counts them."""


@dataclass(frozen=True)
class Case:
    """A rule on a grid, and what is to be reached by one step and by several, in Gcell/s (Himeno: TFLOPS)."""

    rule: str
    shape: tuple[int, ...]
    dtype: str
    reach: float
    fused_reach: float | None = None

    @property
    def is_himeno(self) -> bool:
        return self.rule == "himeno"


CASES = {
    "7-point fp32 512^3": Case("seven", (512,) * 3, "f4", 505.0, 1000.0),
    "7-point fp32 1024^3": Case("seven", (1024,) * 3, "f4", 505.0, 1000.0),
    "7-point fp64 512^3": Case("seven", (512,) * 3, "f8", 0.93),
    "13-point fp64 512^3": Case("thirteen", (512,) * 3, "f8", 0.93),
    "27-point fp32 512^3": Case("box", (512,) * 3, "f4", 0.88),
    "5-point fp32 16384^2": Case("five", (16384,) * 2, "f4", 0.94, 4.0),
    "Himeno L": Case("himeno", (256, 256, 512), "f4", 2.45),
    "Himeno XL": Case("himeno", (512, 512, 1024), "f4", 2.45, 3.2),
}
BITWISE, FIRST = "bitwise", "first step"


class Bench:
    """The fields of one case on a target, and what is timed with them."""

    def __init__(self, target: Target, case: Case, quick: bool) -> None:
        self.target, self.case, self.quick = target, case, quick
        shape = tuple(max(8, one // 32) for one in case.shape) if quick else case.shape
        swap = ("p_new", "p") if case.is_himeno else ("new", "u")
        self.problem = Problem(RULES[case.rule].rules, ml.Grid(shape, dtype=case.dtype), (swap,))
        self.rule = self.problem.rules[0]
        self.kernels = target.load(ml.cuda(COPY))
        self.arrays = {name: self._field(name, shape) for name in self.problem.fields}
        count = sum(1 if length is None else length for length in self.problem.scalars.values())
        self.scalars = target.array(np.full((1, max(1, count)), 0.8 if case.is_himeno else 1 / max(1, count), case.dtype))

    def _field(self, name: str, shape: tuple[int, ...]) -> ml.DeviceArray:
        """Return a field: random numbers, or those of the Himeno benchmark."""
        if self.case.is_himeno and name == "p":
            rows = (np.arange(shape[0]) ** 2 / (shape[0] - 1) ** 2)[:, None, None]
            return upload(self.target, np.broadcast_to(rows, shape), shape, "f4", name)
        constant = {"a3": 1 / 6, "b0": 0.0, "b1": 0.0, "b2": 0.0, "wrk1": 0.0, "p_new": 0.0}
        return self.filled(stored_shape(shape), constant.get(name, 1.0) if self.case.is_himeno else None)

    def filled(self, shape: tuple[int, ...], value: float | None) -> ml.DeviceArray:
        """Return memory with one value, or with random numbers from 0 to 1."""
        array = self.target.empty(shape, self.case.dtype)
        self.kernels[f"fill_{self.case.dtype}"][-(-array.size // 256), 256](array, array.size, value or 0.0, int(value is None))
        return array

    @property
    def bytes_a_cell(self) -> int:
        return np.dtype(self.case.dtype).itemsize * (len(self.rule.reads) + len(self.rule.writes))

    def _turns(self, steps: int) -> int:
        """Return how many launches make a run that takes some 40 ms, beside which the start and the end of a graph count little."""
        a_launch = self.problem.grid.cells * self.bytes_a_cell / 4e12 * (1 if steps == 1 else steps / 2)
        return 2 if self.quick else max(10, int(0.04 / a_launch) // 2 * 2)

    def stepping(self, variant: Variant) -> tuple[Callable[[], object], int]:
        """Return what makes some steps by launches of a variant, and how many."""
        kernel = (DirectKernel if variant.steps == 1 else FusedKernel)(self.problem, self.rule, variant)
        engine = Engine(self.problem, Code(self.problem, (kernel,)), self.target, dict(self.arrays))
        turns = self._turns(variant.steps)
        return engine.bound(Stage(self.problem, (kernel,), turns), self.scalars, {}).run, turns * variant.steps

    def fastest(self, variants: list[Variant]) -> Variant:
        """Return the fastest of some variants, as `variant="timed"` finds it."""
        if self.quick:
            return variants[0]
        rates = [(max(measured() for _ in range(2)), one) for one in variants for measured in [rate(self, *self.stepping(one))]]
        return max(rates, key=lambda pair: pair[0])[1]

    def copying(self) -> tuple[Callable[[], object], float]:
        """Return what copies as many bytes as a step reads and writes, at most 4 GiB at once, and of how many steps those are the bytes."""
        a_step = self.problem.grid.cells * self.bytes_a_cell
        size = min(a_step // 2, 4 << 30) // 16 * 16 // np.dtype(self.case.dtype).itemsize
        builder, copy = PlanBuilder(), self.kernels["copy"]
        to, of = builder.array("to", size, self.case.dtype), builder.array("of", size, self.case.dtype)
        turns, vectors = self._turns(1), to.nbytes // 16
        with builder.repeat(turns) as loop:
            loop.launch(copy, -(-vectors // 256), 256, to, of, vectors, reads=[of], writes=[to])
        memory = {"to": self.filled((size,), 0.0), "of": self.filled((size,), None)}
        run = BoundPlan(builder.plan(), memory, targets=[self.target], modules=[copy.loaded]).run
        return run, turns * 2 * to.nbytes / a_step


def rate(bench: Bench, run: Callable[[], object], steps: float) -> Callable[[], float]:
    """Return what gives Gcell/s of one run."""

    def measured() -> float:
        began = time.perf_counter()
        run()
        return bench.problem.grid.cells * steps / (time.perf_counter() - began) / 1e9

    run()
    return measured


def grid_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Measure one rule on one grid."""
    case = CASES[name]
    bench = Bench(named_target(options.target), case, options.quick)
    expected = [one.variant for one in estimates(bench.problem, bench.rule, bench.target.chip) if one.variant.steps > 1]
    single = bench.fastest(direct_variants(bench.problem, bench.rule)[:4])
    several = bench.fastest(expected[:4]) if case.fused_reach else None
    runs = {"copy": rate(bench, *bench.copying()), "one step": rate(bench, *bench.stepping(single))}
    if several is not None:
        runs["several steps"] = rate(bench, *bench.stepping(several))
    if not options.quick:
        runs |= {peer: rate(bench, run, steps) for peer, (run, steps) in peers_of(bench).items()}
    found = interleaved(2 if options.quick else ROUNDS, runs)
    peers = {f"{peer}, Gcell/s": round(statistics.median(values), 2) for peer, values in found.items() if "step" not in peer}
    peers |= {f"{peer}, Gcell/s": round(value, 2) for peer, value in programs_of(name).items() if not options.quick}
    rows = _rows(name, case, "one step a launch", found["one step"], found["copy"], case.reach, str(single), peers, bench)
    if several is not None:
        what = f"{several.steps} steps a launch"
        rows += _rows(name, case, what, found["several steps"], found["copy"], case.fused_reach, str(several), peers, bench)
    return rows


def _rows(
    name: str, case: Case, what: str, rates: list[float], copies: list[float], reach: float | None, variant: str, peers: dict[str, float],
    bench: Bench,
) -> list[Row]:  # fmt: skip
    """Return the rows of one way to make steps: its rate, and its share of the copy."""
    share, low, high = median_ratio(rates, copies)
    median = statistics.median(rates)
    note = f"{variant}; paired {low:.3f} to {high:.3f} of the copy"
    of_share = reach is not None and reach <= 4.0 and not case.is_himeno
    rows = [
        Row(
            f"{name}, {what}",
            "share of the copy",
            round(share, 4),
            "",
            reach if of_share else None,
            "higher",
            peers,
            _why(note, share, reach if of_share else None),
        )
    ]
    if case.is_himeno:
        interior = np.prod([one - 2 for one in bench.problem.grid.shape]) / bench.problem.grid.cells
        tflops = float(median * interior * HIMENO_FLOPS / 1e3)
        rows.append(Row(f"{name}, {what}", "rate", round(tflops, 4), "TFLOPS", reach, "higher", peers, _why(note, tflops, reach)))
    else:
        bound = None if of_share else reach
        rows.append(Row(f"{name}, {what}", "rate", round(median, 2), "Gcell/s", bound, "higher", peers, _why(note, median, bound)))
    return rows


def _why(note: str, value: float, reach: float | None) -> str:
    if reach is None or value >= reach:
        return note
    return f"{note}; not reached: waiting for memory between planes and instructions for addresses and boundaries remain"


def bitwise(options: argparse.Namespace) -> list[Row]:
    """Compare runs on the device with NumPy: the number of cells that differ, over variants and boundaries."""
    target, random, differing, cells = named_target(options.target), np.random.default_rng(2), 0, 0
    shape, steps = ((9, 12, 40), 3) if options.quick else ((61, 70, 333), 7)
    a = [0.1, 0.2, 0.15, 0.05, 0.1, 0.1, 0.3]
    for boundary in ("fixed", "periodic", ("periodic", "fixed", (1.0, 0.5)), "reflecting"):
        for variant in (None, Variant(4, (32, 8), 20, 1), Variant(4, (32, 12), 20, 4, 3), Variant(2, (32, 16), 16, 2, 2)):
            if variant is not None and variant.steps > 1 and boundary == "reflecting":
                continue
            values = {"u": random.random(shape, np.float32), "a": a, "swap": ("new", "u")}
            problem = RULES["seven"].on(ml.Grid(shape, boundary=boundary))
            run = problem.prepare(**values, variant=variant, fmad=False, targets=target).steps(steps)
            differing += int((run["u"].gather() != problem.reference(steps, **values)["u"]).sum())
            cells += run["u"].gather().size
    return [Row(f"7-point fp32 against NumPy, {cells:,} cells", "cells that differ", differing, "", 0.0, "lower")]


def first_step(options: argparse.Namespace) -> list[Row]:
    """Measure the time to the first step."""
    target = named_target(options.target)
    target.zeros(1)
    target.sync()
    u = np.zeros((32, 32, 32) if options.quick else (256, 256, 256), np.float32)
    weight = time.time_ns() % 1_000_000_007 / 1e9  # no other process has compiled this

    def took() -> float:
        began = time.perf_counter()

        @ml.stencil
        def fresh(new, u):  # type: ignore[no-untyped-def]
            new[0, 0, 0] = 0.4 * u[0, 0, 0] + weight * (u[-1, 0, 0] + u[1, 0, 0] + u[0, -1, 0] + u[0, 1, 0] + u[0, 0, -1] + u[0, 0, 1])

        fresh.on(ml.Grid(u.shape)).prepare(u=u, swap=("new", "u"), targets=target).steps(1)
        return time.perf_counter() - began

    first, again = took(), took()
    name, why = "from the rule to the first step, 256^3", "reading the code, the driver's assembler and the upload take longer"
    return [
        Row(name, "time, code not on disk", round(first, 3), "s", 2.0, "lower", note="" if first <= 2.0 else "compiling takes longer"),
        Row(name, "time, code on disk", round(again, 3), "s", 0.3, "lower", note="" if again <= 0.3 else why),
    ]


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run one case."""
    if name == BITWISE:
        return bitwise(options)
    return first_step(options) if name == FIRST else grid_case(name, options)


def main() -> None:
    """Measure all cases."""
    options = parser(__doc__).parse_args()
    measure("stencil", [BITWISE, FIRST, *CASES], run_case, options)


if __name__ == "__main__":
    main()

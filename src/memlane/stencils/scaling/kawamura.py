"""The model of Kawamura, Maruyama and Matsuoka (IPSJ HPC 2012), as the paper states it.

A step of the paper is what lies between two exchanges, so it makes k updates of the grid:

    t_step = max(T_inner, T_GtoC + T_MPI + T_CtoG) + T_boundary          (equation 1)
    minimise loop / k * t_step over k                                    (equation 2)
    T of a kernel = max(flop / F, byte / B) * cells + const              (equations 3 and 4)

F, B and const are effective rates of the GPU and the cost of a launch: 1000 Gflop/s, 120 GB/s and 12 us for an M2050 (the chip file has
them). T_inner and T_boundary are those of k kernels each, over the regions of `regions`, schedule `independent`; one kernel for each
face. Times of communication come from a table of measured times, one part after another; here they are those of a network file.

`flop` and `byte` are counted in the rule's text as the paper does. Operations: those of the rule and 5 for indices. Bytes: a rule that
reads one field is taken to march along the first axis with planes in registers and rows in the cache, so each field moves once; a rule of
several fields has a thread for each cell, and each row (all axes but the last) that it reads moves. So the 7-point stencil has 18
operations and 8 bytes, and Himeno 88 bytes. The paper counts 28 operations for Himeno, where its text has 37 by this rule; the bytes take
20 times as long as these, so no time depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from memlane.chip import Chip
from memlane.number_format import percent
from memlane.stencils.choice import RATED_SHARE
from memlane.stencils.geometry import itemsize
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule
from memlane.stencils.scaling.regions import Box, Schedule, Step
from memlane.stencils.scaling.work import Exchange, operations

INDEX_OPERATIONS = 5
"""What a thread computes to go to its next cell (section 4.1.2)."""
ASSUMED_LAUNCH_US = 0.7
"""As on an H200, for chips whose file has no [links] launch_us."""


@dataclass(frozen=True)
class CellWork:
    """Operations and bytes of one cell."""

    flops: float
    nbytes: float


def cell_work(problem: Problem, rule: Rule) -> CellWork:
    """Return the operations and bytes of a cell, counted in the rule's text."""
    moved = 0
    for name, offsets in rule.reads.items():
        rows = 1 if len(rule.reads) == 1 else len({one[:-1] for one in offsets})
        moved += rows * itemsize(problem.dtype(name))
    moved += sum(itemsize(problem.dtype(name)) for name in rule.writes)
    return CellWork(operations(rule) + INDEX_OPERATIONS, moved)


@dataclass(frozen=True)
class KawamuraModel:
    """Times of the regions of a problem on a chip by the paper's model."""

    work: tuple[CellWork, ...]
    """For each rule of a step."""
    gflops: float
    gb_per_s: float
    launch_us: float
    notes: tuple[str, ...] = ()
    schedule: Schedule = "independent"
    stays: bool = False

    @classmethod
    def of(cls, problem: Problem, chip: Chip, work: CellWork | None = None) -> KawamuraModel:
        """Return the model of a problem on a chip. `work` replaces what is counted in the rules."""
        works = (work,) if work is not None else tuple(cell_work(problem, rule) for rule in problem.rules)
        notes = []
        gflops = chip.fp32_gflops or 2e-3 * chip.throughput.fma * chip.sm_count * chip.clock_mhz
        if chip.fp32_gflops is None:
            notes.append(f"{chip.name}: the rated {gflops:,.0f} Gflop/s are used, because its file has no fp32_gflops")
        rate = chip.copy_gb_per_s or RATED_SHARE * chip.dram_gb_per_s
        if chip.copy_gb_per_s is None:
            notes.append(f"{chip.name}: {rate:,.0f} GB/s, {percent(RATED_SHARE)} of the rated bandwidth, are assumed")
        launch = chip.links.launch_us
        if launch is None:
            launch = ASSUMED_LAUNCH_US
            notes.append(f"{chip.name}: a launch is assumed to cost {launch} us, because its file has no [links] launch_us")
        return cls(works, gflops, rate, launch, tuple(notes))

    @property
    def sentence(self) -> str:
        """Return the numbers that the model goes by."""
        cells = "; ".join(f"{one.flops:g} operations and {one.nbytes:g} bytes a cell" for one in self.work)
        return f"{self.gflops:,.0f} Gflop/s, {self.gb_per_s:,.0f} GB/s, {self.launch_us:g} us a launch; {cells}"

    def kernel_us(self, box: Box) -> float:
        """Return the time of one step of a region: equation 4 for each rule."""
        cells = prod(box)
        if not cells:
            return 0.0
        return sum(max(one.flops / self.gflops, one.nbytes / self.gb_per_s) * 1e-3 * cells + self.launch_us for one in self.work)

    def can_fuse(self, steps: int) -> bool:
        """Return whether steps share a launch: in the paper each has its own."""
        return steps == 1

    def on_share(self, share: Box, nbytes: float) -> KawamuraModel:
        """Return the model for devices with so many cells and bytes of fields: the same, because caches have no size here."""
        return self

    def inner_us(self, steps: Sequence[Step], fused: int = 1) -> float:
        return sum(self.kernel_us(step.inner) for step in steps if step.inner)

    def boundary_us(self, steps: Sequence[Step], fused: int = 1) -> float:
        return sum(self.kernel_us(box) for step in steps for box in step.borders)

    def turn_us(self, steps: Sequence[Step], fused: int, exchange: Exchange) -> tuple[float, bool]:
        """Return the time between two exchanges, equation 1, and whether the inner region takes longer than the exchange."""
        inner = self.inner_us(steps)
        return max(inner, exchange.us) + self.boundary_us(steps), inner >= exchange.us

    def apart_us(self, steps: Sequence[Step], fused: int, exchange_us: float) -> float:
        """Return the time between two exchanges where these follow all launches."""
        return self.boundary_us(steps) + exchange_us

    def pack_us(self, nbytes: float) -> float:
        """Return the time to pack a face whose cells do not lie side by side, and to unpack it at the other end. The paper has none: it
        cuts the first axis only."""
        return 2 * (self.launch_us + 2e-3 * nbytes / self.gb_per_s)

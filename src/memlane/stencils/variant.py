"""Define variants of a kernel: blocks, vectors and marches, which change its speed but not its result."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.stencils.geometry import itemsize
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule

WARP = 32


@dataclass(frozen=True)
class Variant:
    """Blocks, vectors and marches of a rule's kernel, which change its speed but not its result."""

    vector: int = 4
    """Cells along x of a thread."""
    block: tuple[int, int] = (32, 8)
    """Threads of a block along x and y."""
    planes: int = 8
    """Planes along z through which a block marches."""
    rows: int = 1
    """Rows along y of a thread."""
    steps: int = 1
    """Steps of one launch."""
    ahead: int = 0
    """Planes that are loaded ahead of their use; in kernels of several steps, in addition to the one loaded a turn ahead."""
    unroll: int = 1
    """Planes per iteration of the loop along z, unrolled so that registers need not move from plane to plane."""
    group: int = 0
    """Blocks along y that start before those that follow them along z, in kernels of one step, so that L2 still holds the planes which
    blocks share along z; 0: all of them."""

    def __str__(self) -> str:
        shape = f"{self.steps} step{'s' if self.steps > 1 else ''}, {self.block[0]} x {self.block[1]} threads"
        rows = f" x {self.rows} rows" if self.rows > 1 else ""
        turns = f", {self.ahead} ahead" if self.ahead else ""
        turns += f", {self.unroll} planes a turn" if self.unroll > 1 else ""
        turns += f", z before y in groups of {self.group} blocks" if self.group else ""
        return f"{shape} of {self.vector} cells{rows}, {self.planes} planes a block{turns}"


def preferred_vector(problem: Problem, rule: Rule) -> int:
    """Return the number of cells of a thread with which the widest field is accessed by 16 bytes."""
    return max(1, 16 // max(itemsize(problem.dtype(name)) for name in rule.fields))

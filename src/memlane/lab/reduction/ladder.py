"""Define the steps of the ladder, a file each, and launch them until one value is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memlane.compile import cuda
from memlane.lab.reduction.module_cache import load_cached
from memlane.launch import DeviceArray, Kernel, Launch, Target, whole_target
from memlane.ptx import Module

FOLDER = Path(__file__).with_name("steps")
BLOCKS = (64, 128, 256, 512, 1024)
"""Block sizes that every step supports."""


@dataclass(frozen=True)
class Step:
    """A step of the ladder."""

    number: int
    name: str
    file: str
    removed: str
    """The bottleneck of the previous step that is gone, in a sentence."""
    per_thread: int = 1
    """Elements per thread; 0 if it takes as many as needed, in a grid that fits on the chip."""
    template: bool = False
    """Whether the block size is a template parameter."""
    tree_in_shared: bool = True
    """Whether the block's tree lies in dynamic shared memory."""
    state: str = ""
    """Way in which blocks combine their results, if one launch is enough: `ticket` or `word`."""

    @property
    def title(self) -> str:
        return f"{self.number}: {self.name}"

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    def barriers(self, block: int) -> int:
        """Return the barriers that a block executes, by its source."""
        turns = block.bit_length() - 1
        if not self.tree_in_shared:
            return 1 if self.state != "ticket" else 2
        return 1 + (turns if self.number < 5 else turns - 6)

    def kernel(self, target: Target, block: int, element: str = "int") -> Kernel:
        """Return the kernel for a block size, on a target."""
        return next(iter(load_cached(target, _compiled, self.file, block if self.template else None, element).values()))


def _compiled(file: str, block: int | None, element: str) -> Module:
    """Return the compiled module of a step; `block` is the template argument, None if it is not a template."""
    return cuda(FOLDER / file, define=[f"TYPE={element}"], instantiate=() if block is None else [f"reduce<{block}>"])


STEPS = (
    Step(
        1,
        "interleaved, divergent",
        "step1_divergent.cu",
        "None: this is the start, a tree over neighbours in which `%` leaves only some lanes of each warp active.",
    ),
    Step(
        2,
        "interleaved, strided",
        "step2_strided.cu",
        "Divergent branches: the first threads do the work, so whole warps are active or idle. But their strides cause bank conflicts.",
    ),
    Step(3, "sequential", "step3_sequential.cu", "Bank conflicts: lane k accesses element k."),
    Step(
        4,
        "first add while loading",
        "step4_first_add.cu",
        "Threads that only load: each thread loads two elements and adds them, so half as many blocks are needed.",
        per_thread=2,
    ),
    Step(
        5,
        "last warp unrolled",
        "step5_last_warp.cu",
        "Barriers and tests in the last six iterations: only one warp is left, and it needs no barrier of the block.",
        per_thread=2,
    ),
    Step(
        6,
        "completely unrolled",
        "step6_unrolled.cu",
        "Loop instructions: the compiler knows the size of the block.",
        per_thread=2,
        template=True,
    ),
    Step(
        7,
        "many elements a thread",
        "step7_many.cu",
        "Trees: one per resident block, instead of one for every two elements of a thread.",
        per_thread=0,
        template=True,
    ),
    Step(
        8,
        "shuffles",
        "step8_shuffle.cu",
        "Shared memory and barriers: lanes read each other's registers.",
        per_thread=0,
        template=True,
        tree_in_shared=False,
    ),
    Step(
        9,
        "loads of 16 bytes",
        "step9_wide.cu",
        "Load instructions: a quarter of them loads the same bytes.",
        per_thread=0,
        template=True,
        tree_in_shared=False,
    ),
    Step(
        10,
        "loads in flight",
        "step10_in_flight.cu",
        "Waiting: each thread has eight loads in flight.",
        per_thread=0,
        template=True,
        tree_in_shared=False,
    ),
    Step(
        11,
        "one launch",
        "step11_one_launch.cu",
        "The second launch: the last block to finish adds up the sums of all blocks.",
        per_thread=0,
        template=True,
        tree_in_shared=False,
        state="ticket",
    ),
    Step(
        12,
        "sum and count in one word",
        "step12_one_word.cu",
        "The fence and the second read: one atomic addition adds a block's sum and counts the block.",
        per_thread=0,
        template=True,
        tree_in_shared=False,
        state="word",
    ),
)
COURSE = STEPS[:7]
UNSAFE = Step(
    5, "last warp unrolled, as it was taught", "step5_unsafe.cu", "Correct only if the lanes of a warp run in lockstep.", per_thread=2
)


@dataclass(frozen=True, eq=False)
class Passes:
    """A sum from the array to the single final value."""

    step: Step
    launches: tuple[Launch, ...]
    out: DeviceArray
    """Array of one element for the result."""

    @property
    def threads(self) -> int:
        return sum(one.grid[0] * one.block[0] for one in self.launches)

    def run(self) -> Any:
        """Compute the sum once, and return it as a NumPy scalar."""
        for one in self.launches:
            one.kernel.target.launch(one)
        return np.asarray(self.out.numpy()).reshape(-1)[0]


_ELEMENT: Mapping[str, str] = {"int32": "int", "float32": "float"}


def passes(step: Step, array: DeviceArray, block: int = 256, most_blocks: int | None = None) -> Passes:
    """Return the launches of a step that sum an array of int32 or float32 to one value.

    `most_blocks` limits a grid that fits on the chip; by default as many blocks as fit.
    """
    target, element = whole_target(array.target), _ELEMENT[array.dtype.name]
    kernel = step.kernel(target, block, element)
    shared = block * array.dtype.itemsize if step.tree_in_shared else 0
    source, left, launches = array, array.size, list[Launch]()
    while True:
        grid = _blocks(step, kernel, left, block, most_blocks)
        out = target.empty(1 if step.state else grid, array.dtype)
        state: tuple[DeviceArray, ...] = ()
        if step.state:
            ticket = target.zeros(1, np.uint32 if step.state == "ticket" else np.uint64)
            state = (target.empty(grid, array.dtype), ticket) if step.state == "ticket" else (ticket,)
        launches.append(kernel[grid, block, None, shared].bind(out, source, left, *state))
        if grid == 1 or step.state:
            return Passes(step, tuple(launches), out)
        source, left = out, grid


def _blocks(step: Step, kernel: Kernel, n: int, block: int, most_blocks: int | None) -> int:
    """Return the blocks of a pass over n elements; a second pass over the sums of a grid that fits on the chip takes one block."""
    if step.per_thread:
        return max(1, -(-n // (block * step.per_thread)))
    chip = kernel.target.chip
    resident = min(most_blocks or 1 << 31, chip.sm_count * max(1, chip.max_threads_per_sm // block))
    needed = max(1, -(-n // (2 * block)))
    return 1 if n <= resident else min(needed, resident)

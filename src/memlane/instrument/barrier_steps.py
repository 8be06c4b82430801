"""Accesses that a warp executes at most once between two barriers of its block, such as the steps of a tree of sums."""

from __future__ import annotations

from memlane.ptx import ControlFlow, Function, Instruction, flatten_scopes
from memlane.walks import components

_BARRIERS = frozenset({"bar", "barrier"})


def once_between_barriers(function: Function) -> frozenset[int]:
    """Indices of the instructions of a kernel on whose way back to themselves there is a barrier for the whole block, whatever the way.

    What is in no loop is among them. A warp that executes one of them more often than others has come to that many more barriers.
    """
    flow = ControlFlow(flatten_scopes(function))
    held = {block.index for block in flow.blocks if any(map(_is_block_barrier, block.instructions))}
    free = [block.index for block in flow.blocks if block.index not in held]
    ways = {index: [to for to in flow.successors[index] if to not in held] for index in free}
    around = {index for cycle in components(free, ways.__getitem__) for index in cycle if len(cycle) > 1 or index in ways[index]}
    numbers = [block.index for block in flow.blocks for _ in block.instructions]
    return frozenset(index for index, block in enumerate(numbers) if block not in around)


def _is_block_barrier(one: Instruction) -> bool:
    first, *more = one.name.split(".")
    return first in _BARRIERS and not {"warp", "cluster", "arrive"} & set(more)

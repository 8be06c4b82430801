"""Relate accesses to the loops around them.

`repeating` finds accesses that read the same addresses in each iteration of an outer loop. `once_between_barriers` finds accesses that a
warp executes at most once between two barriers of its block, such as the steps of a tree reduction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from memlane.ptx import ControlFlow, Function, Instruction, flatten_scopes, memory_accesses, registers_in, values_read, values_written
from memlane.walks import components

_BARRIERS = frozenset({"bar", "barrier"})
Edges = Mapping[int, tuple[int, ...]]


def repeating(function: Function) -> frozenset[int]:
    """Return the indices of memory instructions in a loop whose addresses are the same, or start over, in each of its iterations.

    No induction variable of that loop goes into these addresses, and the induction variables of inner loops are reset in each iteration.
    Addresses loaded from memory are not included.
    """
    flow = ControlFlow(flatten_scopes(function))
    loops = [loop.blocks for loop in flow.loops]
    if not loops:
        return frozenset()
    around: dict[int, list[frozenset[int]]] = defaultdict(list)
    for loop in loops:
        for block in loop:
            around[block].append(loop)
    instructions = [one for block in flow.blocks for one in block.instructions]
    block_of = [block.index for block in flow.blocks for _ in block.instructions]
    writers: dict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(instructions):
        for name in values_written(one):
            writers[name].append(index)
    found = set()
    for index, one in enumerate(instructions):
        nest = around.get(block_of[index], [])
        inside = [(outer, inner) for outer in nest for inner in (*nest, frozenset[int]()) if inner < outer]
        names = list(_address_registers(one)) if inside else []
        if names and any(_begins_anew(names, instructions, writers, block_of, outer, inner) for outer, inner in inside):
            found.add(index)
    return frozenset(found)


def _address_registers(one: Instruction) -> Iterator[str]:
    """Yield the registers in the addresses of an instruction, except those in parameter space."""
    for access in memory_accesses(one) if one.form.addresses else ():
        if access.space != "param":
            yield from registers_in(access.address)


def _begins_anew(
    names: list[str],
    instructions: list[Instruction],
    writers: Mapping[str, Sequence[int]],
    block_of: Sequence[int],
    outer: frozenset[int],
    inner: frozenset[int],
) -> bool:
    """Return whether these registers take the same sequence of values in each iteration of the outer loop."""
    behind: dict[int, tuple[int, ...]] = {}
    work = [index for name in names for index in writers.get(name, ())]
    while work:
        index = work.pop()
        if index in behind:
            continue
        one = instructions[index]
        if one.form.addresses and one.form.addresses.get("a") != "param":
            return False
        behind[index] = tuple(dict.fromkeys(index for name in values_read(one) for index in writers.get(name, ())))
        work += behind[index]
    # Outside the inner loop, the outer loop may set registers but not update them from their previous values.
    beside = {index for index in behind if block_of[index] in outer and block_of[index] not in inner}
    set_there = {name for index in beside for name in values_written(instructions[index])}
    for cycle in _cycles(behind):
        if cycle & beside:
            return False
        counted = {name for index in cycle for name in values_written(instructions[index])}
        if any(block_of[index] in inner for index in cycle) and not counted & set_there:
            return False
    return True


def _cycles(edges: Edges) -> Iterable[set[int]]:
    """Return the strongly connected components that contain a cycle."""
    return (one for one in components(edges, edges.__getitem__) if len(one) > 1 or any(node in edges[node] for node in one))


def once_between_barriers(function: Function) -> frozenset[int]:
    """Return the indices of the instructions that every cycle reaches again only through a block-wide barrier; those outside loops
    included.

    A warp that executes one of them more often than another warp has passed that many more barriers.
    """
    flow = ControlFlow(flatten_scopes(function))
    held = {block.index for block in flow.blocks if any(map(_is_block_barrier, block.instructions))}
    free = [block.index for block in flow.blocks if block.index not in held]
    ways = {index: [to for to in flow.successors[index] if to not in held] for index in free}
    around = {index for cycle in components(free, ways.__getitem__) for index in cycle if len(cycle) > 1 or index in ways[index]}
    numbers = [block.index for block in flow.blocks for _ in block.instructions]
    return frozenset(index for index, block in enumerate(numbers) if block not in around)


def _is_block_barrier(one: Instruction) -> bool:
    """Return whether an instruction waits at a barrier of the whole block."""
    first, *more = one.name.split(".")
    return first in _BARRIERS and not {"warp", "cluster", "arrive"} & set(more)

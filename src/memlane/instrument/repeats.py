"""Accesses and the loops around them: which a loop repeats at the same addresses, since what is read in a loop inside it is read again in
each of its turns; and which a warp makes at most once between two barriers of its block, such as the steps of a tree of sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from memlane.ptx import ControlFlow, Function, Instruction, flatten_scopes, memory_accesses, registers_in, values_read, values_written
from memlane.walks import components

_BARRIERS = frozenset({"bar", "barrier"})
Edges = Mapping[int, tuple[int, ...]]


def repeating(function: Function) -> frozenset[int]:
    """Indices of the instructions of a kernel that access memory in a loop, at addresses that are the same or begin anew in each turn of
    it: nothing that the loop itself counts on goes into them, what loops inside it count begins where it began before. Addresses that
    come from memory are not among them.
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
    """Whether the values of these registers run through the same numbers in each turn of the outer loop."""
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
    # What the outer loop does beside the inner one: it may set registers, but not count on from what they were.
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
    """The sets of nodes that lead to themselves."""
    return (one for one in components(edges, edges.__getitem__) if len(one) > 1 or any(node in edges[node] for node in one))


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

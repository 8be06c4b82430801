"""Find the memory accesses of a kernel that depend on the order in which its threads run."""

from __future__ import annotations

from collections import defaultdict

from memlane.ptx.access import memory_accesses
from memlane.ptx.cfg import ControlFlow
from memlane.ptx.ir import Function, Instruction
from memlane.ptx.registers import registers_in, registers_read, registers_written
from memlane.ptx.scopes import flatten_scopes

_READ_BY_ORDER = ("volatile", "relaxed", "acquire", "mmio")
"""Qualifiers of loads that read data that other threads may be writing."""


def order_dependent_accesses(function: Function) -> frozenset[int]:
    """Return the indices of memory accesses whose address or number depends on the result of an atomic or of a racing load.

    Racing loads are volatile, relaxed or acquire loads. Such accesses may differ from run to run on a GPU. Only registers are followed: a
    value that is stored and loaded again is not.
    """
    flow = ControlFlow(flatten_scopes(function))
    tainted, regions = _follow(flow)
    found = set()
    for block in flow.blocks:
        for index, one in enumerate(block.instructions, block.first):
            if memory_accesses(one) and (block.index in regions or tainted.intersection(_deciding(one))):
                found.add(index)
    return frozenset(found)


def _follow(flow: ControlFlow) -> tuple[set[str], set[int]]:
    """Return the registers whose values depend on the order, and the blocks whose execution does."""
    tainted: set[str] = set()
    regions: set[int] = set()
    readers: dict[str, list[tuple[int, Instruction]]] = defaultdict(list)
    work: list[str] = []
    for block in flow.blocks:
        for one in block.instructions:
            for name in registers_read(one):
                readers[name].append((block.index, one))
            if one.form.effect == "atomic" or (one.form.effect == "load" and any(map(one.has, _READ_BY_ORDER))):
                work += registers_written(one)
    while work:
        name = work.pop()
        if name in tainted:
            continue
        tainted.add(name)
        for index, one in readers[name]:
            work += registers_written(one)
            if one is flow.blocks[index].terminator:
                region = _decided_by(flow, index) - regions
                regions |= region
                work += [written for inside in region for each in flow.blocks[inside].instructions for written in registers_written(each)]
    return tainted, regions


def _decided_by(flow: ControlFlow, branch: int) -> set[int]:
    """Return the blocks whose execution depends on a branch: those between the branch and the join of its successors."""
    if len(flow.successors[branch]) < 2:
        return set(range(branch + 1, len(flow.blocks)))  # some lanes have left for good
    meet = flow.immediate_postdominators[branch]
    return {block for side in flow.successors[branch] if side != meet for block in flow.reachable(side, without=meet)}


def _deciding(one: Instruction) -> set[str]:
    """Return the registers that decide whether an access happens and where; not those of the stored values."""
    found = set() if one.guard is None else {one.guard.register}
    for access in memory_accesses(one):
        found.update(registers_in(access.address))
        found.update(() if access.read_bytes is None else registers_in(access.read_bytes))
    return found

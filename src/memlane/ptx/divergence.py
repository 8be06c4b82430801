"""Which branches may send the lanes of a warp two ways, as far as the text of a kernel tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memlane.ptx.cfg import ControlFlow
from memlane.ptx.ir import Address, Instruction, Special, Symbol, elements
from memlane.ptx.liveness import Liveness
from memlane.ptx.registers import registers_read, registers_written
from memlane.walks import reachable, settling

_OF_THE_WARP = frozenset(
    {"ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank"}
    | {"nwarpid", "nsmid", "gridid", "total_smem_size", "aggr_smem_size", "dynamic_smem_size", "is_explicit_cluster"}
)
"""Special registers that all lanes of a warp read alike, whenever they do."""
_SHARED_BY_LANES = frozenset({"const", "global", "shared", "shared::cta", "shared::cluster"})
"""Spaces in which one address is one place for all lanes."""
_CARRIES = frozenset({"addc", "subc", "madc"})


def diverging_branches(flow: ControlFlow) -> frozenset[int]:
    """The blocks of a kernel, or of a function that it calls, at whose end the active lanes of a warp may go different ways; in doubt a
    block is among them.

    A register may differ between lanes if it comes from one that does, from the number of a thread, from an atomic or an exchange between
    lanes; or if lanes that went two ways bring different values of it along to where they meet. What a load finds at one address is taken
    for the same in all lanes.
    """
    read_in = _read_in(flow)
    parameters = frozenset(one.name for one in flow.function.params if flow.function.is_entry)
    varying: set[str] = set()
    diverging: set[int] = set()
    # Each round but the last finds a register or a block.
    most = len({name for block in flow.blocks for one in block.instructions for name in registers_written(one)}) + len(flow.blocks) + 1
    for _ in settling(f"which branches of {flow.function.title} diverge", most):
        known = len(varying), len(diverging)
        for block in flow.blocks:
            for one in block.instructions:
                if _varies(one, varying, parameters):
                    varying.update(registers_written(one))
            last = block.terminator
            if last is not None and len(flow.successors[block.index]) > 1 and not varying.isdisjoint(registers_read(last)):
                if block.index not in diverging:
                    varying |= _brought_along(flow, read_in, block.index)
                diverging.add(block.index)
        if known == (len(varying), len(diverging)):
            break
    return frozenset(diverging)


def turns_apart(flow: ControlFlow) -> frozenset[int]:
    """The blocks of loops in which lanes of a warp may be in different turns at once: those with several ways back to their first block, or
    with several entrances, and a branch that diverges. Where there is one of each, lanes wait at the way back until all others are there.
    """
    tails: dict[int, list[int]] = {}
    for tail, head in flow.back_edges:
        tails.setdefault(head, []).append(tail)
    several = {head: from_ for head, from_ in tails.items() if len(from_) > 1 or not flow.dominates(head, from_[0])}
    diverging = diverging_branches(flow) if several else frozenset[int]()
    found: set[int] = set()
    for head, from_ in several.items():
        leading = reachable(from_, flow.predecessors.__getitem__)
        inside = flow.reachable(head) & leading
        if not diverging.isdisjoint(inside):
            found |= inside
    return frozenset(found)


def _varies(one: Instruction, varying: set[str], parameters: frozenset[str]) -> bool:
    """Whether what an instruction writes may differ between lanes."""
    if not varying.isdisjoint(registers_read(one)) or one.opcode in _CARRIES:
        return True
    specials = (item.name for operand in one.operands for item in elements(operand) if isinstance(item, Special))
    if any(name.strip("%").partition(".")[0] not in _OF_THE_WARP for name in specials):
        return True
    if one.form.effect == "load":
        address = one.operand("a")
        if one.slot("ss") in ("param", "param::entry"):
            return not (isinstance(address, Address) and isinstance(address.base, Symbol) and address.base.name in parameters)
        return one.slot("ss") not in _SHARED_BY_LANES or one.has("volatile")
    return one.form.effect not in ("", "branch")


def _brought_along(flow: ControlFlow, read_in: Mapping[str, int], number: int) -> set[str]:
    """The registers that are written between a branch and where its lanes meet for certain, and read where they may come by both ways."""
    sides = flow.successors[number]
    meet = flow.immediate_postdominators[number]
    between = set[int]().union(*(flow.reachable(side, without=meet) for side in sides))
    written = {name for block in between for one in flow.blocks[block].instructions for name in registers_written(one)}
    both = _by_several(flow.paths.reached(side) for side in sides)
    return {name for name in written if read_in.get(name, 0) & both}


def _read_in(flow: ControlFlow) -> dict[str, int]:
    """By register the blocks at whose start its value may still be read, as bits of `ControlFlow.paths`."""
    live, found = Liveness(flow), dict[str, int]()
    for block in flow.blocks:
        bit = flow.paths.bit(block.index)
        for name in live.live_in(block.index):
            found[name] = found.get(name, 0) | bit
    return found


def _by_several(reached: Iterable[int]) -> int:
    once = several = 0
    for one in reached:
        several |= once & one
        once |= one
    return several

"""Find the branches at which the lanes of a warp may diverge, from the PTX of a kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from memlane.ptx.cfg import ControlFlow
from memlane.ptx.ir import Address, Instruction, Special, Symbol, elements
from memlane.ptx.liveness import Liveness
from memlane.ptx.registers import registers_read, registers_written
from memlane.walks import positions, post_order, union_of_reachable

_Row = tuple[int, int]
"""A block and an exponent k: the block and its next 2^k - 1 postdominators."""
_UNIFORM_REGISTERS = frozenset(
    {"ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank"}
    | {"nwarpid", "nsmid", "gridid", "total_smem_size", "aggr_smem_size", "dynamic_smem_size", "is_explicit_cluster"}
)
"""Special registers that are uniform across a warp at all times."""
_UNIFORM_SPACES = frozenset({"const", "global", "shared", "shared::cta", "shared::cluster"})
"""Spaces in which one address is one location for all lanes."""
_CARRIES = frozenset({"addc", "subc", "madc"})


def diverging_branches(flow: ControlFlow) -> frozenset[int]:
    """Return the blocks of a kernel, or of a function that it calls, at whose end the active lanes of a warp may diverge; conservative.

    A register may vary across lanes if it depends on one that does, on a thread index, on an atomic or on an exchange between lanes; or if
    lanes that diverged bring different values of it to the join. A load from one address is assumed to return the same value in all lanes.
    """
    parameters = frozenset(one.name for one in flow.function.params if flow.function.is_entry)
    readers: dict[str, list[tuple[tuple[str, ...], int | None]]] = defaultdict(list)
    """Registers written from each register, and the block whose branch depends on it."""
    work: list[str] = []
    for block in flow.blocks:
        branch = block.terminator if len(flow.successors[block.index]) > 1 else None
        for one in block.instructions:
            written = registers_written(one)
            if _differs_by_itself(one, parameters):
                work += written
            for name in registers_read(one):
                readers[name].append((written, block.index if one is branch else None))
    joins, varying, diverging = _JoinRegisters(flow), set[str](), set[int]()
    while work:
        name = work.pop()
        if name in varying:
            continue
        varying.add(name)
        for written, branching in readers[name]:
            work += written
            if branching is not None and branching not in diverging:
                diverging.add(branching)
                work += joins.varying_at_join(branching)
    return frozenset(diverging)


def blocks_with_diverged_iterations(flow: ControlFlow) -> frozenset[int]:
    """Return the blocks of loops in which lanes of a warp may be in different iterations at once.

    These loops have several back edges or several entries, and a branch that diverges. In a loop with one of each, lanes wait at the back
    edge until all others have arrived.
    """
    tails: dict[int, list[int]] = {}
    for tail, head in flow.back_edges:
        tails.setdefault(head, []).append(tail)
    several = {head: from_ for head, from_ in tails.items() if len(from_) > 1 or not flow.dominates(head, from_[0])}
    diverging = diverging_branches(flow) if several else frozenset[int]()
    loops = (flow.paths.component(head) for head in several)
    return frozenset[int]().union(*(inside for inside in loops if not diverging.isdisjoint(inside)))


def _differs_by_itself(one: Instruction, parameters: frozenset[str]) -> bool:
    """Return whether the result of an instruction may vary across lanes although the registers that it reads do not."""
    if one.opcode in _CARRIES:
        return True
    specials = (item.name for operand in one.operands for item in elements(operand) if isinstance(item, Special))
    if any(name.strip("%").partition(".")[0] not in _UNIFORM_REGISTERS for name in specials):
        return True
    if one.form.effect == "load":
        address = one.operand("a")
        if one.slot("ss") in ("param", "param::entry"):
            return not (isinstance(address, Address) and isinstance(address.base, Symbol) and address.base.name in parameters)
        return one.slot("ss") not in _UNIFORM_SPACES or one.has("volatile")
    return one.form.effect not in ("", "branch")


class _JoinRegisters:
    """Registers written between the branches of a function and their joins, and read behind.

    A search of the blocks between for each branch would be quadratic. Instead each block has a set of registers: those written in it, or on
    a path from it to its postdominator. The set of a branch is the union of the sets of its successors and of their postdominators up to
    the join. Chains of postdominators may be long, so they are unions of chains of length 1, 2, 4 and so on.
    """

    def __init__(self, flow: ControlFlow) -> None:
        self._flow = flow
        self._known = 0

    def varying_at_join(self, branch: int) -> frozenset[str]:
        """Return the registers written between a branch and its join that may be read where control arrives by both sides.

        Registers that an earlier call returned are left out.
        """
        paths, read = self._flow.paths, 0
        for block in paths.sources(_by_several(paths.reached(side) for side in self._flow.successors[branch])):
            read |= self._read_behind[block]
        found = 0
        for row in self._rows(branch):
            found |= self._written[row] & read & ~self._known
        self._known |= found
        return self._live.names_of(found)

    @cached_property
    def _live(self) -> Liveness:
        return Liveness(self._flow)

    @cached_property
    def _read_behind(self) -> Mapping[int, int]:
        """Registers, by block, that are live at the start of it or of a block reachable from it."""
        return union_of_reachable(range(len(self._flow.blocks)), self._flow.successors.__getitem__, self._live.bits_in)

    @cached_property
    def _written(self) -> Mapping[_Row, int]:
        """Registers, by row, that are written in its blocks, or between one of them and its postdominator."""
        own = [self._live.bits_of(name for one in block.instructions for name in registers_written(one)) for block in self._flow.blocks]
        starts = [(block, 0) for block in range(len(self._flow.blocks))]
        return union_of_reachable(starts, self._led_to, lambda row: 0 if row[1] else own[row[0]])

    def _led_to(self, row: _Row) -> list[_Row]:
        block, doublings = row
        if not doublings:
            return self._rows(block)
        half = self._postdominators[doublings - 1][block]
        assert half is not None
        return [(block, doublings - 1), (half, doublings - 1)]

    def _rows(self, branch: int) -> list[_Row]:
        """Return rows that together cover the successors of a branch and their postdominators up to the join."""
        meet = self._flow.immediate_postdominators[branch]
        found = []
        for side in self._flow.successors[branch]:
            length = self._depth[side] - (0 if meet is None else self._depth[meet])
            if length:
                doublings = length.bit_length() - 1
                found += [(side, doublings), (self._postdominator(side, length - (1 << doublings)), doublings)]
        return list(dict.fromkeys(found))

    def _postdominator(self, block: int, steps: int) -> int:
        """Return the postdominator that is `steps` steps above a block."""
        for doublings in positions(steps):
            above = self._postdominators[doublings][block]
            assert above is not None
            block = above
        return block

    @cached_property
    def _depth(self) -> Sequence[int]:
        """Number of postdominators of each block, itself included."""
        above = self._flow.immediate_postdominators
        leads_to = [() if higher is None else (higher,) for higher in above]
        found = [1] * len(above)
        for block in post_order(range(len(above)), leads_to.__getitem__):
            found[block] += sum(found[higher] for higher in leads_to[block])
        return found

    @cached_property
    def _postdominators(self) -> Sequence[Sequence[int | None]]:
        """Postdominator 2^k steps above each block, by exponent k and block."""
        found: list[Sequence[int | None]] = [self._flow.immediate_postdominators]
        while 1 << len(found) <= max(self._depth):
            last = found[-1]
            found.append([None if higher is None else last[higher] for higher in last])
        return found


def _by_several(reached: Iterable[int]) -> int:
    once = several = 0
    for one in reached:
        several |= once & one
        once |= one
    return several

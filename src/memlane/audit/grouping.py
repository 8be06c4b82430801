"""Tell whether the lanes of a warp reach an access in the same groups in the machine code as in the PTX.

The cost of an access depends on which lanes it serves at once. On PTX, diverged lanes are counted together again where their paths join.
The machine code may differ in three ways:

- It has copies of the access, such as those of an unrolled loop with a remainder, or of code behind an `if`. Lanes that take different
paths there, such as those that leave the loop in different iterations, meet at one access of the PTX and at two of the copies.
- It has moved the access behind a branch, or put a condition on it or a branch around it, so that only lanes that need the value access
memory.
- It does not reconverge at a join, or behind a call from which lanes return one after another (`reconvergence`).

It may also reconverge where the PTX does not. Lanes are counted on PTX as the emulator runs them: those at the earliest basic block first.
Where a loop has several back edges or entries, some lanes may run ahead by an iteration; ptxas makes a loop with one back edge of it, and
reconverges there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from memlane.ptx import ControlFlow
from memlane.ptx.divergence import blocks_with_diverged_iterations, diverging_branches
from memlane.sass import Flow, Instruction
from memlane.walks import Chains, on_every_path, post_order, reachable

_JUMPS = frozenset({"BRA", "JMP", "EXIT"})
_TABLE_JUMPS = frozenset({"BRX", "BRXU", "JMX", "JMXU"})
_ENDS = frozenset({"EXIT", "RET"})
_TRAP = "BPT"


@dataclass(frozen=True, slots=True)
class GroupMismatch:
    """The reason why the groups of lanes may differ; empty if they do not."""

    reason: str = ""
    unless_full: bool = False
    """Whether the groups are the same in a launch in which every request had all lanes of its warp."""


_SAME_GROUPS = GroupMismatch()
_UNROLLED = GroupMismatch(
    "ptxas unrolled its loop, and the lanes of a warp may execute different numbers of iterations, so they may be grouped differently", True
)
AHEAD = "its loop has several back edges or entries, where the assembled code may wait for lanes that PTX lets run ahead"
_AHEAD = GroupMismatch(AHEAD)
_COPIES = GroupMismatch("ptxas duplicated it on paths that the lanes of a warp may take separately, so they may be grouped differently")


def is_guarded(instruction: Instruction) -> bool:
    """Return whether a machine instruction has a guard."""
    return instruction.guard is not None and instruction.guard.register is not None


class Grouping:
    """Groups of lanes of one kernel, or of a function that it calls."""

    def __init__(
        self, ptx: ControlFlow, sass: Flow, name: str, diverged: Mapping[int, str], branches: Mapping[int, int] | None = None
    ) -> None:
        """Compare `ptx` with the function `name` of `sass`.

        `diverged`: the reason for each instruction at which lanes may be diverged that entered the function converged.
        `branches`: lines of the conditional branches of the PTX, by block.
        """
        self.ptx = ptx
        self.sass = sass
        self.name = name
        self._diverged = diverged
        self._branches = {} if branches is None else branches

    def mismatch(self, block: int, nodes: Collection[int]) -> GroupMismatch:
        """Return why the groups may differ at an access in a basic block of the PTX from which ptxas made the instructions `nodes`."""
        diverged = [self._diverged[node] for node in sorted(nodes) if node in self._diverged]
        if diverged:
            return GroupMismatch(diverged[0])
        if block in self._blocks_ahead:
            return _AHEAD
        places = {(self._block_of[node], self.sass.nodes[node].guard) for node in nodes}
        if len(places) < 2 or not self._is_divergent(block):
            return _SAME_GROUPS
        return _UNROLLED if len({guard for _, guard in places}) == 1 and self._are_sequential([run for run, _ in places]) else _COPIES

    def is_moved_behind(self, block: int, node: int) -> bool:
        """Return whether an instruction made of an access stands behind a conditional branch that follows the access in the PTX.

        Branches in a loop with the access are ignored: they precede it too.
        """
        later = self.ptx.paths.reached(block)
        if self.ptx.paths.is_on_cycle(block):
            later &= ~self.ptx.paths.bit(block)
        return bool(later & self._preceding_branches[node])

    def skip_of(self, node: int) -> int | None:
        """Return the conditional branch that skips the basic block of an instruction, or None.

        One successor of that branch is the block, the other is the successor of the block.
        """
        first = self._block_of[node]
        before = self.sass.predecessors[first]
        last = node
        while self._block_of.get(last + 1) == first:
            last += 1
        if len(before) != 1 or not is_guarded(self.sass.nodes[before[0]]):
            return None
        ways = set(self.sass.successors[before[0]])
        return before[0] if ways == {first, *self.sass.successors[last]} and len(self.sass.successors[last]) == 1 else None

    @cached_property
    def _preceding_branches(self) -> Mapping[int, int]:
        """PTX blocks with a conditional branch that may precede each instruction without a back edge.

        The blocks are bits of `ControlFlow.paths`.
        """
        bits: dict[int | None, int] = defaultdict(int)
        for block, line in self._branches.items():
            bits[line] |= self.ptx.paths.bit(block)
        preceding = dict.fromkeys(self.sass.nodes_of(self.name), 0)
        for jump in self._conditional:
            preceding[jump] = bits.get(self.sass.nodes[jump].ptx_line, 0)
        for node in sorted(preceding, key=lambda node: self._rank.get(node, 0)):
            for to in self._forward(node):
                preceding[to] |= preceding[node]
        return preceding

    @cached_property
    def _conditional(self) -> list[int]:
        """Jumps and exits that some lanes or warps take and others do not. A jump through a table is one without a condition, too."""
        return [node for node in self.sass.nodes_of(self.name) if self._is_conditional(node)]

    def _is_conditional(self, node: int) -> bool:
        opcode = self.sass.nodes[node].opcode
        return opcode in _TABLE_JUMPS or (opcode in _JUMPS and self.sass.is_conditional(node))

    def can_be_skipped(self, block: int, nodes: Collection[int]) -> bool:
        """Return whether every thread executes a PTX block once, and may reach the end of the machine code without any of `nodes`.

        `nodes` were made of an access in that block. A trap does not count as the end.
        """
        if block not in self._executed_by_all or not self._unavoidable.isdisjoint(nodes):
            return False
        reached = reachable((self.sass.entry(self.name),), self._unless_trapped, nodes)
        return any(map(self._may_exit, reached))

    # -- PTX ----------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _blocks_ahead(self) -> frozenset[int]:
        return blocks_with_diverged_iterations(self.ptx)

    @cached_property
    def _executed_by_all(self) -> set[int]:
        """Blocks that every thread executes once, unless it traps."""
        return on_every_path(0, self.ptx.successors.__getitem__, self._may_exit_block) if self.ptx.blocks else set()

    def _may_exit_block(self, block: int) -> bool:
        """Return whether some lanes may leave the function at the end of a block."""
        last = self.ptx.blocks[block].terminator
        return (not self.ptx.successors[block] and last is None) or (last is not None and last.form.effect in ("exit", "return"))

    def _is_divergent(self, block: int) -> bool:
        """Return whether lanes may reach a block on different paths or at different counts, after a branch where they may diverge."""
        return bool(self._divergent_blocks & self.ptx.paths.bit(block))

    @cached_property
    def _divergent_blocks(self) -> int:
        """All blocks for which `_is_divergent` holds, as bits of `ControlFlow.paths`."""
        paths, divergent = self.ptx.paths, 0
        for branch in diverging_branches(self.ptx):
            led = 0
            for side in self.ptx.successors[branch]:
                reached = paths.reached(side)
                divergent |= led & reached
                led |= reached
            if paths.is_on_cycle(branch):
                divergent |= led & paths.bit(branch)
        return divergent

    # -- machine code ---------------------------------------------------------------------------------------------------------------

    @cached_property
    def _unavoidable(self) -> set[int]:
        """Instructions that every thread executes, unless it traps."""
        return on_every_path(self.sass.entry(self.name), self._unless_trapped, self._may_exit)

    def _unless_trapped(self, node: int) -> list[int]:
        return [] if self.sass.nodes[node].opcode == _TRAP else self.following(node)

    def _may_exit(self, node: int) -> bool:
        """Return whether some lanes may leave the function at an instruction."""
        return self.sass.nodes[node].opcode in _ENDS

    @cached_property
    def _block_of(self) -> dict[int, int]:
        """First instruction of the basic block of each instruction."""
        first: dict[int, int] = {}
        for node in self.sass.nodes_of(self.name):
            before = self.sass.predecessors[node]
            follows = before == (node - 1,) and self.sass.successors[node - 1] == (node,)
            first[node] = first.get(node - 1, node) if follows else node
        return first

    def _are_sequential(self, nodes: Collection[int]) -> bool:
        """Return whether control may go from each of some instructions to the next without a back edge."""
        ordered = sorted(nodes, key=lambda node: self._rank.get(node, 0))
        return all(self._leads_forward(one, following) for one, following in pairwise(ordered))

    def _leads_forward(self, start: int, end: int) -> bool:
        return self._forward_paths.leads(start, end)

    @cached_property
    def _forward_paths(self) -> Chains[int]:
        return Chains(self.sass.nodes_of(self.name), self._forward)

    @cached_property
    def chains(self) -> Chains[int]:
        """Reachability between the instructions of the function."""
        return Chains(self.sass.nodes_of(self.name), self.following)

    def _forward(self, node: int) -> list[int]:
        """Return the successors of an instruction, back edges excluded."""
        return [to for to in self.following(node) if self._rank.get(to, 0) > self._rank.get(node, 0)]

    @cached_property
    def _rank(self) -> dict[int, int]:
        """Position of each instruction in reverse post-order."""
        left = post_order((self.sass.entry(self.name),), self.following)
        return {node: len(left) - place for place, node in enumerate(left)}

    def following(self, node: int) -> list[int]:
        """Return the successors of an instruction in its function; for a call of another function, the instruction behind the call."""
        name = self.sass.function_of[node]
        if self._called(node):
            return [node + 1] if self.sass.function_of[node + 1] == name else []
        return [to for to in self.sass.successors[node] if self.sass.function_of[to] == name]

    def _called(self, node: int) -> set[str]:
        """Return the other functions that an instruction calls."""
        if self.sass.nodes[node].opcode != "CALL" or node + 1 == len(self.sass.nodes):
            return set()
        return {self.sass.function_of[to] for to in self.sass.successors[node]} - {self.sass.function_of[node]}

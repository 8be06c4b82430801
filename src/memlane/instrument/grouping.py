"""Whether the lanes of a warp come to an access in the same groups in the assembled code as in the PTX.

What an access costs depends on which lanes it serves at once. On PTX, lanes that went different ways are counted together again where their
ways meet. The assembled code may do otherwise in three ways:

- It has copies of the access, as of a loop that was unrolled with a rest, or of what stands behind an `if`. Lanes that go different ways
  there, such as those that leave the loop at different turns, meet at one access of the PTX and at two of the copies.
- It has moved the access behind a branch, or put a condition on it, so that only lanes that need the value access memory.
- It does not wait for all at a place where ways meet. Lanes wait at the `BSYNC` of a convergence barrier; before it they may come one
  after another. A branch without a barrier around it is one that the assembler knows to be uniform. Of a function that is called nobody
  knows it, so behind such a branch in it the lanes may come back one after another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from memlane.ptx import ControlFlow
from memlane.ptx.divergence import diverging_branches
from memlane.sass import Flow, Instruction
from memlane.walks import post_order, reachable

_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX"})
_OF_THE_WARP = frozenset({"DIV", "CONV", "U"})
"""Modifiers of jumps that a warp takes as a whole."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Why the groups may differ; the reason is empty if they do not."""

    reason: str = ""
    unless_full: bool = False
    """Whether they are the same in a launch in which every request had all lanes of its warp."""


_TOGETHER = Apart()
_TURNS = Apart("ptxas unrolled its loop, whose turns may differ between the lanes of a warp, so they may be served in other groups", True)
_COPIES = Apart("ptxas made copies of it on ways that lanes of a warp may take apart, so they may be served in other groups")
_UNJOINED = Apart("the assembled code may not bring the lanes of a warp together before it, so they may be served in other groups")


def is_guarded(instruction: Instruction) -> bool:
    """Whether an assembled instruction stands under a predicate."""
    return instruction.guard is not None and instruction.guard.register is not None


class Grouping:
    """The groups of lanes of one kernel, or of a function that it calls."""

    def __init__(self, ptx: ControlFlow, sass: Flow, name: str, calling: dict[str, bool] | None = None) -> None:
        """`calling`: of other functions, whether lanes that call them together may come back apart, as far as that is known."""
        self.ptx = ptx
        self.sass = sass
        self.name = name
        self._calling = {} if calling is None else calling

    def apart(self, block: int, nodes: Collection[int]) -> Apart:
        """What is to be said of an access in a basic block of the PTX, of which the assembler made the instructions `nodes`."""
        if any(node in self._unjoined for node in nodes):
            return _UNJOINED
        places = {(self._run_of[node], self.sass.nodes[node].guard) for node in nodes}
        if len(places) < 2 or not self._is_decided(block):
            return _TOGETHER
        return _TURNS if len({guard for _, guard in places}) == 1 and self._in_a_row([run for run, _ in places]) else _COPIES

    def is_moved_behind(self, block: int, node: int, lines: Mapping[int, int]) -> bool:
        """Whether an instruction made of an access in a basic block of the PTX stands behind a conditional branch that comes after that.

        `lines`: of the conditional branches of the PTX, by block. Branches in a loop with the access do not tell: they come before it too.
        """
        later = self.ptx.reachable(block)
        found = {lines[one] for one in later if one in lines and block not in self._after(one)}
        jumps = [jump for jump in self._conditional if self.sass.nodes[jump].ptx_line in found]
        return any(self._leads_forward(jump, node) for jump in jumps)

    def _after(self, block: int) -> set[int]:
        return set[int]().union(*(self.ptx.reachable(to) for to in self.ptx.successors[block]))

    @cached_property
    def _conditional(self) -> list[int]:
        nodes = self.sass.nodes_of(self.name)
        return [node for node in nodes if self.sass.nodes[node].opcode in _JUMPS | {"EXIT"} and is_guarded(self.sass.nodes[node])]

    # -- PTX ----------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _beyond(self) -> dict[int, list[set[int]]]:
        """By diverging branch the blocks that each of its sides leads to."""
        return {one: [self.ptx.reachable(side) for side in self.ptx.successors[one]] for one in diverging_branches(self.ptx)}

    def _is_decided(self, block: int) -> bool:
        """Whether lanes may come to a block on different ways, or another number of times, for a branch behind which they may diverge."""
        behind = self.ptx.reachable(block)
        for branch, sides in self._beyond.items():
            leading = sum(block in side for side in sides)
            if leading > 1 or (leading and branch in behind):
                return True
        return False

    # -- assembled code -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _run_of(self) -> dict[int, int]:
        """By instruction the first of its basic block."""
        first: dict[int, int] = {}
        for node in self.sass.nodes_of(self.name):
            before = self.sass.predecessors[node]
            follows = before == (node - 1,) and self.sass.successors[node - 1] == (node,)
            first[node] = first.get(node - 1, node) if follows else node
        return first

    def _in_a_row(self, nodes: Collection[int]) -> bool:
        """Whether control may come from each of some instructions to the next within a turn of the loops around them all."""
        ordered = sorted(nodes, key=lambda node: self._rank.get(node, 0))
        return all(self._leads_forward(one, following) for one, following in pairwise(ordered))

    def _leads_forward(self, start: int, end: int) -> bool:
        def forward(node: int) -> list[int]:
            return [to for to in self.following(node) if self._rank.get(to, 0) > self._rank.get(node, 0)]

        return end in reachable((start,), forward)

    @cached_property
    def _rank(self) -> dict[int, int]:
        """By instruction its place in reverse post-order."""
        left = post_order((self.sass.entry(self.name),), self.following)
        return {node: len(left) - place for place, node in enumerate(left)}

    @cached_property
    def _unjoined(self) -> frozenset[int]:
        """The instructions that two sides of a branch lead to before its lanes have waited for each other."""
        found: set[int] = set()
        for node, barriers in self._barriers.items():
            one = self.sass.nodes[node]
            sides = self.sass.successors[node]
            if one.opcode in _JUMPS and len(sides) > 1 and barriers and not _OF_THE_WARP.intersection(one.modifiers):
                seen: set[int] = set()
                for side in sides:
                    reached = self._before_joining(side, barriers)
                    found |= seen & reached
                    seen |= reached
            if any(map(self._comes_apart, self._called(node))):
                for behind in self.following(node):
                    found |= self._before_joining(behind, barriers)
        return frozenset(found)

    def _before_joining(self, start: int, barriers: Collection[int]) -> set[int]:
        """The instructions that can be reached without waiting at one of some barriers."""

        def onwards(node: int) -> list[int]:
            joins = self.sass.nodes[node].opcode == "BSYNC" and self._barrier(node) in barriers
            return [] if joins else self.following(node)

        return reachable((start,), onwards)

    def following(self, node: int) -> list[int]:
        """The instructions of the function that follow one; behind a call of another function those behind its return."""
        name = self.sass.function_of[node]
        if self._called(node):
            return [node + 1] if self.sass.function_of[node + 1] == name else []
        return [to for to in self.sass.successors[node] if self.sass.function_of[to] == name]

    def _called(self, node: int) -> set[str]:
        """The other functions that an instruction calls."""
        if self.sass.nodes[node].opcode != "CALL" or node + 1 == len(self.sass.nodes):
            return set()
        return {self.sass.function_of[to] for to in self.sass.successors[node]} - {self.sass.function_of[node]}

    @cached_property
    def _ends_apart(self) -> bool:
        """Whether lanes that called the function together may come back one after another: nobody waits at its end."""
        nodes = self.sass.nodes_of(self.name)
        ends = [node for node in nodes if self.sass.nodes[node].opcode == "RET"]
        jumps = (node for node in self._conditional if not _OF_THE_WARP.intersection(self.sass.nodes[node].modifiers))
        alone = any(not self._barriers.get(node) for node in jumps)
        return alone or len(ends) > 1 or any(end in self._unjoined or is_guarded(self.sass.nodes[end]) for end in ends)

    def _comes_apart(self, name: str) -> bool:
        if name not in self._calling:
            self._calling[name] = True  # What calls itself is not looked into.
            self._calling[name] = Grouping(self.ptx, self.sass, name, self._calling)._ends_apart
        return self._calling[name]

    @cached_property
    def _barriers(self) -> dict[int, frozenset[int]]:
        """By instruction of the kernel: the barriers at which the lanes there are going to wait, on whatever way they came."""
        entry = self.sass.entry(self.name)
        held: dict[int, frozenset[int]] = {entry: frozenset()}
        work = [entry]
        while work:
            node = work.pop()
            opcode, after = self.sass.nodes[node].opcode, held[node]
            if (number := self._barrier(node)) is not None:
                after = after | {number} if opcode in ("BSSY", "BMOV") else after - {number}
            for to in self.following(node):
                merged = held[to] & after if to in held else after
                if merged != held.get(to):
                    held[to] = merged
                    work.append(to)
        return held

    def _barrier(self, node: int) -> int | None:
        """The convergence barrier that an instruction names first."""
        one = self.sass.nodes[node]
        register = one.operands[0].register if one.operands else None
        return register.number if register is not None and register.bank == "B" else None

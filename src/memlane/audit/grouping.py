"""Whether the lanes of a warp come to an access in the same groups in the assembled code as in the PTX.

What an access costs depends on which lanes it serves at once. On PTX, lanes that went different ways are counted together again where their
ways meet. The assembled code may do otherwise in three ways:

- It has copies of the access, as of a loop that was unrolled with a rest, or of what stands behind an `if`. Lanes that go different ways
  there, such as those that leave the loop at different turns, meet at one access of the PTX and at two of the copies.
- It has moved the access behind a branch, or put a condition on it or a branch around it, so that only lanes that need the value access
  memory.
- It does not wait for all at a place where ways meet, or behind a call from which they return one after another (`reconvergence`).

And it may wait where the PTX does not. Lanes are counted on PTX as the emulator runs them: those at the earliest basic block first. Where a
loop has several ways back, or several entrances, some may run ahead by a turn; the assembler makes a loop of one way back of it, and waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from memlane.ptx import ControlFlow
from memlane.ptx.divergence import diverging_branches, turns_apart
from memlane.sass import Flow, Instruction
from memlane.walks import Chains, on_every_path, post_order, reachable

_JUMPS = frozenset({"BRA", "BRX", "JMP", "JMX"})
_ENDS = frozenset({"EXIT", "RET"})
_TRAP = "BPT"


@dataclass(frozen=True, slots=True)
class Apart:
    """Why the groups may differ; the reason is empty if they do not."""

    reason: str = ""
    unless_full: bool = False
    """Whether they are the same in a launch in which every request had all lanes of its warp."""


_TOGETHER = Apart()
_TURNS = Apart(
    "ptxas unrolled its loop, and the lanes of a warp may execute different numbers of iterations, so they may be grouped differently", True
)
AHEAD = "its loop has several back edges or entries, where the assembled code may wait for lanes that PTX lets run ahead"
_AHEAD = Apart(AHEAD)
_COPIES = Apart("ptxas duplicated it on paths that the lanes of a warp may take separately, so they may be grouped differently")


def is_guarded(instruction: Instruction) -> bool:
    """Whether an assembled instruction stands under a predicate."""
    return instruction.guard is not None and instruction.guard.register is not None


class Grouping:
    """The groups of lanes of one kernel, or of a function that it calls."""

    def __init__(
        self, ptx: ControlFlow, sass: Flow, name: str, unjoined: Mapping[int, str], branches: Mapping[int, int] | None = None
    ) -> None:
        """`unjoined`: the reason, by instruction at which lanes may be apart that came to the function together.

        `branches`: of the conditional branches of the PTX the lines, by block.
        """
        self.ptx = ptx
        self.sass = sass
        self.name = name
        self._unjoined = unjoined
        self._branches = {} if branches is None else branches

    def apart(self, block: int, nodes: Collection[int]) -> Apart:
        """What is to be said of an access in a basic block of the PTX, of which the assembler made the instructions `nodes`."""
        unjoined = [self._unjoined[node] for node in sorted(nodes) if node in self._unjoined]
        if unjoined:
            return Apart(unjoined[0])
        if block in self._turns_apart:
            return _AHEAD
        places = {(self._run_of[node], self.sass.nodes[node].guard) for node in nodes}
        if len(places) < 2 or not self._is_decided(block):
            return _TOGETHER
        return _TURNS if len({guard for _, guard in places}) == 1 and self._in_a_row([run for run, _ in places]) else _COPIES

    def is_moved_behind(self, block: int, node: int) -> bool:
        """Whether an instruction made of an access in a basic block of the PTX stands behind a conditional branch that comes after that.

        Branches in a loop with the access do not tell: they come before it too.
        """
        later = self.ptx.paths.reached(block)
        if self.ptx.paths.is_on_cycle(block):
            later &= ~self.ptx.paths.bit(block)
        return bool(later & self._passed[node])

    def skip_of(self, node: int) -> int | None:
        """The conditional branch whose one way leads to the basic block of an instruction and whose other leads to what follows that."""
        first = self._run_of[node]
        before = self.sass.predecessors[first]
        last = node
        while self._run_of.get(last + 1) == first:
            last += 1
        if len(before) != 1 or not is_guarded(self.sass.nodes[before[0]]):
            return None
        ways = set(self.sass.successors[before[0]])
        return before[0] if ways == {first, *self.sass.successors[last]} and len(self.sass.successors[last]) == 1 else None

    @cached_property
    def _passed(self) -> Mapping[int, int]:
        """By instruction where in the PTX the conditional branches are that may come before it within a turn of the loops around both, as
        bits of `ControlFlow.paths`."""
        bits: dict[int | None, int] = defaultdict(int)
        for block, line in self._branches.items():
            bits[line] |= self.ptx.paths.bit(block)
        passed = dict.fromkeys(self.sass.nodes_of(self.name), 0)
        for jump in self._conditional:
            passed[jump] = bits.get(self.sass.nodes[jump].ptx_line, 0)
        for node in sorted(passed, key=lambda node: self._rank.get(node, 0)):
            for to in self._forward(node):
                passed[to] |= passed[node]
        return passed

    @cached_property
    def _conditional(self) -> list[int]:
        nodes = self.sass.nodes_of(self.name)
        return [node for node in nodes if self.sass.nodes[node].opcode in _JUMPS | {"EXIT"} and is_guarded(self.sass.nodes[node])]

    def is_avoided(self, block: int, nodes: Collection[int]) -> bool:
        """Whether every thread executes a basic block of the PTX once, and may come to the end of the assembled code without any of what
        was made of an access in it. A trap is not the end."""
        if block not in self._executed_by_all or not self._passed_by_all.isdisjoint(nodes):
            return False
        reached = reachable((self.sass.entry(self.name),), self._unless_trapped, nodes)
        return any(map(self._leaves, reached))

    # -- PTX ----------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _turns_apart(self) -> frozenset[int]:
        return turns_apart(self.ptx)

    @cached_property
    def _executed_by_all(self) -> set[int]:
        """The blocks that every thread executes once, unless it traps."""
        return on_every_path(0, self.ptx.successors.__getitem__, self._ends) if self.ptx.blocks else set()

    def _ends(self, block: int) -> bool:
        """Whether some lanes may leave the function at the end of a block."""
        last = self.ptx.blocks[block].terminator
        return (not self.ptx.successors[block] and last is None) or (last is not None and last.form.effect in ("exit", "return"))

    def _is_decided(self, block: int) -> bool:
        """Whether lanes may come to a block on different ways, or another number of times, for a branch behind which they may diverge."""
        return bool(self._decided & self.ptx.paths.bit(block))

    @cached_property
    def _decided(self) -> int:
        """All blocks for which that is so, as bits of `ControlFlow.paths`."""
        paths, decided = self.ptx.paths, 0
        for branch in diverging_branches(self.ptx):
            led = 0
            for side in self.ptx.successors[branch]:
                reached = paths.reached(side)
                decided |= led & reached
                led |= reached
            if paths.is_on_cycle(branch):
                decided |= led & paths.bit(branch)
        return decided

    # -- assembled code -----------------------------------------------------------------------------------------------------------

    @cached_property
    def _passed_by_all(self) -> set[int]:
        """The instructions that every thread passes, unless it traps."""
        return on_every_path(self.sass.entry(self.name), self._unless_trapped, self._leaves)

    def _unless_trapped(self, node: int) -> list[int]:
        return [] if self.sass.nodes[node].opcode == _TRAP else self.following(node)

    def _leaves(self, node: int) -> bool:
        """Whether some lanes may leave the function."""
        return self.sass.nodes[node].opcode in _ENDS

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
        return self._forward_paths.leads(start, end)

    @cached_property
    def _forward_paths(self) -> Chains[int]:
        return Chains(self.sass.nodes_of(self.name), self._forward)

    @cached_property
    def chains(self) -> Chains[int]:
        """Which instructions of the function lead to which."""
        return Chains(self.sass.nodes_of(self.name), self.following)

    def _forward(self, node: int) -> list[int]:
        """The instructions that follow one, without those to which control goes back."""
        return [to for to in self.following(node) if self._rank.get(to, 0) > self._rank.get(node, 0)]

    @cached_property
    def _rank(self) -> dict[int, int]:
        """By instruction its place in reverse post-order."""
        left = post_order((self.sass.entry(self.name),), self.following)
        return {node: len(left) - place for place, node in enumerate(left)}

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

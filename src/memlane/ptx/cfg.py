"""Build the control flow graph of a function: basic blocks, edges, dominators, loops."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from memlane.errors import PtxTypeError
from memlane.ptx.ir import Block, Directive, Function, Instruction, Label, Statement, Symbol
from memlane.walks import Reachability, post_order, reachable

_ENDS = frozenset({"branch", "exit", "return", "trap"})
_TABLE = ".branchtargets"


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """A basic block: statements that control enters only at the first and leaves only at the last."""

    index: int
    labels: tuple[str, ...]
    start: int
    """Place of its first statement in the body of the function."""
    stop: int
    """Place behind its last statement."""
    instructions: tuple[Instruction, ...]
    first: int
    """Index of its first instruction among the instructions of the function."""

    @property
    def terminator(self) -> Instruction | None:
        """The branch, exit, return or trap at its end; None if it falls through to the next block."""
        return self.instructions[-1] if self.instructions and self.instructions[-1].form.effect in _ENDS else None


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop: the blocks from which control can come back to `head` without passing through it."""

    head: int
    blocks: frozenset[int]


class ControlFlow:
    """The control flow graph of a function whose body has no inner blocks (see `flatten_scopes`).

    Blocks are numbered in the order of the text. Lanes that leave through a guarded `exit`, `ret` or `trap` never meet the others again, so
    such an instruction ends a block but adds no edge: the remaining lanes fall through to the next block.

    Raises `PtxTypeError` for a branch to a label that does not exist, and `ValueError` for a function without a body or with inner blocks.
    """

    def __init__(self, function: Function) -> None:
        if function.body is None:
            raise ValueError(f"`{function.name}` has no body")
        self.function = function
        self._statements: Sequence[Statement] = function.body.statements
        if any(isinstance(statement, Block) for statement in self._statements):
            raise ValueError(f"`{function.name}` has inner blocks; flatten its scopes first")
        self._tables = dict(_branch_tables(self._statements))
        self.blocks: tuple[BasicBlock, ...] = _split(self._statements, self._tables)
        self._by_label = {label: block.index for block in self.blocks for label in block.labels}
        self.successors: tuple[tuple[int, ...], ...] = tuple(self._leads_to(block) for block in self.blocks)

    def targets(self, branch: Instruction) -> tuple[int, ...]:
        """Return the blocks that a `bra` or `brx.idx` jumps to; for `brx.idx` in the order of its table, repetitions included."""
        operand = branch.operand("target") or branch.operand("targets")
        if not isinstance(operand, Symbol):
            raise PtxTypeError(f"`{branch.name}` must name a label", branch.span)
        if branch.opcode == "brx":
            labels = self._tables.get(operand.name)
            if labels is None:
                raise PtxTypeError(f"`{operand.name}` is not a list of branch targets", branch.span)
        else:
            labels = (operand.name,)
        for label in labels:
            if label not in self._by_label:
                raise PtxTypeError(f"there is no label `{label}` in `{self.function.name}`", branch.span)
        return tuple(self._by_label[label] for label in labels)

    def _leads_to(self, block: BasicBlock) -> tuple[int, ...]:
        last = block.terminator
        following = (block.index + 1,) if block.index + 1 < len(self.blocks) else ()
        if last is None:
            return following
        taken = self.targets(last) if last.form.effect == "branch" else ()
        return tuple(dict.fromkeys((*taken, *(following if last.guard is not None else ()))))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Predecessors of each block."""
        found: list[list[int]] = [[] for _ in self.blocks]
        for block, targets in enumerate(self.successors):
            for target in targets:
                found[target].append(block)
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Reachable blocks in reverse post-order: each before its successors, back edges excepted.

        Of the possible orders it is the one that follows the text, which keeps the body of a loop before the code behind it.
        """
        return tuple(reversed(post_order((0,), lambda block: sorted(self.successors[block], reverse=True)))) if self.blocks else ()

    @cached_property
    def rank(self) -> tuple[int, ...]:
        """Position of each block in `order`; -1 for an unreachable block."""
        ranks = [-1] * len(self.blocks)
        for place, block in enumerate(self.order):
            ranks[block] = place
        return tuple(ranks)

    def reachable(self, start: int, without: int | None = None) -> set[int]:
        """Return the blocks reachable from a block, itself included, without passing through `without`."""
        return reachable((start,), self.successors.__getitem__, () if without is None else (without,))

    @cached_property
    def paths(self) -> Reachability[int]:
        """Reachability between blocks."""
        return Reachability(range(len(self.blocks)), self.successors.__getitem__)

    @cached_property
    def immediate_dominators(self) -> tuple[int | None, ...]:
        """Immediate dominator of each block; None for the entry and for unreachable blocks."""
        found = _dominators(self.order, self.predecessors)
        return tuple(None if block == 0 else found.get(block) for block in range(len(self.blocks)))

    @cached_property
    def immediate_postdominators(self) -> tuple[int | None, ...]:
        """Immediate postdominator of each block, where diverged lanes reconverge.

        None if they meet only at the end, and for unreachable blocks. A loop without an exit counts as leading to the end.
        """
        end = len(self.blocks)
        leaving = self._leaving_blocks()
        backwards: list[tuple[int, ...]] = [
            tuple(block for block in self.predecessors[target] if self.rank[block] >= 0) for target in range(end)
        ]
        backwards.append(tuple(leaving))
        forwards = [(*targets, end) if block in leaving else targets for block, targets in enumerate(self.successors)]
        order = tuple(reversed(post_order((end,), backwards.__getitem__)))
        found = _dominators(order, [*forwards, ()])
        return tuple(None if found.get(block, end) == end else found[block] for block in range(end))

    def _leaving_blocks(self) -> dict[int, None]:
        """Return the reachable blocks that lead to the end.

        One block of each endless loop is added, so that every reachable block leads to the end.
        """
        leaving = dict.fromkeys(block for block in self.order if not self.successors[block])
        reached = reachable(leaving, self.predecessors.__getitem__)
        for block in reversed(self.order):
            if block not in reached:
                leaving[block] = None
                reached |= reachable((block,), self.predecessors.__getitem__, reached)
        return leaving

    def dominates(self, above: int, block: int) -> bool:
        """Return whether every path from the entry to `block` goes through `above`; a block dominates itself."""
        (first, behind), (place, _) = self._dominated[above], self._dominated[block]
        return above == block or first <= place < behind

    @cached_property
    def _dominated(self) -> tuple[tuple[int, int], ...]:
        """Range (first, behind) of the blocks that each block dominates, in a preorder of the dominator tree; (-1, -1) if unreachable."""
        size = dict.fromkeys(self.order, 1)
        for block in reversed(self.order):
            above = self.immediate_dominators[block]
            if above is not None:
                size[above] += size[block]
        found, free = [(-1, -1)] * len(self.blocks), dict[int | None, int]()
        for block in self.order:
            above = self.immediate_dominators[block]
            place = free.get(above, 0)
            found[block], free[block], free[above] = (place, place + size[block]), place + 1, place + size[block]
        return tuple(found)

    @cached_property
    def back_edges(self) -> tuple[tuple[int, int], ...]:
        """Edges (from, to) that do not go forward in `order`."""
        return tuple((block, target) for block in self.order for target in self.successors[block] if self.rank[target] <= self.rank[block])

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Natural loops, outer ones first; back edges to a head that does not dominate their source form none."""
        tails: dict[int, list[int]] = {}
        for block, head in self.back_edges:
            if self.dominates(head, block):
                tails.setdefault(head, []).append(block)
        found = []
        for head in sorted(tails, key=self.rank.__getitem__):
            inside = {head} | reachable(tails[head], self.predecessors.__getitem__, {head})
            found.append(Loop(head, frozenset(block for block in inside if self.rank[block] >= 0)))
        return tuple(found)


def _branch_tables(statements: Sequence[Statement]) -> Iterable[tuple[str, tuple[str, ...]]]:
    for label, statement in pairwise(statements):
        if isinstance(label, Label) and isinstance(statement, Directive) and statement.text.startswith(_TABLE):
            yield label.name, tuple(re.findall(r"[\w$%]+", statement.text[len(_TABLE) :]))


def _split(statements: Sequence[Statement], tables: dict[str, tuple[str, ...]]) -> tuple[BasicBlock, ...]:
    starts: list[int] = []
    fresh = True  # whether an instruction starts a block here: at the entry and behind a terminator
    labelled = False  # whether a block was started by a label and has no instruction yet
    for place, statement in enumerate(statements):
        if isinstance(statement, Label) and statement.name not in tables:
            if not labelled:
                starts.append(place)
            labelled, fresh = True, False
        elif isinstance(statement, Instruction):
            if fresh:
                starts.append(place)
            fresh, labelled = statement.form.effect in _ENDS, False
    bounds = [0, *starts[1:], len(statements)] if starts else [0]
    blocks: list[BasicBlock] = []
    first = 0
    for start, stop in pairwise(bounds):
        inside = statements[start:stop]
        instructions = tuple(one for one in inside if isinstance(one, Instruction))
        labels = tuple(one.name for one in inside if isinstance(one, Label) and one.name not in tables)
        blocks.append(BasicBlock(len(blocks), labels, start, stop, instructions, first))
        first += len(instructions)
    return tuple(blocks)


def _dominators(order: Sequence[int], comes_from: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the immediate dominators of the blocks in `order`; the first block leads to all others, and is its own.

    Uses the algorithm of Lengauer and Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph" (1979), in O(n log n) steps.
    """
    blocks, parents = _depth_first(order, comes_from)
    place = {block: number for number, block in enumerate(blocks)}
    semi, label, found = (list(range(len(blocks))) for _ in range(3))
    above: list[int | None] = [None] * len(blocks)
    """Parent of each visited number in the forest, whose paths are compressed."""

    def least(number: int) -> int:
        """Return the number with the least semidominator on the path from `number` to below the root of its tree."""
        path, top = list[int](), number
        while (following := above[top]) is not None and above[following] is not None:
            path.append(top)
            top = following
        for one in reversed(path):
            following = above[one]
            assert following is not None
            label[one] = min(label[one], label[following], key=semi.__getitem__)
            above[one] = above[following]
        return label[number]

    waiting: list[list[int]] = [[] for _ in blocks]
    for number in range(len(blocks) - 1, 0, -1):
        before = [place[one] for one in comes_from[blocks[number]] if one in place]
        semi[number] = min(semi[least(one)] for one in before)
        waiting[semi[number]].append(number)
        above[number] = parents[number]
        for one in waiting[parents[number]]:
            lowest = least(one)
            found[one] = lowest if semi[lowest] < semi[one] else parents[number]
        waiting[parents[number]].clear()
    for number in range(1, len(blocks)):
        if found[number] != semi[number]:
            found[number] = found[found[number]]
    return {block: blocks[found[number]] for number, block in enumerate(blocks)}


def _depth_first(order: Sequence[int], comes_from: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the blocks in depth-first preorder, and for each the number of its parent in the depth-first tree."""
    leads_to: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for before in comes_from[block]:
            if before in leads_to:
                leads_to[before].append(block)
    blocks, parents, met = list[int](), list[int](), set[int]()
    work = [(block, 0) for block in order[:1]]
    while work:
        block, parent = work.pop()
        if block not in met:
            met.add(block)
            work += [(target, len(blocks)) for target in leads_to[block]]
            blocks.append(block)
            parents.append(parent)
    return blocks, parents

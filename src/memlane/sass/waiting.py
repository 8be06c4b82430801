"""What has completed when an instruction issues: scoreboards along the paths of control."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property

from memlane.sass.flow import Flow
from memlane.sass.operands import Register
from memlane.sass.program import Instruction
from memlane.sass.registers import effects


class Waiting:
    """Answers for one program; what is asked twice is remembered."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._unwaited: dict[int, frozenset[int]] = {}
        self._definitions: dict[tuple[int, Register], frozenset[int]] = {}
        self._waits = tuple(waits_for(one) for one in flow.nodes)

    def unwaited(self, node: int) -> frozenset[int]:
        """The nodes that some path reaches from `node` before anything has waited for its result.

        A node that itself waits is not among them: it issues when the result is there. Everything that is reachable, if the instruction
        raises no write scoreboard although its result takes long; nothing, for one of fixed latency, is for the caller to know.
        """
        if node not in self._unwaited:
            scoreboard = self.flow.nodes[node].control.write_scoreboard
            self._unwaited[node] = self._reach(self.flow.successors[node], scoreboard)
        return self._unwaited[node]

    def _reach(self, starts: Iterable[int], scoreboard: int | None) -> frozenset[int]:
        seen: set[int] = set()
        work = list(starts)
        while work:
            node = work.pop()
            if node in seen or (scoreboard is not None and scoreboard in self._waits[node]):
                continue
            seen.add(node)
            work.extend(self.flow.successors[node])
        return frozenset(seen)

    def raised(self, node: int, scoreboard: int) -> frozenset[int]:
        """The nodes that raise `scoreboard` for their results and that `node` may have to wait for, with its own mask left out."""
        found: set[int] = set()
        seen: set[int] = set()
        work = list(self.flow.predecessors[node])
        while work:
            before = work.pop()
            if before in seen:
                continue
            seen.add(before)
            if self.flow.nodes[before].control.write_scoreboard == scoreboard:
                found.add(before)
            if scoreboard not in self._waits[before]:
                work.extend(self.flow.predecessors[before])
        return frozenset(found)

    # -- registers ----------------------------------------------------------------------------------------------------------------

    @cached_property
    def _blocks(self) -> tuple[range, ...]:
        return basic_blocks(self.flow)

    @cached_property
    def _block_of(self) -> tuple[int, ...]:
        return tuple(number for number, block in enumerate(self._blocks) for _ in block)

    @cached_property
    def _writers(self) -> tuple[dict[Register, list[int]], ...]:
        """For each block and register: the nodes that write it, in order."""
        table: list[dict[Register, list[int]]] = []
        for block in self._blocks:
            writers: dict[Register, list[int]] = defaultdict(list)
            for node in block:
                for register in effects(self.flow.nodes[node]).writes:
                    writers[register].append(node)
            table.append(dict(writers))
        return tuple(table)

    def definitions(self, node: int, register: Register) -> frozenset[int]:
        """The nodes that may have written what `register` holds when `node` issues, in the lanes that execute it."""
        key = (node, register)
        if key not in self._definitions:
            self._definitions[key] = self._find_definitions(node, register)
        return self._definitions[key]

    def _find_definitions(self, node: int, register: Register) -> frozenset[int]:
        found: set[int] = set()
        seen: set[int] = set()
        work: list[tuple[int, int]] = [(self._block_of[node], node)]
        while work:
            number, before = work.pop()
            for writer in reversed(self._writers[number].get(register, ())):
                if writer < before:
                    found.add(writer)
                    if self._overwrites(writer, node):
                        break
            else:
                for predecessor in self.flow.predecessors[self._blocks[number].start]:
                    above = self._block_of[predecessor]
                    if above not in seen:
                        seen.add(above)
                        work.append((above, self._blocks[above].stop))
        return frozenset(found)

    def _overwrites(self, writer: int, reader: int) -> bool:
        """Whether what the writer writes is all that lanes which execute the reader can see: it has no guard, or the very same."""
        one = self.flow.nodes[writer]
        if not effects(one).exact:
            return False
        guard = one.guard
        if guard is None or guard.register is None:
            return guard is None or not guard.negated
        # The predicate is the same one only where nothing lies between that could write it: not across the edges of blocks.
        nodes = self.flow.nodes
        return (
            guard == nodes[reader].guard
            and self._block_of[writer] == self._block_of[reader]
            and writer < reader
            and not any(guard.register in effects(nodes[between]).writes for between in range(writer, reader))
        )


def waits_for(instruction: Instruction) -> tuple[int, ...]:
    """The scoreboards that are at zero when the instruction issues, and behind it.

    `DEPBAR.LE SB0, 0x0, {5,4}` waits for the named scoreboard and for those of the set. With a count above zero it says nothing about a
    single access: up to that many may be outstanding, in an order that is not known.
    """
    waits = instruction.control.waits
    if instruction.opcode != "DEPBAR":
        return waits
    named = [operand.text for operand in instruction.operands]
    counted = next((operand.value for operand in instruction.operands if operand.value is not None), 0)
    more = [int(text[2:]) for text in named if text.startswith("SB") and counted == 0]
    more += [int(number) for text in named if text.startswith("{") for number in text.strip("{} ").split(",") if number.strip()]
    return (*waits, *more)


def basic_blocks(flow: Flow) -> tuple[range, ...]:
    """The nodes in maximal runs that control enters at the front only and leaves at the end only."""
    leaders = {0, *flow.entries}
    for node, successors in enumerate(flow.successors):
        if successors != (node + 1,):
            leaders.add(node + 1)
            leaders.update(successors)
    starts = sorted(one for one in leaders if one < len(flow.nodes))
    return tuple(range(first, last) for first, last in zip(starts, [*starts[1:], len(flow.nodes)], strict=True))


def collect(starts: Iterable[int], edges: Callable[[int], Iterable[int]], stop: Callable[[int], bool]) -> tuple[set[int], set[int]]:
    """The nodes met from `starts` along `edges` up to those that `stop`: what lies between, and those that stopped."""
    between: set[int] = set()
    stops: set[int] = set()
    work = list(starts)
    while work:
        node = work.pop()
        if node in between or node in stops:
            continue
        if stop(node):
            stops.add(node)
            continue
        between.add(node)
        work.extend(edges(node))
    return between, stops

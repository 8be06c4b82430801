"""Compute reaching definitions: which instructions may have written the value of a register.

Control enters a basic block only at its front, so definitions that reach it are computed per block: once for each register asked for, as
bit sets with one bit for each instruction that writes the register.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from memlane.sass.calls import Calls
from memlane.sass.flow import Flow
from memlane.sass.operands import Register
from memlane.sass.registers import effects
from memlane.walks import components


class Definitions:
    """Reaching definitions of one program; answers are cached."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._calls = Calls(flow)
        self._found: dict[tuple[int, Register], frozenset[int]] = {}
        self._arriving: dict[Register, dict[int, int]] = defaultdict(dict)
        """Definitions, as bits, that may reach the front of each block, by register and block."""
        self._surviving: dict[tuple[int, Register], tuple[int, bool]] = {}
        self._sets: dict[tuple[Register, int], frozenset[int]] = {}

    def of(self, node: int, register: Register) -> frozenset[int]:
        """Return the nodes that may have written the value of `register` when `node` issues, in the lanes that execute `node`."""
        key = (node, register)
        if key not in self._found:
            self._found[key] = self._find(node, register)
        return self._found[key]

    def _find(self, node: int, register: Register) -> frozenset[int]:
        block = self._block_of[node]
        writers = self._writers_in(block, register)
        found: set[int] = set()
        for place in range(bisect_left(writers, node) - 1, -1, -1):
            found.add(writers[place])
            if self._overwrites(writers[place], node):
                return frozenset(found)
        arriving = self._arriving[register]
        if block not in arriving:
            self._compute_arriving(block, register, arriving)
        return self._nodes_in(arriving[block], register) | found

    # -- between blocks -----------------------------------------------------------------------------------------------------------

    def _compute_arriving(self, block: int, register: Register, known: dict[int, int]) -> None:
        """Compute the definitions that reach a block and all blocks on the way to it.

        Blocks in one strongly connected component, without an instruction that overwrites the register between them, have the same
        definitions.
        """

        def passed(number: int) -> list[int]:
            return [above for above in self._blocks_before(number, register) if above not in known and self._defined_in(above, register)[1]]

        for component in reversed(components((block,), passed)):
            written = 0
            for above in {above for number in component for above in self._blocks_before(number, register)}:
                bits, passes = self._defined_in(above, register)
                written |= bits | (known[above] if passes and above not in component else 0)
            known.update(dict.fromkeys(component, written))

    def _defined_in(self, block: int, register: Register) -> tuple[int, bool]:
        """Return the definitions, as bits, that may reach the end of a block from inside it, and whether those at its front may too."""
        writers = self._writers_in(block, register)
        key = (block, register)
        if not writers or key in self._surviving:
            return self._surviving.get(key, (0, True))
        first, bits, passes = bisect_left(self._all_writers[register], writers[0]), 0, True
        for place in reversed(range(len(writers))):
            bits |= 1 << first + place
            if self._writes_all_lanes(writers[place]):
                passes = False
                break
        self._surviving[key] = bits, passes
        return bits, passes

    def _nodes_in(self, bits: int, register: Register) -> frozenset[int]:
        """Return the writers of a register from a bit set."""
        key = (register, bits)
        if key not in self._sets:
            left, found = bits, []
            while left:
                lowest = left & -left
                found.append(self._all_writers[register][lowest.bit_length() - 1])
                left ^= lowest
            self._sets[key] = frozenset(found)
        return self._sets[key]

    def _blocks_before(self, block: int, register: Register) -> list[int]:
        """Return the blocks from which control reaches a block with the value of `register`, past a call that preserves it."""
        node = self._blocks[block].start
        before: Iterable[int] = self.flow.predecessors[node]
        call = self._calls.preserving_call(node, register)
        if call is not None:
            before = {call, *(one for one in before if one not in self.flow.called[call])}
        return [self._block_of[one] for one in before]

    # -- blocks -------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _blocks(self) -> tuple[range, ...]:
        return _basic_blocks(self.flow)

    @cached_property
    def _block_of(self) -> tuple[int, ...]:
        return tuple(number for number, block in enumerate(self._blocks) for _ in block)

    @cached_property
    def _writers(self) -> Mapping[Register, Mapping[int, list[int]]]:
        """Nodes that write each register, in order, by register and block."""
        table: dict[Register, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for node, one in enumerate(self.flow.nodes):
            for register in effects(one).writes:
                table[register][self._block_of[node]].append(node)
        return table

    def _writers_in(self, block: int, register: Register) -> Sequence[int]:
        return self._writers.get(register, {}).get(block, ())

    @cached_property
    def _all_writers(self) -> Mapping[Register, list[int]]:
        """Nodes that write each register, in order; the place of a node here is its bit."""
        return {register: [node for nodes in blocks.values() for node in nodes] for register, blocks in self._writers.items()}

    # -- guards -------------------------------------------------------------------------------------------------------------------

    def _writes_all_lanes(self, writer: int) -> bool:
        """Return whether the writer writes the register in all lanes."""
        one = self.flow.nodes[writer]
        guard = one.guard
        return effects(one).exact and (guard is None or (guard.register is None and not guard.negated))

    def _overwrites(self, writer: int, reader: int) -> bool:
        """Return whether lanes that execute the reader can see only the value of a writer before it in its block.

        True if the writer has no guard or the same guard; across blocks the predicate may have changed.
        """
        one = self.flow.nodes[writer]
        guard = one.guard
        if guard is None or guard.register is None or not effects(one).exact:
            return self._writes_all_lanes(writer)
        return guard == self.flow.nodes[reader].guard and self._predicate_unchanged(guard.register, writer, reader)

    def _predicate_unchanged(self, predicate: Register, writer: int, reader: int) -> bool:
        """Return whether a predicate has the same value at `reader` as at `writer`, in one block.

        True if nothing wrote it between, or if ptxas, short of predicates, repeated the same comparison with a constant.
        """
        nodes = self._writers_in(self._block_of[writer], predicate)
        made, earlier = bisect_left(nodes, reader), bisect_left(nodes, writer)
        if made == earlier:
            return True
        if not earlier:
            return False
        first, second = nodes[earlier - 1], nodes[made - 1]
        one, other = self.flow.nodes[first], self.flow.nodes[second]
        return (
            one.opcode == "ISETP"
            and one.guard is None
            and one.text.replace(".reuse", "") == other.text.replace(".reuse", "")
            and not any(effects(one).reads & effects(self.flow.nodes[between]).writes for between in range(first, second))
        )


def _basic_blocks(flow: Flow) -> tuple[range, ...]:
    """Return the basic blocks: maximal runs of nodes that control enters only at the front and leaves only at the end."""
    leaders = {0, *flow.entries}
    for node, successors in enumerate(flow.successors):
        if successors != (node + 1,):
            leaders.add(node + 1)
            leaders.update(successors)
    starts = sorted(one for one in leaders if one < len(flow.nodes))
    return tuple(range(first, last) for first, last in zip(starts, [*starts[1:], len(flow.nodes)], strict=True))

"""Compute live registers: those whose value may still be read before it is overwritten."""

from __future__ import annotations

from collections.abc import Iterable

from memlane.ptx.cfg import ControlFlow
from memlane.ptx.registers import overwrites, registers_read
from memlane.walks import bounded_rounds, positions


class Liveness:
    """Live registers at the start and end of every basic block. Vector registers count as a whole.

    Sets of registers are integers with one bit per register. Only registers that some block reads before it overwrites them have a bit: no
    others are live at a block boundary.
    """

    def __init__(self, flow: ControlFlow) -> None:
        local = [_local(flow, index) for index in range(len(flow.blocks))]
        self._names = tuple(dict.fromkeys(name for used, _ in local for name in used))
        self._numbers = {name: number for number, name in enumerate(self._names)}
        uses, kills = [self.bits_of(used) for used, _ in local], [self.bits_of(killed) for _, killed in local]
        self._in = list(uses)
        self._out = [0] * len(flow.blocks)
        # In reverse order of the text most facts arrive in the first round; a loop needs one more for each level of nesting.
        backwards = [*reversed(flow.order), *(index for index, rank in enumerate(flow.rank) if rank < 0)]
        # Each round carries each fact over at least one more edge, and the last changes nothing.
        for _ in bounded_rounds(f"which registers of {flow.function.title} are live", len(flow.blocks) + 2):
            changed = False
            for index in backwards:
                after = 0
                for target in flow.successors[index]:
                    after |= self._in[target]
                before = uses[index] | (after & ~kills[index])
                if after != self._out[index] or before != self._in[index]:
                    self._out[index], self._in[index] = after, before
                    changed = True
            if not changed:
                break

    def bits_of(self, registers: Iterable[str]) -> int:
        """Return the bit set of the given registers; those never live at a block boundary have no bit."""
        found = 0
        for number in {self._numbers[name] for name in registers if name in self._numbers}:
            found |= 1 << number
        return found

    def names_of(self, bits: int) -> frozenset[str]:
        """Return the registers of a set by name."""
        return frozenset(self._names[number] for number in positions(bits))

    def bits_in(self, block: int) -> int:
        """Return `live_in` of a block as a bit set."""
        return self._in[block]

    def live_in(self, block: int) -> frozenset[str]:
        """Return the registers whose value at the start of the block may still be read."""
        return self.names_of(self._in[block])

    def live_out(self, block: int) -> frozenset[str]:
        """Return the registers whose value at the end of the block may still be read."""
        return self.names_of(self._out[block])


def _local(flow: ControlFlow, index: int) -> tuple[dict[str, None], set[str]]:
    """Return the registers that a block reads before it overwrites them, in the order of the text, and those that it overwrites."""
    used, killed = dict[str, None](), set[str]()
    for instruction in flow.blocks[index].instructions:
        used.update((name, None) for name in registers_read(instruction) if name not in killed)
        killed.update(overwrites(instruction))
    return used, killed

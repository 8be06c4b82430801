"""Which registers are live where: their value may still be read before it is overwritten."""

from __future__ import annotations

from memlane.ptx.cfg import ControlFlow
from memlane.ptx.registers import overwrites, registers_read
from memlane.walks import settling


class Liveness:
    """Live registers at the bounds of every basic block. Vector registers count as a whole."""

    def __init__(self, flow: ControlFlow) -> None:
        self._numbers: dict[str, int] = {}
        uses, kills = zip(*(self._local(flow, index) for index in range(len(flow.blocks))), strict=True) if flow.blocks else ((), ())
        self._in = list(uses)
        self._out = [0] * len(flow.blocks)
        # Backwards over the text most facts arrive in the first round; a loop needs one more for each level of nesting.
        backwards = [*reversed(flow.order), *(index for index, rank in enumerate(flow.rank) if rank < 0)]
        # A round carries each fact over one more edge at least, and the last finds nothing new.
        for _ in settling(f"which registers of {flow.function.title} are live", len(flow.blocks) + 2):
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
        self._names = tuple(self._numbers)

    def _local(self, flow: ControlFlow, index: int) -> tuple[int, int]:
        """Registers read in a block before they are overwritten in it, and those overwritten, as sets of bits."""
        used = killed = 0
        for instruction in flow.blocks[index].instructions:
            for name in registers_read(instruction):
                used |= self._bit(name) & ~killed
            for name in overwrites(instruction):
                killed |= self._bit(name)
        return used, killed

    def _bit(self, name: str) -> int:
        return 1 << self._numbers.setdefault(name, len(self._numbers))

    def _set(self, bits: int) -> frozenset[str]:
        found = []
        while bits:
            lowest = bits & -bits
            found.append(self._names[lowest.bit_length() - 1])
            bits ^= lowest
        return frozenset(found)

    def live_in(self, block: int) -> frozenset[str]:
        """Registers whose value at the start of the block may still be read."""
        return self._set(self._in[block])

    def live_out(self, block: int) -> frozenset[str]:
        """Registers whose value at the end of the block may still be read."""
        return self._set(self._out[block])

"""Find the moves between registers that ptxas has to emit as instructions.

    ld.global.f32 %f2, [%rd1];      the next value
    fma.rn.f32 %f3, %f1, %f3, %f1;  still needs the one before: two registers are live
    mov.f32 %f1, %f2;               so this is an instruction, and it waits for the load

A move between two registers that are never live at once costs nothing: both become one machine register (Chaitin, "Register allocation and
spilling via graph coloring", 1982). ptxas may still unroll the loop and rename the move away, or keep one that it could have left out: the
result is an expectation, and the machine code decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from memlane.ptx.cfg import ControlFlow
from memlane.ptx.ir import Instruction, Register, Vector
from memlane.ptx.liveness import Liveness
from memlane.ptx.registers import overwrites, registers_read, registers_written


def is_move(one: Instruction) -> bool:
    """Return whether an instruction only copies whole registers, single or in pairs. Halves of a register need real instructions."""
    if one.opcode != "mov":
        return False
    pairs = [operand for operand in one.operands if isinstance(operand, Vector)]
    whole = one.modifiers[-1] in ("b64", "b128") and all(len(pair.items) == 2 for pair in pairs)
    return all(isinstance(operand, Register | Vector) for operand in one.operands) and (whole or not pairs)


class Copies:
    """Interference of registers in a function: for each register that a move writes, those that hold another value at the same time."""

    def __init__(self, flow: ControlFlow, liveness: Liveness) -> None:
        moves = [one for block in flow.blocks for one in block.instructions if is_move(one)]
        self._written = frozenset(name for one in moves for name in registers_written(one))
        self._interferes: dict[str, set[str]] = defaultdict(set)
        for block in flow.blocks if moves else ():
            live = set(liveness.live_out(block.index))
            for one in reversed(block.instructions):
                self._defines(one, live)
                live.difference_update(overwrites(one))
                live.update(registers_read(one))

    def _defines(self, one: Instruction, live: set[str]) -> None:
        """Record what is live behind an instruction next to the registers that it writes. A move does not create a second value."""
        same = set(registers_read(one)) if is_move(one) else set()
        written = registers_written(one)
        for name in written:
            for other in (live - same).difference(written):
                self._add_interference(name, other)

    def _add_interference(self, name: str, other: str) -> None:
        for one, two in ((name, other), (other, name)):
            if one in self._written:
                self._interferes[one].add(two)

    def needs_instruction(self, move: Instruction, holding: Iterable[str]) -> bool:
        """Return whether a move of a value that is or was in the registers `holding` has to be an instruction of the machine code."""
        return any(not self._interferes[name].isdisjoint(holding) for name in registers_written(move) if name in self._interferes)

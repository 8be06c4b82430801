"""Find the registers that a called function preserves, so that definitions can be followed through a call.

Calls of ptxas's own routines (the slow path of a division) pass the return address:

    MOV R20, 32@lo((kernel + .L_x_0@srel))
    MOV R21, 32@hi((kernel + .L_x_0@srel))
    CALL.ABS.NOINC `(slow_path)
    .L_x_0:                                             slow_path:  ...  RET.ABS.NODEC R20 0x0

`Flow` lets such a function return behind every call of it. Where the address that this call passes is shown to be that of the instruction
behind it, and nothing in the function writes the register that holds it, the function returns there and nowhere else. A register that
nothing in the function writes then holds the same value behind the call as before it.
"""

from __future__ import annotations

import re
from collections.abc import Set
from functools import cached_property

from memlane.sass.flow import Flow
from memlane.sass.operands import Register
from memlane.sass.program import Instruction
from memlane.sass.registers import effects

_RETURN_ADDRESS = re.compile(r"32@(lo|hi)\(\((.+) \+ (\.L\w+)@srel\)\)$")

_Body = tuple[frozenset[Register], list[int], list[Instruction]]


class Calls:
    """The calls of one program."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._changed: dict[int, frozenset[Register] | None] = {}
        self._bodies: dict[frozenset[int], _Body] = {}

    def preserving_call(self, node: int, register: Register) -> int | None:
        """Return the call right before `node` if control returns to `node` only from it and the callee preserves `register`, else None."""
        call = node - 1
        changed = self._changed_by(call) if call in self.flow.called else None
        return None if changed is None or register in changed else call

    def _changed_by(self, call: int) -> frozenset[Register] | None:
        """Return all registers that may be written between a call and its return; None if it may return elsewhere."""
        if call not in self._changed:
            self._changed[call] = None  # The answer for recursive calls while the function is being examined.
            self._changed[call] = self._written(call)
        return self._changed[call]

    def _written(self, call: int) -> frozenset[Register] | None:
        body = self.flow.called[call]
        if body not in self._bodies:
            self._bodies[body] = self._read(body)
        written, calls, returns = self._bodies[body]
        for node in calls:
            nested = self._changed_by(node) if node in self.flow.called else None
            if nested is None:
                return None
            written |= nested
        return written if all(self._returns_behind(call, one, written) for one in returns) else None

    def _read(self, body: frozenset[int]) -> _Body:
        """Return the registers that some nodes write, the calls among the nodes, and the returns."""
        written = frozenset(register for node in body for register in effects(self.flow.nodes[node]).writes)
        calls = [node for node in body if self.flow.nodes[node].opcode == "CALL"]
        return written, calls, [self.flow.nodes[node] for node in body if self.flow.nodes[node].opcode == "RET"]

    def _returns_behind(self, call: int, end: Instruction, written: Set[Register]) -> bool:
        """Return whether a return goes to the address that the call passed, and that is the instruction behind the call."""
        low = end.operands[0].register if end.operands else None
        if low is None:
            return False
        halves = {"lo": low, "hi": Register(low.bank, low.number + 1)}
        return not written & set(halves.values()) and all(
            self._passes_return_address(call, half, register) for half, register in halves.items()
        )

    def _passes_return_address(self, call: int, half: str, register: Register) -> bool:
        """Return whether a register holds that half of the address behind the call, set in the straight-line code before the call."""
        function = self.flow.function_of[call]
        for node in range(call - 1, self._straight[call] - 1, -1):
            one = self.flow.nodes[node]
            if register in effects(one).writes:
                found = _RETURN_ADDRESS.match(one.operands[-1].text)
                if found is None or one.opcode != "MOV" or one.guard is not None:
                    return False
                return (found[1], found[2], self.flow.place(function, found[3])) == (half, function, call + 1)
        return False

    @cached_property
    def _straight(self) -> dict[int, int]:
        """First node of the straight-line code that leads to each call."""
        first = {}
        for call in self.flow.called:
            node = call
            while self.flow.predecessors[node] == (node - 1,) and self.flow.successors[node - 1] == (node,):
                node -= 1
            first[call] = node
        return first

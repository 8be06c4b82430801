"""What parts of the lowering ask of each other, so that none of them has to name the class of another one that already names it."""

from __future__ import annotations

from typing import Protocol

from memlane.emulate.code.build import Emit, Value
from memlane.emulate.layers import Compiled
from memlane.emulate.lower.body import Step
from memlane.ptx import Instruction


class Emission(Protocol):
    """The code of a kernel while it is written, as the clock layer and the special registers use it (`Lowering`)."""

    e: Emit
    warp: Value
    block: Value
    context: Value
    layers: Compiled
    active: Value
    """i32: the lanes that execute the current instruction."""
    mask: Value
    """i32: the lanes that run the current place."""
    instruction: Instruction

    @property
    def start(self) -> Value:
        """The cycle in which the current instruction is issued; 0 without the clock layer."""

    def symbol_address(self, name: str, offset: int) -> Value:
        """Return the address of a variable in its own state space, in all lanes."""


class ControlFlow(Protocol):
    """Where the lanes of a warp go on, as the semantics of instructions use it (`Flow`)."""

    @property
    def successors(self) -> tuple[int, ...]:
        """The places where the current one may go."""

    @property
    def following(self) -> int:
        """Where lanes go on that do not branch."""

    def save(self) -> None:
        """Store the registers that are needed later."""

    def count_executions(self, step: Step) -> None:
        """Count the lanes of a guarded instruction, where a layer asks for it."""

    def go(self, number: int) -> None:
        """Let all lanes go on at a place."""

    def split(self, taken: Value) -> None:
        """Let the `taken` lanes go to the first successor, and the others to the second."""

    def leave(self, lanes: Value) -> None:
        """Let lanes exit."""

    def pause(self) -> int:
        """End the place at an instruction that may wait; return the place behind it."""

    def skip_if_idle(self, following: int) -> None:
        """Let all lanes go on at `following` if none executes the current instruction."""

    def gather(self, members: Value, partners: Value) -> None:
        """Let each lane of `members` wait for its `partners`, a mask for each lane."""

    def pick_again(self) -> None:
        """Choose which lanes run next."""

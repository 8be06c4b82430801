"""Declares the interfaces between parts of the lowering, so that their modules need not import each other."""

from __future__ import annotations

from typing import Protocol

from memlane.emulate.code.build import Emit, Value
from memlane.emulate.layers import CompiledLayers
from memlane.emulate.lower.body import Step
from memlane.ptx import Instruction


class Emission(Protocol):
    """The code of a kernel while it is generated, as the clock layer and the special registers use it (`Lowering`)."""

    e: Emit
    warp: Value
    block: Value
    context: Value
    layers: CompiledLayers
    active: Value
    """i32: lanes that execute the current instruction (the active mask)."""
    mask: Value
    """i32: lanes that run the current segment."""
    instruction: Instruction

    @property
    def start(self) -> Value:
        """Return the cycle in which the current instruction issues; 0 without the clock layer."""

    def symbol_address(self, name: str, offset: int) -> Value:
        """Return the address of a variable in its own state space, in all lanes."""


class ControlFlow(Protocol):
    """Where the lanes of a warp continue, as the semantics of instructions use it (`Flow`)."""

    @property
    def successors(self) -> tuple[int, ...]:
        """Return the successors of the current segment."""

    @property
    def following(self) -> int:
        """Return where lanes that do not branch continue."""

    def save(self) -> None:
        """Emit stores of the registers that are live at the end of the segment."""

    def count_executions(self, step: Step) -> None:
        """Emit code that counts the active lanes of a guarded instruction, if a layer needs it."""

    def go(self, number: int) -> None:
        """Emit a branch of all lanes to a segment."""

    def split(self, taken: Value) -> None:
        """Emit a branch of the `taken` lanes to the first successor and of the others to the second."""

    def leave(self, lanes: Value) -> None:
        """Emit the exit of lanes."""

    def pause(self) -> int:
        """End the segment at an instruction that may wait; return the segment after it."""

    def skip_if_idle(self, following: int) -> None:
        """Emit code that lets all lanes continue at `following` if none is active."""

    def wait_for_partners(self, members: Value, partners: Value) -> None:
        """Emit code that makes each lane of `members` wait for its `partners`, a mask for each lane."""

    def pick_again(self) -> None:
        """Emit a branch to the choice of the next warp split."""

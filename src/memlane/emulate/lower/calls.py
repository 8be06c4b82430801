"""Describes calls and returns: what they need besides their instructions.

Each function has its own registers, one set for all its activations, and its parameters and results are registers too. So a call copies the
arguments and stores where to continue. Only a function that may be entered again before it returns saves its live registers on a stack in
local memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from memlane.ptx import Operand

STACK = "@stack"
"""The register that holds the local-memory address of the end of a thread's stack; also the name of the variable where the stack begins.
No text has this name."""
SAVED_BYTES = 8
"""Bytes of a saved register on the stack."""


@dataclass(frozen=True)
class Target:
    """A function that a call may reach."""

    name: str
    address: int
    """The value of a pointer to it."""
    arguments: tuple[tuple[str, Operand], ...]
    """Registers of its parameters, each with the operand copied there."""
    results: tuple[tuple[str, str], ...]
    """Registers of the caller, each with the register of the function that it receives."""
    return_register: str
    """The register that holds where the function continues at its end (its return address)."""
    frame: str = ""
    """The register that holds where its local variables begin on the stack; empty if they have fixed offsets."""
    frame_bytes: int = 0
    entry: int = -1
    """The number of its first segment."""


@dataclass(frozen=True)
class Call:
    """A call, at its first half or at the second half, after the return."""

    targets: tuple[Target, ...]
    pointer: Operand | None = None
    """The operand that selects the target of a call through a pointer; None for a direct call."""
    saved: tuple[str, ...] = ()
    """Registers that are live across the call and that the call may overwrite."""
    resume: int = -1
    """The number of the segment after the call."""
    service: str = ""
    """The function of the CUDA runtime that is called instead, such as `vprintf`; empty if there is none."""
    arguments: tuple[tuple[Operand, ...], ...] = ()
    """The registers of each argument of the service, lowest first."""
    results: tuple[str, ...] = ()

    @property
    def stack_bytes(self) -> int:
        """Return the bytes that the call takes on the stack, a multiple of the largest alignment of any variable."""
        return -(-SAVED_BYTES * len(self.saved) // 16) * 16


@dataclass(frozen=True)
class Return:
    """The end of a called function."""

    return_register: str
    """The register that holds where its caller continues."""
    frame_bytes: int
    """Bytes that it releases from the stack."""

"""What a call and a return need to know, besides their instructions.

Each function has registers of its own, one set for all its activations, and its parameters and results are registers too. So a call copies
the arguments and writes down where to go on; only a function that may be entered again before it returns puts what it still needs on a
stack in local memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from memlane.ptx import Operand

STACK = "%stack"
"""The register that holds where in local memory a thread's stack ends; and the name of the place where it begins."""
SAVED_BYTES = 8
"""What a saved register takes on the stack."""


@dataclass(frozen=True)
class Target:
    """A function that a call may reach."""

    name: str
    address: int
    """What a pointer to it holds."""
    arguments: tuple[tuple[str, Operand], ...]
    """Registers of its parameters, each with what goes there."""
    results: tuple[tuple[str, str], ...]
    """Registers of the caller, each with the one of the function that it gets."""
    place: str
    """The register in which it finds where to go on at its end."""
    frame: str = ""
    """The register in which it finds where its local variables begin on the stack; empty if they have fixed places."""
    frame_bytes: int = 0
    entry: int = -1
    """The number of its first place."""


@dataclass(frozen=True)
class Call:
    """A call, whether it begins or goes on behind the return."""

    targets: tuple[Target, ...]
    pointer: Operand | None = None
    """What the target is chosen by, of a call through a pointer."""
    saved: tuple[str, ...] = ()
    """Registers that outlive the call, which may write them."""
    resume: int = -1
    """The number of the place behind the call."""
    service: str = ""
    """The function of the CUDA runtime that is called instead, such as `vprintf`."""
    arguments: tuple[tuple[Operand, ...], ...] = ()
    """For it: the registers of each argument, lowest first."""
    results: tuple[str, ...] = ()

    @property
    def stack_bytes(self) -> int:
        """A multiple of what any variable is aligned to."""
        return -(-SAVED_BYTES * len(self.saved) // 16) * 16


@dataclass(frozen=True)
class Return:
    """The end of a called function."""

    place: str
    """The register that holds where its caller goes on."""
    frame_bytes: int
    """What it gives back to the stack."""

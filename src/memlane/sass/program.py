"""Hold assembled code as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from memlane.sass.control import Control
from memlane.sass.operands import Operand, Register

INSTRUCTION_BYTES = 16


@dataclass(frozen=True, slots=True)
class Place:
    """A source line, and where the code of that line was inlined, innermost first."""

    file: str
    line: int
    inlined_at: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard `@P0` or `@!UP1`: selects the lanes that execute an instruction."""

    register: Register | None
    """None for a predicate that is always true."""
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction."""

    offset: int
    """Bytes from the start of its function's section."""
    guard: Guard | None
    opcode: str
    """The opcode without modifiers: `LDG`."""
    modifiers: tuple[str, ...]
    """The modifiers in order: `("E", "64")`."""
    operands: tuple[Operand, ...]
    encoding: int
    """All 128 bits."""
    control: Control
    text: str
    """The instruction as nvdisasm writes it."""
    place: Place | None = None
    """Its place in the source that the PTX came from."""
    ptx_line: int | None = None
    """The line of the PTX text that it was assembled from."""

    @property
    def name(self) -> str:
        """Opcode with its modifiers, joined by dots."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True)
class Function:
    """The code of one section: a kernel, or a function that kernels call."""

    name: str
    instructions: tuple[Instruction, ...] = field(repr=False)
    labels: Mapping[str, int] = field(repr=False)
    """Index of the instruction behind each label; the number of instructions for a label at the end."""


@dataclass(frozen=True)
class Program:
    """A disassembled cubin."""

    target: str
    """The target architecture, such as `sm_90`."""
    functions: Mapping[str, Function]

    def instructions(self) -> Iterator[tuple[Function, Instruction]]:
        for function in self.functions.values():
            for instruction in function.instructions:
                yield function, instruction

"""Parse the operands of an instruction, as nvdisasm writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


class Register(NamedTuple):
    """One 32-bit register, or one predicate."""

    bank: str
    """`R`, `UR` (uniform: one per warp), `P`, `UP`, or `B` for convergence barriers."""
    number: int

    def __str__(self) -> str:
        return f"{self.bank}{self.number}"


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand. Registers that are always zero or true (`RZ`, `URZ`, `PT`, `UPT`) have no `register`."""

    text: str
    kind: str
    """`register`, `predicate` (both uniform or not), `barrier`, `memory`, `constant`, `special`, `label`, `immediate`."""
    register: Register | None = None
    """The register of a register, predicate or barrier operand."""
    address: tuple[tuple[Register, int], ...] = ()
    """Registers of the address of memory or of an indexed constant, each with the number of registers that it begins."""
    targets: tuple[str, ...] = ()
    """Labels that it names."""
    value: int | None = None
    """Value of an integer immediate."""
    wide: bool = False
    """Whether it carries `.64`."""


_TOKEN = re.compile(r"(?<![\w.$@])(UR|UP|R|P|B)([0-9]{1,6}|Z|T)(?![\w$@])((?:\.\w+)*)")
_LABEL = re.compile(r"`\(([^`]*)\)")
_INTEGER = re.compile(r"-?0x[0-9a-f]+$")
_TARGETS = re.compile(r'\(\*"BRANCH_TARGETS ([^"]*)"\*\)')
_KINDS = {"R": "register", "UR": "register", "P": "predicate", "UP": "predicate", "B": "barrier"}


def parse_operands(text: str) -> tuple[Operand, ...]:
    """Return the operands in order. The targets of an indirect branch, which nvdisasm appends, become one more operand of kind `label`."""
    found = _TARGETS.search(text)
    labels = () if found is None else (Operand(found.group(), "label", targets=tuple(found[1].split(","))),)
    plain = text if found is None else text[: found.start()]
    return (*(_operand(part) for part in _split(plain)), *labels)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    last = text[begin:].strip()
    return [*parts, last] if last else parts


def _operand(text: str) -> Operand:
    if label := _LABEL.search(text):
        return Operand(text, "label", targets=(label[1],))
    if "[" in text:
        kind = "constant" if re.match(r"[-|~!]*cx?\[", text) else "memory"
        return Operand(text, kind, address=_address(text))
    if _INTEGER.match(text):
        return Operand(text, "immediate", value=int(text, 16))
    token = _TOKEN.search(text)
    if token is None:
        return Operand(text, "special" if text.startswith(("SR", "SB", "PR")) else "immediate")
    bank, number, suffixes = token.groups()
    register = Register(bank, int(number)) if number.isdecimal() else None
    return Operand(text, _KINDS[bank], register, wide=".64" in suffixes)


def _address(text: str) -> tuple[tuple[Register, int], ...]:
    """Return the registers of an address with their widths.

    Descriptors and bindless constants take two uniform registers; addresses take two where they carry `.64`.
    """
    found = []
    for token in _TOKEN.finditer(text):
        bank, number, suffixes = token.groups()
        if number.isdecimal():
            before = text[: token.start()]
            named = before.endswith(("desc[", "cx["))
            found.append((Register(bank, int(number)), 2 if named or ".64" in suffixes else 1))
    return tuple(found)

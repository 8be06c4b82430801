"""Tell which instructions access memory, in which space, and how widely."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.sass.program import Instruction
from memlane.sass.registers import group_columns

_SPACES = {"G": "global", "S": "shared", "L": "local", "C": "const", "": "generic", "AS": "shared"}
_KINDS = {"LD": "load", "ST": "store", "ATOM": "atomic", "RED": "reduction"}
_TEXTURES = frozenset({"TEX", "TLD", "TLD4", "TXD", "TEXS", "TLDS", "TLD4S"})
_SURFACES = {"SULD": "load", "SUST": "store", "SUATOM": "atomic", "SURED": "reduction"}
_MATRIX = {"LDSM": "load", "STSM": "store"}
_COPIES = frozenset({"LDGSTS", "UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"})
_BYTES = (
    {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "F16": 2, "BF16": 2, "F16x2": 4, "BF16x2": 4}
    | dict.fromkeys(("64", "S64", "U64", "F64"), 8)
    | {"128": 16}
)
_VECTORS = {"64": 2, "S64": 2, "U64": 2, "F64": 2, "128": 4}
_WORD_BYTES = 4
_MATRIX_ROW_BYTES = 16


@dataclass(frozen=True, slots=True)
class Access:
    """The memory access of one instruction."""

    kind: str
    """`load`, `store`, `atomic` (with a result), `reduction` (without), `copy` (asynchronous, from global to shared memory or back),
    `product` (of a warpgroup, whose operands tensor cores read)."""
    space: str
    """`global`, `shared`, `local`, `const`, `tex`, `surface`, or `generic` where the address decides."""
    nbytes: int
    """Bytes per lane; 0 where the instruction does not say."""
    vector: int
    """Registers of 32 bits per lane; 1 for narrower accesses."""

    def __str__(self) -> str:
        return f"{self.nbytes} B {self.space} {self.kind}"


def memory_access(instruction: Instruction) -> Access | None:
    """Return the memory access of an instruction, or None. Constant operands (`c[0x3][0x10]` of an addition) do not count."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in _COPIES:
        return Access("copy", "global", _width(modifiers), _vector(modifiers))
    if opcode in _TEXTURES:
        components = _components(instruction)
        return Access("load", "tex", _WORD_BYTES * components, components)
    if opcode in _SURFACES:
        return Access(_SURFACES[opcode], "surface", _width(modifiers), _vector(modifiers))
    if opcode in _MATRIX:
        count = int(modifiers[-1]) if modifiers and modifiers[-1] in ("2", "4") else 1
        return Access(_MATRIX[opcode], "shared", _MATRIX_ROW_BYTES, count)
    if opcode.endswith("GMMA"):
        return Access("product", "shared", _product_bytes(instruction), 1)
    if opcode in ("ULDC", "LDCU"):
        return Access("load", "const", _width(modifiers), _vector(modifiers))
    return _ordinary(instruction)


def _ordinary(instruction: Instruction) -> Access | None:
    stem = next((one for one in _KINDS if instruction.opcode.startswith(one)), None)
    space = None if stem is None else _SPACES.get(instruction.opcode[len(stem) :])
    if stem is None or space is None:
        return None
    kind = _KINDS[stem]
    if kind == "atomic" and not _has_result(instruction):
        kind = "reduction"
    return Access(kind, space, _width(instruction.modifiers), _vector(instruction.modifiers))


def _has_result(instruction: Instruction) -> bool:
    """Return whether an atomic returns something: `ATOMS.POPC.INC.32 RZ, ...` does not. A predicate alone is a result too (`P0`)."""
    for operand in instruction.operands:
        if operand.kind == "memory":
            return False
        if operand.register is not None:
            return True
    return False


def _product_bytes(instruction: Instruction) -> int:
    """Return the bytes that a warpgroup product reads per lane (of 128): N columns of 32 bytes, plus 64 rows if a descriptor names A."""
    rows = 0 if instruction.operands[1].kind == "register" else 64
    return (rows + group_columns(instruction.modifiers)) // 4


def _width(modifiers: tuple[str, ...]) -> int:
    return next((_BYTES[one] for one in modifiers if one in _BYTES), _WORD_BYTES)


def _vector(modifiers: tuple[str, ...]) -> int:
    return next((_VECTORS[one] for one in modifiers if one in _VECTORS), 1)


def _components(instruction: Instruction) -> int:
    """Return the components that a texture fetch reads: the mask is the last operand, and left out where it selects all four."""
    last = instruction.operands[-1]
    return last.value.bit_count() if last.value else 4

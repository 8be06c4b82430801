"""Determine which registers an instruction reads and which it writes.

The listing writes destinations first, then sources, and names only the first register of a pair or a quadruple. The opcode and its
modifiers determine which operands are destinations, and how many registers an operand takes. The tables below hold the exceptions from the
rule: one register each, and the destinations are the predicates in front, the first register, and the predicates right behind it (carries).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from memlane.sass.operands import Operand, Register
from memlane.sass.program import Instruction

_NO_DESTINATION = frozenset(
    """
    ST STG STS STL RED REDG STSM CCTL CCTLL CCTLT PREFETCH SUST SURED LDGSTS LDGDEPBAR DEPBAR
    BAR MEMBAR ERRBAR FENCE WARPSYNC WARPGROUP NANOSLEEP YIELD NOP PMTRIG BPT SETCTAID SETLMEMBASE
    EXIT KILL RTT BRA BRX BRXU JMP JMX JMXU CALL RET BSSY BSYNC BREAK ENDCOLLECTIVE
    UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF UTMACMDFLUSH ARRIVES UCGABAR_ARV UCGABAR_WAIT
    """.split()  # noqa: SIM905
)
_PREDICATES_ONLY = {
    "ISETP": 2, "FSETP": 2, "DSETP": 2, "HSETP2": 2, "UISETP": 2, "PLOP3": 2, "UPLOP3": 2, "PSETP": 2, "FCHK": 1, "VOTEP": 1, "PMTRIG": 0,
}  # fmt: skip
"""Opcodes whose destinations are that many leading predicates and no register."""

_DOUBLE = frozenset({"DADD", "DMUL", "DFMA", "DMNMX", "DSETP"})
_PAIRS = frozenset({"MOV", "SEL", "IADD", "IMNMX", "ISETP", "UMOV", "USEL", "UIADD", "UISETP"})
"""Opcodes that work on register pairs where they carry `.64`, `.U64` or `.S64`, as on Blackwell."""

_WIDE_DESTINATION = frozenset({"IMAD", "UIMAD"})
_CONVERSIONS = frozenset({"F2F", "F2I", "I2F", "I2I", "FRND"})
_TYPES = frozenset({"F16", "BF16", "F32", "F64", "U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64"})
_TEXTURES = frozenset({"TEX", "TLD", "TLD4", "TXD", "TXQ", "TMML"})
_SURFACES = frozenset({"SULD", "SUST", "SURED", "SUATOM"})
_DIMENSIONS = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3, "ARRAY_1D": 2, "ARRAY_2D": 3}
_DATA_WIDTHS = {"64": 2, "128": 4, "96": 3, "256": 8}
_LOADS = frozenset({"LD", "LDG", "LDS", "LDL", "LDC", "ULDC", "LDCU"})
_STORES = frozenset({"ST", "STG", "STS", "STL"})
_ATOMICS = frozenset({"ATOM", "ATOMG", "ATOMS"})
_REDUCTIONS = frozenset({"RED", "REDG"})
_PLAIN = frozenset(
    """
    MOV SEL PRMT IADD IADD3 IMAD IMNMX IABS IDP IDP4A ISETP LEA LOP3 SHF SHL SHR POPC FLO BREV SGXT BMSK
    VIADD VIADDMNMX VIMNMX VIMNMX3 VABSDIFF
    FADD FMUL FFMA FMNMX FSEL FSETP FSET FCHK MUFU HADD2 HMUL2 HFMA2 HMNMX2 HSETP2 HSET2 DADD DMUL DFMA DMNMX DSETP
    F2F F2I I2F I2I FRND F2FP I2FP S2R S2UR CS2R CS2UR R2UR P2R R2P UP2UR UR2UP B2R R2B BMOV LEPC QSPC
    UMOV USEL UPRMT UIADD UIADD3 UIMAD UISETP ULEA ULOP3 USHF UPOPC UFLO UBREV USGXT UBMSK
    PLOP3 PSETP UPLOP3 VOTE VOTEU SHFL MATCH REDUX
    """.split()  # noqa: SIM905
)
"""Opcodes whose number of destination registers is known, besides loads, stores, atomics and all opcodes without a destination."""

_UNKNOWN_WIDTH = 8
"""Upper bound of the registers in a destination of an unknown opcode."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Registers read and written."""

    reads: frozenset[Register]
    """All registers that it may read, its guard included."""
    writes: frozenset[Register]
    """All registers that it may write."""
    exact: bool
    """Whether all of `writes` are written where the guard is true; otherwise `writes` is an upper bound."""


@lru_cache(maxsize=65536)
def effects(instruction: Instruction) -> Effects:
    """Return the registers that the instruction reads and writes."""
    destinations, sources = _divide(instruction)
    reads = {register for place, operand in sources for register in _source(instruction, place, operand)}
    if instruction.guard is not None and instruction.guard.register is not None:
        reads.add(instruction.guard.register)
    # The address of an access is read even where it stands among the destinations, as for a store.
    reads.update(register for _, operand in destinations for register in _address(instruction, operand))
    writes = {register for operand in (one for _, one in destinations) for register in _destination(instruction, operand)}
    return Effects(frozenset(reads), frozenset(writes), _is_known(instruction))


def _is_known(instruction: Instruction) -> bool:
    opcode = instruction.opcode
    return opcode in _PLAIN or opcode in _NO_DESTINATION or opcode in _LOADS or opcode in _ATOMICS or opcode in _TEXTURES


def _divide(instruction: Instruction) -> tuple[list[tuple[int, Operand]], list[tuple[int, Operand]]]:
    """Return the destinations and the sources, each with its position among the operands."""
    operands = list(enumerate(instruction.operands))
    count = _destinations(instruction)
    return operands[:count], operands[count:]


def _destinations(instruction: Instruction) -> int:
    """Return the number of leading operands that are destinations."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode in _NO_DESTINATION:
        return 0
    if opcode in _PREDICATES_ONLY:
        return _PREDICATES_ONLY[opcode]
    kinds = [operand.kind for operand in operands]
    count = 0
    while count < len(kinds) and kinds[count] == "predicate":
        count += 1
    if opcode in ("VOTE", "VOTEU"):
        # The last operand is the predicate of the vote.
        return len(kinds) - 1
    if opcode in _TEXTURES:
        return count + 2
    if count < len(kinds) and kinds[count] in ("register", "barrier", "special"):
        count += 1
        while count < len(kinds) and kinds[count] == "predicate":
            count += 1
    return min(count, max(1, len(kinds) - 1))


def _destination(instruction: Instruction, operand: Operand) -> Iterator[Register]:
    register = operand.register
    if operand.text == "PR":
        yield from _predicates(instruction)
    elif register is not None:
        width = 1 if operand.kind != "register" else _destination_width(instruction, operand)
        yield from _run(register, width)


def _predicates(instruction: Instruction) -> Iterator[Register]:
    """Return the predicates that move to or from one register together, selected by the mask in the last operand."""
    mask = instruction.operands[-1].value
    return (Register("P", number) for number in range(7) if mask is None or mask >> number & 1)


def _destination_width(instruction: Instruction, operand: Operand) -> int:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in _LOADS or opcode in _ATOMICS or opcode == "SULD":
        return _data_width(modifiers)
    if opcode in _WIDE_DESTINATION and "WIDE" in modifiers:
        return 2
    if opcode in ("CS2R", "CS2UR"):
        return 1 if "32" in modifiers else 2
    if opcode in _DOUBLE or operand.wide or _in_pairs(instruction):
        return 2
    if opcode in _CONVERSIONS:
        return _conversion(opcode, modifiers)[0]
    if opcode in _TEXTURES:
        return _texture_width(instruction, operand)
    if opcode == "LDSM":
        return int(modifiers[-1]) if modifiers[-1] in ("2", "4") else 1
    if opcode.endswith("GMMA"):
        return group_columns(modifiers) // 2
    if opcode.endswith("MMA") and opcode not in _PLAIN:
        return 4
    return 1 if _is_known(instruction) else _UNKNOWN_WIDTH


def _in_pairs(instruction: Instruction) -> bool:
    return instruction.opcode in _PAIRS and not {"64", "U64", "S64"}.isdisjoint(instruction.modifiers)


def _texture_width(instruction: Instruction, operand: Operand) -> int:
    """Return the number of components in one of two destinations of a texture fetch.

    The second destination takes the first two components of the mask, the first takes the others. The mask is the last operand, or full if
    absent.
    """
    mask = instruction.operands[-1].value
    components = 4 if mask is None else mask.bit_count()
    second = next(one for one in instruction.operands if one.kind == "register" and one is not instruction.operands[0])
    return min(components, 2) if operand is second else max(components - 2, 0)


def _conversion(opcode: str, modifiers: tuple[str, ...]) -> tuple[int, int]:
    """Return the number of registers of the result and of the source of a conversion.

    Types not named have 32 bits; only F2F names two types of one family.
    """
    types = [one for one in modifiers if one in _TYPES]
    to_integer, to_float = opcode in ("F2I", "I2I"), opcode in ("I2F", "F2F", "FRND")
    result = next((one for one in types if one.startswith("F") == to_float and to_integer != one.startswith("F")), "")
    source = types[-1] if opcode in ("F2F", "FRND", "I2I") and types else next((one for one in types if one != result), "")
    return 2 if result.endswith("64") else 1, 2 if source.endswith("64") else 1


def group_columns(modifiers: tuple[str, ...]) -> int:
    """Return N of a warpgroup product `64xNxK`; each thread holds N / 2 sums."""
    shape = next((one for one in modifiers if one.startswith("64x")), "64x256x16")
    return int(shape.split("x")[1])


def _data_width(modifiers: tuple[str, ...]) -> int:
    explicit = next((_DATA_WIDTHS[one] for one in modifiers if one in _DATA_WIDTHS), 0)
    return explicit or (1 if {"F64", "S64", "U64"}.isdisjoint(modifiers) else 2)


def _source(instruction: Instruction, place: int, operand: Operand) -> Iterator[Register]:
    if operand.text.lstrip("!") == "PR":
        yield from _predicates(instruction)
    yield from _address(instruction, operand)
    if operand.register is not None:
        width = 1 if operand.kind != "register" else _source_width(instruction, place, operand)
        yield from _run(operand.register, width)


def _address(instruction: Instruction, operand: Operand) -> Iterator[Register]:
    """Return the registers of an address.

    `.E` makes an address 64 bits wide; where there is no descriptor, its register is not marked as a pair.
    """
    bare = operand.text.startswith("[") and "E" in instruction.modifiers and instruction.opcode != "LDGSTS"
    wide_index = 2 if instruction.opcode in _SURFACES else 1
    for register, width in operand.address:
        narrow = f"{register}.U32" in operand.text
        yield from _run(register, max(width, 2 if bare and not narrow else wide_index))


def _source_width(instruction: Instruction, place: int, operand: Operand) -> int:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in _SURFACES or opcode in _TEXTURES:
        return _texture_source_width(instruction, place, operand)
    if opcode in _STORES or opcode in _REDUCTIONS or opcode in _ATOMICS:
        return _data_width(modifiers)
    if opcode in _WIDE_DESTINATION and ("WIDE" in modifiers or "HI" in modifiers):
        return 2 if place >= len(instruction.operands) - (2 if instruction.operands[-1].kind == "predicate" else 1) else 1
    if opcode in _DOUBLE or operand.wide or opcode in ("RET", "BRX", "JMX", "CALL") or _in_pairs(instruction):
        return 2
    if opcode in _CONVERSIONS:
        return _conversion(opcode, modifiers)[1]
    if opcode == "HMMA" and "16816" in modifiers and place == 2 and "SP" not in modifiers:
        return 2  # A column of 16 halves for each of 8: two in each of 64 registers.
    if opcode.endswith("MMA") and opcode not in _PLAIN and not opcode.endswith("GMMA"):
        return 4
    return 1 if _is_known(instruction) else _UNKNOWN_WIDTH


def _texture_source_width(instruction: Instruction, place: int, operand: Operand) -> int:
    """Return the number of registers of a source of a texture or surface access.

    Coordinates take a register per dimension; the reference is one uniform register, or two where it comes with a sampler.
    """
    assert operand.register is not None
    if operand.register.bank == "UR":
        return 2 if instruction.opcode in _TEXTURES else 1
    if instruction.opcode in _SURFACES:
        return _data_width(instruction.modifiers)
    dimensions = {one.text for one in instruction.operands}
    return next((count for name, count in _DIMENSIONS.items() if name in dimensions), 4) if place == 2 else 2 if "2D" in dimensions else 1


def _run(register: Register, width: int) -> Iterator[Register]:
    return (Register(register.bank, register.number + step) for step in range(width))

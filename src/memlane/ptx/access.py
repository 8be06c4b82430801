"""Describe the memory accesses of an instruction, for passes that observe memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from memlane.chip import AccessKind
from memlane.ptx.ir import Address, Immediate, Instruction, Operand, Register, TextureAddress, Vector, elements
from memlane.ptx.types import SCALAR_TYPES, VECTOR_LENGTHS

_OF_IMAGES = {"tex": "load", "tld4": "load", "suld": "load", "sust": "store", "sured": "reduction"}
"""Effect of instructions on a texture or a surface; all others query its shape."""
_PAST_TENSE = {"load": "read", "store": "wrote", "atomic": "updated", "reduction": "updated"}
MATRIX_ROW_BYTES = 16
"""`ldmatrix` and `stmatrix` move rows of eight 16-bit elements, one row for each address."""

GROUP_ROWS, GROUP_DEPTH_BYTES, GROUP_THREADS = 64, 32, 128
"""Sizes of a warpgroup product: rows of A and D, bytes of a row of A or a column of B, and the threads that execute it."""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """One memory operand of an instruction, and the access made through it."""

    kind: str
    """The effect on memory, in the words of `Site.kind`: `load`, `store`, `atomic` (returns a result), `reduction` (returns none),
    `prefetch`, or `query` for the shape of a texture or a surface; the last two touch no element. An asynchronous copy has a `load` (its
    source) and a `store` (its destination).
    """
    space: str
    """`global`, `shared` (of the block), `shared::cluster` (of any block of the cluster), `local`, `const`, `param`, `tex`, `surf`, or
    `generic` if the instruction names none.
    """
    address: Address | TextureAddress
    type: str
    """The scalar type of one element; empty where the instruction has none."""
    vector: int
    """Elements per lane."""
    nbytes: int | None
    """Bytes per lane; None if they are known only at run time."""
    results: tuple[Operand, ...] = ()
    """Registers that receive elements, in order; includes `_`."""
    values: tuple[Operand, ...] = ()
    """Operands stored or combined, in order; for a compare-and-swap the comparand comes first."""
    read_only: bool = False
    """Whether the memory may not change while the kernel runs: constants, `ld.global.nc`, `ldu`, textures."""
    is_matrix: bool = False
    """Whether the lanes of a warp load or store a matrix together."""
    asynchronous: bool = False
    """Whether the access may complete after the instruction: `cp.async` and similar."""
    read_bytes: Operand | None = None
    """Number of bytes that a lane reads, for the source of a partial `cp.async`; the rest of `nbytes` is filled with zeros.

    None if all are read.
    """


def access_kind(instruction: Instruction, read: Collection[str]) -> AccessKind:
    """Return the rule of a chip by which the access of an instruction is counted.

    `read`: the registers that any instruction of its function reads.
    """
    access = memory_access(instruction)
    if access is not None and access.kind in ("atomic", "reduction") and access.space != "surf":
        results = [one.name for one in elements(instruction.operand("d")) if isinstance(one, Register)]
        one = instruction.operand("b")
        is_one = isinstance(one, Immediate) and one.value == 1 and instruction.form.types.get("b") in ("u32", "s32")
        counts_up = instruction.has("add") and is_one and not any(name in read for name in results)
        if counts_up and "shared" in instruction.form.addresses.values() and not instruction.has("shared::cluster"):
            return "increment"  # only shared memory of the own block, accessed by name, has an instruction that counts lanes
        return "compare_swap" if instruction.has("cas") else "atomic"
    if access is not None and access.kind == "store" and not access.asynchronous:
        return "store"
    return "load_past_l1" if _past_l1(instruction) else "load"


def _past_l1(instruction: Instruction) -> bool:
    """Return whether a load bypasses L1: by its cache operator, or because other blocks may store there."""
    beyond = any(instruction.has(word) for word in ("volatile", "relaxed", "acquire", "mmio")) and not instruction.has("cta")
    return beyond or any(instruction.has(word) for word in ("cg", "cv"))


def memory_access(instruction: Instruction) -> MemoryAccess | None:
    """Return the memory access of an instruction, or None; if it has several, as an asynchronous copy has, the source."""
    accesses = memory_accesses(instruction)
    if not accesses:
        return None
    return next((access for access in accesses if access.kind == "load"), accesses[0])


def past_tense(instruction: Instruction, space: str) -> str:
    """Return the past tense of what an instruction did to memory of a state space: `read`, `wrote`, `updated` or `accessed`.

    A copy reads memory of one space and writes that of another.
    """
    if is_product(instruction):
        return _PAST_TENSE["load"]
    kinds = {one.space.partition("::")[0]: one.kind for one in reversed(memory_accesses(instruction))}
    kind = kinds.get(space.partition("::")[0]) or next(reversed(kinds.values()), "")
    return _PAST_TENSE.get(kind, "accessed")


def is_product(instruction: Instruction) -> bool:
    """Return whether an instruction is an asynchronous product of a warpgroup."""
    return instruction.opcode == "wgmma" and instruction.has("mma_async")


def product_bytes(instruction: Instruction) -> int:
    """Return the bytes of shared memory that a warpgroup product reads, for each of its 128 threads.

    A row of A and a column of B are 32 bytes deep, whatever their type. The 64 rows of A and the N columns of B are read once for the four
    warps together; A is not read if it is in registers.
    """
    columns = int(instruction.form.slots["shape"].partition("n")[2].partition("k")[0])
    rows = 0 if isinstance(instruction.operand("a"), Vector) else GROUP_ROWS
    return (rows + columns) * GROUP_DEPTH_BYTES // GROUP_THREADS


def memory_accesses(instruction: Instruction) -> tuple[MemoryAccess, ...]:
    """Return every memory access of an instruction, in the order of its operands. Barriers in shared memory (`mbarrier`) do not count."""
    effect = instruction.form.effect
    if not instruction.form.addresses:
        return ()
    if effect == "copy":
        return _copy(instruction)
    reader = _READERS.get(effect)
    return () if reader is None else tuple(reader(instruction, letter) for letter in instruction.form.addresses if letter != "mbar")


def _plain(instruction: Instruction, letter: str) -> MemoryAccess:
    form = instruction.form
    scalar = form.types.get("d") or form.types.get("b") or ""
    vector = VECTOR_LENGTHS.get(form.slots.get("vec", ""), 1)
    space = "shared::cluster" if form.slots.get("ss") == "shared::cluster" else form.addresses[letter]
    return MemoryAccess(
        kind=form.effect,
        space=space,
        address=_address(instruction, letter),
        type=scalar,
        vector=vector,
        nbytes=SCALAR_TYPES[scalar].nbytes * vector if scalar else None,
        results=elements(instruction.operand("d")),
        values=(*elements(instruction.operand("b")), *elements(instruction.operand("c"))),
        read_only=space == "const" or "nc" in instruction.modifiers or instruction.opcode == "ldu",
    )


def _prefetch(instruction: Instruction, letter: str) -> MemoryAccess:
    form = instruction.form
    return MemoryAccess("prefetch", form.addresses[letter], _address(instruction, letter), "", 1, None)


def _texture(instruction: Instruction, letter: str) -> MemoryAccess:
    form = instruction.form
    scalar = form.slots.get("dtype") or form.slots.get("ctype") or ""
    vector = VECTOR_LENGTHS.get(form.slots.get("vec", ""), 4 if instruction.opcode == "tld4" else 1)
    return MemoryAccess(
        kind=_OF_IMAGES.get(instruction.opcode, "query"),
        space="tex" if form.effect == "texture" else "surf",
        address=_address(instruction, letter),
        type=scalar,
        vector=vector,
        nbytes=SCALAR_TYPES[scalar].nbytes * vector if scalar else None,
        results=elements(instruction.operand("d")),
        values=elements(instruction.operand("v")),
        read_only=form.effect == "texture",
    )


def _matrix(instruction: Instruction, letter: str) -> MemoryAccess:
    form = instruction.form
    by_rows = instruction.opcode in ("ldmatrix", "stmatrix")
    results = elements(instruction.operand("d"))
    return MemoryAccess(
        kind="load" if results else "store",
        space=form.addresses[letter],
        address=_address(instruction, letter),
        type=form.types.get("d") or form.types.get("b") or form.slots.get("type", ""),
        vector=int(form.slots.get("num", "x1")[1:]),
        nbytes=MATRIX_ROW_BYTES if by_rows else None,
        results=results,
        values=elements(instruction.operand("b")),
        is_matrix=True,
    )


def _copy(instruction: Instruction) -> tuple[MemoryAccess, ...]:
    form = instruction.form
    size = instruction.operand("size")
    nbytes = size.value if isinstance(size, Immediate) else None
    kinds = {"dst": "store", "src": "load", "map": "load" if "dst" in form.addresses else "store"}
    source = instruction.operand("source")
    read = {"src": None if isinstance(source, Immediate) and nbytes is not None and source.value >= nbytes else source}
    return tuple(
        MemoryAccess(
            kinds[letter],
            space,
            _address(instruction, letter),
            "",
            1,
            nbytes,
            asynchronous=True,
            read_bytes=read.get(letter),
        )
        for letter, space in form.addresses.items()
        if letter in kinds
    )


_READERS = {
    "load": _plain,
    "store": _plain,
    "atomic": _plain,
    "reduction": _plain,
    "prefetch": _prefetch,
    "texture": _texture,
    "surface": _texture,
    "matrix": _matrix,
}


def _address(instruction: Instruction, letter: str) -> Address | TextureAddress:
    operand = instruction.operand(letter)
    assert isinstance(operand, (Address, TextureAddress))
    return operand

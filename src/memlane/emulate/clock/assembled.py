"""Estimate how many machine instructions each PTX instruction becomes, and which pipe they occupy.

The estimate follows what ptxas does with common idioms: parameters become operands, a product that is only added to an address merges with
that addition, a 64-bit addition is two of 32 bits, divisions and square roots are short instruction sequences. The lengths of these
sequences come from `arithmetic` in benchmarks/results/h200/predict_measured.json (instructions by Nsight Compute, over operations)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memlane.ptx import SCALAR_TYPES, Instruction, Special, values_read, values_written


@dataclass(frozen=True)
class Weight:
    """Machine instructions of one PTX instruction, and the pipe that they occupy."""

    slots: int
    """Issue slots, one per machine instruction; 0 for an instruction that ptxas merges into another one or removes."""
    pipe: str = ""
    """A field of `Throughput`; empty if no pipe limits the instruction."""
    uses: int = 1
    """Uses of the pipe: one by each of the first `uses` machine instructions, and any more by the last one."""
    latency: int = 0
    """Cycles until the result is ready; 0: the latency that the chip file gives for the opcode."""


_SHAPE = re.compile(r"\d+")
_FREE = Weight(0)
_ONE = Weight(1, "alu")
_PROGRAMS = {
    ("div", "f32"): Weight(12, "sfu", 1, 145),
    ("rcp", "f32"): Weight(6, "sfu", 1, 80),
    ("sqrt", "f32"): Weight(10, "sfu", 1, 108),
    ("div", "f64"): Weight(20, "fp64", 9),
    ("rcp", "f64"): Weight(12, "fp64", 6),
    ("sqrt", "f64"): Weight(18, "fp64", 9),
    ("div", "int"): Weight(16, "sfu", 3, 240),
    ("rem", "int"): Weight(16, "sfu", 3, 240),
    ("div", "int64"): Weight(60, "sfu", 3),
    ("rem", "int64"): Weight(60, "sfu", 3),
}
"""Weights of exact divisions and roots; approximate ones are single instructions of the special function unit."""
_APPROXIMATE = {"sin": 2, "cos": 2, "ex2": 2, "lg2": 3, "sqrt": 2, "div": 2}


def weights(instructions: Sequence[Instruction], skips: Collection[int] = ()) -> list[Weight]:
    """Return the weight of each instruction of a kernel, in program order.

    `skips` holds the indices of divergent branches over some code: the lanes reconverge at a convergence barrier, which takes one
    instruction to set up and one to wait at."""
    uses = Counter(name for one in instructions for name in values_read(one))
    merged = _merged(instructions, uses)
    found = [_FREE if number in merged else _weight(one) for number, one in enumerate(instructions)]
    for number in skips:
        found[number] = Weight(3)
    return found


_FUSES = {
    "mul": (("add", "sub"), ("f32", "f64")),
    "add": (("add", "sub"), ("int",)),
    "sub": (("add", "sub"), ("int",)),
    "shl": (("add", "sub"), ("int", "int64")),
    "shr": (("add",), ("int",)),
    "and": (("and", "or", "xor"), ("int",)),
    "or": (("and", "or", "xor"), ("int",)),
    "xor": (("and", "or", "xor"), ("int",)),
    "not": (("and", "or", "xor"), ("int",)),
}
"""Pairs that ptxas fuses into one instruction of three operands: for the first opcode, the possible second opcodes and the types."""


def _merged(instructions: Sequence[Instruction], uses: Mapping[str, int]) -> set[int]:
    """Return the indices of instructions that merge into the only user of their result.

    A user takes in one instruction at most, and is not itself merged into another one."""
    maker: dict[str, int] = {}
    found: set[int] = set()
    takers: set[int] = set()
    for number, one in enumerate(instructions):
        for name in values_read(one):
            first = maker.get(name)
            if first is not None and uses[name] == 1 and first not in found | takers and _fuses(instructions[first], one):
                found.add(first)
                takers.add(number)
                break
        for name in values_written(one):
            maker[name] = number
    return found


def _fuses(first: Instruction, second: Instruction) -> bool:
    if first.guard is not None or "sat" in first.modifiers:
        return False
    if first.opcode == "mul" and first.has("wide"):
        return second.opcode == "add" and _kind(second) == "int64"
    if first.opcode == "mul" and (first.has("rn") or first.has("rz")):
        return False
    seconds, kinds = _FUSES.get(first.opcode, ((), ()))
    return second.opcode in seconds and _kind(first) in kinds and _kind(first) == _kind(second)


def _weight(one: Instruction) -> Weight:
    opcode, kind = one.opcode, _kind(one)
    if opcode == "cvta" or (opcode == "ld" and one.form.addresses.get("a") == "param"):
        return _FREE
    if opcode == "mov":
        return Weight(1) if isinstance(one.operand("a"), Special) else _FREE
    if "approx" in one.modifiers or opcode in ("ex2", "lg2", "tanh", "rsqrt"):
        return Weight(_APPROXIMATE.get(opcode, 1), "sfu")
    if (opcode, kind) in _PROGRAMS:
        return _PROGRAMS[opcode, kind]
    return _plain(one, opcode, kind)


def _plain(one: Instruction, opcode: str, kind: str) -> Weight:
    if opcode in ("fma", "mul", "mad", "add", "sub", "min", "max") and kind in ("f32", "f64"):
        return Weight(1, "fp64" if kind == "f64" else "alu" if opcode in ("min", "max") else "fma")
    if opcode in ("mul", "mad"):
        return Weight(4, "imul", 4) if kind == "int64" and not one.has("wide") else Weight(1, "imul")
    if opcode in ("add", "sub"):  # half of them go through the multiplier, which the assembler chooses so that both pipes are full
        return Weight(2 if kind == "int64" else 1)
    if opcode == "cvt":
        return _conversion(one)
    if opcode in ("popc", "clz", "brev", "bfind"):
        return Weight(1, "convert")
    if opcode == "shfl":
        return Weight(1, "shuffle")
    if opcode in ("vote", "match", "redux", "activemask"):
        return Weight(1, "vote")
    if opcode in ("mma", "wgmma") and one.slot("shape"):
        return Weight(1, "tensor", _tensor_uses(one))
    if opcode in ("ret", "exit"):
        return Weight(3)  # includes the start of each kernel: the stack pointer, a descriptor
    if one.form.effect:
        return Weight(1)
    return Weight(2, "alu", 2) if kind == "int64" else _ONE


LEAST_OF_WARPGROUP = 7
"""Fewest uses of the tensor pipe by a `wgmma`: 13 clocks, by benchmarks/results/h200/wgmma.json."""


def _tensor_uses(one: Instruction) -> int:
    """Return the uses of the tensor pipe, each of which computes 32 elements with a depth of 16 halves.

    For `wgmma`, count those of one of its four warps, which compute at twice the rate of `mma`."""
    rows, columns, depth = map(int, _SHAPE.findall(str(one.slot("shape")))[:3])
    operand = SCALAR_TYPES.get(one.form.types.get("a", "") or one.form.types.get("b", ""))
    bits = 16 if operand is None else min(operand.bits, 16)
    uses = rows * columns * depth * bits / (32 * 16 * 16)
    return max(LEAST_OF_WARPGROUP, round(uses / 8)) if one.opcode == "wgmma" else max(1, round(uses))


def _conversion(one: Instruction) -> Weight:
    kinds = [SCALAR_TYPES[word] for word in one.modifiers if word in SCALAR_TYPES]
    if not all(kind.kind in "usb" for kind in kinds):
        return Weight(1, "convert")
    return _FREE if min(kind.bits for kind in kinds) >= 32 else _ONE


def _kind(one: Instruction) -> str:
    """Classify the type of an instruction as `f64`, `f32` (also narrower floats), `int64` or `int`; empty for predicates and no type."""
    name = next((one.form.types[letter] for letter in ("d", "a", "b") if letter in one.form.types), "")
    type_ = SCALAR_TYPES.get(name)
    if type_ is None or type_.kind == "pred":
        return ""
    if type_.kind == "f":
        return "f64" if type_.bits == 64 else "f32"
    return "int64" if type_.bits == 64 else "int"

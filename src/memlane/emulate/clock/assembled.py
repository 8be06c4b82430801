"""How many machine instructions a PTX instruction becomes, approximately, and which pipe they take.

What decides is what the assembler does with the common idioms: parameters are operands, a product that is only added to an address is part
of that addition, a 64-bit addition is two of 32 bits, divisions and square roots are short programs. The lengths of these programs were
read off `arithmetic` in benchmarks/results/h200/predict_measured.json (instructions that Nsight Compute counts, over operations)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memlane.ptx import SCALAR_TYPES, Instruction, Special, values_read, values_written


@dataclass(frozen=True)
class Weight:
    """What an instruction costs a scheduler."""

    slots: int
    """Issue slots: machine instructions."""
    pipe: str = ""
    """A field of `Throughput`; empty for one that is never short."""
    uses: int = 1
    """Of the pipe."""
    latency: int = 0
    """Cycles until the result is there, where that is not what the chip file says of the opcode."""


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
"""Of divisions and roots that are exact; approximate ones are single instructions of the unit for special functions."""
_APPROXIMATE = {"sin": 2, "cos": 2, "ex2": 2, "lg2": 3, "sqrt": 2, "div": 2}


def weights(instructions: Sequence[Instruction], skips: Collection[int] = ()) -> list[Weight]:
    """Return the weight of each of the instructions of a kernel, in the order of its text.

    `skips`: the numbers of branches that leave out some code for a part of the lanes; these meet again at a barrier, which is an
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
"""What an instruction of three operands does at once: by the first of two instructions the second ones, and their types."""


def _merged(instructions: Sequence[Instruction], uses: Mapping[str, int]) -> set[int]:
    """The numbers of instructions that become a part of the only one that uses their result. That one takes up no other, and is no part."""
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
        return Weight(3)  # with what each kernel begins with: the stack pointer, a descriptor
    if one.form.effect:
        return Weight(1)
    return Weight(2, "alu", 2) if kind == "int64" else _ONE


LEAST_OF_WARPGROUP = 7
"""Uses of the pipe by the smallest product of a warpgroup: 13 clocks, by benchmarks/results/h200/wgmma.json."""


def _tensor_uses(one: Instruction) -> int:
    """How often 32 elements with a depth of 16 halves are computed; `wgmma` by one of its four warps, at twice the pace of `mma`."""
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
    """`f64`, `f32` (narrower ones too), `int64`, `int` or empty."""
    name = next((one.form.types[letter] for letter in ("d", "a", "b") if letter in one.form.types), "")
    type_ = SCALAR_TYPES.get(name)
    if type_ is None or type_.kind == "pred":
        return ""
    if type_.kind == "f":
        return "f64" if type_.bits == 64 else "f32"
    return "int64" if type_.bits == 64 else "int"

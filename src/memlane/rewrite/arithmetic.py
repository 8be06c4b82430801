"""Define the transfer functions of instructions on addresses and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.ptx import SCALAR_TYPES, Instruction, Operand, Register
from memlane.rewrite.values import ANY, MOST, Number, Pointer, Value, constant, join, multiple, wrapped


def reason(one: Instruction) -> str:
    """Return the reason why an instruction makes an address impossible to follow."""
    effect = one.form.effect
    if effect == "call":
        return "its address is passed to a call"
    if effect in ("store", "atomic", "reduction"):
        space = next(iter(one.form.addresses.values()), "")
        return "its address is passed to a call" if space == "param" else "its address is stored to memory"
    if effect == "warp":
        return "its address is given to other lanes"
    if one.opcode in ("setp", "set"):
        return "its address is compared with something other than its own addresses and 0"
    return f"`{one.name}` computes with its address in a way that memlane cannot follow"


# Each rule takes an instruction with its source operands and their values, at least one of them a pointer and none mixed. It returns the
# value of the result, or None if it cannot follow the address.


def _move(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a move."""
    value = values[0]
    if not isinstance(value, Pointer) or not isinstance(one.operands[one.form.operands["d"]], Register):
        return None
    return replace(value, bits=_bits(one))


def _convert(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a conversion. An address in shared memory has 32 bits, so widening and narrowing keep it; a generic one has 64."""
    value, bits = values[0], _bits(one)
    if not isinstance(value, Pointer) or bits < 32 or (value.generic and bits < 64):
        return None
    kinds = [one.form.types.get(letter, "") for letter in "da"]
    return replace(value, bits=bits) if all(map(_is_integer, kinds)) and SCALAR_TYPES[kinds[1]].bits >= 32 else None


def _convert_space(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a conversion between generic and shared addresses."""
    value = values[0]
    if not isinstance(value, Pointer) or (one.slot("space") or "").partition("::")[0] != "shared":
        return None
    to_shared = one.has("to")
    return replace(value, generic=not to_shared, bits=_bits(one)) if value.generic == to_shared else None


def _add(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow the sum of an address and a number."""
    first, second = values
    if isinstance(first, Pointer) and isinstance(second, Number):
        return _advance(one, first, constant(operands[1]), second.multiple)
    if isinstance(second, Pointer) and isinstance(first, Number):
        return _advance(one, second, constant(operands[0]), first.multiple)
    return None


def _subtract(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow an address minus a number, or the difference of two addresses in one array."""
    first, second = values
    if isinstance(first, Pointer) and isinstance(second, Pointer):
        return ANY if (first.array, first.generic) == (second.array, second.generic) else None
    number = constant(operands[1])
    return _advance(one, first, None if number is None else -number, multiple(second)) if isinstance(first, Pointer) else None


def _multiply_add(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a multiply-add whose addend is an address."""
    a, b, c = values
    if one.has("hi") or not isinstance(a, Number) or not isinstance(b, Number) or not isinstance(c, Pointer):
        return None
    factors = constant(operands[0]), constant(operands[1])
    known = None if factors[0] is None or factors[1] is None else factors[0] * factors[1]
    return _advance(one, c, known, min(MOST, a.multiple * b.multiple))


def _change_low_bits(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a bitwise operation that changes only bits below the alignment of the array, which are the same in the address and in the
    offset."""
    place = next(place for place, value in enumerate(values) if isinstance(value, Pointer))
    value, number = values[place], constant(operands[1 - place])
    if not isinstance(value, Pointer) or number is None:
        return None
    changed = ~number if one.opcode == "and" else number
    if not 0 <= changed & (1 << _bits(one)) - 1 < value.array.align:
        return None
    if value.offset is None:
        return replace(value, bits=_bits(one), multiple=1)
    offset = {"and": value.offset & number, "or": value.offset | number, "xor": value.offset ^ number}[one.opcode]
    return replace(value, bits=_bits(one), offset=_at(value, offset))


def _select(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a select between two values."""
    return join(values[0], values[1])


def _compare(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a comparison of an address with one in the same array, or with 0."""
    first, second = values[:2]
    if isinstance(first, Pointer) and isinstance(second, Pointer):
        return ANY if (first.array, first.generic) == (second.array, second.generic) else None
    number = constant(operands[1] if isinstance(first, Pointer) else operands[0])
    return ANY if number == 0 else None


def _test_space(one: Instruction, operands: Sequence[Operand], values: Sequence[Value]) -> Value | None:
    """Follow a test of the state space of an address."""
    return ANY


def _advance(one: Instruction, pointer: Pointer, by: int | None, steps: int) -> Value | None:
    """Return a pointer advanced by a constant, or by an unknown multiple of `steps` if `by` is None."""
    if not _is_integer(one.form.types["d"]) or one.has("sat") or (pointer.generic and _bits(one) < 64):
        return None
    offset = None if by is None or pointer.offset is None else _at(pointer, pointer.offset + by)
    return replace(pointer, bits=_bits(one), offset=offset, multiple=min(multiple(pointer), steps))


def _at(pointer: Pointer, offset: int) -> int:
    return offset if pointer.generic else wrapped(offset)


def multiple_of(one: Instruction, values: Sequence[Value], operands: Sequence[Operand]) -> int:
    """Return the greatest known power of two that divides the result, if all operands are numbers."""
    known = [multiple(value) for value in values]
    kind = one.form.types.get("d", "")
    if one.form.effect or len(known) != len(operands) or not _is_integer(kind) or one.has("sat"):
        return 1
    if not isinstance(one.operands[one.form.operands["d"]], Register):
        return 1  # the upper part of a number is a multiple of nothing known
    match one.opcode, known:
        case (("mov" | "cvt" | "neg"), [only]) if _is_integer(one.form.types.get("a", kind)):
            return only
        case (("add" | "sub" | "or" | "xor"), [first, second]):
            return min(first, second)
        case "and", [first, second]:
            return max(first, second)
        case "mul", [first, second] if not one.has("hi"):
            return min(MOST, first * second)
        case "mad", [first, second, third] if not one.has("hi"):
            return min(MOST, first * second, third)
        case "selp", [first, second, _]:
            return min(first, second)
        case "shl", [first, _]:
            distance = constant(operands[1])
            # A distance is unsigned: all of -1 is beyond the last bit.
            return 1 if distance is None else min(MOST, first << min(distance % (1 << 32), 16))
    return 1


def _is_integer(kind: str) -> bool:
    """Return whether a type is that of one integer: not of a floating-point number, nor of two numbers side by side."""
    return kind[:1] in ("b", "u", "s") and kind[1:].isdigit()


def _bits(one: Instruction) -> int:
    return SCALAR_TYPES[one.form.types["d"]].bits


RULES = {
    "mov": _move,
    "cvt": _convert,
    "cvta": _convert_space,
    "add": _add,
    "sub": _subtract,
    "mad": _multiply_add,
    "and": _change_low_bits,
    "or": _change_low_bits,
    "xor": _change_low_bits,
    "selp": _select,
    "setp": _compare,
    "set": _compare,
    "isspacep": _test_space,
}

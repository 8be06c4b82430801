"""Extended-precision integer arithmetic: a carry flag for each thread, kept like a predicate register."""

from __future__ import annotations

from memlane.emulate.code.build import Value
from memlane.emulate.lower.body import CARRY
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.integer import product
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES

_SECTION = "extended-precision-integer-arithmetic-instructions-"


def _carry(k: Lowering, kind: Value) -> Value:
    return k.e.zext(k.e.lanes_of(k.register(CARRY)), kind)


def _finish(k: Lowering, result: Value, carry: Value) -> None:
    if k.instruction.has("cc"):
        k.set_register(CARRY, k.e.mask_of(carry))
    k.write("d", result)


def _sum(k: Lowering, a: Value, b: Value, with_carry: bool) -> None:
    e = k.e
    total = e.add(a, b)
    overflow = e.icmp_unsigned("<", total, a)
    if with_carry:
        more = e.add(total, _carry(k, a.type))
        overflow = e.or_(overflow, e.icmp_unsigned("<", more, total))
        total = more
    _finish(k, total, overflow)


@semantics(_SECTION + "add-cc", _SECTION + "addc")
def add(k: Lowering) -> None:
    _sum(k, k.read("a"), k.read("b"), k.instruction.opcode == "addc")


@semantics(_SECTION + "sub-cc", _SECTION + "subc")
def sub(k: Lowering) -> None:
    """The flag is the borrow."""
    e, a, b = k.e, k.read("a"), k.read("b")
    rest = e.sub(a, b)
    borrow = e.icmp_unsigned("<", a, b)
    if k.instruction.opcode == "subc":
        less = e.sub(rest, _carry(k, a.type))
        borrow = e.or_(borrow, e.icmp_unsigned(">", less, rest))
        rest = less
    _finish(k, rest, borrow)


@semantics(_SECTION + "mad-cc", _SECTION + "madc")
def mad(k: Lowering) -> None:
    mode = "hi" if k.instruction.has("hi") else "lo"
    signed = SCALAR_TYPES[k.slot_type("a")].kind == "s"
    _sum(k, product(k, k.read("a"), k.read("b"), mode, signed), k.read("c"), k.instruction.opcode == "madc")

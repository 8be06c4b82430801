"""Extended-precision integer arithmetic, with a carry flag for each thread, kept like a predicate register.

Sums and differences share one flag. A difference is the sum with the complement and 1, so after `sub.cc` the flag says that there was no
borrow. Before any instruction writes it, it is 0 here; the manual leaves it open.
"""

from __future__ import annotations

from memlane.emulate.code.build import Value, constant
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.integer import product
from memlane.emulate.semantics.table import semantics
from memlane.ptx import CARRY, SCALAR_TYPES


def _carry(k: Lowering, kind: Value) -> Value:
    return k.e.zext(k.e.lanes_of(k.register(CARRY)), kind)


def _sum(k: Lowering, a: Value, b: Value, carry: Value | None = None) -> None:
    """Write a + b + carry, and the carry out of it."""
    e = k.e
    total = e.add(a, b)
    overflow = e.icmp_unsigned("<", total, a)
    if carry is not None:
        more = e.add(total, carry)
        overflow = e.or_(overflow, e.icmp_unsigned("<", more, total))
        total = more
    if k.instruction.has("cc"):
        k.set_register(CARRY, k.e.mask_of(overflow))
    k.write("d", total)


@semantics("extended/add.cc", "extended/addc")
def add(k: Lowering) -> None:
    a = k.read("a")
    _sum(k, a, k.read("b"), _carry(k, a.type) if k.instruction.opcode == "addc" else None)


@semantics("extended/sub.cc", "extended/subc")
def sub(k: Lowering) -> None:
    a = k.read("a")
    carry = _carry(k, a.type) if k.instruction.opcode == "subc" else constant(a.type, 1)
    _sum(k, a, k.e.not_(k.read("b")), carry)


@semantics("extended/mad.cc", "extended/madc")
def mad(k: Lowering) -> None:
    mode = "hi" if k.instruction.has("hi") else "lo"
    a, signed = k.read("a"), SCALAR_TYPES[k.slot_type("a")].kind == "s"
    _sum(k, product(k, a, k.read("b"), mode, signed), k.read("c"), _carry(k, a.type) if k.instruction.opcode == "madc" else None)

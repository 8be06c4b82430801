"""Comparison and selection."""

from __future__ import annotations

from memlane.emulate.code.build import FLOATS, I32, Value, constant, real, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.semantics.floating import flushed
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES

_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def compared(k: Lowering, type_letter: str) -> Value:
    """Return a mask of the lanes in which `a cmp b` holds."""
    e, scalar, relation = k.e, SCALAR_TYPES[k.slot_type(type_letter)], k.slot_of("cmp")
    a, b = k.read("a"), k.read("b")
    if scalar.kind != "f":
        if relation not in _RELATIONS:
            raise k.unsupported()
        unsigned = scalar.kind != "s" or relation in ("lo", "ls", "hi", "hs")
        return e.mask_of((e.icmp_unsigned if unsigned else e.icmp_signed)(_RELATIONS[relation], a, b))
    if scalar.lanes != 1 or a.type.element not in FLOATS.values():
        raise k.unsupported()
    if k.instruction.has("ftz"):
        a, b = flushed(k, a), flushed(k, b)
    return e.mask_of(holds(k, relation, a, b))


def holds(k: Lowering, relation: str, a: Value, b: Value) -> Value:
    """Return i1 lanes: whether a relation holds between floating-point numbers."""
    e = k.e
    if relation == "num":
        return e.fcmp_ordered("ord", a, b)
    if relation == "nan":
        return e.fcmp_unordered("uno", a, b)
    if relation.endswith("u"):
        return e.fcmp_unordered(_RELATIONS[relation[:-1]], a, b)
    return e.fcmp_ordered(_RELATIONS[relation], a, b)


def with_predicate(k: Lowering, mask: Value) -> Value:
    """Return the mask, combined with the operand c if the instruction has a `.bool`."""
    if not k.slot_of("bool"):
        return mask
    combine = {"and": k.e.and_, "or": k.e.or_, "xor": k.e.xor}[k.slot_of("bool")]
    return combine(mask, k.read("c"))


def write_both(k: Lowering, first: Value, second: Value) -> None:
    """Write the results of `p|q`, each combined with c, which may be one of the two."""
    first, second = (with_predicate(k, mask) for mask in (first, second))
    k.write("p", first)
    k.write_second("p", second)


@semantics("compare/setp")
def setp(k: Lowering) -> None:
    mask = compared(k, "a")
    write_both(k, mask, k.e.not_(mask))


@semantics("compare/set", "compare/set to bf16")
def set_(k: Lowering) -> None:
    """Write all ones, or 1.0, where the comparison holds; else 0."""
    mask = with_predicate(k, compared(k, "a"))
    kind = vector(I32)
    one = constant(kind, {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(k.slot_of("dtype"), -1))
    k.write("d", k.e.select(k.e.lanes_of(mask), one, constant(kind, 0)))


@semantics("compare/selp")
def selp(k: Lowering) -> None:
    k.write("d", k.e.select(k.e.lanes_of(k.read("c")), k.read("a"), k.read("b")))


@semantics("compare/slct")
def slct(k: Lowering) -> None:
    """Select a where c >= 0, which holds for -0 and not for NaN, else b."""
    e, c = k.e, k.read("c")
    if k.slot_type("c") == "f32":
        c = flushed(k, c) if k.instruction.has("ftz") else c
        chosen = e.fcmp_ordered(">=", c, real(c.type, 0.0))
    else:
        chosen = e.icmp_signed(">=", c, constant(c.type, 0))
    k.write("d", e.select(chosen, k.read("a"), k.read("b")))

"""Atomic read-modify-write operations. The lanes of a warp execute one after another, lowest first.

Shared memory, of a cluster too, belongs to one worker. In other memory, if there are several workers, each lane's operation is an atomic of
the processor, or a compare-and-exchange loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import llvmlite.ir as ir

from memlane.emulate.code.atomic import exchange_if, fetch, update
from memlane.emulate.code.build import F32, FLOATS, I1, I16, I32, I64, INTEGERS, POINTER, VOID, Emit, Value, constant
from memlane.emulate.code.formats import narrow, widen
from memlane.emulate.layout import BLOCK, CONTEXT, WARP, WINDOW_BYTES, WINDOWS
from memlane.emulate.runtime.helper import Helper
from memlane.emulate.runtime.window import Window, address_of_lane
from memlane.ptx import SCALAR_TYPES

OPERATIONS = ("add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max")

_SHORT = ("f16", "bf16", "f16x2", "bf16x2")
_OF_LLVM = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg", "cas": "cmpxchg"}

_Change = Callable[[Value], Value]
"""The old value -> the new value."""

_Combine = Callable[[Emit, Value, Value, Value], Value]
"""Emit, the old value, the operands b and c -> the new value."""


def _inc(e: Emit, old: Value, b: Value, c: Value) -> Value:
    return e.select(e.icmp_unsigned(">=", old, b), constant(old.type, 0), e.add(old, constant(old.type, 1)))


def _dec(e: Emit, old: Value, b: Value, c: Value) -> Value:
    wraps = e.or_(e.icmp_unsigned("==", old, constant(old.type, 0)), e.icmp_unsigned(">", old, b))
    return e.select(wraps, b, e.sub(old, constant(old.type, 1)))


def _smaller(kind: str, relation: str) -> _Combine:
    def combine(e: Emit, old: Value, b: Value, c: Value) -> Value:
        compare = e.icmp_signed if kind == "s" else e.icmp_unsigned
        return e.select(compare(relation, b, old), b, old)

    return combine


def _add_short(name: str) -> _Combine:
    """Return the sum of f16 or bf16, alone or in pairs; each sum is rounded separately."""

    def combine(e: Emit, old: Value, b: Value, c: Value) -> Value:
        kind = ir.VectorType(I16, old.type.width // 16)
        terms = [widen(e, e.bitcast(value, kind), name.removesuffix("x2")) for value in (old, b)]
        total = narrow(e, e.fadd(*terms), name.removesuffix("x2"))
        return e.bitcast(e.trunc(total, kind), old.type)

    return combine


def _add_single(e: Emit, old: Value, b: Value, flush: Value) -> Value:
    """Return the sum of two f32, canonical if it is a NaN; where `flush` holds, subnormal numbers are flushed to zero."""

    def flushed(value: Value) -> Value:
        bits = e.bitcast(value, I32)
        tiny = e.icmp_unsigned("==", e.and_(bits, constant(I32, 0x7F800000)), constant(I32, 0))
        return e.bitcast(e.select(e.and_(tiny, flush), e.and_(bits, constant(I32, 1 << 31)), bits), F32)

    total = flushed(e.fadd(flushed(old), flushed(b)))
    return e.select(e.fcmp_unordered("uno", total, total), e.bitcast(constant(I32, 0x7FFFFFFF), F32), total)


def _flushes(e: Emit, space: str, address: Value) -> Value:
    """Return i1: whether sums of f32 are flushed, as in global but not in shared memory."""
    start = constant(I64, WINDOWS["shared"])
    is_shared = e.icmp_unsigned("<", e.sub(address, start), constant(I64, WINDOW_BYTES))
    return {"global": constant(I1, 1), "shared": constant(I1, 0), "shared::cluster": constant(I1, 0)}.get(space, e.not_(is_shared))


def _combine(operation: str, kind: str) -> _Combine:
    table: dict[str, _Combine] = {
        "add": lambda e, old, b, c: e.fadd(old, b) if kind == "f" else e.add(old, b),
        "and": lambda e, old, b, c: e.and_(old, b),
        "or": lambda e, old, b, c: e.or_(old, b),
        "xor": lambda e, old, b, c: e.xor(old, b),
        "exch": lambda e, old, b, c: b,
        "cas": lambda e, old, b, c: e.select(e.icmp_unsigned("==", old, b), c, old),
        "inc": _inc,
        "dec": _dec,
        "min": _smaller(kind, "<"),
        "max": _smaller(kind, ">"),
    }
    return table[operation]


def _update_unshared(e: Emit, pointer: Value, element: ir.Type, change: _Change, result: Value) -> None:
    """Update an element that no other worker can access at the same time."""
    old = e.load(pointer, typ=element)
    e.store(change(old), pointer)
    e.store(old, result)


def _update_atomically(e: Emit, pointer: Value, element: ir.Type, name: str, operands: list[Value], change: _Change) -> Value:
    """Update an element that other workers may access at the same time; return the old value. `name` is an atomic operation of the
    processor, empty if there is none."""
    if name == "cmpxchg":
        return exchange_if(e, pointer, *operands)[0]
    return fetch(e, name, pointer, operands[0]) if name else update(e, pointer, element, change)


def _name_for_llvm(operation: str, kind: str) -> str:
    """Return the name of LLVM's atomic operation on integers; empty if there is none."""
    if operation in ("min", "max"):
        return operation if kind == "s" else f"u{operation}"
    return _OF_LLVM.get(operation, "")


def _find_operation(operation: str, type_name: str) -> tuple[ir.Type, _Combine, str]:
    """Return the type as which elements are loaded, the operation on them, and the name of LLVM's atomic for it; empty if there is none."""
    scalar = SCALAR_TYPES[type_name]
    if type_name in _SHORT:
        return INTEGERS[scalar.bits], _combine_short(operation, type_name), ""
    if scalar.kind == "f" and operation == "add":
        return FLOATS[scalar.bits], _combine(operation, "f"), ""
    return INTEGERS[scalar.bits], _combine(operation, scalar.kind), _name_for_llvm(operation, scalar.kind)


@cache
def atomic(operation: str, type_name: str, space: str, reach: int = 0) -> Helper:
    """Return the helper for `atom` and `red`: arguments as of a store, with pointers to 32 of b, 32 of c, and to the old values. If `reach`
    is given, the element is the first of a vector of that many bytes, to which it must be aligned."""
    scalar = SCALAR_TYPES[type_name]
    element, combine, name = _find_operation(operation, type_name)

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, mask: Value, site: Value, b: Value, c: Value, out: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first = address_of_lane(e, addresses, distance, e.lowest_bit(mask))
        window = Window(e, warp, space, site, first, reach or scalar.nbytes)
        context = e.get_pointer(e.get_pointer(warp, WARP, "block"), BLOCK, "context")
        are_several = e.icmp_unsigned("!=", e.get(context, CONTEXT, "parallel"), constant(I32, 0))
        with e.each_lane(mask) as lane, window.lane(lane, address_of_lane(e, addresses, distance, lane)) as pointer:
            operands = [e.load(e.element(source, lane, element), typ=element) for source in (b, c)]
            flushes = _flushes(e, space, address_of_lane(e, addresses, distance, lane)) if element == F32 else None

            def change(old: Value) -> Value:
                return combine(e, old, *operands) if flushes is None else _add_single(e, old, operands[0], flushes)

            result = e.element(out, lane, element)
            if space in ("shared", "shared::cluster"):
                _update_unshared(e, pointer, element, change, result)
            else:
                with e.if_else(are_several) as (together, alone):
                    with together:
                        e.store(_update_atomically(e, pointer, element, name, operands, change), result)
                    with alone:
                        _update_unshared(e, pointer, element, change, result)

    kind = f"{type_name}_" if type_name in _SHORT else "f" if element in FLOATS.values() else scalar.kind
    arguments = (POINTER, POINTER, I64, I32, I32, POINTER, POINTER, POINTER)
    vector = f"_of_{reach}" if reach else ""
    return Helper(f"memlane_atomic_{operation}_{kind}{scalar.bits}_{space}{vector}", VOID, arguments, build)


def _combine_short(operation: str, name: str) -> _Combine:
    """Return `add`, `min` or `max` of f16 or bf16, alone or in pairs. Any other operation works on their bits."""
    smaller = {"min": "<", "max": ">"}
    if operation == "add":
        return _add_short(name)
    return _smaller_short(name, smaller[operation]) if operation in smaller else _combine(operation, "b")


def _smaller_short(name: str, relation: str) -> _Combine:
    """Return the smaller or the larger of two f16 or bf16: a number wins over a NaN, and -0 is smaller than +0."""
    infinity = 0x7C00 if name.startswith("f16") else 0x7F80

    def combine(e: Emit, old_bits: Value, b_bits: Value, c: Value) -> Value:
        kind = ir.VectorType(I16, old_bits.type.width // 16)
        old, b = (e.bitcast(bits, kind) for bits in (old_bits, b_bits))
        magnitudes = [e.and_(value, constant(kind, 0x7FFF)) for value in (old, b)]
        old_is_none, b_is_none = (e.icmp_unsigned(">", value, constant(kind, infinity)) for value in magnitudes)
        # As integers, with the other bits of negative ones inverted, they are in order.
        old_key, b_key = (e.xor(value, e.and_(e.ashr(value, constant(kind, 15)), constant(kind, 0x7FFF))) for value in (old, b))
        b_wins = e.or_(old_is_none, e.and_(e.icmp_signed(relation, b_key, old_key), e.not_(b_is_none)))
        chosen = e.select(b_wins, b, old)
        return e.bitcast(e.select(e.and_(old_is_none, b_is_none), constant(kind, 0x7FFF), chosen), old_bits.type)

    return combine


def reduce_element(
    e: Emit, operation: str, type_name: str, pointer: Value, operand: Value, are_several: Value, flushes: bool = True
) -> None:
    """Combine the element at one host address in global memory with that at another. `are_several`: i1, whether other workers may access it
    at the same time; `flushes`: sums of f32 flush subnormal numbers to zero."""
    element, combine, name = _find_operation(operation, type_name)
    b = e.load(operand, typ=element)

    def change(old: Value) -> Value:
        return _add_single(e, old, b, constant(I1, flushes)) if element == F32 else combine(e, old, b, b)

    with e.if_else(are_several) as (together, alone):
        with together:
            _update_atomically(e, pointer, element, name, [b, b], change)
        with alone:
            e.store(change(e.load(pointer, typ=element)), pointer)

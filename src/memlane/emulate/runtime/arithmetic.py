"""Integer division, for which there is no vector instruction, and lane-wise functions of the C library."""

from __future__ import annotations

from functools import cache

from memlane.chip import LANES
from memlane.emulate.code.build import F32, F64, I32, INTEGERS, POINTER, VOID, Emit, Value, constant, vector
from memlane.emulate.runtime.helper import Helper


@cache
def divide(opcode: str, kind: str, bits: int) -> Helper:
    """Return the helper for `div` or `rem` of 32 lanes: takes pointers to dividends, divisors and results."""

    def build(e: Emit, a: Value, b: Value, out: Value) -> None:
        if bits <= 32:
            dividend, divisor = e.load_lanes(a, INTEGERS[bits]), e.load_lanes(b, INTEGERS[bits])
            quotient = _through_doubles(e, dividend, divisor, kind)
            zero = e.icmp_unsigned("==", divisor, constant(divisor.type, 0))
            quotient = e.select(zero, constant(divisor.type, -1), quotient)
            rest = e.select(zero, dividend, e.sub(dividend, e.mul(quotient, divisor)))
            e.store_lanes(quotient if opcode == "div" else rest, out)
            return
        element = INTEGERS[bits]
        with e.count(constant(I32, LANES)) as lane:
            dividend, divisor = (e.load(e.element(source, lane, element), typ=element) for source in (a, b))
            e.store(_one_by_one(e, opcode, kind, dividend, divisor), e.element(out, lane, element))

    return Helper(f"memlane_{opcode}_{kind}{bits}", VOID, (POINTER, POINTER, POINTER), build)


def _through_doubles(e: Emit, dividend: Value, divisor: Value, kind: str) -> Value:
    """Return the quotient of integers of up to 32 bits. A double holds both exactly, and their rounded quotient never reaches the next
    integer."""
    doubles, wide = vector(F64), vector(INTEGERS[64])
    to_double = e.sitofp if kind == "s" else e.uitofp
    safe = e.select(e.icmp_unsigned("==", divisor, constant(divisor.type, 0)), constant(divisor.type, 1), divisor)
    quotient = e.fptosi(e.fdiv(to_double(dividend, doubles), to_double(safe, doubles)), wide)
    return e.trunc(quotient, dividend.type)


def _one_by_one(e: Emit, opcode: str, kind: str, dividend: Value, divisor: Value) -> Value:
    zero, one = constant(divisor.type, 0), constant(divisor.type, 1)
    by_zero = e.icmp_unsigned("==", divisor, zero)
    safe = e.select(by_zero, one, divisor)
    if kind == "u":
        result = e.udiv(dividend, safe) if opcode == "div" else e.urem(dividend, safe)
    else:
        # The quotient of the least number by -1 does not fit; negation wraps around to the same bits.
        negates = e.icmp_signed("==", safe, constant(divisor.type, -1))
        safe = e.select(negates, one, safe)
        result = e.sdiv(dividend, safe) if opcode == "div" else e.srem(dividend, safe)
        result = e.select(negates, e.neg(dividend) if opcode == "div" else zero, result)
    return e.select(by_zero, constant(divisor.type, -1) if opcode == "div" else dividend, result)


@cache
def lanewise(function: str, lanes: int = LANES) -> Helper:
    """Return the helper that applies a single-precision function of the C library to each lane: takes pointers to arguments and results."""

    def build(e: Emit, a: Value, out: Value) -> None:
        with e.count(constant(I32, lanes)) as lane:
            value = e.load(e.element(a, lane, F32), typ=F32)
            e.store(e.intrinsic(function, [value]), e.element(out, lane, F32))

    return Helper(f"memlane_{function}x{lanes}", VOID, (POINTER, POINTER), build)

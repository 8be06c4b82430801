"""Exchanges values between lanes where no vector instruction does."""

from __future__ import annotations

from functools import cache

from memlane.chip import LANES
from memlane.emulate.code.build import I32, INTEGERS, POINTER, VOID, Emit, Value, constant
from memlane.emulate.runtime.helper import Helper, helper


@helper("permute", VOID, POINTER, POINTER, POINTER)
def permute(e: Emit, source: Value, lanes: Value, out: Value) -> None:
    """Store `out[i] = source[lanes[i]]`; only the lowest five bits of a lane number count."""
    with e.count(constant(I32, LANES)) as lane:
        wanted = e.and_(e.load(e.element(lanes, lane, I32), typ=I32), constant(I32, LANES - 1))
        e.store(e.load(e.element(source, wanted, I32), typ=I32), e.element(out, lane, I32))


@cache
def match_any(bits: int) -> Helper:
    """Return the helper that finds, for each lane of a mask, all lanes with the same value, whether in the mask or not: takes pointers to
    values and results."""

    def build(e: Emit, values: Value, mask: Value, out: Value) -> None:
        element = INTEGERS[bits]
        lanes = e.load_lanes(values, element)
        with e.each_lane(mask) as lane:
            same = e.mask_of(e.icmp_unsigned("==", lanes, e.splat(e.load(e.element(values, lane, element), typ=element))))
            e.store(same, e.element(out, lane, I32))

    return Helper(f"memlane_match_any_{bits}", VOID, (POINTER, I32, POINTER), build)

"""Check the masks of warp-synchronous instructions: a lane must be in its own mask, and agree with the lanes that it names."""

from __future__ import annotations

from memlane.emulate.check.notes import note
from memlane.emulate.check.records import LANE_NOT_IN_MASK, UNEQUAL_MASKS
from memlane.emulate.check.stamps import CheckedWarp
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant, vector
from memlane.emulate.runtime.helper import helper, invoke


@helper("check_masks", VOID, POINTER, POINTER, I32, I32)
def inspect_masks(e: Emit, warp: Value, masks: Value, lanes: Value, site: Value) -> None:
    """Check an instruction executed by `lanes`, with 32 masks behind a pointer."""
    with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
        e.ret_void()
    first = e.load(e.element(masks, e.lowest_bit(lanes), I32), typ=I32)
    differences = e.xor(e.load_lanes(masks, I32), e.splat(first))
    differences = e.select(e.lanes_of(lanes), differences, constant(vector(I32), 0))
    agree = e.icmp_unsigned("==", e.reduce("or", differences), constant(I32, 0))
    contained = e.icmp_unsigned("==", e.and_(lanes, e.not_(first)), constant(I32, 0))
    with e.if_then(e.and_(agree, contained), likely=True):
        e.ret_void()
    with e.each_lane(lanes) as lane:
        mask = e.load(e.element(masks, lane, I32), typ=I32)
        own = e.shl(constant(I32, 1), lane)
        with e.if_then(e.icmp_unsigned("==", e.and_(mask, own), constant(I32, 0))):
            _note(e, warp, LANE_NOT_IN_MASK, site, lane, mask, lane)
        with e.each_lane(e.and_(mask, lanes)) as other:
            theirs = e.load(e.element(masks, other, I32), typ=I32)
            with e.if_then(e.icmp_unsigned("!=", theirs, mask)):
                _note(e, warp, UNEQUAL_MASKS, site, lane, mask, other)


def _note(e: Emit, warp: Value, kind: int, site: Value, lane: Value, mask: Value, other: Value) -> None:
    zero = constant(I32, 0)
    warp_id = CheckedWarp(e, warp).warp_id(e)
    invoke(e, note, warp, constant(I32, kind), site, lane, e.zext(mask, I64), zero, zero, site, warp_id, other)

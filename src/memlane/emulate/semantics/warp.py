"""Exchanges values between the lanes of a warp.

The `.sync` forms wait for the lanes of their mask that have not exited; see `Flow.wait_for_partners`. Lanes that run one instruction
together may have different masks, as the tiles of cooperative groups do: each group is then processed separately.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.check.hooks import check_masks
from memlane.emulate.code.build import I32, Value, constant, lane_numbers, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.exchange import match_any, permute
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Immediate


def any_of(k: Lowering, masks: Value) -> Value:
    """Return i32: the union of the masks of the active lanes."""
    e, operand = k.e, k.instruction.operand("mask")
    if isinstance(operand, Immediate) and k.instruction.guard is None:
        return constant(I32, operand.value)
    return e.reduce("or", e.select(e.lanes_of(k.active), masks, constant(masks.type, 0)))


def _wait_for_masks(k: Lowering) -> Value:
    """Wait until the lanes of the masks are there. Return for each lane the mask of those that it exchanges with, itself included."""
    e = k.e
    if not k.has("mask"):
        return e.splat(k.active)
    masks = k.read("mask")
    if k.instruction.guard is not None:  # lanes that wait here behind a false guard wait for no others
        masks = e.select(e.lanes_of(k.guard()), masks, constant(masks.type, 0))
    k.flow.wait_for_partners(any_of(k, masks), masks)
    check_masks(k)
    return e.and_(masks, e.splat(k.active))


def _for_each_group(k: Lowering, partners: Value, answer: Callable[[Value], Value]) -> Value:
    """Return 32 lanes: in each group of partners the i32 that `answer` computes from its mask."""
    e = k.e
    if not k.has("mask") or isinstance(k.instruction.operand("mask"), Immediate):
        members = k.active if not k.has("mask") else e.and_(k.active, k.uniform("mask"))
        return e.splat(answer(members))
    e.store_lanes(partners, k.scratch("masks", 4 * LANES))
    e.store_lanes(constant(vector(I32), 0), k.scratch("d"))
    left = e.variable(k.active)
    with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
        first = e.lowest_bit(left.get())
        members = e.load(e.element(k.scratch("masks", 4 * LANES), first, I32), typ=I32)
        group = e.or_(members, e.shl(constant(I32, 1), first))  # a lane that its own mask lacks is alone; else the loop would not end
        found = e.select(e.lanes_of(group), e.splat(answer(members)), e.load_lanes(k.scratch("d"), I32))
        e.store_lanes(found, k.scratch("d"))
        left.set(e.and_(left.get(), e.not_(group)))
    return e.load_lanes(k.scratch("d"), I32)


@semantics("warp/shfl.sync", "warp/shfl")
def shfl(k: Lowering) -> None:
    _wait_for_masks(k)
    e = k.e
    b, c = k.instruction.operand("b"), k.instruction.operand("c")
    source = k.read("a")
    if isinstance(b, Immediate) and isinstance(c, Immediate):
        lanes, inside = _fixed_sources(k.slot_of("mode"), b.value, c.value)
        result = e.shuffle_vector(source, ir.Constant(source.type, ir.Undefined), ir.Constant(vector(I32), lanes))
        k.write("d", result)
        return k.write_second("d", constant(I32, inside))
    wanted, inside = _sources(k)
    e.store_lanes(source, k.scratch("a"))
    e.store_lanes(wanted, k.scratch("b"))
    k.call(permute, k.scratch("a"), k.scratch("b"), k.scratch("d"))
    k.write("d", e.load_lanes(k.scratch("d"), I32))
    return k.write_second("d", e.mask_of(inside))


def _fixed_sources(mode: str, b: int, c: int) -> tuple[list[int], int]:
    """Return, for constant operands, the lane that each lane reads, and the mask of those whose source lies inside their segment."""
    distance, clamp, segments = b & 31, c & 31, c >> 8 & 31
    lanes, inside = [], 0
    for lane in range(LANES):
        last = (lane & segments) | (clamp & ~segments & 31)
        first = lane & segments
        wanted = {"up": lane - distance, "down": lane + distance, "bfly": lane ^ distance, "idx": first | (distance & ~segments & 31)}[mode]
        fits = wanted >= last if mode == "up" else wanted <= last
        inside |= fits << lane
        lanes.append(wanted if fits else lane)
    return lanes, inside


def _sources(k: Lowering) -> tuple[Value, Value]:
    """Return, for operands known at run time, the lane that each lane reads, and i1 whether the source lies inside its segment."""
    e, kind, mode = k.e, vector(I32), k.slot_of("mode")
    lane, low_bits = lane_numbers(I32), constant(vector(I32), 31)
    distance, c = e.and_(k.read("b"), low_bits), k.read("c")
    clamp, segments = e.and_(c, low_bits), e.and_(e.lshr(c, constant(kind, 8)), low_bits)
    inner = e.and_(e.not_(segments), low_bits)
    first = e.and_(lane, segments)
    last = e.or_(first, e.and_(clamp, inner))
    if mode == "idx":
        wanted = e.or_(first, e.and_(distance, inner))
    else:
        wanted = {"up": e.sub, "down": e.add, "bfly": e.xor}[mode](lane, distance)
    fits = e.icmp_signed(">=" if mode == "up" else "<=", wanted, last)
    return e.select(fits, wanted, lane), fits


@semantics("warp/vote.sync", "warp/vote")
def vote(k: Lowering) -> None:
    e = k.e
    partners = _wait_for_masks(k)
    chosen = e.and_(e.splat(k.read("a")), partners)
    if k.instruction.has("ballot"):
        return k.write("d", chosen)
    all_of_them = e.icmp_unsigned("==", chosen, partners)
    some = e.icmp_unsigned("!=", chosen, constant(vector(I32), 0))
    answer = {"all": all_of_them, "any": some, "uni": e.or_(all_of_them, e.not_(some))}[k.slot_of("mode")]
    return k.write("d", e.mask_of(answer))


@semantics("warp/match.sync")
def match(k: Lowering) -> None:
    e = k.e
    partners, value = _wait_for_masks(k), k.read("a")
    e.store_lanes(value, k.scratch("a"))
    k.call(match_any(value.type.element.width), k.scratch("a"), k.active, k.scratch("d"))
    same = e.and_(e.load_lanes(k.scratch("d"), I32), partners)
    if k.instruction.has("any"):
        return k.write("d", same)
    agree = e.icmp_unsigned("==", same, partners)
    k.write("d", e.select(agree, partners, constant(vector(I32), 0)))
    return k.write_second("d", e.mask_of(agree))


@semantics("warp/activemask")
def activemask(k: Lowering) -> None:
    k.write("d", k.e.splat(k.active))


@semantics("warp/redux.sync")
def redux(k: Lowering) -> None:
    e, operation = k.e, k.slot_of("op")
    if k.slot_type("a") == "f32":
        raise k.unsupported()
    partners, value = _wait_for_masks(k), k.read("a")
    signed = k.slot_type("a") == "s32"
    name = {"add": "add", "and": "and", "or": "or", "xor": "xor"}.get(operation) or f"{'s' if signed else 'u'}{operation}"
    neutral = constant(value.type, {"and": -1, "umin": -1, "smin": 0x7FFFFFFF, "smax": 0x80000000}.get(name, 0))
    k.write("d", _for_each_group(k, partners, lambda group: e.reduce(name, e.select(e.lanes_of(group), value, neutral))))


@semantics("warp/elect.sync")
def elect(k: Lowering) -> None:
    """Elect the lowest lane of the mask, as an H200 does; the manual says only that it is always the same one."""
    e = k.e
    leader = e.lowest_bit(_wait_for_masks(k))
    k.write("d", leader)
    k.write_second("d", e.mask_of(e.icmp_unsigned("==", lane_numbers(I32), leader)))

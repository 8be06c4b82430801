"""Exchange between the lanes of a warp. The `.sync` forms wait for the lanes of their mask; see `Flow.gather`."""

from __future__ import annotations

import llvmlite.ir as ir

from memlane.emulate.check.hooks import check_masks
from memlane.emulate.code.build import I32, INTEGERS, Value, constant, lane_numbers, vector
from memlane.emulate.layout import LANES
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.exchange import match_any, permute
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Immediate

_SECTION = "parallel-synchronization-and-communication-instructions-"


def _gathered(k: Lowering) -> Value:
    """The lanes that exchange: those of the mask that run, once all of them are there."""
    if not k.has("mask"):
        return k.active
    members = k.uniform("mask")
    k.flow.gather(members)
    check_masks(k)
    return k.e.and_(k.active, members)


@semantics(_SECTION + "shfl-sync", _SECTION + "shfl")
def shfl(k: Lowering) -> None:
    _gathered(k)
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
    """For constant operands: the lane that each lane reads, and the mask of those whose source lies inside their segment."""
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
    """The same for operands known at run time."""
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


def _partners(k: Lowering) -> Value:
    """For each lane the mask of those that it exchanges with, itself among them: lanes with other masks may run the same instruction."""
    _gathered(k)
    active = k.e.splat(k.active)
    return k.e.and_(active, k.read("mask")) if k.has("mask") else active


@semantics(_SECTION + "vote-sync", _SECTION + "vote")
def vote(k: Lowering) -> None:
    e = k.e
    partners = _partners(k)
    chosen = e.and_(e.splat(k.read("a")), partners)
    if k.instruction.has("ballot"):
        return k.write("d", chosen)
    all_of_them = e.icmp_unsigned("==", chosen, partners)
    some = e.icmp_unsigned("!=", chosen, constant(vector(I32), 0))
    answer = {"all": all_of_them, "any": some, "uni": e.or_(all_of_them, e.not_(some))}[k.slot_of("mode")]
    return k.write("d", e.mask_of(answer))


@semantics(_SECTION + "match-sync")
def match(k: Lowering) -> None:
    e = k.e
    lanes = _gathered(k)
    value = k.read("a")
    bits = value.type.element.width
    e.store_lanes(value, k.scratch("a"))
    if k.instruction.has("any"):
        k.call(match_any(bits), k.scratch("a"), lanes, k.scratch("d"))
        return k.write("d", e.load_lanes(k.scratch("d"), I32))
    first = e.load(e.element(k.scratch("a"), e.and_(e.lowest_bit(lanes), constant(I32, 31)), INTEGERS[bits]), typ=INTEGERS[bits])
    same = e.and_(e.mask_of(e.icmp_unsigned("==", value, e.splat(first))), lanes)
    agree = e.icmp_unsigned("==", same, lanes)
    k.write("d", e.splat(e.select(agree, lanes, constant(I32, 0))))
    return k.write_second("d", e.sext(agree, I32))


@semantics(_SECTION + "activemask")
def activemask(k: Lowering) -> None:
    k.write("d", k.e.splat(k.active))


@semantics(_SECTION + "redux-sync")
def redux(k: Lowering) -> None:
    e, operation = k.e, k.slot_of("op")
    lanes = _gathered(k)
    value = k.read("a")
    signed = k.slot_type("a") == "s32"
    if k.slot_type("a") == "f32":
        raise k.unsupported()
    name = {"add": "add", "and": "and", "or": "or", "xor": "xor"}.get(operation) or f"{'s' if signed else 'u'}{operation}"
    neutral = {"and": -1, "umin": -1, "smin": 0x7FFFFFFF, "smax": 0x80000000}.get(name, 0)
    taking_part = e.select(e.lanes_of(lanes), value, constant(value.type, neutral))
    k.write("d", e.splat(e.reduce(name, taking_part)))


@semantics(_SECTION + "elect-sync")
def elect(k: Lowering) -> None:
    e = k.e
    leader = e.lowest_bit(_gathered(k))
    k.write("d", e.splat(leader))
    k.write_second("d", e.mask_of(e.icmp_unsigned("==", lane_numbers(I32), e.splat(leader))))

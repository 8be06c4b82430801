"""Collect findings in a table with one row per kind and pair of instructions."""

from __future__ import annotations

from memlane.emulate.check.records import LAUNCH, NOTE, NOTES
from memlane.emulate.check.stamps import CheckedWarp
from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import STOPPED
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import helper, invoke

SPREAD = 0x9E37_79B9_7F4A_7C15
"""Multiplier that spreads the high bits of a key evenly (Fibonacci hashing)."""


@helper("check_note", VOID, POINTER, I32, I32, I32, I64, I32, I32, I32, I64, I32)
def note(
    e: Emit,
    warp: Value,
    kind: Value,
    site: Value,
    lane: Value,
    address: Value,
    nbytes: Value,
    space: Value,
    other_site: Value,
    other_who: Value,
    other_lane: Value,
) -> None:
    """Count a finding, and store its details if it is the first of its kind at these instructions."""
    actor = CheckedWarp(e, warp)
    launch = actor.launch
    wide = [e.zext(part, I64) for part in (kind, site, other_site)]
    key = e.or_(wide[0], e.or_(e.shl(wide[1], constant(I64, 8)), e.shl(wide[2], constant(I64, 32))))
    bits = NOTES.bit_length() - 1
    first = e.lshr(e.mul(key, constant(I64, SPREAD)), constant(I64, 64 - bits))
    table = e.get_pointer(launch, LAUNCH, "notes")
    with e.count(constant(I64, NOTES)) as step:
        place = e.and_(e.add(first, step), constant(I64, NOTES - 1))
        row = e.at(table, e.mul(place, constant(I64, NOTE.itemsize)))
        found = e.get(row, NOTE, "key")
        with e.if_then(e.icmp_unsigned("==", found, key)):
            e.bump(row, NOTE, "count")
            e.ret_void()
        with e.if_then(e.icmp_unsigned("==", found, constant(I64, 0))):
            values = {"key": key, "who": actor.warp_id(e), "lane": lane, "address": address, "nbytes": nbytes, "space": space}
            values |= {"count": constant(I64, 1), "turn": e.bump(launch, LAUNCH, "found"), "other_who": other_who, "other_lane": other_lane}
            for field, value in values.items():
                e.put(value, row, NOTE, field)
            with e.if_then(e.icmp_unsigned("!=", e.get(launch, LAUNCH, "stop"), constant(I32, 0))):
                invoke(e, fault, warp, constant(I32, STOPPED), site, lane, address, nbytes, space)
            e.ret_void()
    e.bump(launch, LAUNCH, "lost")

"""Count the sectors of a warp access to local memory in generated code, by the rules of `memlane.chip.access`.

The lanes' copies are interleaved by words of 4 bytes, so a sector holds the same word of 8 neighbouring lanes. The loop runs once per
distinct address, and lanes mostly use the same one.
"""

from __future__ import annotations

from functools import cache, partial

from memlane.chip import LANES, Chip
from memlane.emulate.code.build import I32, I64, Emit, Value, constant
from memlane.emulate.count import ARGUMENTS
from memlane.emulate.runtime.helper import Helper

_WORD_BYTES = 4


def local_helper(chip: Chip) -> Helper:
    """Return `(addresses: <32 x i64>*, distance: i64, mask: i32, nbytes: i32) -> i64`: sectors, and `ideal << 32`."""
    return _local_helper(chip.sector_bytes)


@cache
def _local_helper(sector_bytes: int) -> Helper:
    return Helper(f"memlane_local_{sector_bytes}", I64, ARGUMENTS, partial(_build, sector_bytes))


def _build(sector_bytes: int, e: Emit, addresses: Value, distance: Value, mask: Value, nbytes: Value) -> None:
    lanes_a_sector = sector_bytes // _WORD_BYTES
    width = e.intrinsic("umax", [nbytes, constant(I32, _WORD_BYTES)])
    places = e.add(e.load_lanes(addresses, I64), e.splat(distance))
    places = e.and_(places, e.splat(e.neg(e.zext(width, I64))))
    left, sectors = e.variable(mask), e.variable(constant(I32, 0))
    with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
        place = e.extract_element(places, e.lowest_bit(left.get()))
        here = e.and_(e.mask_of(e.icmp_unsigned("==", places, e.splat(place))), left.get())
        left.set(e.xor(left.get(), here))
        # Fold the bits of a sector's lanes into the lowest of them.
        step, groups = 1, here
        while step < lanes_a_sector:
            groups = e.or_(groups, e.lshr(groups, constant(I32, step)))
            step *= 2
        firsts = sum(1 << lane for lane in range(0, LANES, lanes_a_sector))
        sectors.set(e.add(sectors.get(), e.popcount(e.and_(groups, constant(I32, firsts)))))
    moved = e.mul(sectors.get(), e.udiv(width, constant(I32, _WORD_BYTES)))
    full = e.add(e.mul(e.popcount(mask), width), constant(I32, sector_bytes - 1))
    ideal = e.udiv(full, constant(I32, sector_bytes))
    e.ret(e.or_(e.zext(moved, I64), e.shl(e.zext(ideal, I64), constant(I64, 32))))

"""How many lanes of an atomic meet at one address, counted by generated code. `memlane.chip.access` defines the numbers."""

from __future__ import annotations

from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant
from memlane.emulate.runtime.helper import helper


@helper("meeting", I64, POINTER, I32)
def meeting(e: Emit, addresses: Value, mask: Value) -> None:
    """Distinct addresses of the lanes in `mask`, and the most lanes at one of them << 32: one turn for each distinct address."""
    lanes = e.load_lanes(addresses, I64)
    left, distinct, most = e.variable(mask), e.variable(constant(I32, 0)), e.variable(constant(I32, 0))
    with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
        address = e.extract_element(lanes, e.lowest_bit(left.get()))
        here = e.and_(e.mask_of(e.icmp_unsigned("==", lanes, e.splat(address))), left.get())
        left.set(e.xor(left.get(), here))
        distinct.set(e.add(distinct.get(), constant(I32, 1)))
        most.set(e.intrinsic("umax", [most.get(), e.popcount(here)]))
    e.ret(e.or_(e.zext(distinct.get(), I64), e.shl(e.zext(most.get(), I64), constant(I64, 32))))

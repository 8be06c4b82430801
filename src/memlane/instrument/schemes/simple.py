"""Implement `simple`: read the clock before and after the access, with no order between the reads and the access.

    mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    mov.u64 end, %clock64;

Both are read as soon as they can be issued. The start is early by the time that the access waits for its address (in a chain, the latency
of the previous access), and the end does not wait for the value. This is what naive time stamps measure, for comparison.
"""

from __future__ import annotations

from memlane.instrument.schemes.scheme import Access, Scheme, Stamps, judge, read_clock

_REASON = "the scheme does not order the second clock read after the access"


def _stamps(access: Access) -> Stamps:
    name = access.registers
    return Stamps("", read_clock(f"{name}start"), "", read_clock(f"{name}end"), *judge(_REASON))


SIMPLE = Scheme("simple", _stamps)

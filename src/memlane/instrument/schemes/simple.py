"""`simple`: a clock read before the access and one after it, with no order between them and the access.

    mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    mov.u64 end, %clock64;

Both are read as soon as they can be issued. The start is early by the time that the access waits for its address (which is the
latency of the access before it, in a chain), and the end does not wait for the value. What naive stamps measure, to compare with.
"""

from __future__ import annotations

from memlane.instrument.schemes.scheme import Access, Scheme, Stamps, judge, read_clock

_REASON = "the scheme does not order the second clock read after the access"


def _stamps(access: Access) -> Stamps:
    name = access.registers
    return Stamps("", read_clock(f"{name}start"), "", read_clock(f"{name}end"), *judge(_REASON))


SIMPLE = Scheme("simple", _stamps)

"""Time an instruction that blocks the thread until its wait is over; it needs no scheme.

    mov.u64 start, %clock64;
    cp.async.wait_group 0;
    mov.u64 end, %clock64;

A warp issues in order, so the second clock is read when the wait has returned. On sm_90 the wait is a `DEPBAR.LE` on the scoreboard that
counts the groups.
"""

from __future__ import annotations

from memlane.instrument.schemes.scheme import Access, Stamps, judge, read_clock


def blocking_wait(access: Access) -> Stamps:
    """Return the clock reads around such a wait, complete in every scheme."""
    name = access.registers
    return Stamps("", read_clock(f"{name}start"), "", read_clock(f"{name}end"), *judge(""))

"""Implement `exposed`: as `dependent`, but wait for the value just before its first consumer, so that loads overlap as without a probe.

    lop3.b32 t, lo(address), hi(address), zero, (a | b) & c;     start waits for the address
    setp.eq.u32 ready, t, 0;
    @ready mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    ...                                                          instructions in between, other loads too
    mov.u64 wait, %clock64;                                      the consumer is next
    lop3.b32 t, value, zero, lo(wait), a & b & c;                end waits for the value
    setp.eq.u32 ready, t, 0;
    @ready mov.u64 end, %clock64;
    add.f32 sum, sum, value;                                     the consumer

`end - wait` is how long the consumer had to wait: the exposed part of the time from start to end. The lower half of the first clock read is
an operand of the instruction that waits, so ptxas cannot wait earlier. If the value had arrived before its consumer, the wait is that of an
empty window, and the end is the time of its use, not of its arrival.
By the control words of sm_90 the wait of an empty window takes 8 cycles: 6 from the clock read to the instruction that needs its lower
half, 2 from there to the second clock read.

Loads whose consumer cannot be determined (`memlane.instrument.consumers`), and accesses that nothing consumes, get the probe of
`dependent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.instrument.schemes.dependent import DEPENDENT, clock_after
from memlane.instrument.schemes.scheme import Access, ClockRead, DeferredReads, read_clock


def _start(access: Access) -> ClockRead:
    start = clock_after(access.registers, "start", "s", access.sources)
    return ClockRead(access.address + start.before, start.read)


def _wait(name: str, registers: Sequence[tuple[str, str]]) -> tuple[ClockRead, ClockRead]:
    low, high = f"{name}wait_low", f"{name}wait_high"
    begin = f".reg .b32 {low}, {high};\nmov.b64 {{{low}, {high}}}, {name}wait;\n"
    # The zero that masks the value depends on the clock read that begins the wait.
    masked = f".reg .b32 {name}now;\nand.b32 {name}now, {low}, {name}zero;\n"
    end = clock_after(name, "end", "v", registers, zero="now")
    return ClockRead(f"mov.u64 {name}end, 0;\n", read_clock(f"{name}wait")), ClockRead(begin + masked + end.before, end.read)


def _unconsumed_end(name: str, registers: Sequence[tuple[str, str]]) -> ClockRead:
    end = clock_after(name, "end", "v", registers)
    return ClockRead(f"mov.u64 {name}end, 0;\n{end.before}", end.read)


EXPOSED = replace(DEPENDENT, name="exposed", deferred=DeferredReads(_start, _wait, _unconsumed_end), fallback=DEPENDENT.name)

"""`exposed`: as `dependent`, but what waits for the value stands in front of the instruction that reads it first, so loads overlap as
they do without a probe.

    lop3.b32 t, lo(address), hi(address), zero, (a | b) & c;     start waits for the address
    setp.eq.u32 ready, t, 0;
    @ready mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    ...                                                          whatever stands between, other loads too
    mov.u64 wait, %clock64;                                      the consumer is next
    lop3.b32 t, value, zero, lo(wait), a & b & c;                end waits for the value
    setp.eq.u32 ready, t, 0;
    @ready mov.u64 end, %clock64;
    add.f32 sum, sum, value;                                     the consumer

`end - wait` is what the consumer had to wait: the exposed part of the time from start to end. The lower half of the first clock read is
an operand of what waits, so the assembler cannot wait before it. Where the value had come before its consumer, the wait is that of an empty
window, and the end is that of its use, not that of its arrival.

By the control words of sm_90 the wait of an empty window takes 8 cycles: 6 from the clock read to what needs its lower half, 2 from there
to the second clock read.

Loads whose consumer cannot be told (`memlane.instrument.consumers`), and accesses that nothing consumes, have the probe of `dependent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.instrument.schemes.dependent import DEPENDENT, clock_after
from memlane.instrument.schemes.scheme import Access, Apart, ClockRead, read_clock


def _start(access: Access) -> ClockRead:
    start = clock_after(access.registers, "start", "s", access.sources)
    return ClockRead(access.address + start.before, start.read)


def _wait(name: str, registers: Sequence[tuple[str, str]]) -> tuple[ClockRead, ClockRead]:
    low, high = f"{name}wait_low", f"{name}wait_high"
    begin = f".reg .b32 {low}, {high};\nmov.b64 {{{low}, {high}}}, {name}wait;\n"
    # The zero that masks the value is there when the wait has begun, and no sooner.
    masked = f".reg .b32 {name}now;\nand.b32 {name}now, {low}, {name}zero;\n"
    end = clock_after(name, "end", "v", registers, zero="now")
    return ClockRead(f"mov.u64 {name}end, 0;\n", read_clock(f"{name}wait")), ClockRead(begin + masked + end.before, end.read)


def _arrived(name: str, registers: Sequence[tuple[str, str]]) -> ClockRead:
    end = clock_after(name, "end", "v", registers)
    return ClockRead(f"mov.u64 {name}end, 0;\n{end.before}", end.read)


EXPOSED = replace(DEPENDENT, name="exposed", apart=Apart(_start, _wait, _arrived), otherwise=DEPENDENT.name)

"""Implement `dependent`: predicate both clock reads, the first on the address before the access, the second on the value after it.

    lop3.b32 t, lo(address), hi(address), zero, (a | b) & c;     start waits for the address
    setp.eq.u32 ready, t, 0;
    @ready mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    and.b32 t, value, zero;                                      end waits for the value
    setp.eq.u32 ready, t, 0;
    @ready mov.u64 end, %clock64;

`zero` is read with the entry of the trace buffer: it is 0, so both predicates are always true, but ptxas cannot prove that and keeps the
dependence. ptxas would delete a comparison with a magic value where it knows the value to be in another range (a narrow load), and would
fold `value ^ value`; it does neither with a masked register. The end costs one logical operation that writes a predicate, and touches
neither shared memory nor the load-store pipe.

The start waits for every register that the access reads, also for data to be stored: otherwise the wait for an earlier load into such a
register would be charged to this access. Constant addresses have nothing to wait for; addresses that ptxas would materialise late are
computed before the window (`memlane.instrument.early_addresses`).

ptxas emits no predicated clock read: it reads the clock after the instruction that computes the predicate, which has waited, and then
selects between the clock and the previous value. On sm_90:

    LOP3.LUT P0, RZ, address, address+1, zero, 0xa8
    CS2R start, SR_CLOCKLO
    LDG value, [address]                                         sets a scoreboard
    SEL ...                                                      the start, in the shadow of the access
    LOP3.LUT P1, RZ, value, zero, RZ, 0xc0                       waits for the scoreboard
    CS2R end, SR_CLOCKLO
"""

from __future__ import annotations

from collections.abc import Sequence

from memlane.instrument.registers import words_of
from memlane.instrument.schemes.scheme import Access, ClockRead, Scheme, Stamps, judge, nothing_to_wait_for, read_clock

_OR3 = "0xFE"
_OR2_AND = "0xA8"
"""`lop3` tables of a | b | c and (a | b) & c."""


def _stamps(access: Access) -> Stamps:
    name = access.registers
    start = clock_after(name, "start", "s", access.sources)
    end = clock_after(name, "end", "v", () if access.value is None else (access.value,))
    # Clear the destination before the window: a guarded write would otherwise keep the register live around every loop.
    clear = f"mov.u64 {name}end, 0;\n" if access.value is not None else ""
    return Stamps(clear + access.address + start.before, start.read, end.before, end.read, *judge(nothing_to_wait_for(access)))


def clock_after(name: str, clock: str, stem: str, waits_for: Sequence[tuple[str, str]], zero: str = "zero") -> ClockRead:
    """Return a read of the clock into `clock` that waits for the registers `waits_for`. `zero`: a register that holds the opaque zero."""
    if not waits_for:
        return ClockRead("", read_clock(name + clock))
    words = [words_of(register, kind, f"{name}{stem}{index}") for index, (register, kind) in enumerate(waits_for)]
    masked, ready = f"{name}{clock}_masked", f"{name}{clock}_ready"
    lines = [word.text for word in words]
    if clock == "start":
        lines.append(f"mov.u64 {name}start, 0;\n")
    lines.append(f".reg .b32 {masked};\n.reg .pred {ready};\n")
    lines.extend(_masked(masked, [one for word in words for one in word.names], name + zero))
    lines.append(f"setp.eq.u32 {ready}, {masked}, 0;\n")
    return ClockRead("".join(lines), f"@{ready} {read_clock(name + clock)}")


def _masked(target: str, words: Sequence[str], zero: str) -> list[str]:
    """Return PTX for `target` = (the words or-ed together) & zero."""
    lines = []
    while len(words) > 2:
        lines.append(f"lop3.b32 {target}, {words[0]}, {words[1]}, {words[2]}, {_OR3};\n")
        words = [target, *words[3:]]
    if len(words) == 2:
        lines.append(f"lop3.b32 {target}, {words[0]}, {words[1]}, {zero}, {_OR2_AND};\n")
    else:
        lines.append(f"and.b32 {target}, {words[0]}, {zero};\n")
    return lines


def _declare(name: str) -> str:
    return f".reg .b32 {name}zero;\nmov.u32 {name}zero, 0;\n"


def _load(name: str) -> str:
    return f"mov.u32 {name}zero, {name}unknown;\n"


DEPENDENT = Scheme("dependent", _stamps, _declare, _load, zero="zero")

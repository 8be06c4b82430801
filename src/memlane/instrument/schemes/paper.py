"""Implement `paper`: the two techniques of the method of 2012, as published.

Memory that kernels can write: a fence of the block between access and clock.

    mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    membar.cta;                                  // __threadfence_block()
    mov.u64 end, %clock64;

On the GPUs of that time the fence waited for the access. On sm_90 it does not (it ends some 14 cycles after the issue, wherever the
data come from), so such sites are `issue-only` here.

Memory that kernels can only read (constants, textures, `ld.global.nc`): a dummy process that uses the value and is never executed,
because `dummy` is 0, which only the host knows.

    mov.u64 start, %clock64;
    ld.global.nc.f32 value, [address];
    setp.lt.s32 never, dummy, 0;                 // if (dummy < 0) value = value + 1
    @never add.f32 value, value, 0f3F800000;
    mov.u64 end, %clock64;

The start is not ordered after anything, as published: in a chain of accesses it includes the wait for the address.

H. Kanda, T. Okuyama, F. Ino, K. Hagihara: An Instrumentation Method for Analyzing Efficiency of Memory Access in CUDA Programs. IPSJ SIG
Technical Report 2012-HPC-133 No. 3, section 5.1.
"""

from __future__ import annotations

from memlane.instrument.schemes.scheme import Access, Scheme, Stamps, judge, nothing_to_wait_for, read_clock
from memlane.ptx import SCALAR_TYPES

_FENCE = "on sm_90 the fence of the block does not wait for the access"
_ONE = {"f32": "0f3F800000", "f64": "0d3FF0000000000000"}


def _stamps(access: Access) -> Stamps:
    name = access.registers
    start, end = read_clock(f"{name}start"), read_clock(f"{name}end")
    if not access.read_only:
        return Stamps("", start, "membar.cta;\n", end, *judge(_FENCE))
    reason = nothing_to_wait_for(access)
    dummy = ""
    if access.value is not None:
        dummy = _never_executed(name, *access.value)
        reason = "" if dummy else f"the dummy process has no addition for .{access.value[1]}"
    return Stamps("", start, dummy, end, *judge(reason))


def _never_executed(name: str, register: str, kind: str) -> str:
    """Return PTX for `if (dummy < 0) register = register + 1`; empty for types without an addition."""
    scalar = SCALAR_TYPES[kind]
    if kind in _ONE:
        add = f"add.{kind} {register}, {register}, {_ONE[kind]};"
    elif scalar.bits in (16, 32, 64) and scalar.kind in "bus":
        add = f"add.u{scalar.bits} {register}, {register}, 1;"
    else:
        return ""
    return f".reg .pred {name}never;\nsetp.lt.s32 {name}never, {name}dummy, 0;\n@{name}never {add}\n"


def _declare(name: str) -> str:
    return f".reg .b32 {name}dummy;\nmov.u32 {name}dummy, 0;\n"


def _load(name: str) -> str:
    return f"mov.u32 {name}dummy, {name}unknown;\n"


PAPER = Scheme("paper", _stamps, _declare, _load)

"""Implement `consume`: store registers to shared memory before the clock reads, because a store cannot issue before its data arrive.

    st.shared.b64 [slot], address;
    mov.u64 start, %clock64;
    ld.global.f32 value, [address];
    st.shared.b32 [slot+8], value;
    mov.u64 end, %clock64;

The most accurate scheme and the cheapest, but it uses the pipe that it measures. Nothing reads the slot; all warps of the block share it.
It follows the dynamic shared memory of the kernel, so that none of the kernel's own arrays moves to other banks: the launch must add
`extra_shared_bytes` to its dynamic shared memory, and not every kernel has room for that. Without a trace buffer the stores are disabled,
so that any launcher can run the kernel.
"""

from __future__ import annotations

from memlane.instrument.schemes.scheme import Access, Scheme, Stamps, judge, nothing_to_wait_for, read_clock
from memlane.ptx import SCALAR_TYPES

DYNAMIC = "memlane_dynamic"
"""Symbol at the start of dynamic shared memory."""

_SLOT_BYTES = 16
_EXTRA_BYTES = 2 * _SLOT_BYTES
"""One slot, plus the bytes to align it wherever the kernel's own shared memory ends."""


def _stamps(access: Access) -> Stamps:
    name = access.registers
    stores = "".join(_store(name, f"s{index}", 0, *source) for index, source in enumerate(access.sources))
    value = "" if access.value is None else _store(name, "v", 8, *access.value)
    return Stamps(stores, read_clock(f"{name}start"), value, read_clock(f"{name}end"), *judge(nothing_to_wait_for(access)))


def _store(name: str, stem: str, place: int, register: str, kind: str) -> str:
    bits = SCALAR_TYPES[kind].bits
    text = ""
    if kind == "pred":
        text = f".reg .b32 {name}{stem};\nselp.u32 {name}{stem}, 1, 0, {register};\n"
        register, bits = f"{name}{stem}", 32
    elif bits == 128:
        text = f".reg .b64 {name}{stem}, {name}{stem}h;\nmov.b128 {{{name}{stem}, {name}{stem}h}}, {register};\n"
        register, bits = f"{name}{stem}", 64
    return f"{text}@{name}staging st.shared.b{bits} [{name}slot{f'+{place}' if place else ''}], {register};\n"


def _declare(name: str) -> str:
    return f"""\
.reg .b32 {name}slot, {name}dynamic;
.reg .pred {name}staging;
setp.ne.u64 {name}staging, {name}buffer, 0;
mov.u32 {name}slot, {DYNAMIC};
mov.u32 {name}dynamic, %dynamic_smem_size;
add.u32 {name}slot, {name}slot, {name}dynamic;
sub.u32 {name}slot, {name}slot, {_SLOT_BYTES};
and.b32 {name}slot, {name}slot, {-_SLOT_BYTES};
"""


CONSUME = Scheme("consume", _stamps, _declare, extra_shared_bytes=_EXTRA_BYTES)

"""Time a store until other threads see it (`TraceOptions(stores=...)`): the instruction between the store and the second clock read.

A store sets no scoreboard for its completion, so nothing can wait for the store itself. The clock read waits for a witness after it:

read-back   The same thread loads from the address that it stored to, bypassing all caches that other threads do not share, and the second
            clock read waits for that value. A load may not return the value from before a store of its own thread to the same address,
            so when it returns from the memory that the threads of the scope share, the store has been there.

                st.global.f32 [address], value;
                ld.relaxed.gpu.global.u32 back, [address];           for the device: from L2
                ld.relaxed.cta.shared.u32 back, [address];           for the block: shared memory itself

fence       At block scope a read-back from global memory would bring the line into L1, which the original kernel did not do. There a
            fence of the block ends the window: it orders the store before all later accesses of this thread, for every thread of its
            block, and the second clock read waits for it.

                st.global.f32 [address], value;
                membar.cta;

Both times are upper bounds: they include the return path of the load, or the fence itself. Neither covers a thread that waits on behalf of
another. For shared memory, block scope includes every thread with access. A reduction is read back like a store; at block scope it is not
timed, because the device executes it where it serves all threads.
"""

from __future__ import annotations

from dataclasses import replace

from memlane.instrument.schemes import Access, Scheme, Stamps
from memlane.ptx import SCALAR_TYPES, Address, Immediate, Instruction, Register, Symbol, memory_access
from memlane.ptx.edit import alias
from memlane.record import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE

STORES = ("issued", "block", "device")
"""Events that end the time of a store: it has left the warp; the threads of its block see it; all threads of the device see it."""

OLDEST_TARGET = 70
"""Oldest architecture with scoped loads."""

_TYPES = {8: "u8", 16: "u16", 32: "u32", 64: "u64", 128: "u64"}


def waits_until_visible(scheme: Scheme) -> bool:
    """Return whether the second clock read of a scheme waits for a returned value."""
    asked = Access("load", False, (("%a", "b64"),), ("%v", "b32"), "ml_")
    return scheme.stamps(asked).completeness == COMPLETE


def visible(scheme: Scheme, instruction: Instruction, access: Access, stores: str) -> Stamps | None:
    """Return clock reads of which the second waits until the store of `instruction` is visible; None if that is impossible or not
    requested."""
    found = memory_access(instruction)
    if stores == "issued" or found is None or found.kind not in ("store", "reduction", "atomic") or access.value is not None:
        return None
    if instruction.has("async"):  # a load or a fence of the same thread does not wait for an asynchronous store
        return None
    address, named = found.address, instruction.form.slots.get("ss", "")
    if not isinstance(address, Address) or found.space not in ("global", "shared", "generic") or named == "shared::cluster":
        return None
    if found.space == "shared":
        return _read_back(scheme, access, address, f"cta{_dotted(named)}", found.type, BLOCK_VISIBLE)
    if stores == "device":
        return _read_back(scheme, access, address, f"gpu{_dotted(named)}", found.type, DEVICE_VISIBLE)
    if found.kind != "store":
        return None
    return replace(scheme.stamps(access), witness="membar.cta;\n", completeness=BLOCK_VISIBLE, reason="")


def _dotted(named: str) -> str:
    return f".{named}" if named else ""


def _read_back(scheme: Scheme, access: Access, address: Address, where: str, scalar: str, label: str) -> Stamps:
    """Return clock reads with a load of the first stored element, which lies in the same sector as the lane's other elements."""
    bits = SCALAR_TYPES[scalar].bits
    back, kind = f"{access.registers}back", "b64" if bits > 32 else "b32"
    stamps = scheme.stamps(replace(access, value=(back, kind)))
    load = f".reg .{kind} {back};\nld.relaxed.{where}.{_TYPES[bits]} {back}, [{_text(address)}];\n"
    return replace(stamps, witness=load, completeness=label, reason="")


def _text(address: Address) -> str:
    """Return an address as PTX."""
    match address.base:
        case Register(name):
            base = alias(name)
        case Symbol(name, inner):
            base = f"{name}+{inner}" if inner else name
        case Immediate(value):
            base = str(value)
        case other:
            base = str(other)
    return f"{base}+{address.offset}" if address.offset else base

"""When a store is done, asked for by `TraceOptions(stores=...)`: what stands between it and the second clock read.

A store raises no scoreboard for its completion, so nothing can wait for it itself. What can be waited for is a witness behind it:

read-back   The same thread loads from the address that it stored to, past all caches that others do not share, and the second clock read
            waits for that value. A load may not return what was there before a store of its own thread to the same address, so when
            it is back from where the threads of the scope meet, the store has been there.

                st.global.f32 [address], value;
                ld.relaxed.gpu.global.u32 back, [address];           for the device: from L2
                ld.relaxed.cta.shared.u32 back, [address];           for the block: shared memory itself

fence       At block scope a read-back from global memory would bring the line into L1, which is not what the kernel did. There it is the
            fence of the block that ends the window: it orders the store before all that this thread does later, for every thread of
            its block, and the second clock read waits for it.

                st.global.f32 [address], value;
                membar.cta;

Both times are upper bounds, by the way back of the load and by the fence itself. Both say nothing of who is waiting on another thread's
behalf. For shared memory the block is everybody. A reduction is read back as a store is; at block scope it is not asked, for it is done
where the device does it.
"""

from __future__ import annotations

from dataclasses import replace

from memlane.instrument.schemes import Access, Scheme, Stamps
from memlane.ptx import SCALAR_TYPES, Address, Immediate, Instruction, Register, Symbol, memory_access
from memlane.ptx.edit import alias
from memlane.record import BLOCK_VISIBLE, COMPLETE, DEVICE_VISIBLE

STORES = ("issued", "block", "device")
"""Until when a store is timed: it has left the warp; the threads of its block see it; all threads of the device see it."""

OLDEST_TARGET = 70
"""sm_70 has loads of a scope."""

_TYPES = {8: "u8", 16: "u16", 32: "u32", 64: "u64", 128: "u64"}


def waits_until_visible(scheme: Scheme) -> bool:
    """Whether the second clock read of a scheme waits for a value that comes back."""
    asked = Access("load", False, (("%a", "b64"),), ("%v", "b32"), "ml_")
    return scheme.stamps(asked).completeness == COMPLETE


def visible(scheme: Scheme, instruction: Instruction, access: Access, stores: str) -> Stamps | None:
    """The clock reads of which the second comes when what `instruction` stores is visible; None where none can, or none is asked for."""
    found = memory_access(instruction)
    if stores == "issued" or found is None or found.kind not in ("store", "reduction", "atomic") or access.value is not None:
        return None
    if instruction.has("async"):  # a load or a fence of the same thread does not wait for it
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
    """Loads the first element, which lies in the same sector as the others of the lane."""
    bits = SCALAR_TYPES[scalar].bits
    back, kind = f"{access.registers}back", "b64" if bits > 32 else "b32"
    stamps = scheme.stamps(replace(access, value=(back, kind)))
    load = f".reg .{kind} {back};\nld.relaxed.{where}.{_TYPES[bits]} {back}, [{_text(address)}];\n"
    return replace(stamps, witness=load, completeness=label, reason="")


def _text(address: Address) -> str:
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

"""Add the code of the counting and clock layers to a memory instruction or a branch."""

from __future__ import annotations

from memlane.emulate.clock.bulk import bulk_copy_time, peer_copy_time, piece_time
from memlane.emulate.clock.sectors import ATOMIC, LOAD, LOAD_PAST_L1
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.accounting import accounting, accounting_copy, count_box, count_branch, count_product
from memlane.emulate.runtime.helper import Helper
from memlane.ptx import SCALAR_TYPES
from memlane.ptx.access import access_kind, product_bytes


def account(k: Lowering, space: str, pointer: Value, distance: Value, nbytes: int, is_request: bool = True) -> None:
    """Account for an access of `k.active` with `nbytes` per lane, if a layer needs it; parameter memory is not counted.

    An instruction that accesses memory several times passes `is_request` only the first time.
    """
    if not (k.layers.counts or k.layers.clock) or k.instruction.form.addresses.get("a") == "param":
        return
    kind = access_kind(k.instruction, k.registers.read)
    floats = kind == "atomic" and any(name.startswith(("f", "bf")) for name in k.instruction.form.types.values())
    helper = accounting(k.chip, k.layers, space, kind, is_request, floats)
    active = _leader_lane(k) if kind in ("atomic", "increment") and _is_combined(k) else k.active
    complete = k.call(helper, k.warp, pointer, distance, active, constant(I32, nbytes), constant(I32, k.index), k.start)
    k.completes(complete)


def _is_combined(k: Lowering) -> bool:
    """Return whether the assembled code combines an atomic operation of the warp in one lane."""
    machine = k.layers.machine
    return machine is not None and k.index < len(machine.made) and machine.made[k.index].is_combined


def _leader_lane(k: Lowering) -> Value:
    """Return the lowest active lane as a mask."""
    return k.e.and_(k.active, k.e.sub(constant(I32, 0), k.active))


def account_copy(k: Lowering, source: tuple[Value, Value], target: tuple[Value, Value], nbytes: int, count: Value | None) -> None:
    """Account for an asynchronous copy of `nbytes` per lane from global to shared memory: one request, with the sectors of its load and the
    wavefronts of its store, and two accesses.

    `count`: the bytes that each lane reads, if that may be fewer; i32 per lane.
    """
    if not (k.layers.counts or k.layers.clock):
        return
    kind = LOAD_PAST_L1 if k.instruction.has("cg") else LOAD
    readers, partly = k.active, constant(I32, 0)
    if count is not None:
        readers = k.e.and_(k.active, k.e.mask_of(k.e.icmp_unsigned("!=", count, constant(count.type, 0))))
        partly = k.e.and_(readers, k.e.mask_of(k.e.icmp_unsigned("!=", count, constant(count.type, nbytes))))
    helper = accounting_copy(k.chip, k.layers, nbytes, kind)
    k.completes(k.call(helper, k.warp, *source, *target, k.active, readers, partly, constant(I32, k.index), k.start))


def account_bulk(k: Lowering, place: tuple[Value, Value], sizes: Value, kind: str, element: str = "") -> Value:
    """Time bulk copies in the clock layer, and return the cycle in which they complete; 0 without a clock.

    `place`: addresses in global memory. `sizes` points to the bytes of each lane. `kind`: `LOAD_PAST_L1` from global memory, `STORE` or,
    with the type of an element, `ATOMIC` to global memory; empty for a copy between blocks.
    """
    if not k.layers.clock:
        return constant(I64, 0)
    helper = bulk_copy_time(k.chip, kind, *_atomic_operation(kind, element)) if kind else peer_copy_time(k.chip)
    complete = k.call(helper, k.warp, *place, k.active, sizes, k.start)
    k.completes(complete)
    return complete


def _atomic_operation(kind: str, element: str) -> tuple[int, str]:
    """Return the bytes per element of an `ATOMIC` update in L2, and the name of the operation; (0, "") for other kinds."""
    if kind != ATOMIC:
        return 0, ""
    if not element:
        return 4, ""
    return max(4, SCALAR_TYPES[element].nbytes), "float" if SCALAR_TYPES[element].kind in ("f", "bf") else ""


def box_time(k: Lowering, kind: str) -> Helper | None:
    """Return the helper that times the copy of a row of a box; None without a clock."""
    return piece_time(k.chip, kind, *_atomic_operation(kind, "")) if k.layers.clock else None


def completion(k: Lowering) -> Value:
    """Return the cycle in which the current instruction completes, as far as known; 0 without a clock."""
    return constant(I64, 0) if k.scoreboard is None else k.scoreboard.barrier_opens


def copies_complete(k: Lowering) -> Value:
    """Return the cycle in which all asynchronous copies of the warp are complete; 0 without a clock."""
    return constant(I64, 0) if k.scoreboard is None else k.scoreboard.copies_complete


def complete_wait(k: Lowering, arrival: Value) -> None:
    """Complete a wait at a barrier no earlier than the arrivals that it waited for."""
    if k.layers.clock:
        k.completes(k.e.intrinsic("smax", [completion(k), arrival]))


def account_box(k: Lowering, sectors: Value, touched: Value) -> None:
    """Account for tensor copies of boxes as one request, given 32 i64 each of sectors and of bytes in global memory."""
    if k.layers.counts:
        k.call(count_box(k.layers.accesses), k.warp, sectors, touched, k.active, constant(I32, k.index), k.start)


def account_product(k: Lowering) -> None:
    """Count a wgmma product as one request per warp; its time is not modelled."""
    if k.layers.counts:
        k.call(count_product, k.warp, constant(I32, k.index), k.active, constant(I32, product_bytes(k.instruction)))


def account_texture(k: Lowering, nbytes: int) -> None:
    """Account for an access of `nbytes` per lane to a texture or surface: requests and time, but no sectors, since the memory layout of
    images is unknown."""
    if k.layers.counts or k.layers.clock:
        helper = accounting(k.chip, k.layers, "tex", LOAD)
        nowhere = k.scratch("data")
        k.completes(k.call(helper, k.warp, nowhere, constant(I64, 0), k.active, constant(I32, nbytes), constant(I32, k.index), k.start))


def account_branch(k: Lowering, taken: Value) -> None:
    """Count a branch of `k.mask` taken by the lanes in `taken`."""
    if k.layers.counts:
        k.call(count_branch, k.warp, constant(I32, k.index), k.mask, taken)

"""What the counting and clock layers add to the code of a memory instruction or a branch."""

from __future__ import annotations

from memlane.emulate.clock.sectors import LOAD, LOAD_PAST_L1
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.accounting import accounting, accounting_copy, count_box, count_branch, count_product
from memlane.ptx.access import access_kind, product_bytes


def account(k: Lowering, space: str, pointer: Value, distance: Value, nbytes: int, is_request: bool = True) -> None:
    """Account for the access of `k.active` to `nbytes` a lane at these addresses, as far as a layer asks for it. Parameters are none. Of an
    instruction that goes to memory several times the first time alone `is_request`."""
    if not (k.layers.counts or k.layers.clock) or k.instruction.form.addresses.get("a") == "param":
        return
    kind = access_kind(k.instruction, k.registers.read)
    floats = kind == "atomic" and any(name.startswith(("f", "bf")) for name in k.instruction.form.types.values())
    helper = accounting(k.chip, k.layers, space, kind, is_request, floats)
    active = _one_of(k) if kind in ("atomic", "increment") and _is_combined(k) else k.active
    complete = k.call(helper, k.warp, pointer, distance, active, constant(I32, nbytes), constant(I32, k.index), k.start)
    k.completes(complete)


def _is_combined(k: Lowering) -> bool:
    """Whether the assembled code lets one lane do an atomic operation for all."""
    machine = k.layers.machine
    return machine is not None and k.index < len(machine.made) and machine.made[k.index].is_combined


def _one_of(k: Lowering) -> Value:
    """The lowest of the active lanes."""
    return k.e.and_(k.active, k.e.sub(constant(I32, 0), k.active))


def account_copy(k: Lowering, source: tuple[Value, Value], target: tuple[Value, Value], nbytes: int, count: Value | None) -> None:
    """Account for an asynchronous copy of `nbytes` a lane from global to shared memory: one request, with the sectors of its load and the
    wavefronts of its store, and two accesses. `count`: the bytes that each lane reads, where that may be fewer; i32 for each lane."""
    if not (k.layers.counts or k.layers.clock):
        return
    kind = LOAD_PAST_L1 if k.instruction.has("cg") else LOAD
    readers, partly = k.active, constant(I32, 0)
    if count is not None:
        readers = k.e.and_(k.active, k.e.mask_of(k.e.icmp_unsigned("!=", count, constant(count.type, 0))))
        partly = k.e.and_(readers, k.e.mask_of(k.e.icmp_unsigned("!=", count, constant(count.type, nbytes))))
    helper = accounting_copy(k.chip, k.layers, nbytes, kind)
    k.completes(k.call(helper, k.warp, *source, *target, k.active, readers, partly, constant(I32, k.index), k.start))


def account_box(k: Lowering, sectors: Value, touched: Value) -> None:
    """Account for copies of boxes, of which 32 i64 each are the sectors and the bytes in global memory: one request. When they are complete
    nobody models."""
    if k.layers.counts:
        k.call(count_box(k.layers.accesses), k.warp, sectors, touched, k.active, constant(I32, k.index), k.start)


def account_product(k: Lowering) -> None:
    """Count a product of a warpgroup: a request of each of its warps. What it takes in time nobody models."""
    if k.layers.counts:
        k.call(count_product, k.warp, constant(I32, k.index), k.active, constant(I32, product_bytes(k.instruction)))


def account_texture(k: Lowering, nbytes: int) -> None:
    """Account for an access of `nbytes` a lane to a texture or surface: requests and time, but no sectors, for how an image lies in memory
    is not known."""
    if k.layers.counts or k.layers.clock:
        helper = accounting(k.chip, k.layers, "tex", LOAD)
        nowhere = k.scratch("data")
        k.completes(k.call(helper, k.warp, nowhere, constant(I64, 0), k.active, constant(I32, nbytes), constant(I32, k.index), k.start))


def account_branch(k: Lowering, taken: Value) -> None:
    """Count a branch of `k.mask`, of which the lanes in `taken` go to its target."""
    if k.layers.counts:
        k.call(count_branch, k.warp, constant(I32, k.index), k.mask, taken)

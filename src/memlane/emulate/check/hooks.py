"""Add the checker's code to an instruction; without the checker, add nothing."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.check.cells import Shape
from memlane.emulate.check.clocks import CTA, DEVICE, arrive, begin_turn, cluster_arrival, cluster_passed, fence, warp_barrier
from memlane.emulate.check.masks import inspect_masks
from memlane.emulate.check.regions import checked
from memlane.emulate.check.wgmma import await_groups, begin_product, close_group, touch
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.layout import WARP
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.barriers import note_stop
from memlane.ptx import Immediate, Instruction, is_product, memory_access

_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio")


def check_turn(k: Lowering) -> None:
    """Emit the start of a warp's turn."""
    if k.layers.check:
        k.call(begin_turn, k.warp)


def check_access(k: Lowering, space: str, pointer: Value, distance: Value, element_bytes: int, count: int, data: Value) -> Value:
    """Emit the check of an access of `count` elements per lane; return the lanes of `k.active` that may proceed.

    Call it before the access. `data` holds the values of a store, or receives those of a load, with 0 for lanes that may not proceed.
    """
    if not k.layers.check or space == "param":
        return k.active
    known = "global" if space == "const" else space
    helper = checked(known, shape_of(k.instruction, element_bytes, count))
    return k.call(helper, k.warp, pointer, distance, k.active, constant(I32, k.index), data)


def shape_of(instruction: Instruction, element_bytes: int, count: int) -> Shape:
    """Return the access pattern of an instruction with a plain address."""
    access = memory_access(instruction)
    kind = "load" if is_product(instruction) else "" if access is None else access.kind
    updates, stores, loads = kind in ("atomic", "reduction"), kind == "store", kind == "load"
    release = instruction.has("release") or instruction.has("acq_rel")
    return Shape(
        element_bytes,
        count,
        reads=not stores,
        writes=not loads,
        strong=updates or any(instruction.has(word) for word in _STRONG),
        acquires=instruction.has("acquire") or instruction.has("acq_rel"),
        releases=_reach(instruction) if release else "",
        needs_value=not stores and not instruction.has("exch"),
        has_values=stores,
    )


def check_copy(k: Lowering, source: tuple[Value, Value], target: tuple[Value, Value], nbytes: int, count: Value) -> Value:
    """Emit the check of an asynchronous copy from global to shared memory, of which each lane reads `count` of `nbytes`; return the lanes
    that may proceed.

    Lanes that read some of the bytes, but not all, are checked only where they write.
    """
    if not k.layers.check:
        return k.active
    e, site, unused = k.e, constant(I32, k.index), k.scratch("copied", 16 * LANES)
    full = e.mask_of(e.icmp_unsigned("==", count, constant(count.type, nbytes)))
    words = Shape(4, nbytes // 4, reads=True, writes=False, strong=False, needs_value=True)
    whole = e.and_(k.active, full)
    read = k.call(checked("global", words), k.warp, *source, whole, site, unused)
    lanes = e.or_(read, e.and_(k.active, e.not_(whole)))
    written = Shape(4, nbytes // 4, reads=False, writes=True, strong=False)
    return k.call(checked("shared", written), k.warp, *target, lanes, site, unused)


def check_bulk_copy(
    k: Lowering, spaces: tuple[str, str], source: tuple[Value, Value], target: tuple[Value, Value], sizes: Value, updates: bool = False
) -> Value:
    """Emit the check of a bulk copy (or, with `updates`, a bulk reduction) of `sizes` bytes per lane, in steps of 16 bytes; return the
    lanes that may proceed."""
    if not k.layers.check:
        return k.active
    e, site, unused = k.e, constant(I32, k.index), k.scratch("copied", 16 * LANES)
    lanes, done = e.variable(k.active), e.variable(constant(I32, 0))
    read = Shape(4, 4, reads=True, writes=False, strong=False, needs_value=True)
    written = Shape(4, 4, reads=updates, writes=True, strong=updates, needs_value=updates)

    def left() -> Value:
        return e.and_(lanes.get(), e.mask_of(e.icmp_unsigned(">", sizes, e.splat(done.get()))))

    with e.while_(lambda: e.icmp_unsigned("!=", left(), constant(I32, 0))):
        now, further = left(), e.zext(done.get(), I64)
        allowed = now
        for space, (pointer, distance), shape in ((spaces[0], source, read), (spaces[1], target, written)):
            allowed = k.call(checked(space, shape), k.warp, pointer, e.add(distance, further), allowed, site, unused)
        lanes.set(e.and_(lanes.get(), e.or_(allowed, e.not_(now))))
        done.set(e.add(done.get(), constant(I32, 16)))
    return lanes.get()


def check_mbarrier(k: Lowering, space: str, pointer: Value, distance: Value, operation: str, out: Value) -> Value:
    """Emit the check of an operation on a barrier in shared memory, where arriving releases and waiting acquires; return the lanes that may
    proceed."""
    if not k.layers.check:
        return k.active
    waits = operation.startswith("test")
    arrives = operation.startswith("arrive") or operation == "complete_tx"
    reach = "device" if space == "shared::cluster" or k.instruction.has("cluster") else "cta"
    shape = Shape(8, 1, reads=True, writes=not waits, strong=True, acquires=waits, releases=reach if arrives else "")
    return k.call(checked(space, shape), k.warp, pointer, distance, k.active, constant(I32, k.index), out)


def _reach(instruction: Instruction) -> str:
    return "cta" if instruction.has("cta") else "device"


def check_barrier(k: Lowering, barrier: Value) -> None:
    """Emit the arrival of `k.active` at a block barrier."""
    if k.layers.check:
        aligned = k.instruction.opcode == "bar" or k.instruction.has("aligned")
        k.call(arrive, k.warp, barrier, constant(I32, int(not aligned)))


def check_cluster_arrival(k: Lowering) -> None:
    """Emit the arrival of `k.active` at their cluster barrier."""
    if k.layers.check:
        k.call(cluster_arrival, k.warp, constant(I32, int(not k.instruction.has("relaxed"))))


def check_cluster_wait(k: Lowering) -> None:
    """Emit a wait of `k.active` at their cluster barrier, which may already have opened."""
    if k.layers.check:
        passed = k.e.and_(k.active, k.e.get(k.warp, WARP, "cluster_passed"))
        with k.e.if_then(k.e.icmp_unsigned("!=", passed, constant(I32, 0))):
            k.call(cluster_passed, k.warp)


def check_warp_barrier(k: Lowering, partners: Value) -> None:
    """Emit the arrival of `k.active` at a warp barrier, with a mask per lane; it orders the warp if it completes one."""
    if not k.layers.check:
        return
    e = k.e
    there = e.or_(k.active, e.get(k.warp, WARP, "at_warp_barrier"))
    missing = e.splat(e.and_(e.get(k.warp, WARP, "live"), e.not_(there)))
    complete = e.mask_of(e.icmp_unsigned("==", e.and_(partners, missing), constant(partners.type, 0)))
    with e.if_then(e.icmp_unsigned("!=", e.and_(complete, k.active), constant(I32, 0))):
        k.call(warp_barrier, k.warp)


def check_fence(k: Lowering) -> None:
    """Emit a fence, for instructions that are one."""
    if k.layers.check and k.instruction.opcode in ("membar", "fence"):
        with k.e.if_then(k.e.icmp_unsigned("!=", k.active, constant(I32, 0))):
            k.call(fence, k.warp, constant(I32, CTA if k.instruction.has("cta") else DEVICE))


def check_exit(k: Lowering) -> None:
    """Emit the exit of `k.active`."""
    if k.layers.check:
        note_stop(k.e, k.warp, k.active, constant(I32, k.index))


def check_masks(k: Lowering) -> None:
    """Emit the check of the masks of a warp-synchronous instruction."""
    if k.layers.check and k.has("mask"):
        k.e.store_lanes(k.read("mask", "b32"), k.scratch("masks", 128))
        k.call(inspect_masks, k.warp, k.scratch("masks", 128), k.active, constant(I32, k.index))


def check_products(k: Lowering) -> None:
    """Emit the check that an instruction does not touch registers of a wgmma product in flight."""
    one, products = k.instruction, k.products
    if products is None or not products.bits:
        return
    touched = products.touched(one)
    for bit, product in products.places.items():
        if bit & touched & ~k.touched:
            k.call(touch, k.warp, k.active, constant(I32, k.index), constant(I64, bit), constant(I32, product))
    k.touched |= touched  # Later instructions of the segment need no check of these registers, unless a product starts in between.
    if is_product(one):
        k.touched = 0
        k.call(begin_product, k.warp, constant(I64, products.own(one)))


def check_groups(k: Lowering) -> None:
    """Emit the commit of a group of products, or a wait for groups."""
    if not k.layers.check:
        return
    left = k.instruction.operand("n")
    if k.instruction.has("commit_group"):
        k.call(close_group, k.warp)
    elif isinstance(left, Immediate):
        k.call(await_groups, k.warp, constant(I32, left.value))

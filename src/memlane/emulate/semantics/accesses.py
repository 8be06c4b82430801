"""Passes every memory access of an instruction through the layers of the emulator: the only place where they observe it.

    with access(k, space, pointer, distance, scalar.nbytes, count, data) as lanes:
        k.call(load(space, scalar.bits, count), k.warp, pointer, distance, lanes, constant(I32, k.index), data)

Before the access the checker returns the lanes that may proceed; after it the counting layer counts, and the clock layer computes its
completion. Without a layer no code is added. `require_access` rejects, at compile time, an instruction that accesses memory by its row in
the instruction table but bypasses this module: no layer can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memlane.emulate.check.hooks import check_access, check_bulk_copy, check_copy, check_mbarrier
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account, account_box, account_copy, account_product, account_texture, complete_wait
from memlane.emulate.runtime.mbarriers import WAITS, mbarrier
from memlane.ptx import MemoryAccess, memory_accesses

Place = tuple[Value, Value]
"""Addresses of the lanes in the form that helpers take: a pointer to 32 i64, and an offset to add."""


@contextmanager
def access(
    k: Lowering, space: str, pointer: Value, distance: Value, element_bytes: int, count: int, data: Value, is_request: bool = True
) -> Iterator[Value]:
    """Yield the lanes of `k.active` that may access `count` elements of `element_bytes` each; the `with` block makes the access.

    `data` holds what a store will write, or is where a load will put its values. An instruction that accesses memory several times sets
    `is_request` only the first time.
    """
    yield check_access(k, space, pointer, distance, element_bytes, count, data)
    account(k, space, pointer, distance, element_bytes * count, is_request)
    k.reached_memory = True


@contextmanager
def copy_access(k: Lowering, source: Place, target: Place, nbytes: int, read: Value, may_read_less: bool) -> Iterator[Value]:
    """Yield the lanes that may make an asynchronous copy of `nbytes` a lane from global to shared memory. `read`: how many of these bytes
    each lane reads, 32 i32; the rest is filled with zeros."""
    yield check_copy(k, source, target, nbytes, read)
    account_copy(k, source, target, nbytes, read if may_read_less else None)
    k.reached_memory = True


def bulk_copy_lanes(k: Lowering, spaces: tuple[str, str], source: Place, target: Place, sizes: Value, updates: bool = False) -> Value:
    """Return the lanes that may make a bulk copy of `sizes` bytes each, or, with `updates`, a bulk reduction. A bulk copy is not an access
    of lanes: it is not counted."""
    k.reached_memory = True
    return check_bulk_copy(k, spaces, source, target, sizes, updates)


def at_mbarrier(k: Lowering, space: str, place: Place, operation: str, given: Value, out: Value, when: Value | None = None) -> None:
    """Execute an operation on a barrier in shared memory, which is not counted, for the lanes that may. `given`, `out`: as for `mbarrier`.
    `when`: the time at which it counts on the barrier; None for at once."""
    k.reached_memory = True
    lanes, arrives = check_mbarrier(k, space, *place, operation, out), constant(I64, 0) if when is None else when
    helper = mbarrier(operation, space, k.layers.clock)
    latest = k.call(helper, k.warp, *place, lanes, constant(I32, k.index), given, out, arrives)
    if operation in WAITS:
        complete_wait(k, latest)


def tensor_map_store_lanes(k: Lowering, space: str, place: Place, nbytes: int, data: Value) -> Value:
    """Return the lanes that may store a field of a tensor map, which is not counted."""
    k.reached_memory = True
    return check_access(k, space, *place, nbytes, 1, data)


def count_box_copy(k: Lowering, sectors: Value, touched: Value) -> None:
    """Count the copy of a box of a tensor: 32 i64 each are the sectors and the bytes in global memory. Its helper has checked it."""
    account_box(k, sectors, touched)
    k.reached_memory = True


def count_texture_access(k: Lowering, nbytes: int) -> None:
    """Count an access to a texture or surface, `nbytes` a lane. Its helper has checked the address."""
    account_texture(k, nbytes)
    k.reached_memory = True


def count_product_access(k: Lowering) -> None:
    """Count a product of a warpgroup that has read its operands in shared memory, after `check_operand_read` for each of them."""
    account_product(k)
    k.reached_memory = True


def check_operand_read(k: Lowering, places: Value, distance: Value, element_bytes: int, count: int, data: Value) -> None:
    """Check one part of a tensor-core operand that `k.active` reads from shared memory; `count_product_access` counts it."""
    check_access(k, "shared", places, distance, element_bytes, count, data)


def require_access(k: Lowering) -> None:
    """Reject an instruction that accesses memory, by its row in the instruction table, and has bypassed this module.

    Raises AssertionError: its semantics are wrong, whatever the kernel.
    """
    if k.reached_memory or set(k.instruction.form.addresses.values()) <= {"param"}:  # parameters are registers or constants
        return
    for one in memory_accesses(k.instruction):
        if _is_visible(one):
            raise AssertionError(
                f"the semantics of {k.instruction.name} access {one.space} memory past emulate/semantics/accesses.py, "
                "so that nothing would count, time or check it"
            )


def _is_visible(one: MemoryAccess) -> bool:
    """Return whether a program could observe the access. Hints to caches move nothing, and a query for the size of an image reads no
    element."""
    return one.kind not in ("prefetch", "query")

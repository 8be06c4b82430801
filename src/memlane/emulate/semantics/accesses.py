"""The way of every instruction to memory: the only place where the layers of the emulator see an access.

    with access(k, space, pointer, distance, scalar.nbytes, count, data) as lanes:
        k.call(load(space, scalar.bits, count), k.warp, pointer, distance, lanes, constant(I32, k.index), data)

Before the access the checker says which lanes may go on; after it the counting layer counts, and the clock layer tells when it completes.
Without a layer nothing is added. An instruction whose row in the instruction table says that it accesses memory, and which goes past this
module, is refused while its kernel is compiled (`require_access`): no layer can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memlane.emulate.check.hooks import check_access, check_bulk_copy, check_copy, check_mbarrier
from memlane.emulate.code.build import I32, I64, Value, constant
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account, account_box, account_copy, account_product, account_texture, finds_open
from memlane.emulate.runtime.mbarriers import WAITS, mbarrier
from memlane.ptx import MemoryAccess, memory_accesses

Place = tuple[Value, Value]
"""Addresses of the lanes as helpers take them: a pointer to 32 i64, and a distance to add."""


@contextmanager
def access(
    k: Lowering, space: str, pointer: Value, distance: Value, element_bytes: int, count: int, data: Value, is_request: bool = True
) -> Iterator[Value]:
    """An access of `k.active` to `count` elements of so many bytes a lane: the lanes that may make it, which the block of `with` makes.

    `data` holds what a store will write, or is where a load will put its values. Of an instruction that goes to memory several times only
    the first time `is_request`.
    """
    yield check_access(k, space, pointer, distance, element_bytes, count, data)
    account(k, space, pointer, distance, element_bytes * count, is_request)
    k.reached_memory = True


@contextmanager
def copied(k: Lowering, source: Place, target: Place, nbytes: int, read: Value, may_read_less: bool) -> Iterator[Value]:
    """An asynchronous copy of `nbytes` a lane from global to shared memory: the lanes that may make it. `read`: of these bytes the lanes
    read so many, 32 i32, and fill the rest with zeros."""
    yield check_copy(k, source, target, nbytes, read)
    account_copy(k, source, target, nbytes, read if may_read_less else None)
    k.reached_memory = True


def copied_in_bulk(k: Lowering, spaces: tuple[str, str], source: Place, target: Place, sizes: Value, updates: bool = False) -> Value:
    """The lanes that may make a bulk copy, of which each moves a number of bytes, or updates as many where it goes. A bulk copy is no
    access of lanes: it is not counted."""
    k.reached_memory = True
    return check_bulk_copy(k, spaces, source, target, sizes, updates)


def at_mbarrier(k: Lowering, space: str, place: Place, operation: str, given: Value, out: Value, when: Value | None = None) -> None:
    """Do an operation on a barrier in shared memory, which is not counted, for the lanes that may. `given`, `out`: as for `mbarrier`. What
    the operation brings arrives at `when`, if that is not at once."""
    k.reached_memory = True
    lanes, arrives = check_mbarrier(k, space, *place, operation, out), constant(I64, 0) if when is None else when
    helper = mbarrier(operation, space, k.layers.clock)
    latest = k.call(helper, k.warp, *place, lanes, constant(I32, k.index), given, out, arrives)
    if operation in WAITS:
        finds_open(k, latest)


def in_tensor_map(k: Lowering, space: str, place: Place, nbytes: int, data: Value) -> Value:
    """The lanes that may store a field of a tensor map, which is not counted."""
    k.reached_memory = True
    return check_access(k, space, *place, nbytes, 1, data)


def moved_box(k: Lowering, sectors: Value, touched: Value) -> None:
    """A box of a tensor was copied, of which 32 i64 each are the sectors and the bytes in global memory; its helper has checked it."""
    account_box(k, sectors, touched)
    k.reached_memory = True


def sampled(k: Lowering, nbytes: int) -> None:
    """A texture or surface was accessed, `nbytes` a lane; its helper has checked the place."""
    account_texture(k, nbytes)
    k.reached_memory = True


def multiplied(k: Lowering) -> None:
    """A product of a warpgroup has read its operands in shared memory, with `operand_read` for each that lies there."""
    account_product(k)
    k.reached_memory = True


def operand_read(k: Lowering, places: Value, distance: Value, element_bytes: int, count: int, data: Value) -> None:
    """Part of what tensor cores read of an operand in shared memory, by `k.active`: for the checker; `multiplied` counts."""
    check_access(k, "shared", places, distance, element_bytes, count, data)


def require_access(k: Lowering) -> None:
    """Refuse an instruction that accesses memory, by its row in the instruction table, and has not come through this module.

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
    """Whether a program could see what the access does. Hints to caches move nothing, and a question for the size of an image reads no
    element of it."""
    return one.kind not in ("prefetch", "query")

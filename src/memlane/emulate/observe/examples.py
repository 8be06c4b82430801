"""Keep the addresses of all lanes for a few example accesses of an observed launch, for drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.emulate.code.build import I32, I64, POINTER, VOID, Emit, Value, constant
from memlane.emulate.layout import BLOCK, CONTEXT, WARP
from memlane.emulate.runtime.helper import helper
from memlane.launch import EXAMPLE_DTYPE

EXAMPLE_SLOTS = {"global": 0, "local": 0, "shared": 1}
"""State space -> example slot of an instruction. An asynchronous copy uses both slots."""
_SORTS = 2
_ROLES = 2


def empty_examples(instructions: int) -> npt.NDArray[Any]:
    """Return the array for generated code: per instruction and slot the requested example, then the worst one."""
    return np.zeros((instructions, _SORTS, _ROLES), EXAMPLE_DTYPE)


def recorded_examples(examples: npt.NDArray[Any], room: int, rows: int) -> npt.NDArray[Any]:
    """Return the recorded examples, in `EXAMPLE_DTYPE`, after a launch that had room for `room` rows and kept `rows`."""
    found: npt.NDArray[Any] = examples[examples["mask"] != 0]
    numbers = room - found["row"]  # Generated code stored the room left.
    found["row"] = np.where(numbers < rows, numbers, -1)
    return found


def _is_worse(e: Emit, worst: Value, transactions: Value, block: Value, warp: Value) -> Value:
    """Return whether an access replaces the worst so far: it has more transactions, or as many in an earlier warp of the grid."""
    is_new = e.icmp_unsigned("==", e.get(worst, EXAMPLE_DTYPE, "mask"), constant(I32, 0))
    most = e.get(worst, EXAMPLE_DTYPE, "transactions")
    held = e.or_(
        e.shl(e.zext(e.get(worst, EXAMPLE_DTYPE, "block"), I64), constant(I64, 32)), e.zext(e.get(worst, EXAMPLE_DTYPE, "warp"), I64)
    )
    is_earlier = e.icmp_unsigned("<", e.or_(e.shl(block, constant(I64, 32)), warp), held)
    is_more = e.icmp_unsigned(">", transactions, most)
    return e.or_(is_new, e.or_(is_more, e.and_(e.icmp_unsigned("==", transactions, most), is_earlier)))


@helper("keep_example", VOID, POINTER, I32, I32, I32, I32, I32, I32, I64, POINTER, I64)
def keep_example(
    e: Emit,
    warp: Value,
    site: Value,
    slot: Value,
    space: Value,
    kind: Value,
    lanes: Value,
    nbytes: Value,
    packed: Value,
    addresses: Value,
    distance: Value,
) -> None:
    """Keep an access that is about to become a row, if it is the requested one or has more transactions than all before.

    `packed` holds its transactions and, 32 bits up, the ideal.
    """
    block = e.get_pointer(warp, WARP, "block")
    context = e.get_pointer(block, BLOCK, "context")
    place = {"example_block": e.get(block, BLOCK, "number"), "example_warp": e.zext(e.get(warp, WARP, "number"), I64)}
    for name, own in place.items():
        wanted = e.get(context, CONTEXT, name)
        other = e.and_(e.icmp_signed(">=", wanted, constant(I64, 0)), e.icmp_unsigned("!=", wanted, own))
        with e.if_then(other):
            e.ret_void()
    index = e.add(e.mul(site, constant(I32, _SORTS)), slot)
    first = e.at(e.get_pointer(context, CONTEXT, "examples"), e.mul(e.zext(index, I64), constant(I64, _ROLES * EXAMPLE_DTYPE.itemsize)))
    worst = e.at(first, EXAMPLE_DTYPE.itemsize)
    transactions = e.and_(e.trunc(packed, I32), constant(I32, 0xFFFF))
    seen = e.get(first, EXAMPLE_DTYPE, "seen")
    e.put(e.add(seen, constant(I64, 1)), first, EXAMPLE_DTYPE, "seen")
    is_worse = _is_worse(e, worst, transactions, place["example_block"], place["example_warp"])
    is_asked_for = e.icmp_unsigned("==", seen, e.get(context, CONTEXT, "example_execution"))
    values = {
        "instruction": site,
        "space": space,
        "kind": kind,
        "nbytes": nbytes,
        "block": e.trunc(e.get(block, BLOCK, "number"), I32),
        "warp": e.get(warp, WARP, "number"),
        "mask": lanes,
        "transactions": transactions,
        "ideal": e.trunc(e.lshr(packed, constant(I64, 32)), I32),
        "row": e.get(context, CONTEXT, "accesses_left"),
    }
    places = e.add(e.load_lanes(addresses, I64), e.splat(distance))
    for role, (condition, example) in enumerate(((is_asked_for, first), (is_worse, worst))):
        with e.if_then(condition):
            e.put(role, example, EXAMPLE_DTYPE, "worst")
            for name, value in values.items():
                where, typ = e.place(example, EXAMPLE_DTYPE, name)
                e.store(e.trunc(value, typ) if value.type.width > typ.width else value, where)
            e.store_lanes(places, e.place(example, EXAMPLE_DTYPE, "addresses")[0])

"""Copies of boxes of an array, by tensor maps that the target gave (`target.tensor_map`). They are done at once."""

from __future__ import annotations

from memlane.emulate.code.build import I32, I64, Value, constant, vector
from memlane.emulate.layout import LANES, PARAM_WINDOW
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account_box
from memlane.emulate.runtime.tensor_copies import MOVED, REDUCTIONS, RESULT_BYTES, SECTORS, TOUCHED, Way, tensor_copy
from memlane.emulate.semantics.asynchronous import complete_bytes
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Operand, Register, Symbol, TextureAddress, Vector

_SECTION = "data-movement-and-conversion-instructions-"
_WORDS = 4 * LANES
_MOST_DIMENSIONS = 5


def _map_and_coordinates(k: Lowering) -> tuple[tuple[Value, Value], Value, int]:
    """Where the addresses of the tensor maps lie, with a distance to add, where the coordinates do, and how many there are."""
    e, operand, dimensions = k.e, k.instruction.operand("map"), int(k.slot_of("dim")[0])
    assert isinstance(operand, TextureAddress)
    items = operand.items[1].items if len(operand.items) == 2 and isinstance(operand.items[1], Vector) else ()
    if len(items) != dimensions:
        raise k.unsupported(f"{k.instruction.name} with {len(items)} coordinates")
    for axis, item in enumerate(items):
        e.store_lanes(k.bits_of(item, "s32"), e.at(k.scratch("coordinates", _MOST_DIMENSIONS * _WORDS), axis * _WORDS))
    e.store_lanes(_generic(k, operand.items[0]), k.scratch("maps", 8 * LANES))
    return (k.scratch("maps"), constant(I64, 0)), k.scratch("coordinates"), dimensions


def _generic(k: Lowering, base: Operand) -> Value:
    """The generic address of a tensor map: in a register, or that of a variable by its name."""
    if isinstance(base, Symbol) and k.frame.offsets.get(base.name, ("", 0))[0] == "param":
        return k.e.add(k.symbol_address(base.name, base.offset), constant(vector(I64), PARAM_WINDOW))
    if not isinstance(base, Register | Symbol):
        raise k.unsupported(f"{k.instruction.name} of {base}")
    return k.bits_of(base, "u64")


def _copy(k: Lowering, operation: str, letter: str) -> Value:
    """Let a box be copied from or to the shared memory at the address in `letter`; where its results lie."""
    maps, coordinates, dimensions = _map_and_coordinates(k)
    results = k.scratch("boxes", RESULT_BYTES)
    way = Way(operation, dimensions, k.layers.check)
    places = k.address(letter, f"addresses_{letter}")
    k.call(tensor_copy(way), k.warp, *maps, *places, coordinates, k.active, constant(I32, k.index), results)
    account_box(k, *(k.e.at(results, at) for at in (SECTORS, TOUCHED)))
    return results


@semantics(_SECTION + "cp-async-bulk-tensor")
def cp_async_bulk_tensor(k: Lowering) -> None:
    """Toward shared memory all bytes of the box count on a barrier, also those that lie outside the array."""
    if k.instruction.has("multicast::cluster"):
        raise k.unsupported()
    if not k.has("mbar"):
        _copy(k, "store", "src")
        return
    results = _copy(k, "load", "dst")
    complete_bytes(k, k.e.load_lanes(k.e.at(results, MOVED), I64))


@semantics(_SECTION + "cp-reduce-async-bulk-tensor")
def cp_reduce_async_bulk_tensor(k: Lowering) -> None:
    operation = k.slot_of("op")
    if operation not in REDUCTIONS:
        raise k.unsupported()
    _copy(k, operation, "src")

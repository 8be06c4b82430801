"""Copies of boxes of an array, by tensor maps from the target (`target.tensor_map`). They complete immediately."""

from __future__ import annotations

import math

from memlane.chip import LANES
from memlane.emulate.clock.sectors import ATOMIC, LOAD_PAST_L1, STORE
from memlane.emulate.code.build import I32, I64, INTEGERS, Value, Variable, constant, vector
from memlane.emulate.layout import PARAM_WINDOW, TENSOR_MAP, TENSOR_MAP_MARK, offset
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import box_time
from memlane.emulate.runtime.access import store
from memlane.emulate.runtime.copies import bulk_copy
from memlane.emulate.runtime.tensor_copies import COMPLETE, MOVED, REDUCTIONS, RESULT_BYTES, SECTORS, TOUCHED, Way, tensor_copy
from memlane.emulate.semantics.accesses import Place, bulk_copy_lanes, count_box_copy, tensor_map_store_lanes
from memlane.emulate.semantics.cluster_copies import complete_at, in_each_block
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Immediate, Operand, Register, Symbol, TextureAddress, Vector

_WORDS = 4 * LANES
_MOST_DIMENSIONS = 5


@semantics("asynchronous/cp.async.bulk.tensor")
def cp_async_bulk_tensor(k: Lowering) -> None:
    """Copy a box. Toward shared memory all bytes of the box count on a barrier, including those outside the array; with a mask of ranks, in
    each of those blocks, which receive the data of one access to global memory."""
    if not k.has("mbar"):
        return _outward(k, "store", STORE)
    way, when = _prepared(k, "load", LOAD_PAST_L1), k.e.variable(constant(I64, 0))
    places = [k.address(letter, f"addresses_{letter}") for letter in ("dst", "mbar")]
    if k.instruction.has("multicast::cluster"):
        in_each_block(k, places, lambda box, barrier: _fetch(k, way, box, barrier, when))
    else:
        _fetch(k, way, places[0], places[1], when)
    return _account(k, when.get())


@semantics("asynchronous/cp.async.bulk.prefetch.tensor")
def cp_async_bulk_prefetch_tensor(k: Lowering) -> None:
    """Check the box, and move nothing. A GPU takes a box that no load may have for an illegal instruction here too."""
    _copy(k, _prepared(k, "prefetch"), (k.scratch("maps"), constant(I64, 0)), k.start)


@semantics("asynchronous/cp.reduce.async.bulk.tensor")
def cp_reduce_async_bulk_tensor(k: Lowering) -> None:
    operation = k.slot_of("op")
    if operation not in REDUCTIONS:
        raise k.unsupported()
    _outward(k, operation, ATOMIC)


def _outward(k: Lowering, operation: str, kind: str) -> None:
    _copy(k, _prepared(k, operation, kind), k.address("src", "addresses_src"), k.start)
    _account(k, _complete(k))


def _fetch(k: Lowering, way: Way, box: Place, barrier: Place, when: Variable) -> None:
    """Copy a box to the shared memory of a block. `when` is the cycle in which it completes; 0 before the first of the blocks that receive
    the data of one access."""
    e = k.e
    is_first = e.icmp_signed("==", when.get(), constant(I64, 0))
    _copy(k, way, box, e.select(is_first, k.start, constant(I64, -1)))
    when.set(e.intrinsic("smax", [when.get(), _complete(k)]))
    complete_at(k, barrier, way.space, e.load_lanes(e.at(_results(k), MOVED), I64), when.get())


def _copy(k: Lowering, way: Way, box: Place, issue: Value) -> None:
    maps = (k.scratch("maps"), constant(I64, 0))
    k.call(tensor_copy(way), k.warp, *maps, *box, k.scratch("coordinates"), k.active, constant(I32, k.index), _results(k), issue)


def _complete(k: Lowering) -> Value:
    """Return the cycle in which the last of the boxes completes."""
    return k.e.reduce("smax", k.e.load_lanes(k.e.at(_results(k), COMPLETE), I64))


def _account(k: Lowering, when: Value) -> None:
    k.completes(when)
    count_box_copy(k, *(k.e.at(_results(k), at) for at in (SECTORS, TOUCHED)))


def _results(k: Lowering) -> Value:
    return k.scratch("boxes", RESULT_BYTES)


# -- tensor maps that kernels make -------------------------------------------------------------------------------------------------

_FIELDS = {
    "global_address": "address",
    "box_dim": "box",
    "global_dim": "extents",
    "global_stride": "strides",
    "element_stride": "steps",
    "elemtype": "element",
    "interleave_layout": "interleave",
    "swizzle_mode": "swizzle",
    "fill_mode": "fill",
    "rank": "rank",
}
"""Fields of a tensor map, by their names in PTX."""


@semantics("asynchronous/tensormap.replace")
def tensormap_replace(k: Lowering) -> None:
    name, ordinal = _FIELDS[k.slot_of("field")], k.instruction.operand("ordinal")
    index = ordinal.value if isinstance(ordinal, Immediate) else 0
    assert TENSOR_MAP.fields is not None
    dtype = TENSOR_MAP.fields[name][0]
    if (k.has("ordinal") and not isinstance(ordinal, Immediate)) or index >= math.prod(dtype.shape):
        raise k.unsupported(f"{k.instruction.name} of dimension {ordinal}")
    bits = 8 * dtype.base.itemsize
    new, kind = k.read("new"), vector(INTEGERS[bits])
    width = new.type.element.width
    value = new if width == bits else k.e.trunc(new, kind) if width > bits else k.e.zext(new, kind)
    _put(k, offset(TENSOR_MAP, name) + index * dtype.base.itemsize, value)
    _put(k, offset(TENSOR_MAP, "mark"), constant(vector(I64), TENSOR_MAP_MARK))


def _put(k: Lowering, at: int, value: Value) -> None:
    """Store a field of the tensor map at the address of the instruction."""
    e, bits, data = k.e, value.type.element.width, k.scratch("data")
    space = k.slot_of("space").partition("::")[0] or "generic"
    pointer, distance = k.address("a")
    place = e.add(distance, constant(I64, at))
    e.store_lanes(value, data)
    lanes = tensor_map_store_lanes(k, space, (pointer, place), bits // 8, data)
    k.call(store(space, bits, 1), k.warp, pointer, place, lanes, constant(I32, k.index), data)


@semantics("asynchronous/tensormap.cp_fenceproxy")
def tensormap_cp_fenceproxy(k: Lowering) -> None:
    """Copy a tensor map from shared to global memory, one for the whole warp."""
    e, whole = k.e, k.active
    k.active = e.and_(whole, e.neg(whole))
    sizes = constant(vector(I32), TENSOR_MAP.itemsize)
    e.store_lanes(sizes, k.scratch("sizes", _WORDS))
    source, target = (k.address(letter, f"addresses_{letter}") for letter in ("src", "dst"))
    lanes = bulk_copy_lanes(k, ("shared", "global"), source, target, sizes)
    k.call(bulk_copy("shared", "global"), k.warp, *source, *target, lanes, constant(I32, k.index), k.scratch("sizes", _WORDS))
    k.active = whole


# -- operands ----------------------------------------------------------------------------------------------------------------------


def _prepared(k: Lowering, operation: str, kind: str = "") -> Way:
    """Store the addresses of the tensor maps and the coordinates where helpers read them, and clear the results. `kind` is the kind of
    accesses to global memory; empty if there are none."""
    e, operand, dimensions = k.e, k.instruction.operand("map"), int(k.slot_of("dim")[0])
    assert isinstance(operand, TextureAddress)
    items = operand.items[1].items if len(operand.items) == 2 and isinstance(operand.items[1], Vector) else ()
    if len(items) != dimensions:
        raise k.unsupported(f"{k.instruction.name} with {len(items)} coordinates")
    for axis, item in enumerate(items):
        e.store_lanes(k.bits_of(item, "s32"), e.at(k.scratch("coordinates", _MOST_DIMENSIONS * _WORDS), axis * _WORDS))
    e.store_lanes(_generic(k, operand.items[0]), k.scratch("maps", 8 * LANES))
    for at in (MOVED, SECTORS, TOUCHED, COMPLETE):
        e.store_lanes(constant(vector(I64), 0), e.at(_results(k), at))
    return Way(operation, dimensions, k.layers.check, k.slot_of("dst") == "shared::cluster", box_time(k, kind) if kind else None)


def _generic(k: Lowering, base: Operand) -> Value:
    """Return the generic address of a tensor map, given in a register or by the name of a variable."""
    if isinstance(base, Symbol) and k.frame.offsets.get(base.name, ("", 0))[0] == "param":
        return k.e.add(k.symbol_address(base.name, base.offset), constant(vector(I64), PARAM_WINDOW))
    if not isinstance(base, Register | Symbol):
        raise k.unsupported(f"{k.instruction.name} of {base}")
    return k.bits_of(base, "u64")

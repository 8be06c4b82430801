"""Asynchronous stores, reductions and copies into the shared memory of other blocks of a cluster.

A barrier there counts the bytes of stores and reductions; copies may go to several blocks (multicast). All of it completes immediately, and
so do the byte counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memlane.chip import LANES
from memlane.emulate.clock.sectors import LOAD_PAST_L1
from memlane.emulate.code.build import I32, I64, INTEGERS, Value, constant, vector
from memlane.emulate.layout import CLUSTER_SHIFT, MOST_RANKS, RANK_MASK
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account_bulk, completion
from memlane.emulate.runtime.access import store
from memlane.emulate.runtime.atomics import OPERATIONS, atomic
from memlane.emulate.runtime.copies import bulk_copy
from memlane.emulate.semantics.accesses import Place, access, at_mbarrier, bulk_copy_lanes
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES, elements


def far_space(k: Lowering, slot: str) -> str:
    """Return the state space of an address that may be in the shared memory of another block; generic if the instruction names none."""
    named = k.slot_of(slot)
    return named if named == "shared::cluster" else "shared" if named else "generic"


def complete_at(k: Lowering, place: Place, space: str, counts: Value, when: Value) -> None:
    """Count bytes, 32 i64, as arrived at the barriers at these addresses: at once, and for the clock layer in the cycle `when`."""
    k.e.store_lanes(counts, k.scratch("b"))
    at_mbarrier(k, space, place, "complete_tx", k.scratch("b"), k.scratch("data"), when)


@semantics("memory/st.async")
def st_async(k: Lowering) -> None:
    e, data, scalar, space = k.e, k.scratch("data"), SCALAR_TYPES[k.slot_type("b")], far_space(k, "ss")
    sources = elements(k.instruction.operand("b"))
    for number, source in enumerate(sources):
        e.store_lanes(k.bits_of(source, scalar.name), e.at(data, number * LANES * scalar.nbytes))
    place, nbytes = k.address("a"), scalar.nbytes * len(sources)
    with access(k, space, *place, scalar.nbytes, len(sources), data) as lanes:
        k.call(store(space, scalar.bits, len(sources)), k.warp, *place, lanes, constant(I32, k.index), data)
    complete_at(k, k.address("mbar", "addresses_mbar"), space, constant(vector(I64), nbytes), completion(k))


@semantics("memory/red.async")
def red_async(k: Lowering) -> None:
    e, scalar, space = k.e, SCALAR_TYPES[k.slot_type("b")], far_space(k, "ss")
    operation = next(word for word in k.instruction.modifiers if word in OPERATIONS)
    operand = k.instruction.operand("b")
    assert operand is not None
    e.store_lanes(k.bits_of(operand, scalar.name), k.scratch("b"))
    e.store_lanes(constant(vector(INTEGERS[scalar.bits]), 0), k.scratch("c"))
    place, out = k.address("a"), k.scratch("data")
    helper = atomic(operation, scalar.name, space)
    with access(k, space, *place, scalar.nbytes, 1, out) as lanes:
        k.call(helper, k.warp, *place, lanes, constant(I32, k.index), k.scratch("b"), k.scratch("c"), out)
    complete_at(k, k.address("mbar", "addresses_mbar"), space, constant(vector(I64), scalar.nbytes), completion(k))


def multicast(k: Lowering) -> None:
    """Copy from global memory to the same offset in the shared memory of several blocks, by a mask of their ranks; the bytes count on the
    barrier at the same offset in each."""
    sizes, site = k.read("size"), constant(I32, k.index)
    k.e.store_lanes(sizes, k.scratch("sizes", 4 * LANES))
    source = k.address("src", "addresses_src")
    when = account_bulk(k, source, k.scratch("sizes", 4 * LANES), LOAD_PAST_L1)

    def fetch(target: Place, barrier: Place) -> None:
        lanes = bulk_copy_lanes(k, ("global", "shared::cluster"), source, target, sizes)
        copy = bulk_copy("global", "shared::cluster")
        k.call(copy, k.warp, *source, *target, lanes, site, k.scratch("sizes", 4 * LANES))
        complete_at(k, barrier, "shared::cluster", k.e.zext(sizes, vector(I64)), when)

    in_each_block(k, [k.address(letter, f"addresses_{letter}") for letter in ("dst", "mbar")], fetch)


def in_each_block(k: Lowering, places: Sequence[Place], act: Callable[[Place, Place], None]) -> None:
    """Run `act` for each rank in the mask of the instruction, with the lanes that name it. Its arguments are `places`, which each lane
    gives in its own shared memory, translated to the block of that rank."""
    if not k.has("mask"):
        raise k.unsupported(f"{k.instruction.name} without a mask of ranks")
    e, whole = k.e, k.active
    inner, chosen = [_inside(k, place) for place in places], e.zext(k.read("mask"), vector(I32))
    with e.count(constant(I32, MOST_RANKS)) as rank:
        bit = e.and_(e.lshr(chosen, e.splat(rank)), constant(chosen.type, 1))
        k.active = e.and_(whole, e.mask_of(e.icmp_unsigned("!=", bit, constant(chosen.type, 0))))
        with e.if_then(e.icmp_unsigned("!=", k.active, constant(I32, 0))):
            field = e.splat(e.shl(e.zext(e.add(rank, constant(I32, 1)), I64), constant(I64, CLUSTER_SHIFT)))
            far = []
            for name, address in zip(("far", "far_barriers"), inner, strict=True):
                e.store_lanes(e.or_(address, field), k.scratch(name, 8 * LANES))
                far.append((k.scratch(name, 8 * LANES), constant(I64, 0)))
            act(*far)
    k.active = whole


def _inside(k: Lowering, place: Place) -> Value:
    """Return the addresses within a block's shared memory, 32 i64."""
    e, (pointer, distance) = k.e, place
    return e.and_(e.add(e.load_lanes(pointer, I64), e.splat(distance)), constant(vector(I64), RANK_MASK))

"""Asynchronous copies, and the barriers in shared memory that track them.

Copies complete immediately, and so do their byte counts: a kernel that forgets to wait for them works here. In the time of the clock layer
they complete later, and a thread that waits for them continues then.
"""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.clock.sectors import ATOMIC, LOAD_PAST_L1, STORE
from memlane.emulate.code.build import I32, I64, Value, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account_bulk, copies_complete
from memlane.emulate.runtime.copies import bulk_copy, bulk_reduce, copy
from memlane.emulate.runtime.mbarriers import COUNT_BITS
from memlane.emulate.runtime.tensor_copies import REDUCTIONS
from memlane.emulate.semantics.accesses import at_mbarrier, bulk_copy_lanes, copy_access
from memlane.emulate.semantics.cluster_copies import complete_at, far_space, multicast
from memlane.emulate.semantics.table import semantics
from memlane.ptx import Immediate


@semantics("asynchronous/cp.async")
def cp_async(k: Lowering) -> None:
    size = k.instruction.operand("size")
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        raise k.unsupported()
    e, kind = k.e, vector(I32)
    whole = constant(kind, size.value)
    count = e.intrinsic("umin", [k.read("source", "u32"), whole]) if k.has("source") else whole
    e.store_lanes(count, k.scratch("a"))
    source, target = k.address("src"), k.address("dst", "more_addresses")
    with copy_access(k, source, target, size.value, count, may_read_less=k.has("source")) as lanes:
        k.call(copy(size.value), k.warp, *source, *target, lanes, constant(I32, k.index), k.scratch("a"))


@semantics(
    "asynchronous/cp.async.commit_group",
    "asynchronous/cp.async.wait_group",
    "asynchronous/cp.async.bulk.commit_group",
    "asynchronous/cp.async.bulk.wait_group",
)
def group(k: Lowering) -> None:
    """Do nothing, because every copy is complete already."""


# -- barriers in shared memory -------------------------------------------------------------------------------------------------------


def _space(k: Lowering) -> str:
    return far_space(k, "space")


def _mbarrier(k: Lowering, operation: str, given: Value, space: str, when: Value | None = None) -> Value:
    """Execute an operation on the barrier of the instruction. Return 32 i64: the words before it, or whether a phase is over. `when`: the
    time at which it counts on the barrier; None for at once."""
    e, out = k.e, k.scratch("data")
    e.store_lanes(given, k.scratch("b"))
    at_mbarrier(k, space, k.address("a", "addresses_a"), operation, k.scratch("b"), out, when)
    return e.load_lanes(out, I64)


def _count(k: Lowering) -> Value:
    """Return the count of an arrival, 1 if it is omitted."""
    wide = vector(I64)
    return k.e.zext(k.read("count"), wide) if k.has("count") else constant(wide, 1)


@semantics(
    "asynchronous/mbarrier.init", "asynchronous/mbarrier.inval", "asynchronous/mbarrier.expect_tx", "asynchronous/mbarrier.complete_tx"
)
def mbarrier_counts(k: Lowering) -> None:
    operation = next(word for word in ("init", "inval", "expect_tx", "complete_tx") if k.instruction.has(word))
    _mbarrier(k, operation, _count(k), space=_space(k))


@semantics("asynchronous/mbarrier.arrive", "asynchronous/mbarrier.arrive_drop")
def mbarrier_arrive(k: Lowering) -> None:
    """Arrive, and return the state before the arrival. `.noComplete` is a promise of the program and ignored."""
    operation = "arrive_drop" if k.instruction.has("arrive_drop") else "arrive"
    k.write("d", _mbarrier(k, f"{operation}_expect_tx" if k.instruction.has("expect_tx") else operation, _count(k), space=_space(k)))


@semantics("asynchronous/mbarrier.test_wait")
def mbarrier_wait(k: Lowering) -> None:
    """Test whether a phase is over. Neither form suspends the thread: it polls in its loop, which lets others run."""
    e = k.e
    if k.instruction.has("parity"):
        over = _mbarrier(k, "test_parity", e.zext(k.read("parity"), vector(I64)), space=_space(k))
    else:
        over = _mbarrier(k, "test_wait", k.read("state"), space=_space(k))
    k.write("p", e.mask_of(e.icmp_unsigned("!=", over, constant(vector(I64), 0))))


@semantics("asynchronous/mbarrier.pending_count")
def mbarrier_pending_count(k: Lowering) -> None:
    low = k.e.trunc(k.read("state"), vector(I32))
    k.write("d", k.e.and_(low, constant(vector(I32), (1 << COUNT_BITS) - 1)))


@semantics("asynchronous/cp.async.mbarrier.arrive")
def cp_async_mbarrier_arrive(k: Lowering) -> None:
    """Arrive at once, because the thread's copies are complete; for the clock layer, when they complete. Without `.noinc` the barrier also
    expects this arrival, and both cancel."""
    when = copies_complete(k)
    if k.instruction.has("noinc"):
        _mbarrier(k, "arrive", constant(vector(I64), 1), _space(k), when)
    elif k.layers.clock and not k.layers.check:
        _mbarrier(k, "complete_tx", constant(vector(I64), 0), _space(k), when)


@semantics("asynchronous/cp.async.bulk")
def cp_async_bulk(k: Lowering) -> None:
    """Copy between global and shared memory, or between the shared memories of two blocks; copies to shared memory count their bytes on a
    barrier."""
    if k.instruction.has("multicast::cluster"):
        return multicast(k)
    if k.slot_of("dst") == "shared::cta" and k.slot_of("src") == "shared::cta":
        raise k.unsupported()
    e, (target, source) = k.e, (k.instruction.form.addresses[letter] for letter in ("dst", "src"))
    target = "shared::cluster" if k.slot_of("dst") == "shared::cluster" else target
    source = "shared" if k.slot_of("src") == "shared::cta" else source
    sizes = k.read("size")
    e.store_lanes(sizes, k.scratch("sizes", 4 * LANES))
    places = [k.address(letter, f"addresses_{letter}") for letter in ("src", "dst")]
    kind, far = (STORE, places[1]) if target == "global" else (LOAD_PAST_L1 if source == "global" else "", places[0])
    when = account_bulk(k, far, k.scratch("sizes", 4 * LANES), kind)
    lanes, site = bulk_copy_lanes(k, (source, target), places[0], places[1], sizes), constant(I32, k.index)
    k.call(bulk_copy(source, target), k.warp, *places[0], *places[1], lanes, site, k.scratch("sizes", 4 * LANES))
    if k.has("mbar"):
        complete_bytes(k, e.zext(sizes, vector(I64)), when)
    return None


@semantics("asynchronous/cp.reduce.async.bulk")
def cp_reduce_async_bulk(k: Lowering) -> None:
    operation, kind = k.slot_of("op"), k.slot_of("type")
    bits = ("b32", "b64") if operation in ("and", "or", "xor") else ()
    if operation not in REDUCTIONS or kind not in (bits or REDUCTIONS[operation]):
        raise k.unsupported()
    sizes = k.read("size")
    k.e.store_lanes(sizes, k.scratch("sizes", 4 * LANES))
    places = [k.address(letter, f"addresses_{letter}") for letter in ("src", "dst")]
    account_bulk(k, places[1], k.scratch("sizes", 4 * LANES), ATOMIC, kind)
    lanes = bulk_copy_lanes(k, ("shared", "global"), places[0], places[1], sizes, updates=True)
    site = constant(I32, k.index)
    k.call(bulk_reduce(operation, kind), k.warp, *places[0], *places[1], lanes, site, k.scratch("sizes", 4 * LANES))


def complete_bytes(k: Lowering, counts: Value, when: Value) -> None:
    """Count bytes, 32 i64, as arrived at the barrier that a copy names, in the block that receives the data."""
    space = "shared::cluster" if k.slot_of("dst") == "shared::cluster" else "shared"
    complete_at(k, k.address("mbar", "addresses_mbar"), space, counts, when)

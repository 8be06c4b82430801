"""Translates device addresses to host memory, and checks every access.

A window is a range of a state space in which an access is known to be allowed. For global memory it is the allocation that the same
instruction used last, for shared, local and parameter memory the whole space. Addresses outside go to `locate`, which finds the right
allocation or reports the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memlane.chip import LANES
from memlane.emulate.code.build import I32, I64, POINTER, Emit, Value, constant, lane_numbers, vector
from memlane.emulate.layout import (
    ALLOCATION,
    BLOCK,
    CLUSTER_SHIFT,
    CONTEXT,
    GONE,
    MISALIGNED,
    OUTSIDE,
    RANK_MASK,
    SPACE_NUMBERS,
    WARP,
    WINDOW_BYTES,
    WINDOWS,
)
from memlane.emulate.runtime.address_wrapping import wrap_addresses
from memlane.emulate.runtime.faults import fault
from memlane.emulate.runtime.helper import helper, invoke


def peer_of(e: Emit, context: Value, block: Value, rank: Value) -> Value:
    """Return the record of the block with a rank (i32) in the cluster of a resident block."""
    steps = e.sub(e.zext(rank, I64), e.zext(e.get(block, BLOCK, "rank"), I64))
    return e.at(block, e.mul(steps, e.get(context, CONTEXT, "slot_bytes")))


class AddressRecords:
    """Records with which a warp's addresses are translated."""

    def __init__(self, e: Emit, warp: Value, site: Value) -> None:
        self.warp = warp
        self.block = e.get_pointer(warp, WARP, "block")
        self.context = e.get_pointer(self.block, BLOCK, "context")
        self.site = e.at(e.get_pointer(self.context, CONTEXT, "sites"), e.mul(e.zext(site, I64), constant(I64, ALLOCATION.itemsize)))

    def bounds(self, e: Emit, space: str) -> tuple[Value, Value, Value, Value]:
        """Return the lowest address, length in bytes, host minus device address, and bytes between the copies of neighbouring lanes, all
        i64."""
        zero = constant(I64, 0)
        if space == "shared":
            return zero, e.get(self.context, CONTEXT, "shared_bytes"), e.get(self.block, BLOCK, "shared"), zero
        if space == "param":
            return zero, e.get(self.context, CONTEXT, "params_bytes"), e.get(self.context, CONTEXT, "params"), zero
        if space == "local":
            stride = e.get(self.context, CONTEXT, "local_bytes")
            first = e.mul(e.zext(e.mul(e.get(self.warp, WARP, "number"), constant(I32, LANES)), I64), stride)
            return zero, stride, e.add(e.get(self.block, BLOCK, "local"), first), stride
        low = e.get(self.site, ALLOCATION, "low")
        return low, e.sub(e.get(self.site, ALLOCATION, "high"), low), e.get(self.site, ALLOCATION, "delta"), zero

    def cluster_bounds(self, e: Emit, address: Value) -> tuple[Value, Value, Value, Value]:
        """Return the bounds for addresses of shared::cluster like `address`: the shared memory of the block that it names; empty if there
        is no such block, or it has ended."""
        peer, is_there = self.named_block(e, address)
        low = e.and_(address, constant(I64, ~RANK_MASK))
        length = e.select(is_there, e.get(self.context, CONTEXT, "shared_bytes"), constant(I64, 0))
        return low, length, e.sub(e.get(peer, BLOCK, "shared"), low), constant(I64, 0)

    def named_block(self, e: Emit, address: Value) -> tuple[Value, Value]:
        """Return the record of the block that an address of shared::cluster names (this block if it names none), and i1 whether it
        exists."""
        field = e.trunc(e.lshr(address, constant(I64, CLUSTER_SHIFT)), I32)
        own, rank = e.icmp_unsigned("==", field, constant(I32, 0)), e.sub(field, constant(I32, 1))
        exists = e.icmp_unsigned("<", rank, e.get(self.context, CONTEXT, "cluster_blocks"))
        other = e.and_(exists, e.not_(own))
        peer = peer_of(e, self.context, self.block, e.select(other, rank, e.get(self.block, BLOCK, "rank")))
        lives = e.icmp_unsigned("!=", e.get(peer, BLOCK, "live"), constant(I32, 0))
        return peer, e.and_(e.or_(own, exists), lives)

    def generic_bounds(self, e: Emit, address: Value) -> tuple[Value, Value, Value, Value]:
        """Return the bounds for generic addresses like `address`."""
        chosen = self.bounds(e, "global")
        for space, start in WINDOWS.items():
            inner = e.sub(address, constant(I64, start))
            low, nbytes, delta, stride = self.cluster_bounds(e, inner) if space == "shared" else self.bounds(e, space)
            inside = e.icmp_unsigned("<", e.sub(address, constant(I64, start)), constant(I64, WINDOW_BYTES))
            here = (e.add(low, constant(I64, start)), nbytes, e.sub(delta, constant(I64, start)), stride)
            chosen = tuple(e.select(inside, new, old) for new, old in zip(here, chosen, strict=True))
        return chosen


@helper("locate", I64, POINTER, I32, I32, I32, I64, I32)
def locate(e: Emit, warp: Value, site: Value, space: Value, lane: Value, address: Value, nbytes: Value) -> None:
    """Return the host address for one lane's access that its window does not allow; report a fault and return 0 if no allocation allows it.
    `space` is global or generic, or the number of a space that has only its window."""

    def fail(kind: int) -> None:
        invoke(e, fault, warp, constant(I32, kind), site, lane, address, nbytes, space)
        e.ret(constant(I64, 0))

    size = e.zext(nbytes, I64)
    with e.if_then(e.icmp_unsigned("!=", e.and_(address, e.sub(size, constant(I64, 1))), constant(I64, 0))):
        fail(MISALIGNED)
    records = AddressRecords(e, warp, site)
    with e.if_then(e.icmp_unsigned("==", space, constant(I32, SPACE_NUMBERS["generic"]))):
        for name, start in WINDOWS.items():
            _low, length, delta, stride = records.bounds(e, name)
            inner = e.sub(address, constant(I64, start))
            with e.if_then(e.icmp_unsigned("<", inner, constant(I64, WINDOW_BYTES))):
                if name == "shared":
                    _locate_in_cluster(e, records, inner, size, fail)
                    continue
                with e.if_then(e.icmp_unsigned("<=", e.add(inner, size), length)):
                    e.ret(e.add(e.add(inner, delta), e.mul(e.zext(lane, I64), stride)))
                fail(OUTSIDE)
    with e.if_then(e.icmp_unsigned("==", space, constant(I32, SPACE_NUMBERS["shared::cluster"]))):
        _locate_in_cluster(e, records, address, size, fail)
    for name in ("shared", "local", "param"):
        with e.if_then(e.icmp_unsigned("==", space, constant(I32, SPACE_NUMBERS[name]))):
            _low, length, delta, stride = records.bounds(e, name)
            inner = wrap_addresses(e, address)
            with e.if_then(e.icmp_unsigned("<=", e.add(inner, size), length)):
                e.ret(e.add(e.add(inner, delta), e.mul(e.zext(lane, I64), stride)))
            fail(OUTSIDE)
    row = _find_allocation(e, records, address)
    inside = e.icmp_unsigned(
        "<=",
        e.add(e.sub(address, e.get(row, ALLOCATION, "low")), size),
        e.sub(e.get(row, ALLOCATION, "high"), e.get(row, ALLOCATION, "low")),
    )
    with e.if_then(e.and_(inside, e.icmp_unsigned(">=", address, e.get(row, ALLOCATION, "low")))):
        for field in ("low", "high", "delta"):
            e.put(e.get(row, ALLOCATION, field), records.site, ALLOCATION, field)
        e.ret(e.add(address, e.get(row, ALLOCATION, "delta")))
    fail(OUTSIDE)


def _locate_in_cluster(e: Emit, records: AddressRecords, address: Value, size: Value, fail: Callable[[int], None]) -> None:
    """Return from the helper the host address of an address of shared::cluster, or report its fault."""
    low, length, delta, _ = records.cluster_bounds(e, address)
    with e.if_then(e.icmp_unsigned("<=", e.add(e.sub(address, low), size), length)):
        e.ret(e.add(address, delta))
    peer, is_there = records.named_block(e, address)
    ended = e.icmp_unsigned("==", e.get(peer, BLOCK, "live"), constant(I32, 0))
    with e.if_then(e.and_(e.not_(is_there), ended)):
        fail(GONE)
    fail(OUTSIDE)


def _find_allocation(e: Emit, records: AddressRecords, address: Value) -> Value:
    """Return the last row of the sorted table that begins at or below `address`, by binary search; the first row (which is empty) if none
    does."""
    table = e.get_pointer(records.context, CONTEXT, "allocations")
    first = e.variable(constant(I64, 0))
    length = e.variable(e.get(records.context, CONTEXT, "allocation_count"))
    row_bytes = constant(I64, ALLOCATION.itemsize)
    with e.while_(lambda: e.icmp_unsigned(">", length.get(), constant(I64, 1))):
        half = e.lshr(length.get(), constant(I64, 1))
        middle = e.add(first.get(), half)
        low = e.get(e.at(table, e.mul(middle, row_bytes)), ALLOCATION, "low")
        first.set(e.select(e.icmp_unsigned("<=", low, address), middle, first.get()))
        length.set(e.sub(length.get(), half))
    return e.at(table, e.mul(first.get(), row_bytes))


class Window:
    """The addresses that the lanes of one access of `nbytes` each may use."""

    def __init__(self, e: Emit, warp: Value, space: str, site: Value, example: Value, nbytes: int) -> None:
        """Set up the bounds from `example`, the address of one active lane."""
        self._e, self._warp, self._site, self._nbytes = e, warp, site, nbytes
        self._space = constant(I32, SPACE_NUMBERS[space])
        self._records = AddressRecords(e, warp, site)
        of_example = {"generic": self._records.generic_bounds, "shared::cluster": self._records.cluster_bounds}
        bounds = of_example[space](e, example) if space in of_example else self._records.bounds(e, space)
        low, length, delta, self.stride = bounds
        self._low, self._delta = e.variable(low), e.variable(delta)
        self._span = e.variable(e.sub(length, constant(I64, nbytes)))
        self._movable = space in ("global", "const", "generic")
        self.has_copies = space in ("local", "generic")

    def _is_outside(self, address: Value) -> Value:
        e = self._e
        span = self._span.get()
        outside = e.icmp_unsigned(">", e.sub(address, self._low.get()), span)
        # The window may be narrower than the access: then the span is negative.
        outside = e.or_(outside, e.icmp_signed("<", span, constant(I64, 0)))
        if self._nbytes > 1:
            outside = e.or_(outside, e.icmp_unsigned("!=", e.and_(address, constant(I64, self._nbytes - 1)), constant(I64, 0)))
        return outside

    @contextmanager
    def lane(self, lane: Value, address: Value) -> Iterator[Value]:
        """Yield the host pointer for one lane's access; the code in the `with` block is skipped after a fault."""
        e = self._e
        found = e.variable(self._host(lane, address))
        with e.if_then(self._is_outside(address), likely=False):
            found.set(invoke(e, locate, self._warp, self._site, self._space, lane, address, constant(I32, self._nbytes)))
            if self._movable:
                self._follow_site()
        with e.if_then(e.icmp_unsigned("!=", found.get(), constant(I64, 0)), likely=True):
            yield e.inttoptr(found.get(), POINTER)

    def _host(self, lane: Value, address: Value) -> Value:
        e = self._e
        host = e.add(address, self._delta.get())
        return e.add(host, e.mul(e.zext(lane, I64), self.stride)) if self.has_copies else host

    def _follow_site(self) -> None:
        """Reload the bounds after a miss, which made the site remember another allocation; a generic access has left its first window."""
        e = self._e
        low, length, delta, _ = self._records.bounds(e, "global")
        keep = e.icmp_unsigned("!=", self.stride, constant(I64, 0)) if self.has_copies else None
        for variable, fresh in ((self._low, low), (self._delta, delta), (self._span, e.sub(length, constant(I64, self._nbytes)))):
            variable.set(fresh if keep is None else e.select(keep, variable.get(), fresh))

    def lanes(self, addresses: Value, mask: Value) -> tuple[Value, Value]:
        """Return i1 whether the accesses of all lanes of a mask are allowed, given 32 i64, and the host addresses of all lanes."""
        e, kind = self._e, addresses.type
        span = self._span.get()
        outside = e.icmp_unsigned(">", e.sub(addresses, e.splat(self._low.get())), e.splat(span))
        if self._nbytes > 1:
            misplaced = e.and_(addresses, constant(kind, self._nbytes - 1))
            outside = e.or_(outside, e.icmp_unsigned("!=", misplaced, constant(kind, 0)))
        stray = e.icmp_unsigned("!=", e.and_(e.mask_of(outside), mask), constant(I32, 0))
        hosts = e.add(addresses, e.splat(self._delta.get()))
        if self.has_copies:
            hosts = e.add(hosts, e.mul(lane_numbers(I64), e.splat(self.stride)))
        return e.not_(e.or_(stray, e.icmp_signed("<", span, constant(I64, 0)))), hosts

    def whole(self, first: Value, records: int) -> tuple[Value, Value]:
        """Return i1 whether `records` consecutive accesses from address `first` on are all allowed, and their host pointer."""
        e = self._e
        last = e.add(first, constant(I64, (records - 1) * self._nbytes))
        allowed = e.not_(e.or_(self._is_outside(first), self._is_outside(last)))
        if self.has_copies:
            allowed = e.and_(allowed, e.icmp_unsigned("==", self.stride, constant(I64, 0)))
        return allowed, e.inttoptr(e.add(first, self._delta.get()), POINTER)


def address_of_lane(e: Emit, addresses: Value, distance: Value, lane: Value) -> Value:
    """Return the i64 address of one lane: `addresses` points to 32 of them, to which `distance` is added."""
    return e.add(e.load(e.element(addresses, lane, I64), typ=I64), distance)


def split_by_rank(e: Emit, addresses: Value, distance: Value, lanes: Value, warp: Value | None = None) -> list[tuple[str, Value, int]]:
    """Split the lanes of an access to shared::cluster into those with an address of their own block, which names no rank, and the others.
    If `warp` is given, an address with the rank of its block counts as its own too."""
    places = e.add(e.load_lanes(addresses, I64), e.splat(distance))
    ranked = _lanes_with_rank(e, places, warp)
    return [("shared", e.and_(lanes, e.not_(ranked)), 0), ("shared::cluster", e.and_(lanes, ranked), 0)]


def _lanes_with_rank(e: Emit, inner: Value, warp: Value | None) -> Value:
    """Return a mask of the lanes whose shared-memory address names a rank; if `warp` is given, a rank other than that of its block."""
    kind = vector(I64)
    ranked = e.mask_of(e.icmp_unsigned(">", inner, constant(kind, RANK_MASK)))
    if warp is None:
        return ranked
    rank = e.zext(e.get(e.get_pointer(warp, WARP, "block"), BLOCK, "rank"), I64)
    own = e.icmp_unsigned("==", e.lshr(inner, constant(kind, CLUSTER_SHIFT)), e.splat(e.add(rank, constant(I64, 1))))
    return e.and_(ranked, e.not_(e.mask_of(own)))


def split_by_space(e: Emit, addresses: Value, distance: Value, lanes: Value, warp: Value | None = None) -> list[tuple[str, Value, int]]:
    """Split the lanes of a generic access by the state space that they reach; return each with its lanes and the start of its window.
    Addresses with a rank belong to `shared::cluster`, except those with the rank of the block of `warp`, if it is given."""
    kind = vector(I64)
    places = e.add(e.load_lanes(addresses, I64), e.splat(distance))
    left, groups = lanes, []
    for name, start in WINDOWS.items():
        inner = e.sub(places, constant(kind, start))
        inside = e.mask_of(e.icmp_unsigned("<", inner, constant(kind, WINDOW_BYTES)))
        if name == "shared":
            ranked = e.and_(inside, _lanes_with_rank(e, inner, warp))
            groups.append(("shared::cluster", e.and_(left, ranked), start))
            left = e.and_(left, e.not_(ranked))
        groups.append((name, e.and_(left, inside), start))
        left = e.and_(left, e.not_(inside))
    return [*groups, ("global", left, 0)]

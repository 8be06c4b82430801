"""Determine which lanes of an access stay inside their state space or allocation, and check the memory of those that do."""

from __future__ import annotations

from functools import cache

from memlane.chip import LANES
from memlane.emulate.check.cells import Access, Cells, Shape
from memlane.emulate.check.clocks import CTA, DEVICE, acquire, ensure_block_state, fence, read_flags, write_flags
from memlane.emulate.check.notes import note
from memlane.emulate.check.records import (
    BLOCK_ENDED,
    BLOCK_NOT_STARTED,
    LAUNCH,
    MISALIGNED,
    OUT_OF_BOUNDS,
    REGION,
    STAMP_SHIFT,
    UNWRITTEN,
    WARP_STATE,
    WORD_BYTES,
)
from memlane.emulate.check.stamps import CheckedWarp
from memlane.emulate.code.build import I8, I32, I64, POINTER, Emit, Value, constant, vector
from memlane.emulate.layout import BLOCK, CONTEXT, RANK_MASK, SPACE_NUMBERS
from memlane.emulate.runtime.helper import Helper, helper, invoke
from memlane.emulate.runtime.window import AddressRecords, address_of_lane, split_by_rank, split_by_space

_ARGUMENTS = (POINTER, POINTER, I64, I32, I32, POINTER)
"""Argument types: warp, addresses, distance, lanes, site, data."""


@cache
def checked(space: str, shape: Shape) -> Helper:
    """Return the helper `(warp, addresses, distance, lanes, site, data) -> lanes` that checks one access and returns the lanes that may
    proceed.

    `data` holds the values of a store, or receives those of a load: lanes that are left out find 0 there.
    """

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, site: Value, data: Value) -> None:
        with e.if_then(e.icmp_unsigned("==", lanes, constant(I32, 0)), likely=False):
            e.ret(lanes)
        if space not in ("generic", "shared::cluster"):
            e.ret(invoke(e, _space_check(space, shape), warp, addresses, distance, lanes, site, data))
            return
        allowed = e.variable(constant(I32, 0))
        groups = split_by_space(e, addresses, distance, lanes) if space == "generic" else split_by_rank(e, addresses, distance, lanes)
        for name, group, start in groups:
            with e.if_then(e.icmp_unsigned("!=", group, constant(I32, 0))):
                if name == "param":
                    allowed.set(e.or_(allowed.get(), group))
                    continue
                inner = e.sub(distance, constant(I64, start))
                inside = invoke(e, _space_check(name, shape), warp, addresses, inner, group, site, data)
                allowed.set(e.or_(allowed.get(), inside))
        e.ret(allowed.get())

    return Helper(f"memlane_check_{space}_{shape.name}", I32, _ARGUMENTS, build)


@cache
def _space_check(space: str, shape: Shape) -> Helper:
    """Return the helper that checks an access whose lanes all reach one state space; arguments and result are those of `checked`."""

    def build(e: Emit, warp: Value, addresses: Value, distance: Value, lanes: Value, site: Value, data: Value) -> None:
        visitor = _Visitor(e, warp, space, shape, addresses, distance, site, data)
        aligned = visitor.aligned(lanes)
        if space == "shared":
            allowed = visitor.shared(aligned)
        elif space == "shared::cluster":
            allowed = visitor.cluster(aligned)
        elif space == "local":
            allowed = visitor.local(aligned)
        else:
            allowed = visitor.global_memory(aligned)
        visitor.zero_rejected_lanes(e.and_(lanes, e.not_(allowed)))
        e.ret(allowed)

    return Helper(f"memlane_check_part_{space}_{shape.name}", I32, _ARGUMENTS, build)


class _Visitor:
    """Code generator for the lanes of one state space."""

    def __init__(self, e: Emit, warp: Value, space: str, shape: Shape, addresses: Value, distance: Value, site: Value, data: Value) -> None:
        self._e, self._space, self._shape = e, space, shape
        self._actor = CheckedWarp(e, warp)
        self._addresses, self._distance, self._site, self._data = addresses, distance, site, data

    # -- which lanes -----------------------------------------------------------------------------------------------------------------

    def aligned(self, lanes: Value) -> Value:
        """Return `lanes` without the misaligned ones, which are reported."""
        e, kind = self._e, vector(I64)
        if self._shape.nbytes == 1:
            return lanes
        low = e.and_(self._places(), constant(kind, self._shape.nbytes - 1))
        misaligned = e.and_(lanes, e.mask_of(e.icmp_unsigned("!=", low, constant(kind, 0))))
        self._note(MISALIGNED, misaligned)
        return e.and_(lanes, e.not_(misaligned))

    def _places(self) -> Value:
        e = self._e
        return e.add(e.load_lanes(self._addresses, I64), e.splat(self._distance))

    def _inside(self, low: Value, length: Value) -> Value:
        """Return an i32 mask of the lanes whose access begins at `low` or above and ends within `length` bytes."""
        e, kind = self._e, vector(I64)
        steps = e.sub(self._places(), e.splat(low))
        last = e.sub(length, constant(I64, self._shape.nbytes))
        fits = e.mask_of(e.icmp_unsigned("<=", steps, e.splat(last)))
        # If not even one access fits, `last` is negative, which is a large unsigned number.
        possible = e.mask_of(e.icmp_signed(">=", e.splat(last), constant(kind, 0)))
        return e.and_(fits, possible)

    def _note(self, kind: int, lanes: Value) -> None:
        e, zero = self._e, constant(I32, 0)
        nbytes, space = constant(I32, self._shape.nbytes), constant(I32, SPACE_NUMBERS[self._space])
        with e.each_lane(lanes) as lane:
            address = address_of_lane(e, self._addresses, self._distance, lane)
            place = (self._site, lane, address, nbytes, space)
            invoke(e, note, self._actor.warp, constant(I32, kind), *place, zero, constant(I64, 0), zero)

    def zero_rejected_lanes(self, lanes: Value) -> None:
        """Store zeros for the lanes that are left out of a load."""
        e, shape = self._e, self._shape
        if not shape.reads:
            return
        with e.if_then(e.icmp_unsigned("!=", lanes, constant(I32, 0)), likely=False), e.each_lane(lanes) as lane:
            for part in range(shape.count):
                column = e.at(self._data, part * LANES * shape.element_bytes)
                with e.count(constant(I32, shape.element_bytes)) as byte:
                    place = e.add(e.mul(lane, constant(I32, shape.element_bytes)), byte)
                    e.store(constant(I8, 0), e.element(column, place, I8))

    # -- shared and global memory ----------------------------------------------------------------------------------------------------

    def shared(self, lanes: Value) -> Value:
        """Check lanes in the block's shared memory, which is one region."""
        e, actor = self._e, self._actor
        zero = constant(I64, 0)
        inside = e.and_(lanes, self._inside(zero, e.get(actor.context, CONTEXT, "shared_bytes")))
        self._note(OUT_OF_BOUNDS, e.and_(lanes, e.not_(inside)))
        cells = e.add(e.ptrtoint(actor.state, I64), e.get(actor.launch, LAUNCH, "cells_offset"))
        plane = e.udiv(e.get(actor.launch, LAUNCH, "cells_bytes"), constant(I64, 3))
        limit = e.get(actor.own, WARP_STATE, "limit")
        several = e.icmp_unsigned(
            "!=", e.get(actor.context, CONTEXT, "cluster_blocks"), constant(I32, 1)
        )  # other blocks of the cluster may write there too
        limit = e.select(several, e.intrinsic("umin", [limit, e.get(actor.own, WARP_STATE, "cluster_limit")]), limit)
        self._visit(inside, limit, zero, cells, plane, e.get(actor.block, BLOCK, "shared"), actor.block)
        return inside

    def cluster(self, lanes: Value) -> Value:
        """Check lanes in the shared memory of the cluster's blocks, one block after the other."""
        e = self._e
        left, allowed = e.variable(lanes), e.variable(constant(I32, 0))
        with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
            address = address_of_lane(e, self._addresses, self._distance, e.lowest_bit(left.get()))
            low = e.and_(address, constant(I64, ~RANK_MASK))
            same = e.icmp_unsigned("==", e.and_(self._places(), constant(vector(I64), ~RANK_MASK)), e.splat(low))
            group = e.and_(left.get(), e.mask_of(same))
            left.set(e.and_(left.get(), e.not_(group)))
            allowed.set(e.or_(allowed.get(), self._in_block(group, address, low)))
        return allowed.get()

    def _in_block(self, lanes: Value, address: Value, low: Value) -> Value:
        """Check lanes whose addresses name the same block; return those that may proceed."""
        e, actor, zero = self._e, self._actor, constant(I32, 0)
        peer, is_there = AddressRecords(e, actor.warp, self._site).named_block(e, address)
        ended = e.and_(e.not_(is_there), e.icmp_unsigned("==", e.get(peer, BLOCK, "live"), zero))
        self._note(BLOCK_ENDED, e.select(ended, lanes, zero))
        length = e.select(is_there, e.get(actor.context, CONTEXT, "shared_bytes"), constant(I64, 0))
        inside = e.and_(lanes, self._inside(low, length))
        self._note(OUT_OF_BOUNDS, e.select(ended, zero, e.and_(lanes, e.not_(inside))))
        with e.if_then(e.icmp_unsigned("!=", inside, zero)):
            alien = e.icmp_unsigned("!=", e.ptrtoint(peer, I64), e.ptrtoint(actor.block, I64))
            strange = e.icmp_unsigned("==", e.get(actor.own, WARP_STATE, "acquired"), zero)
            self._note(BLOCK_NOT_STARTED, e.select(e.and_(alien, strange), e.and_(inside, e.neg(inside)), zero))
            invoke(e, ensure_block_state, peer)
            cells = e.add(e.get(peer, BLOCK, "check"), e.get(actor.launch, LAUNCH, "cells_offset"))
            plane = e.udiv(e.get(actor.launch, LAUNCH, "cells_bytes"), constant(I64, 3))
            limit = e.get(actor.own, WARP_STATE, "cluster_limit")
            self._visit(inside, limit, low, cells, plane, e.sub(e.get(peer, BLOCK, "shared"), low), peer)
        return inside

    def global_memory(self, lanes: Value) -> Value:
        """Check lanes in global memory, one allocation after the other, first the one that the instruction used last."""
        e, actor = self._e, self._actor
        place = e.mul(e.zext(self._site, I64), constant(I64, REGION.itemsize))
        row = e.at(e.get_pointer(actor.launch, LAUNCH, "sites"), place)
        limit = e.select(
            e.icmp_unsigned("!=", e.get(actor.launch, LAUNCH, "one_block"), constant(I32, 0)),
            e.get(actor.own, WARP_STATE, "limit"),
            e.shl(e.get(actor.launch, LAUNCH, "base"), constant(I64, STAMP_SHIFT)),
        )
        left, allowed = e.variable(lanes), e.variable(constant(I32, 0))
        with e.while_(lambda: e.icmp_unsigned("!=", left.get(), constant(I32, 0))):
            inside = e.variable(self._in_row(row, left.get()))
            with e.if_then(e.icmp_unsigned("==", inside.get(), constant(I32, 0)), likely=False):
                lane = e.lowest_bit(left.get())
                found = invoke(e, find_region, actor.launch, row, address_of_lane(e, self._addresses, self._distance, lane))
                with e.if_then(e.icmp_unsigned("!=", found, constant(I32, 0))):
                    inside.set(self._in_row(row, left.get()))
                with e.if_then(e.icmp_unsigned("==", inside.get(), constant(I32, 0))):
                    alone = e.shl(constant(I32, 1), lane)
                    self._note(OUT_OF_BOUNDS, alone)
                    left.set(e.and_(left.get(), e.not_(alone)))
            group = inside.get()
            with e.if_then(e.icmp_unsigned("!=", group, constant(I32, 0))):
                low = e.get(row, REGION, "low")
                only = e.load(e.element(e.get_pointer(actor.launch, LAUNCH, "only"), e.zext(self._site, I64), I64), typ=I64)
                foreign = e.and_(e.icmp_unsigned("!=", only, constant(I64, 0)), e.icmp_unsigned("!=", only, low))
                with e.if_then(foreign, likely=False):
                    self._note(OUT_OF_BOUNDS, group)
                length = e.add(e.sub(e.get(row, REGION, "high"), low), constant(I64, WORD_BYTES - 1))
                plane = e.shl(e.lshr(length, constant(I64, 2)), constant(I64, 3))
                self._visit(group, limit, low, e.get(row, REGION, "cells"), plane, e.get(row, REGION, "delta"))
                left.set(e.and_(left.get(), e.not_(group)))
                allowed.set(e.or_(allowed.get(), group))
        return allowed.get()

    def _in_row(self, row: Value, lanes: Value) -> Value:
        e = self._e
        low = e.get(row, REGION, "low")
        return e.and_(lanes, self._inside(low, e.sub(e.get(row, REGION, "high"), low)))

    def _visit(self, lanes: Value, limit: Value, low: Value, cells: Value, plane: Value, delta: Value, home: Value | None = None) -> None:
        """Check the cells of lanes inside one region, with fences, acquires and releases. `home`: the block whose shared memory is the
        region."""
        e, shape, actor = self._e, self._shape, self._actor
        inner = self._distance if home is None else e.sub(self._distance, low)
        if shape.releases:
            invoke(e, fence, actor.warp, constant(I32, DEVICE if shape.releases == "device" else CTA))
        if shape.strong and shape.reads:
            read_flags(e, actor, self._addresses, inner, lanes, home)
        if shape.acquires:
            invoke(e, acquire, actor.warp)
        space = constant(I32, SPACE_NUMBERS[self._space])
        access = Access(self._site, space, self._addresses, self._distance, self._data, limit, low, cells, plane, delta)
        Cells(e, actor, shape, access).visit(lanes)
        if shape.strong and shape.writes:
            write_flags(e, actor, self._addresses, inner, lanes, home)

    # -- local memory ----------------------------------------------------------------------------------------------------------------

    def local(self, lanes: Value) -> Value:
        """Check lanes in local memory, which belongs to one thread: only bytes never written can be reported. Each word has a byte, with a
        bit for each of its bytes."""
        e, actor, shape = self._e, self._actor, self._shape
        stride = e.get(actor.context, CONTEXT, "local_bytes")
        inside = e.and_(lanes, self._inside(constant(I64, 0), stride))
        self._note(OUT_OF_BOUNDS, e.and_(lanes, e.not_(inside)))
        first = e.mul(actor.number, constant(I32, LANES))
        bits = e.at(actor.state, e.get(actor.launch, LAUNCH, "local_offset"))
        with e.each_lane(inside) as lane:
            address = address_of_lane(e, self._addresses, self._distance, lane)
            start = e.add(e.mul(e.zext(e.add(first, lane), I64), stride), address)
            for element in range(shape.count):
                self._local_element(bits, e.add(start, constant(I64, element * shape.element_bytes)), lane)
        return inside

    def _local_element(self, bits: Value, start: Value, lane: Value) -> None:
        e, shape = self._e, self._shape
        touched = constant(I8, 0xF)
        if shape.element_bytes < WORD_BYTES:
            within = e.trunc(e.and_(start, constant(I64, WORD_BYTES - 1)), I8)
            touched = e.shl(constant(I8, (1 << shape.element_bytes) - 1), within)
        missing: Value = None
        for part in range(max(1, shape.element_bytes // WORD_BYTES)):
            place = e.element(bits, e.add(e.lshr(start, constant(I64, 2)), constant(I64, part)), I8)
            unwritten = e.load(place, typ=I8)
            untouched = e.icmp_unsigned("==", e.and_(unwritten, touched), touched)
            missing = untouched if missing is None else e.and_(missing, untouched)
            if shape.writes:
                e.store(e.and_(unwritten, e.not_(touched)), place)
        if shape.needs_value:
            with e.if_then(missing, likely=False):
                self._note(UNWRITTEN, e.shl(constant(I32, 1), lane))


@helper("check_find", I32, POINTER, POINTER, I64)
def find_region(e: Emit, launch: Value, row: Value, address: Value) -> None:
    """Copy the region that contains an address into the row of an instruction; return 0 if there is none."""
    table = e.get_pointer(launch, LAUNCH, "table")
    first = e.variable(constant(I64, 0))
    length = e.variable(e.get(launch, LAUNCH, "table_count"))
    size = constant(I64, REGION.itemsize)
    with e.while_(lambda: e.icmp_unsigned(">", length.get(), constant(I64, 1))):
        half = e.lshr(length.get(), constant(I64, 1))
        middle = e.add(first.get(), half)
        below = e.icmp_unsigned("<=", e.get(e.at(table, e.mul(middle, size)), REGION, "low"), address)
        first.set(e.select(below, middle, first.get()))
        length.set(e.sub(length.get(), half))
    found = e.at(table, e.mul(first.get(), size))
    with e.if_then(e.icmp_unsigned(">=", address, e.get(found, REGION, "high"))):
        e.ret(constant(I32, 0))
    for field in REGION.names or ():
        e.put(e.get(found, REGION, field), row, REGION, field)
    e.ret(constant(I32, 1))

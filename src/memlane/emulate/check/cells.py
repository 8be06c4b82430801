"""Check an access against the cells of its words, and update the cells.

Lanes are processed eight at a time, as vectors of entries. Nearly always a quick test shows that an entry is not a conflict: it is older
than everything unordered, or belongs to the same thread in the same turn. The remaining lanes go one by one through `conflicts`. Stores
narrower than a word go lane by lane, since several lanes may write to the same cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.check.conflicts import conflict, kind_of
from memlane.emulate.check.notes import note
from memlane.emulate.check.records import (
    ENTRY_BYTES,
    LANE_SHIFT,
    SITE_SHIFT,
    STAMP_SHIFT,
    STRONG_SHIFT,
    TOUCHED_SHIFT,
    UNWRITTEN,
    UNWRITTEN_BITS,
    WARP_STATE,
    WORD_BYTES,
)
from memlane.emulate.check.stamps import CheckedWarp, now
from memlane.emulate.code.build import I1, I32, I64, POINTER, Emit, Value, constant
from memlane.emulate.runtime.helper import invoke

WIDE = 8


@dataclass(frozen=True)
class Shape:
    """The access pattern of an instruction: element size and count, reads, writes and memory semantics."""

    element_bytes: int
    count: int
    reads: bool
    writes: bool
    strong: bool
    acquires: bool = False
    releases: str = ""
    """Scope of the release: `cta`, `device`, or empty for none."""
    needs_value: bool = False
    """Whether reading bytes that were never written is an error; false for an exchange, which may well come first."""
    has_values: bool = False
    """Whether the values of a plain store are available for comparison."""

    @property
    def nbytes(self) -> int:
        """Bytes per lane."""
        return self.element_bytes * self.count

    @property
    def name(self) -> str:
        flags = (self.reads, self.writes, self.strong, self.acquires, self.needs_value, self.has_values)
        letters = [letter for letter, on in zip("rwsant", flags, strict=True) if on]
        return f"{self.element_bytes}x{self.count}{''.join(letters)}{self.releases}"


@dataclass(frozen=True)
class Access:
    """One execution of an instruction, restricted to the lanes inside one region."""

    site: Value
    space: Value
    addresses: Value
    distance: Value
    data: Value
    limit: Value
    """Lower bound of unordered entries: entries below it are ordered, whichever thread made them."""
    low: Value
    cells: Value
    """Host address of the region's cells; i64."""
    plane: Value
    """Bytes of one plane of cells: the writes, the first reads and the second reads follow each other."""
    delta: Value


class Cells:
    """Code generator that visits the cells of some lanes."""

    def __init__(self, e: Emit, actor: CheckedWarp, shape: Shape, access: Access) -> None:
        self._e, self._actor, self._shape, self._access = e, actor, shape, access
        self._width = 1 if shape.writes and shape.element_bytes < WORD_BYTES else WIDE
        self._kind = ir.VectorType(I64, self._width)
        self._since = self._splat(e.get(actor.own, WARP_STATE, "since"))
        self._limit = self._splat(access.limit)
        stamp = e.shl(now(e, actor.launch), constant(I64, STAMP_SHIFT))
        site = e.shl(e.zext(access.site, I64), constant(I64, SITE_SHIFT))
        strong = constant(I64, int(shape.strong) << STRONG_SHIFT)
        self._entry = self._splat(e.or_(stamp, e.or_(site, strong)))
        self._mask: Value = None
        self._lanes: Value = None
        self._first: Value = None
        self._offsets: Value = None

    def visit(self, lanes: Value) -> None:
        """Check the cells of `lanes` and record the access in them."""
        e, width = self._e, self._width
        with e.count(constant(I32, LANES // width)) as chunk:
            first = e.mul(chunk, constant(I32, width))
            bits = e.trunc(e.lshr(lanes, first), ir.IntType(width))
            with e.if_then(e.icmp_unsigned("!=", bits, constant(ir.IntType(width), 0))):
                self._begin(first, bits)
                self._visit_elements()

    def _begin(self, first: Value, bits: Value) -> None:
        e, access = self._e, self._access
        self._first = first
        self._mask = e.bitcast(bits, ir.VectorType(I1, self._width))
        numbers = e.add(self._splat(e.zext(first, I64)), ir.Constant(self._kind, list(range(self._width))))
        self._lanes = e.shl(numbers, constant(self._kind, LANE_SHIFT))
        addresses = e.load(e.element(access.addresses, first, I64), typ=self._kind, align=8)
        self._offsets = e.add(addresses, self._splat(e.sub(access.distance, access.low)))

    def _visit_elements(self) -> None:
        e, shape = self._e, self._shape
        cells_of_element = max(1, shape.element_bytes // WORD_BYTES)
        for element in range(shape.count):
            missing = self._mask
            for part in range(cells_of_element):
                offsets = e.add(self._offsets, self._constant(element * shape.element_bytes + part * WORD_BYTES))
                if shape.element_bytes < WORD_BYTES:
                    within = e.and_(offsets, self._constant(WORD_BYTES - 1))
                    touched = e.shl(self._constant((1 << shape.element_bytes) - 1), within)
                else:
                    touched = self._constant(UNWRITTEN_BITS)
                cells = e.shl(e.lshr(offsets, self._constant(2)), self._constant(3))
                write = self._visit_cell(e.add(cells, self._splat(self._access.cells)), touched)
                if shape.needs_value:
                    untouched = e.icmp_unsigned("==", e.and_(write, touched), touched)
                    missing = e.and_(missing, untouched)
            if shape.needs_value:
                self._note_unwritten(missing)

    # -- one cell a lane -------------------------------------------------------------------------------------------------------------

    def _visit_cell(self, place: Value, touched: Value) -> Value:
        """Check and update one cell per lane; return the entries of the last writes before this access."""
        e = self._e
        plane = self._splat(self._access.plane)
        reads = [e.add(place, plane), e.add(e.add(place, plane), plane)]
        touched_here = e.shl(touched, self._constant(TOUCHED_SHIFT))
        entry = e.or_(e.or_(self._entry, self._lanes), touched_here)
        write = self._gather(place)
        self._compare(write, touched_here, is_read=False)
        if self._shape.writes:
            for read in reads:
                self._compare(self._gather(read), touched_here, is_read=True)
            self._write(place, write, entry, touched)
        else:
            self._read(reads, entry)
        return write

    def _is_own(self, entry: Value) -> Value:
        """Return which entries belong to the same lane in this turn."""
        e = self._e
        lane = e.and_(entry, self._constant((LANES - 1) << LANE_SHIFT))
        return e.and_(e.icmp_unsigned("==", lane, self._lanes), e.icmp_unsigned(">=", entry, self._since))

    def _compare(self, entry: Value, touched: Value, is_read: bool) -> None:
        """Report entries that conflict with this access."""
        e = self._e
        harmless = e.or_(e.icmp_unsigned("<", entry, self._limit), self._is_own(entry))
        harmless = e.or_(harmless, e.icmp_unsigned("==", e.and_(entry, touched), self._constant(0)))
        if self._shape.strong:
            strong = e.and_(entry, self._constant(1 << STRONG_SHIFT))
            harmless = e.or_(harmless, e.icmp_unsigned("!=", strong, self._constant(0)))
        self._report_conflicts(e.and_(self._mask, e.not_(harmless)), entry, is_read)

    def _report_conflicts(self, doubtful: Value, entry: Value, is_read: bool) -> None:
        e, access, shape = self._e, self._access, self._shape
        helper = conflict(shape.element_bytes, shape.count, shape.has_values)
        nbytes, kind = constant(I32, shape.nbytes), constant(I32, kind_of(is_read))
        with self._each(doubtful) as (lane, index):
            address = self._address(lane)
            memory = e.inttoptr(e.add(address, access.delta), POINTER)
            one = e.extract_element(entry, index)
            invoke(e, helper, self._actor.warp, access.site, kind, lane, address, nbytes, access.space, one, memory, access.data)

    def _write(self, place: Value, old: Value, entry: Value, touched: Value) -> None:
        e = self._e
        if self._shape.element_bytes < WORD_BYTES:
            both = e.and_(old, self._constant(UNWRITTEN_BITS << TOUCHED_SHIFT))
            entry = e.or_(entry, e.select(self._is_own(old), both, self._constant(0)))
        unwritten = e.and_(e.and_(old, self._constant(UNWRITTEN_BITS)), e.not_(touched))
        fresh = e.or_(entry, unwritten)
        self._scatter(fresh, place, self._mask)
        if self._width > 1 and not self._shape.strong:
            # Lanes that wrote to one address: the cell holds the last of them, and the others find its entry.
            there = self._gather(place)
            self._report_conflicts(e.and_(self._mask, e.icmp_unsigned("!=", there, fresh)), there, is_read=False)

    def _read(self, places: list[Value], entry: Value) -> None:
        """Store this read as the first read. The previous first read moves to the second if it is unordered and from another thread; a
        second read of another turn stays while it is unordered."""
        e = self._e
        first, second = (self._gather(place) for place in places)
        counts = e.icmp_unsigned(">=", first, self._limit)
        stale = e.icmp_unsigned("<", second, self._limit)
        earlier = e.icmp_unsigned("<", first, self._since)
        moves = e.and_(counts, e.and_(e.not_(self._is_own(first)), e.or_(earlier, stale)))
        moves = e.and_(moves, self._mask)
        with e.if_then(self._any(moves), likely=False):
            self._scatter(first, places[1], moves)
        self._scatter(entry, places[0], self._mask)

    def _note_unwritten(self, missing: Value) -> None:
        e, access = self._e, self._access
        zero, nbytes = constant(I32, 0), constant(I32, self._shape.nbytes)
        with self._each(missing) as (lane, _):
            place = (lane, self._address(lane), nbytes, access.space)
            invoke(e, note, self._actor.warp, constant(I32, UNWRITTEN), access.site, *place, zero, constant(I64, 0), zero)

    # -- vectors ---------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _each(self, chosen: Value) -> Iterator[tuple[Value, Value]]:
        """Iterate over the chosen lanes; yields the lane number and its index in the vector."""
        with self._e.each_lane(self._bits(chosen)) as index:
            yield self._e.add(self._first, index), index

    def _address(self, lane: Value) -> Value:
        e = self._e
        return e.add(e.load(e.element(self._access.addresses, lane, I64), typ=I64), self._access.distance)

    def _bits(self, chosen: Value) -> Value:
        e = self._e
        bits = e.bitcast(chosen, ir.IntType(self._width))
        return e.zext(bits, I32)

    def _any(self, chosen: Value) -> Value:
        return self._e.icmp_unsigned("!=", self._bits(chosen), constant(I32, 0))

    def _constant(self, number: int) -> Value:
        return constant(self._kind, number)

    def _splat(self, value: Value) -> Value:
        e = self._e
        one = e.insert_element(ir.Constant(self._kind, ir.Undefined), value, constant(I32, 0))
        everywhere = ir.Constant(ir.VectorType(I32, self._width), [0] * self._width)
        return e.shuffle_vector(one, ir.Constant(self._kind, ir.Undefined), everywhere)

    def _pointers(self, places: Value) -> Value:
        return self._e.inttoptr(places, ir.VectorType(POINTER, self._width))

    def _gather(self, places: Value) -> Value:
        e, kind, pointers = self._e, self._kind, ir.VectorType(POINTER, self._width)
        mask = ir.VectorType(I1, self._width)
        name = f"llvm.masked.gather.v{self._width}i64.v{self._width}p0"
        function = e.declare(name, kind, [pointers, I32, mask, kind])
        return e.call(function, [self._pointers(places), constant(I32, ENTRY_BYTES), self._mask, self._constant(0)])

    def _scatter(self, values: Value, places: Value, chosen: Value) -> None:
        e, pointers = self._e, ir.VectorType(POINTER, self._width)
        mask = ir.VectorType(I1, self._width)
        name = f"llvm.masked.scatter.v{self._width}i64.v{self._width}p0"
        function = e.declare(name, ir.VoidType(), [self._kind, pointers, I32, mask])
        e.call(function, [values, self._pointers(places), constant(I32, ENTRY_BYTES), chosen])

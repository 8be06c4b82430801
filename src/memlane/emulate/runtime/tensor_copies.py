"""Copies a box of an array between global and shared memory, by a tensor map (see `layout.TENSOR_MAP`).

A box lies in shared memory row by row, in pieces of 16 bytes. With a swizzle, the lowest bits of a piece's number within its line of 128
bytes are XORed with those of the line's number, taken from the address. A box begins at a multiple of 16 bytes in its row, and a stored box
does not begin before the array. Loads fill what lies outside the array; stores and reductions leave it alone, but since they process whole
pieces, they also change the bytes after a row up to a multiple of 16.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import llvmlite.ir as ir

from memlane.chip import LANES
from memlane.emulate.check.cells import Shape
from memlane.emulate.check.regions import checked
from memlane.emulate.code.build import I1, I8, I32, I64, POINTER, VOID, Emit, Value, Variable, constant
from memlane.emulate.layout import BAD_TENSOR_MAP, BLOCK, CONTEXT, MISALIGNED, OUTSIDE, SPACE_NUMBERS, TENSOR_MAP, TENSOR_MAP_MARK, WARP
from memlane.emulate.runtime.atomics import reduce_element
from memlane.emulate.runtime.faults import fault, has_failed
from memlane.emulate.runtime.helper import Helper, invoke
from memlane.emulate.runtime.window import AddressRecords, Window, address_of_lane

PIECE = 16
BOX_ALIGNMENT = 128
_HALF_MAP = 64
_LINE_SHIFT = 3
"""Shift from the number of a piece to that of its line, which has 8 pieces."""
_PIECE_SHIFT = 4
_SECTOR_SHIFT = 5

REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("u32", "s32", "u64", "s64"),
    "or": ("u32", "s32", "u64", "s64"),
    "xor": ("u32", "s32", "u64", "s64"),
}
"""Element types that a copy may reduce, by operation. Sums of s64 are illegal instructions on a GPU, although their bits are those of
u64."""
ELEMENT_NUMBERS = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 9, "bf16": 10}
"""Number of each element type in `tensormap.replace`."""
_SIZES = sum(
    {"u8": 0, "u16": 1, "f16": 1, "bf16": 1, "u64": 3, "s64": 3, "f64": 3}.get(name, 2) << 2 * n for name, n in ELEMENT_NUMBERS.items()
)
"""log2 of the bytes of an element, two bits for each element number."""
_FLOATS = ("f16", "bf16", "f32", "f64")
OOB_NAN = 0x7FF7_7FF7_7FF7_7FF7
"""Fill value of loads outside an array of floats, if the map asks for NaN: an H200 repeats the same 16 bits, for floats of every width."""
_MOST_SWIZZLE = 3
NO_MAP, OTHER_RANK, OTHER_ELEMENT, NOT_MODELLED, CROOKED, IN_FRONT = range(1, 7)
"""Faults of a tensor map, or of the start of its box, reported in the field for the number of bytes. The last two report the coordinate as
the address, and from bit `DETAIL` on the log2 of the bytes of an element, or the number of the axis."""
DETAIL = 4
"""The lowest bit of the detail in a fault's reason."""
MOVED, SECTORS, TOUCHED, COMPLETE = (number * 8 * LANES for number in range(4))
"""Byte offsets of a copy's results for each lane: the bytes of its box, the sectors of its rows in global memory, how many bytes of those
belong to the array, and the cycle in which it completes."""
RESULT_BYTES = 4 * 8 * LANES


@dataclass(frozen=True)
class Way:
    """One kind of tensor copy: `load`, `prefetch`, `store` or one of `REDUCTIONS`; how many coordinates it has, whether the checker
    observes it, whether the box may lie in the shared memory of another block, and the helper that computes when a row is copied
    (`clock.bulk`; None without a clock)."""

    operation: str
    dimensions: int
    checks: bool
    is_far: bool = False
    row_time: Helper | None = None

    @property
    def name(self) -> str:
        timed = "" if self.row_time is None else f"_{self.row_time.name}"
        return f"{self.operation}_{self.dimensions}d{'_checked' if self.checks else ''}{'_far' if self.is_far else ''}{timed}"

    @property
    def is_outward(self) -> bool:
        """Return whether the copy changes the array."""
        return self.operation not in ("load", "prefetch")

    @property
    def space(self) -> str:
        """Return the state space of the box."""
        return "shared::cluster" if self.is_far else "shared"


@cache
def tensor_copy(way: Way) -> Helper:
    """Return the helper `(warp, maps, offset, places, offset, coordinates, lanes, site, results, issue)`: takes generic addresses of tensor
    maps, addresses of boxes in shared memory, and 32 i32 for each coordinate; stores `MOVED`, `SECTORS`, `TOUCHED` and `COMPLETE` into
    `results`. A copy that is issued at a negative cycle takes no time."""

    def build(
        e: Emit,
        warp: Value,
        maps: Value,
        ahead: Value,
        places: Value,
        behind: Value,
        coordinates: Value,
        mask: Value,
        site: Value,
        results: Value,
        issue: Value,
    ) -> None:
        with e.if_then(e.icmp_unsigned("==", mask, constant(I32, 0)), likely=False):
            e.ret_void()
        first = e.lowest_bit(mask)
        window = Window(e, warp, "generic", site, address_of_lane(e, maps, ahead, first), _HALF_MAP)
        with e.each_lane(mask) as lane:
            address = address_of_lane(e, maps, ahead, lane)
            with window.lane(lane, address) as record, window.lane(lane, e.add(address, constant(I64, _HALF_MAP))):
                starts = [_coordinate(e, coordinates, axis, lane) for axis in range(way.dimensions)]
                box = _Box(e, way, warp, site, lane, record, address, starts, address_of_lane(e, places, behind, lane), issue)
                box.inspect()
                if way.operation != "prefetch":
                    box.walk()
                found = {MOVED: box.moved, SECTORS: box.sectors, TOUCHED: box.touched, COMPLETE: box.complete}
                for at, variable in found.items():
                    e.store(variable.get(), e.element(e.at(results, at), lane, I64))

    arguments = (POINTER, POINTER, I64, POINTER, I64, POINTER, I32, I32, POINTER, I64)
    return Helper(f"memlane_tensor_copy_{way.name}", VOID, arguments, build)


def _coordinate(e: Emit, coordinates: Value, axis: int, lane: Value) -> Value:
    return e.sext(e.load(e.element(e.at(coordinates, axis * 4 * LANES), lane, I32), typ=I32), I64)


class _Box:
    """The code for one lane's box."""

    def __init__(
        self,
        e: Emit,
        way: Way,
        warp: Value,
        site: Value,
        lane: Value,
        record: Value,
        address: Value,
        starts: list[Value],
        place: Value,
        issue: Value,
    ) -> None:
        self._issue, self.complete = issue, e.variable(issue)
        self._e, self._way, self._warp, self._site, self._lane = e, way, warp, site, lane
        self._record, self._address, self._starts, self._place = record, address, starts, place
        zero = constant(I64, 0)
        self.moved, self.sectors, self.touched = e.variable(zero), e.variable(zero), e.variable(zero)
        number = e.and_(self._field("element"), constant(I64, 15))
        self._size_shift = e.and_(e.lshr(constant(I64, _SIZES), e.shl(number, constant(I64, 1))), constant(I64, 3))
        self._size = e.shl(constant(I64, 1), self._size_shift)
        self._taken = [self._field("box"), *(self._steps_of(axis) for axis in range(1, way.dimensions))]
        self._filling = self._number_outside()
        self._row_bytes = e.mul(self._taken[0], self._size)
        self._shared = Window(e, warp, way.space, site, place, PIECE)
        self._array = Window(e, warp, "global", site, self._field("address"), 1)
        with e.goto_entry_block():
            self._addresses = e.local(ir.ArrayType(I64, LANES), align=64)
            self._unused = e.local(ir.ArrayType(I8, PIECE * LANES), align=64)

    def _field(self, name: str, index: int = 0) -> Value:
        value = self._e.get(self._record, TENSOR_MAP, name, index)
        return value if value.type == I64 else self._e.zext(value, I64)

    def _steps_of(self, axis: int) -> Value:
        """Return how many elements of an axis are copied."""
        e, one = self._e, constant(I64, 1)
        step = e.intrinsic("umax", [self._field("steps", axis), one])
        return e.udiv(e.add(self._field("box", axis), e.sub(step, one)), step)

    def _number_outside(self) -> Value:
        """Return 8 bytes of the value that loads give to elements outside the array."""
        e, is_filled = self._e, constant(I1, 0)
        for name in _FLOATS:
            is_filled = e.or_(is_filled, self._is_element(name))
        is_filled = e.and_(is_filled, e.icmp_unsigned("!=", self._field("fill"), constant(I64, 0)))
        return e.select(is_filled, constant(I64, OOB_NAN), constant(I64, 0))

    # -- what may be wrong -------------------------------------------------------------------------------------------------------

    def inspect(self) -> None:
        """Report a fault and return from the helper if the instruction cannot use the map, or the address in shared memory."""
        e = self._e
        self._refuse_if(e.icmp_unsigned("!=", self._field("mark"), constant(I64, TENSOR_MAP_MARK)), NO_MAP)
        self._refuse_if(e.icmp_unsigned("!=", self._field("rank"), constant(I64, self._way.dimensions - 1)), OTHER_RANK)
        known = constant(I1, 0)
        for name in ELEMENT_NUMBERS:
            known = e.or_(known, self._is_element(name))
        swizzled = e.icmp_unsigned("<=", self._field("swizzle"), constant(I64, _MOST_SWIZZLE))
        plain = e.icmp_unsigned("==", self._field("interleave"), constant(I64, 0))
        self._refuse_if(e.not_(e.and_(known, e.and_(swizzled, plain))), NOT_MODELLED)
        if self._way.operation in REDUCTIONS:
            known = constant(I1, 0)
            for name in REDUCTIONS[self._way.operation]:
                known = e.or_(known, self._is_element(name))
            self._refuse_if(e.not_(known), OTHER_ELEMENT)
        if self._way.operation != "prefetch":
            crooked = e.icmp_unsigned("!=", e.and_(self._place, constant(I64, BOX_ALIGNMENT - 1)), constant(I64, 0))
            self._fail_if(crooked, MISALIGNED, self._place, constant(I32, BOX_ALIGNMENT), "shared")
        self._inspect_start()

    def _inspect_start(self) -> None:
        """Report a fault for a box that does not begin at a multiple of 16 bytes, or a store before the array: a GPU takes both for illegal
        instructions."""
        e = self._e
        reason = e.or_(constant(I32, CROOKED), e.shl(e.trunc(self._size_shift, I32), constant(I32, DETAIL)))
        crooked = e.icmp_unsigned("!=", e.and_(e.mul(self._starts[0], self._size), constant(I64, PIECE - 1)), constant(I64, 0))
        self._fail_if(crooked, BAD_TENSOR_MAP, self._starts[0], reason, "generic")
        if self._way.is_outward:
            for axis, start in enumerate(self._starts):
                in_front = e.icmp_signed("<", start, constant(I64, 0))
                self._fail_if(in_front, BAD_TENSOR_MAP, start, constant(I32, IN_FRONT | axis << DETAIL), "generic")

    def _is_element(self, name: str) -> Value:
        return self._e.icmp_unsigned("==", self._field("element"), constant(I64, ELEMENT_NUMBERS[name]))

    def _refuse_if(self, wrong: Value, reason: int) -> None:
        self._fail_if(wrong, BAD_TENSOR_MAP, self._address, constant(I32, reason), "generic")

    def _fail_if(self, wrong: Value, kind: int, address: Value, nbytes: Value, space: str) -> None:
        e = self._e
        with e.if_then(wrong, likely=False):
            invoke(e, fault, self._warp, constant(I32, kind), self._site, self._lane, address, nbytes, constant(I32, SPACE_NUMBERS[space]))
            e.ret_void()

    # -- rows --------------------------------------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Copy row by row, in their order in shared memory."""
        e, rows = self._e, constant(I64, 1)
        for axis in range(1, self._way.dimensions):
            rows = e.mul(rows, self._taken[axis])
        with e.count(rows) as row:
            with e.if_then(has_failed(e, self._warp), likely=False):
                e.ret_void()
            start, low, high = self._row(row)
            nbytes = e.sub(high, low)
            with e.if_then(e.icmp_unsigned("!=", nbytes, constant(I64, 0))):
                self._count(e.add(start, low), nbytes)
            self._pieces(e.mul(row, self._row_bytes), start, low, high)
        self.moved.set(e.mul(rows, self._row_bytes))

    def _row(self, row: Value) -> tuple[Value, Value, Value]:
        """Return where a row begins in global memory, and the first and the end byte of its part inside the array."""
        e, zero = self._e, constant(I64, 0)
        start, left, inside = self._field("address"), row, constant(I1, 1)
        for axis in range(1, self._way.dimensions):
            taken = self._taken[axis]
            step = e.mul(e.urem(left, taken), self._field("steps", axis))
            at = e.add(self._starts[axis], step)
            inside = e.and_(inside, e.icmp_unsigned("<", at, self._field("extents", axis)))
            start = e.add(start, e.mul(at, self._field("strides", axis - 1)))
            left = e.udiv(left, taken)
        x, taken = self._starts[0], self._taken[0]
        low = e.intrinsic("smin", [e.intrinsic("smax", [e.neg(x), zero]), taken])
        high = e.intrinsic("smin", [e.intrinsic("smax", [e.sub(self._field("extents"), x), zero]), taken])
        some = e.and_(inside, e.icmp_signed("<", low, high))
        start = e.add(start, e.mul(x, self._size))
        return start, *(e.select(some, e.mul(edge, self._size), zero) for edge in (low, high))

    def _count(self, address: Value, nbytes: Value) -> None:
        e, shift = self._e, constant(I64, _SECTOR_SHIFT)
        last = e.lshr(e.add(address, e.sub(nbytes, constant(I64, 1))), shift)
        count = e.add(e.sub(last, e.lshr(address, shift)), constant(I64, 1))
        self.sectors.set(e.add(self.sectors.get(), count))
        self.touched.set(e.add(self.touched.get(), nbytes))
        if self._way.row_time is not None:
            with e.if_then(e.icmp_signed(">=", self._issue, constant(I64, 0)), likely=True):
                done = invoke(e, self._way.row_time, self._warp, address, nbytes, self._issue)
                self.complete.set(e.intrinsic("smax", [self.complete.get(), done]))

    # -- pieces ------------------------------------------------------------------------------------------------------------------

    def _pieces(self, offset: Value, start: Value, low: Value, high: Value) -> None:
        """Copy the pieces of a row that lies `offset` bytes into the box; bytes `low` to `high` of it are inside the array."""
        e, size = self._e, constant(I64, PIECE)
        with e.count(e.lshr(self._row_bytes, constant(I64, _PIECE_SHIFT))) as number:
            at = e.mul(number, size)
            end = e.add(at, size)
            begin = e.intrinsic("umin", [e.intrinsic("umax", [low, at]), end])
            stop = e.intrinsic("umax", [e.intrinsic("umin", [high, end]), begin])
            place = self._swizzled(e.add(self._place, e.add(offset, at)))
            allowed = self._allowed(place, e.add(start, begin), e.sub(stop, begin))
            with e.if_then(allowed), self._shared.lane(self._lane, place) as here:
                self._piece(here, e.add(start, begin), e.sub(begin, at), e.sub(stop, begin))

    def _swizzled(self, place: Value) -> Value:
        e = self._e
        piece = e.lshr(place, constant(I64, _PIECE_SHIFT))
        mask = e.sub(e.shl(constant(I64, 1), self._field("swizzle")), constant(I64, 1))
        changed = e.xor(piece, e.and_(e.lshr(piece, constant(I64, _LINE_SHIFT)), mask))
        return e.shl(changed, constant(I64, _PIECE_SHIFT))

    def _piece(self, here: Value, start: Value, within: Value, nbytes: Value) -> None:
        """Copy a piece at the host address `here`; its `nbytes` from byte `within` on correspond to those at `start` in global memory."""
        e, is_load = self._e, self._way.operation == "load"
        whole = e.icmp_unsigned("==", nbytes, constant(I64, PIECE))
        if is_load:
            with e.if_then(e.not_(whole), likely=False):
                for half in (0, 8):
                    e.store(self._filling, e.at(here, half))
        with e.if_then(e.icmp_unsigned("!=", nbytes, constant(I64, 0))), self._span(start, nbytes) as there:
            here = e.at(here, within)
            if self._way.operation in REDUCTIONS:
                return self._reduce(here, there, self._with_tail(start, nbytes))
            source, target = (there, here) if is_load else (here, there)
            with e.if_else(whole) as (entire, part):
                with entire:
                    for half in (0, 8):
                        e.store(e.load(e.at(source, half), typ=I64, align=1), e.at(target, half), align=1)
                with part, e.count(nbytes if is_load else self._with_tail(start, nbytes)) as byte:
                    e.store(e.load(e.at(source, byte), typ=I8), e.at(target, byte))
        return None

    def _with_tail(self, start: Value, nbytes: Value) -> Value:
        """Return how many bytes are changed for the last `nbytes` of a row: a whole piece, clipped to the allocation. A GPU has no other
        data after it."""
        e = self._e
        low, length, _, _ = AddressRecords(e, self._warp, self._site).bounds(e, "global")
        left = e.sub(e.add(low, length), start)
        return e.intrinsic("umax", [nbytes, e.intrinsic("umin", [constant(I64, PIECE), left])])

    @contextmanager
    def _span(self, start: Value, nbytes: Value) -> Iterator[Value]:
        """Yield the host address of some bytes of the array; report a fault if they are not all in one allocation."""
        e, further = self._e, self._e.sub(nbytes, constant(I64, 1))
        with self._array.lane(self._lane, e.add(start, further)) as last, self._array.lane(self._lane, start) as first:
            torn = e.icmp_unsigned("!=", e.sub(e.ptrtoint(last, I64), e.ptrtoint(first, I64)), further)
            self._fail_if(torn, OUTSIDE, start, constant(I32, 1), "global")
            yield first

    def _reduce(self, here: Value, there: Value, nbytes: Value) -> None:
        """Combine element by element. Subnormal sums are kept, because the element is f32 and not the driver's FLOAT32_FTZ."""
        e, done = self._e, self._e.variable(constant(I64, 0))
        context = e.get_pointer(e.get_pointer(self._warp, WARP, "block"), BLOCK, "context")
        are_several = e.icmp_unsigned("!=", e.get(context, CONTEXT, "parallel"), constant(I32, 0))
        with e.while_(lambda: e.icmp_unsigned("<", done.get(), nbytes)):
            pointer, operand = e.at(there, done.get()), e.at(here, done.get())
            for name in REDUCTIONS[self._way.operation]:
                with e.if_then(self._is_element(name)):
                    reduce_element(e, self._way.operation, name, pointer, operand, are_several, flushes=False)
            done.set(e.add(done.get(), self._size))

    # -- the checker ---------------------------------------------------------------------------------------------------------------

    def _allowed(self, place: Value, start: Value, nbytes: Value) -> Value:
        """Return i1: whether the checker allows a piece to be copied between `place` in shared memory and `nbytes` from `start` on."""
        e, way = self._e, self._way
        allowed = e.variable(constant(I1, 1))
        if way.checks:
            is_load, updates = way.operation == "load", way.operation in REDUCTIONS
            inner = Shape(4, 4, reads=not is_load, writes=is_load, strong=False, needs_value=not is_load)
            self._check(allowed, way.space, inner, place)
            for size in (4, 1):
                outer = Shape(size, 1, reads=is_load or updates, writes=not is_load, strong=updates, needs_value=is_load or updates)
                crooked = e.icmp_unsigned("!=", e.and_(e.or_(start, nbytes), constant(I64, 3)), constant(I64, 0))
                with e.if_then(crooked if size == 1 else e.not_(crooked)), e.count(e.udiv(nbytes, constant(I64, size))) as number:
                    self._check(allowed, "global", outer, e.add(start, e.mul(number, constant(I64, size))))
        return allowed.get()

    def _check(self, allowed: Variable, space: str, shape: Shape, address: Value) -> None:
        e, alone = self._e, self._e.shl(constant(I32, 1), self._lane)
        e.store(address, e.element(self._addresses, self._lane, I64))
        go_on = invoke(e, checked(space, shape), self._warp, self._addresses, constant(I64, 0), alone, self._site, self._unused)
        allowed.set(e.and_(allowed.get(), e.icmp_unsigned("!=", go_on, constant(I32, 0))))

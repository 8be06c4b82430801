"""Extends llvmlite's builder for the emulator's generated code: 32-lane vectors, masks, records, loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import llvmlite.ir as ir
import numpy as np

from memlane.chip import LANES
from memlane.emulate.code.text import CodeFunction
from memlane.emulate.layout import offset

Value = Any
"""An LLVM value; llvmlite has no type annotations."""

I1, I8, I16, I32, I64, I128 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64, 128))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
POINTER = ir.PointerType()
VOID = ir.VoidType()
INTEGERS = {1: I1, 8: I8, 16: I16, 32: I32, 64: I64, 128: I128}
FLOATS = {16: F16, 32: F32, 64: F64}

_FIELD_TYPES = {1: I8, 2: I16, 4: I32, 8: I64}


@cache
def vector(element: ir.Type) -> ir.VectorType:
    """Return the type of 32 lanes of `element`."""
    return ir.VectorType(element, LANES)


@lru_cache(1 << 16)
def constant(kind: ir.Type, number: int) -> Value:
    """Return an integer constant, in all lanes if `kind` is a vector. `number` may be negative or unsigned."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    number &= (1 << element.width) - 1
    return ir.Constant(kind, number)


def real(kind: ir.Type, number: float) -> Value:
    """Return a floating-point constant, in all lanes if `kind` is a vector."""
    return ir.Constant(kind, number)


@cache
def lane_numbers(element: ir.Type, factor: int = 1) -> Value:
    """Return 0, factor, 2 factor, ... in the lanes."""
    return ir.Constant(vector(element), [lane * factor for lane in range(LANES)])


def spread(e: Emit, value: Value, count: int) -> Value:
    """`value` in all of `count` elements of a vector."""
    none = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = e.insert_element(none, value, constant(I32, 0))
    return e.shuffle_vector(first, none, ir.Constant(ir.VectorType(I32, count), None))


class Emit(ir.IRBuilder):  # type: ignore[misc]
    """Writes instructions at the end of one LLVM basic block."""

    # -- records ---------------------------------------------------------------------------------------------------------------

    def at(self, pointer: Value, distance: int | Value) -> Value:
        """Return `pointer` plus a number of bytes."""
        if isinstance(distance, int):
            if distance == 0:
                return pointer
            distance = constant(I64, distance)
        return self.gep(pointer, [distance], source_etype=I8)

    def element(self, pointer: Value, index: Value, kind: ir.Type) -> Value:
        """Return the address of element `index` of an array of `kind`."""
        return self.gep(pointer, [index], source_etype=kind)

    def fill(self, pointer: Value, byte: int, nbytes: Value) -> None:
        """Set `nbytes` (i64) bytes from `pointer` on to one value."""
        function = self.declare("llvm.memset.p0.i64", VOID, [POINTER, I8, I64, I1])
        self.call(function, [pointer, constant(I8, byte), nbytes, constant(I1, 0)])

    def place(self, pointer: Value, record: np.dtype[np.void], field: str, index: int | Value = 0) -> tuple[Value, ir.Type]:
        """Return the address and type of a field of a record, or of one element of an array field."""
        assert record.fields is not None
        dtype = record.fields[field][0]
        size = dtype.base.itemsize
        address = self.at(pointer, offset(record, field) + (index * size if isinstance(index, int) else 0))
        if not isinstance(index, int):
            address = self.element(address, index, _FIELD_TYPES[size])
        return address, _FIELD_TYPES[size]

    def get(self, pointer: Value, record: np.dtype[np.void], field: str, index: int | Value = 0) -> Value:
        """Load a field."""
        address, kind = self.place(pointer, record, field, index)
        return self.load(address, typ=kind)

    def get_pointer(self, pointer: Value, record: np.dtype[np.void], field: str) -> Value:
        """Load a field that holds a host address."""
        return self.load(self.at(pointer, offset(record, field)), typ=POINTER)

    def put(self, value: int | Value, pointer: Value, record: np.dtype[np.void], field: str, index: int | Value = 0) -> None:
        """Store a field."""
        address, kind = self.place(pointer, record, field, index)
        self.store(constant(kind, value) if isinstance(value, int) else value, address)

    def bump(self, pointer: Value, record: np.dtype[np.void], field: str, by: int | Value = 1, index: int | Value = 0) -> Value:
        """Add to a field; return the new value."""
        address, kind = self.place(pointer, record, field, index)
        total = self.add(self.load(address, typ=kind), constant(kind, by) if isinstance(by, int) else by)
        self.store(total, address)
        return total

    # -- vectors ---------------------------------------------------------------------------------------------------------------

    def splat(self, value: Value) -> Value:
        """Return `value` in all lanes."""
        return spread(self, value, LANES)

    def lanes_of(self, mask: Value) -> Value:
        """Convert an i32 mask to <32 x i1>."""
        return self.bitcast(mask, vector(I1))

    def mask_of(self, lanes: Value) -> Value:
        """Convert <32 x i1> to an i32 mask."""
        return self.bitcast(lanes, I32)

    def load_lanes(self, pointer: Value, element: ir.Type) -> Value:
        """Load 32 elements from memory."""
        return self.load(pointer, typ=vector(element), align=max(1, element.width // 8))

    def store_lanes(self, value: Value, pointer: Value) -> None:
        """Store 32 elements to memory."""
        self.store(value, pointer, align=max(1, value.type.element.width // 8))

    def prefetch(self, pointer: Value) -> None:
        """Prefetch the cache line at an address that is read soon."""
        near = self.declare("llvm.prefetch.p0", VOID, [POINTER, I32, I32, I32])
        self.call(near, [pointer, constant(I32, 0), constant(I32, 3), constant(I32, 1)])

    def gather(self, pointers: Value, mask: Value, element: ir.Type) -> Value:
        """Load the elements at 32 pointers, for the lanes of an i32 mask; 0 in the others."""
        kind = vector(element)
        arguments = [pointers, constant(I32, element.width // 8), self.lanes_of(mask), ir.Constant(kind, None)]
        name = f"llvm.masked.gather.{_suffix(kind)}.{_suffix(pointers.type)}"
        return self.call(self.declare(name, kind, [one.type for one in arguments]), arguments)

    def scatter(self, lanes: Value, pointers: Value, mask: Value) -> None:
        """Store the elements of the lanes of an i32 mask, the lowest lane first."""
        arguments = [lanes, pointers, constant(I32, lanes.type.element.width // 8), self.lanes_of(mask)]
        name = f"llvm.masked.scatter.{_suffix(lanes.type)}.{_suffix(pointers.type)}"
        self.call(self.declare(name, VOID, [one.type for one in arguments]), arguments)

    def intrinsic(self, name: str, arguments: Sequence[Value], result: ir.Type | None = None) -> Value:
        """Call the LLVM intrinsic `llvm.<name>` (overloaded on its first argument, or on nothing if the name ends in `!`)."""
        kind = result or arguments[0].type
        full = f"llvm.{name.rstrip('!')}" if name.endswith("!") else f"llvm.{name}.{_suffix(arguments[0].type)}"
        return self.call(self.declare(full, kind, [a.type for a in arguments]), arguments)

    def declare(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> Value:
        """Return the function `name` of this module, declared on first use."""
        known = self.module.globals.get(name)
        return known if known is not None else CodeFunction(self.module, ir.FunctionType(result, arguments), name)

    def call_through(self, pointer: Value, kind: ir.FunctionType, arguments: Sequence[Value]) -> Value:
        """Call the function of type `kind` at an address."""
        pointer.type = kind.as_pointer()  # llvmlite takes a callee's type from its pointer, though LLVM's pointers have none
        return self.call(pointer, arguments)

    def reduce(self, kind: str, lanes: Value) -> Value:
        """Reduce the lanes by `add`, `or`, `and`, `xor`, `umin`, `umax`, `smin` or `smax`."""
        return self.intrinsic(f"vector.reduce.{kind}", [lanes], lanes.type.element)

    def popcount(self, value: Value) -> Value:
        return self.intrinsic("ctpop", [value])

    def lowest_bit(self, value: Value) -> Value:
        """Return the number of the lowest set bit; the width if there is none."""
        return self.intrinsic("cttz", [value, ir.Constant(I1, 0)])

    def local(self, kind: ir.Type, align: int | None = None) -> Value:
        """Allocate one `kind` in the function's stack frame; return its address."""
        address = self.alloca(kind)
        address.type = POINTER  # llvmlite still gives it a typed pointer
        address.align = align
        return address

    # -- control ---------------------------------------------------------------------------------------------------------------

    def variable(self, initial: Value) -> Variable:
        """Create a mutable local variable of the function, kept in its stack frame."""
        with self.goto_entry_block():
            address = self.local(initial.type)
        self.store(initial, address)
        return Variable(self, address, initial.type)

    @contextmanager
    def count(self, limit: Value) -> Iterator[Value]:
        """Emit the loop `for i in range(limit)`; yields i."""
        index = self.variable(ir.Constant(limit.type, 0))
        with self.while_(lambda: self.icmp_unsigned("<", index.get(), limit)):
            number = index.get()
            yield number
            index.set(self.add(number, ir.Constant(limit.type, 1)))

    @contextmanager
    def each_lane(self, mask: Value) -> Iterator[Value]:
        """Loop over the numbers of the set bits of `mask`, lowest first, as integers of its type."""
        left = self.variable(mask)
        with self.while_(lambda: self.icmp_unsigned("!=", left.get(), constant(mask.type, 0))):
            bits = left.get()
            left.set(self.and_(bits, self.sub(bits, constant(mask.type, 1))))
            yield self.lowest_bit(bits)

    @contextmanager
    def while_(self, condition: Any) -> Iterator[None]:
        """Repeat the body as long as `condition()` holds."""
        head, body, after = (self.append_basic_block(name) for name in ("while", "body", "after"))
        self.branch(head)
        self.position_at_end(head)
        self.cbranch(condition(), body, after)
        self.position_at_end(body)
        yield
        if not self.block.is_terminated:
            self.branch(head)
        self.position_at_end(after)


class Variable:
    """A mutable local variable of the function (see `Emit.variable`)."""

    def __init__(self, emit: Emit, address: Value, kind: ir.Type) -> None:
        self._emit, self.address, self._kind = emit, address, kind

    def get(self) -> Value:
        return self._emit.load(self.address, typ=self._kind)

    def set(self, value: Value) -> None:
        self._emit.store(value, self.address)


def _suffix(kind: ir.Type) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return {F16: "f16", F32: "f32", F64: "f64"}.get(kind) or ("p0" if isinstance(kind, ir.PointerType) else f"i{kind.width}")

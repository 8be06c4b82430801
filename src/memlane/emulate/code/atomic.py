"""Accesses memory that several threads of this process share: each access is atomic."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir
from llvmlite.ir.instructions import StoreAtomicInstr

from memlane.emulate.code.build import FLOATS, INTEGERS, Emit, Value


def load_whole(e: Emit, pointer: Value, kind: ir.Type) -> Value:
    """Load an aligned integer of up to 8 bytes atomically."""
    return e.load_atomic(pointer, "monotonic", kind.width // 8, typ=kind)


def store_whole(e: Emit, value: Value, pointer: Value) -> None:
    """Store an aligned integer of up to 8 bytes atomically."""
    # `IRBuilder.store_atomic` asks the pointer for its pointee type, which LLVM's pointers no longer have.
    e._insert(StoreAtomicInstr(e.block, value, pointer, "monotonic", value.type.width // 8))


def fetch(e: Emit, operation: str, pointer: Value, operand: Value) -> Value:
    """Read, combine and write an integer atomically; return the old value. `operation` is one of LLVM's `atomicrmw`."""
    return e.atomic_rmw(operation, pointer, operand, "seq_cst")


def exchange_if(e: Emit, pointer: Value, expected: Value, new: Value) -> tuple[Value, Value]:
    """Write `new` if the integer in memory is `expected` (compare and exchange). Return the old value, and i1 whether it was."""
    both = e.cmpxchg(pointer, expected, new, "seq_cst")
    return e.extract_value(both, 0), e.extract_value(both, 1)


def update(e: Emit, pointer: Value, kind: ir.Type, combine: Callable[[Value], Value]) -> Value:
    """Replace the value at `pointer`, of any type up to 16 bytes, by the result of `combine`, atomically; return the old value."""
    whole = INTEGERS[next((bits for bits, of in FLOATS.items() if of == kind), None) or kind.width]
    first = load_whole(e, pointer, whole) if whole.width <= 64 else e.load(pointer, typ=whole, align=16)
    seen = e.variable(first)
    again, done = e.append_basic_block("again"), e.append_basic_block("done")
    e.branch(again)
    e.position_at_end(again)
    old = seen.get()
    new = combine(e.bitcast(old, kind))
    found, succeeded = exchange_if(e, pointer, old, e.bitcast(new, whole))
    seen.set(found)
    e.cbranch(succeeded, done, again)
    e.position_at_end(done)
    return e.bitcast(seen.get(), kind)

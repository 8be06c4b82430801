"""Memory that several threads of this process reach at once: accesses that are seen whole or not at all."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir
from llvmlite.ir.instructions import StoreAtomicInstr

from memlane.emulate.code.build import FLOATS, INTEGERS, Emit, Value


def load_whole(e: Emit, pointer: Value, kind: ir.Type) -> Value:
    """An aligned integer of up to 8 bytes."""
    return e.load_atomic(pointer, "monotonic", kind.width // 8, typ=kind)


def store_whole(e: Emit, value: Value, pointer: Value) -> None:
    """The same to memory."""
    # `IRBuilder.store_atomic` asks the pointer for the type behind it, which LLVM's pointers no longer have.
    e._insert(StoreAtomicInstr(e.block, value, pointer, "monotonic", value.type.width // 8))


def fetch(e: Emit, operation: str, pointer: Value, operand: Value) -> Value:
    """Read, combine and write an integer at once: the old value. `operation` as LLVM's `atomicrmw` calls it."""
    return e.atomic_rmw(operation, pointer, operand, "seq_cst")


def exchange_if(e: Emit, pointer: Value, expected: Value, new: Value) -> tuple[Value, Value]:
    """Write `new` if the integer in memory is `expected`: the old value, and i1 whether it was."""
    both = e.cmpxchg(pointer, expected, new, "seq_cst")
    return e.extract_value(both, 0), e.extract_value(both, 1)


def update(e: Emit, pointer: Value, kind: ir.Type, combine: Callable[[Value], Value]) -> Value:
    """Replace what lies at `pointer`, of any type up to 16 bytes, by what `combine` makes of it: the old value."""
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

"""Atomics and reductions."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.emulate.code.build import I32, I64, INTEGERS, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.runtime.atomics import OPERATIONS, atomic
from memlane.emulate.semantics.accesses import access
from memlane.emulate.semantics.memory import state_space
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES, VECTOR_LENGTHS, Vector, elements

_WIDEST = 8
"""Largest element of the checker, in bytes."""


@semantics("memory/atom", "memory/red", "memory/red.async.release")
def atom(k: Lowering) -> None:
    """Update memory atomically; each element of a vector is updated separately."""
    instruction, scalar, space, count = (
        k.instruction,
        SCALAR_TYPES[k.slot_type("b")],
        state_space(k),
        VECTOR_LENGTHS.get(k.slot_of("vec"), 1),
    )
    operation = next((word for word in instruction.modifiers if word in OPERATIONS), "")
    narrow = scalar.bits < 32 and operation not in ("cas", "add") and count == 1
    if not operation or narrow or space not in ("global", "shared", "shared::cluster", "generic"):
        raise k.unsupported()
    e, column = k.e, LANES * scalar.nbytes
    for letter in "bc":
        operand = instruction.operand(letter)
        for number in range(count):
            item = operand.items[number] if isinstance(operand, Vector) else operand
            value = constant(vector(INTEGERS[scalar.bits]), 0) if item is None else k.bits_of(item, scalar.name)
            e.store_lanes(value, e.at(k.scratch(letter), number * column))
    pointer, distance = k.address("a")
    out, parts = k.scratch("data"), max(1, scalar.nbytes // _WIDEST)
    with access(k, space, pointer, distance, scalar.nbytes // parts, count * parts, out) as lanes:
        for number in range(count):
            helper = atomic(operation, scalar.name, space, count * scalar.nbytes if count > 1 and number == 0 else 0)
            place = e.add(distance, constant(I64, number * scalar.nbytes))
            data = [e.at(one, number * column) for one in (k.scratch("b"), k.scratch("c"), out)]
            k.call(helper, k.warp, pointer, place, lanes, constant(I32, k.index), *data)
    if k.has("d"):
        for number, item in enumerate(elements(instruction.operand("d"))):
            k.write_operand(item, e.load_lanes(e.at(out, number * column), INTEGERS[scalar.bits]), scalar.name)

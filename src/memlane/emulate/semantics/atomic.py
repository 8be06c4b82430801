"""Atomics and reductions."""

from __future__ import annotations

from memlane.emulate.check.hooks import check_access
from memlane.emulate.code.build import I32, INTEGERS, constant, vector
from memlane.emulate.lower.lowering import Lowering
from memlane.emulate.observe.instructions import account
from memlane.emulate.runtime.atomics import OPERATIONS, atomic
from memlane.emulate.semantics.memory import state_space
from memlane.emulate.semantics.table import semantics
from memlane.ptx import SCALAR_TYPES

_SECTION = "parallel-synchronization-and-communication-instructions-"


@semantics(_SECTION + "atom", _SECTION + "red")
def atom(k: Lowering) -> None:
    e, instruction = k.e, k.instruction
    scalar, space = SCALAR_TYPES[k.slot_type("b")], state_space(k)
    operation = next((word for word in instruction.modifiers if word in OPERATIONS), "")
    if (
        not operation
        or (scalar.bits not in (32, 64) and operation not in ("cas", "add"))
        or scalar.bits > 64
        or k.slot_of("vec")
        or space not in ("global", "shared", "shared::cluster", "generic")
    ):
        raise k.unsupported()
    for letter in "bc":
        operand = instruction.operand(letter)
        value = constant(vector(INTEGERS[scalar.bits]), 0) if operand is None else k.bits_of(operand, scalar.name)
        e.store_lanes(value, k.scratch(letter))
    pointer, distance = k.address("a")
    site, out = constant(I32, k.index), k.scratch("data")
    lanes = check_access(k, space, pointer, distance, scalar.nbytes, 1, out)
    k.call(atomic(operation, scalar.name, space), k.warp, pointer, distance, lanes, site, k.scratch("b"), k.scratch("c"), out)
    account(k, space, pointer, distance, scalar.nbytes)
    if k.has("d"):
        k.write("d", e.load_lanes(out, INTEGERS[scalar.bits]))

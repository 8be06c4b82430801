"""Floating-point operations rounded toward zero, down or up, by a temporary change of the processor's rounding mode."""

from __future__ import annotations

from functools import cache

import llvmlite.ir as ir

from memlane.emulate.code.build import FLOATS, I32, POINTER, VOID, Emit, Value, constant
from memlane.emulate.runtime.helper import Helper

_METADATA = ir.MetaDataType()
_NEAREST = 1
_DIRECTIONS = {"rz": 0, "rp": 2, "rm": 3}
"""Rounding modes as `llvm.set.rounding` numbers them."""
OPERANDS = {"fadd": 2, "fsub": 2, "fmul": 2, "fdiv": 2, "fma": 3, "sqrt": 1}


@cache
def directed(operation: str, bits: int, lanes: int, direction: str) -> Helper:
    """Return the helper for `operation` on `lanes` floating-point numbers at a time: takes a pointer to the operands, one after another,
    and one to the result."""

    def build(e: Emit, operands: Value, out: Value) -> None:
        kind = ir.VectorType(FLOATS[bits], lanes)
        # Without this attribute, which llvmlite does not know, the optimiser may move the operation out of the range of the rounding mode.
        set.add(e.function.attributes, "strictfp")
        values = [e.load(e.at(operands, number * lanes * bits // 8), typ=kind, align=bits // 8) for number in range(OPERANDS[operation])]
        name = f"llvm.experimental.constrained.{operation}.v{lanes}f{bits}"
        function = e.declare(name, kind, [*(value.type for value in values), _METADATA, _METADATA])
        words = [ir.MetaDataString(e.module, word) for word in ("round.dynamic", "fpexcept.ignore")]
        turn = e.declare("llvm.set.rounding", VOID, [I32])
        e.call(turn, [constant(I32, _DIRECTIONS[direction])])
        result = e.call(function, [*values, *words])
        e.call(turn, [constant(I32, _NEAREST)])
        e.store(result, out, align=bits // 8)

    return Helper(f"memlane_{operation}_{direction}_f{bits}x{lanes}", VOID, (POINTER, POINTER), build)

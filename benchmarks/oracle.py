"""What some instructions give, computed with NumPy: a second road for the emulator where there is no GPU.

Only what NumPy says in one expression. The emulator's own tests go further; here it shows that the comparison itself works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from operands import Bits

from cases import Case
from memlane.ptx import SCALAR_TYPES

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul.lo": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "setp.eq": np.equal,
    "setp.ne": np.not_equal,
    "setp.lt": np.less,
    "setp.le": np.less_equal,
    "setp.gt": np.greater,
    "setp.ge": np.greater_equal,
}
_UNARY: dict[str, Callable[[Any], Any]] = {"not": np.bitwise_not, "neg": np.negative, "popc": np.bitwise_count}
_ROUNDED: dict[str, Callable[..., Any]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}


def expected(case: Case, operands: Sequence[Bits]) -> list[Bits] | None:
    """The results, or None for an instruction that is not known here."""
    name, _, type_name = case.spelling.name.rpartition(".")
    scalar = SCALAR_TYPES.get(type_name)
    if scalar is None or scalar.lanes != 1 or case.operands != (type_name,) * len(operands):
        return None
    if scalar.kind == "f":
        operation = _ROUNDED.get(name.removesuffix(".rn"))
        return _floating(operation, scalar.bits, operands) if operation and name.endswith(".rn") and scalar.bits > 16 else None
    found = _BINARY.get(name) if len(operands) == 2 else _UNARY.get(name) if len(operands) == 1 else None
    if found is None or scalar.kind == "pred":
        return None
    kind = np.dtype(f"{'i' if scalar.kind == 's' else 'u'}{scalar.nbytes}")
    with np.errstate(all="ignore"):
        result = np.asarray(found(*(column.astype(f"u{scalar.nbytes}").view(kind) for column in operands)))
    results = [_bits(result)]
    return [*results, np.uint64(1) - results[0]] if name.startswith("setp") else results


def _floating(operation: Callable[..., Any], bits: int, operands: Sequence[Bits]) -> list[Bits]:
    with np.errstate(all="ignore"):
        result = operation(*(column.astype(f"u{bits // 8}").view(f"f{bits // 8}") for column in operands))
    if bits == 32:
        result = np.where(np.isnan(result), np.uint32(0x7FFFFFFF).view(np.float32), result)
    return [_bits(result)]


def _bits(result: Any) -> Bits:
    if result.dtype == bool:
        return np.asarray(result, np.uint64)
    return np.asarray(np.ascontiguousarray(result).view(f"u{result.dtype.itemsize}"), np.uint64)

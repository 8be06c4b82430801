"""The table that binds instructions to what they do."""

from __future__ import annotations

from collections.abc import Callable

from memlane.emulate.lower.lowering import Lowering
from memlane.ptx import TABLE as INSTRUCTIONS

Semantics = Callable[[Lowering], None]
_KEYS = frozenset(one.key for one in INSTRUCTIONS.ops)

TABLE: dict[str, Semantics] = {}
"""By the key of an instruction (`ptx.forms.Op.key`), as `memory/ld`: the function that writes its code."""


def semantics(*keys: str) -> Callable[[Semantics], Semantics]:
    """Bind the decorated function to the instructions with these keys.

    Raises ValueError for one that is not in the table, or bound already.
    """

    def bind(function: Semantics) -> Semantics:
        for key in keys:
            if key not in _KEYS or key in TABLE:
                raise ValueError(f"the key {key!r} is {'bound already' if key in TABLE else 'of no instruction in the table'}")
            TABLE[key] = function
        return function

    return bind

"""Binds instructions to the functions that lower them."""

from __future__ import annotations

from collections.abc import Callable

from memlane.emulate.lower.lowering import Lowering
from memlane.ptx import TABLE as INSTRUCTIONS

Semantics = Callable[[Lowering], None]
_KEYS = frozenset(one.key for one in INSTRUCTIONS.ops)

TABLE: dict[str, Semantics] = {}
"""The function that generates the code of an instruction, by its key (`ptx.forms.Op.key`), such as `memory/ld`."""


def semantics(*keys: str) -> Callable[[Semantics], Semantics]:
    """Bind the decorated function to the instructions with these keys.

    Raises ValueError for a key that is not in the instruction table, or is bound already.
    """

    def bind(function: Semantics) -> Semantics:
        for key in keys:
            if key not in _KEYS or key in TABLE:
                raise ValueError(f"the key {key!r} is {'bound already' if key in TABLE else 'of no instruction in the table'}")
            TABLE[key] = function
        return function

    return bind

"""The table that binds instructions to what they do."""

from __future__ import annotations

from collections.abc import Callable

from memlane.emulate.lower.lowering import Lowering

Semantics = Callable[[Lowering], None]

TABLE: dict[str, Semantics] = {}
"""Section of the PTX manual to the function that writes the instruction's code."""


def semantics(*sections: str) -> Callable[[Semantics], Semantics]:
    """Bind the decorated function to the instructions of these sections."""

    def bind(function: Semantics) -> Semantics:
        for section in sections:
            TABLE[section] = function
        return function

    return bind

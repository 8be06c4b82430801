"""The notation of the instruction table, and the match of an opcode with its dotted parts against it.

A row is written almost as the PTX manual writes the instruction:

    ld.volatile{.ss}{.vec}.type   d, [a]

- a dotted word is literal (`.volatile`) unless the row declares it a slot (`ss`, `vec`, `type`), which stands for one of a set;
- braces make it optional; dotted words may be written in any order, as ptxas too accepts for most of them, but slots that share values
  are filled in the order of the row;
- behind the opcode stand the operands by the manual's letters: `[a]` is an address, `d|p` a pair, `{, c}` optional, `{!}c` a predicate
  that may be negated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Form:
    """What an opcode with its dotted parts matched: one row of the table with its slots filled."""

    row: str
    """The row as it stands in the table: the key to which the emulator binds its semantics is the opcode, never this text."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """Slot name to the word that filled it, without the dot."""
    operands: Mapping[str, int] = field(default_factory=dict)
    """The manual's operand letter to its place in `Instruction.operands`."""
    writes: frozenset[str] = frozenset()
    """The letters of the operands that are written (a pair counts as one)."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The manual's operand letter to its scalar type with the slots filled, for example `{"d": "u64", "a": "u32", "b": "u32"}` for `mul.wide.u32`."""

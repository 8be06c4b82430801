"""Parse PTX text into statements, so that passes can write the code that they insert as PTX."""

from __future__ import annotations

from functools import lru_cache

from memlane.ptx.ir import Guard, Instruction, Statement
from memlane.ptx.location import Location
from memlane.ptx.parser import parse_statements


@lru_cache(maxsize=1 << 14)
def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements written in `text`, as in the body of a function.

    Names with a `%` are registers; other names are symbols, unless `text` itself declares them with `.reg`. Results are cached: the same
    text returns the same (immutable) nodes. Raises the errors of `memlane.ptx.parse`.

    >>> statements("mov.u64 %t0, %clock64; @%p bra DONE;")[1].guard
    Guard(register='%p', negated=False)
    """
    return parse_statements(text)


def instruction(text: str, guard: Guard | None = None, location: Location | None = None) -> Instruction:
    """Return the one instruction written in `text`, with `guard` if the text has none, and at `location`.

    Raises `ValueError` if the text is not exactly one instruction.
    """
    found = statements(text)
    if len(found) != 1 or not isinstance(found[0], Instruction):
        raise ValueError(f"expected one instruction, got {text!r}")
    written = found[0]
    return Instruction(written.opcode, written.modifiers, written.operands, written.form, written.guard or guard, location, written.span)

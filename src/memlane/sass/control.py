"""Decode the control word of an instruction, which directs the warp scheduler on Volta and later.

An instruction has 128 bits; bits 105 to 125 are for the scheduler, whatever the instruction is:

    105-108   stall: cycles until the next instruction of the warp may issue
    109       yield: 0 lets another warp go first
    110-112   write scoreboard: raised when the instruction issues, lowered when its result has arrived; 7 is none
    113-115   read scoreboard: likewise for when its sources have been read; 7 is none
    116-121   wait mask: the instruction issues only when each of these scoreboards is at zero
    122-125   reuse: operands that stay in the operand cache

A scoreboard is a counter of the warp, shared by all instructions that raise it, so waiting for it means waiting for every instruction that
raised it before. Instructions of one warp issue in order: an instruction behind a waiting one issues after the awaited result has arrived.
An instruction whose guard is false still waits, because the scheduler evaluates the mask before the guard.
"""

from __future__ import annotations

from dataclasses import dataclass

SCOREBOARDS = 6
_NONE = 7
_FIRST_BIT = 105
_BITS = 21


@dataclass(frozen=True, slots=True)
class Control:
    """A decoded control word."""

    stall: int = 0
    """Cycles until the next instruction."""
    yields: bool = False
    """Whether the scheduler may switch to another warp first."""
    write_scoreboard: int | None = None
    """The scoreboard that is lowered when the result has arrived; None for an instruction of fixed latency, or without a result."""
    read_scoreboard: int | None = None
    """The scoreboard that is lowered when the sources have been read."""
    wait_mask: int = 0
    """Bit k: waits for scoreboard k."""
    reuse: int = 0

    @property
    def waits(self) -> tuple[int, ...]:
        """Scoreboards that the instruction waits for."""
        return tuple(number for number in range(SCOREBOARDS) if self.wait_mask >> number & 1)


def decode_control(encoding: int) -> Control:
    """Return the control word of a 128-bit instruction."""
    word = encoding >> _FIRST_BIT
    return Control(
        stall=word & 15,
        yields=not word >> 4 & 1,
        write_scoreboard=_scoreboard(word >> 5 & 7),
        read_scoreboard=_scoreboard(word >> 8 & 7),
        wait_mask=word >> 11 & 63,
        reuse=word >> 17 & 15,
    )


def with_control(encoding: int, control: Control) -> int:
    """Return the encoding with another control word."""
    word = (
        control.stall
        | (not control.yields) << 4
        | _field(control.write_scoreboard) << 5
        | _field(control.read_scoreboard) << 8
        | control.wait_mask << 11
        | control.reuse << 17
    )
    mask = (1 << _BITS) - 1 << _FIRST_BIT
    return encoding & ~mask | word << _FIRST_BIT


def _scoreboard(field: int) -> int | None:
    return None if field == _NONE else field


def _field(scoreboard: int | None) -> int:
    return _NONE if scoreboard is None else scoreboard

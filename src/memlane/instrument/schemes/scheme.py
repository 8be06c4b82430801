"""What a scheme is: the two clock reads around an access, and what the second one means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memlane.record import COMPLETE, ISSUE_ONLY


@dataclass(frozen=True, slots=True)
class Access:
    """The access that a probe goes around."""

    kind: str
    """`load`, `store`, `atomic` or `reduction`."""
    read_only: bool
    """Whether it reads memory that no kernel can write: constants, textures, `ld.global.nc`."""
    sources: tuple[tuple[str, str], ...]
    """Registers that it reads, address and data, with their scalar types."""
    value: tuple[str, str] | None
    """A register that receives (part of) what it loads and is read later, with its type; None if there is none."""
    prefix: str
    """Of the names that the probe may use, for example `ml_`."""
    address: str = ""
    """PTX that makes registers among the sources; it stands in front of the first clock read of a scheme with a `zero`."""

    @property
    def registers(self) -> str:
        """The prefix of registers."""
        return f"%{self.prefix}"


@dataclass(frozen=True, slots=True)
class Stamps:
    """The two clock reads around an access, what stands in front of each, and the meaning of what they measure."""

    before: str
    """PTX in front of the first clock read."""
    start: str
    """The instruction that reads the clock into `%ml_start`."""
    after: str
    """PTX between the access and the second clock read."""
    end: str
    """The instruction that reads the clock into `%ml_end`."""
    completeness: str
    """`complete`, `issue-only`, or of a store that is timed until others see it `block-visible` or `device-visible`."""
    reason: str = ""
    """Why it is `issue-only`."""
    witness: str = ""
    """PTX right behind the access, whose last instruction tells of a store before it that others see it."""


@dataclass(frozen=True, slots=True)
class ClockRead:
    """A clock read and what it has to wait for."""

    before: str
    """PTX in front of it."""
    read: str
    """The instruction that reads the clock."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The clock reads of a load whose value is waited for in front of its consumer."""

    start: Callable[[Access], ClockRead]
    """The one before the access, which leaves the start in `%ml_start`."""
    wait: Callable[[str, Sequence[tuple[str, str]]], tuple[ClockRead, ClockRead]]
    """Those before the consumer, given the prefix of registers and the registers that hold the value, with their types: the first leaves
    the clock before the wait in `%ml_wait`, the second the end in `%ml_end`. Between them `%ml_now` becomes a zero that comes with the
    first."""
    arrived: Callable[[str, Sequence[tuple[str, str]]], ClockRead]
    """The same where nobody consumes the value: the clock read that leaves the end in `%ml_end`."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to read the clock around accesses."""

    name: str
    stamps: Callable[[Access], Stamps]
    declare: Callable[[str], str] = lambda registers: ""
    """PTX at the start of a kernel, given the prefix of registers: what the probes keep in registers, with its value where no buffer is."""
    load: Callable[[str], str] = lambda registers: ""
    """PTX that fills these registers, given the prefix of registers; `%ml_unknown` is 0, which the assembler cannot know."""
    zero: str = ""
    """Of those, without prefix, the one that is 0 and of which the assembler does not know it, if there is one."""
    extra_shared_bytes: int = 0
    """Dynamic shared memory that a launch must add."""
    apart: Apart | None = None
    """How loads are timed whose consumers are known, if not by these stamps."""
    otherwise: str = ""
    """Where there is such a way: the name of the scheme that the other accesses have, whose stamps these are."""


def nothing_to_wait_for(access: Access) -> str:
    """Why the end of an access without a usable value is only its issue; empty if there is a value."""
    if access.value is not None:
        return ""
    if access.kind == "load":
        return "no instruction reads the loaded value, so nothing waits for it"
    return f"a {access.kind} returns no value to wait for"


def judge(reason: str) -> tuple[str, str]:
    """Completeness and reason."""
    return (ISSUE_ONLY, reason) if reason else (COMPLETE, "")


def read_clock(register: str) -> str:
    """PTX that reads the clock: always 64 bits, because `%clock` is read through a slow path of variable latency on sm_90."""
    return f"mov.u64 {register}, %clock64;\n"

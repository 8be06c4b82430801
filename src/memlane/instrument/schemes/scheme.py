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
class Probe:
    """PTX before and after an access, and the meaning of what it measures."""

    before: str
    """Leaves the start in `%ml_start`."""
    after: str
    """Leaves the end in `%ml_end`."""
    completeness: str
    """`complete` or `issue-only`."""
    reason: str = ""
    """Why it is `issue-only`."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The clock reads of a load whose value is waited for in front of its consumer."""

    start: Callable[[Access], str]
    """PTX before the access; leaves the start in `%ml_start`."""
    wait: Callable[[str, Sequence[tuple[str, str]]], str]
    """PTX before the consumer, given the prefix of registers and the registers that hold the value, with their types: leaves the clock
    before the wait in `%ml_wait`, the end in `%ml_end`, and in `%ml_now` a zero that comes with the clock before the wait."""
    arrived: Callable[[str, Sequence[tuple[str, str]]], str]
    """The same where nobody consumes the value: PTX that leaves the end in `%ml_end`."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to read the clock around accesses."""

    name: str
    probe: Callable[[Access], Probe]
    declare: Callable[[str], str] = lambda registers: ""
    """PTX at the start of a kernel, given the prefix of registers: what the probes keep in registers, with its value where no buffer is."""
    load: Callable[[str], str] = lambda registers: ""
    """PTX that fills these registers, given the prefix of registers; `%ml_unknown` is 0, which the assembler cannot know."""
    zero: str = ""
    """Of those, without prefix, the one that is 0 and of which the assembler does not know it, if there is one."""
    extra_shared_bytes: int = 0
    """Dynamic shared memory that a launch must add."""
    apart: Apart | None = None
    """How loads are timed whose consumers are known, if not by the probe."""
    otherwise: str = ""
    """Where there is such a way: the name of the scheme that the other accesses have, whose probe this is."""


def nothing_to_wait_for(access: Access) -> str:
    """Why the end of an access without a usable value is only its issue; empty if there is a value."""
    if access.value is not None:
        return ""
    if access.kind == "load":
        return "no instruction reads what it loads, so nothing waits for it"
    return f"a {access.kind} returns no value that could be waited for"


def judge(reason: str) -> tuple[str, str]:
    """Completeness and reason."""
    return (ISSUE_ONLY, reason) if reason else (COMPLETE, "")


def read_clock(register: str) -> str:
    """PTX that reads the clock: always 64 bits, because `%clock` is read through a slow path of variable latency on sm_90."""
    return f"mov.u64 {register}, %clock64;\n"

"""Define what a scheme provides: the two clock reads around an access, and what the second one means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memlane.record import COMPLETE, ISSUE_ONLY


@dataclass(frozen=True, slots=True)
class Access:
    """The access that a probe times."""

    kind: str
    """`load`, `store`, `atomic` or `reduction`."""
    read_only: bool
    """Whether it reads memory that no kernel can write: constants, textures, `ld.global.nc`."""
    sources: tuple[tuple[str, str], ...]
    """Registers that it reads, address and data, with their scalar types."""
    value: tuple[str, str] | None
    """A register that receives (part of) the loaded value and is read later, with its type; None if there is none."""
    prefix: str
    """Prefix of the names that the probe may use, for example `ml_`."""
    address: str = ""
    """PTX that defines registers among the sources; it precedes the first clock read of a scheme with a `zero`."""

    @property
    def registers(self) -> str:
        """Prefix of register names."""
        return f"%{self.prefix}"


@dataclass(frozen=True, slots=True)
class Stamps:
    """The two clock reads around an access, the PTX before each, and what they measure."""

    before: str
    """PTX before the first clock read."""
    start: str
    """Instruction that reads the clock into `%ml_start`."""
    after: str
    """PTX between the access and the second clock read."""
    end: str
    """Instruction that reads the clock into `%ml_end`."""
    completeness: str
    """`complete` or `issue-only`; for a store timed until other threads see it `block-visible` or `device-visible`."""
    reason: str = ""
    """Reason why it is `issue-only`."""
    witness: str = ""
    """PTX right after a store, whose last instruction shows that the store is visible to other threads."""


@dataclass(frozen=True, slots=True)
class ClockRead:
    """A clock read and what it waits for."""

    before: str
    """PTX before it."""
    read: str
    """Instruction that reads the clock."""


@dataclass(frozen=True, slots=True)
class DeferredReads:
    """Clock reads of a load whose wait is deferred to its consumer."""

    start: Callable[[Access], ClockRead]
    """Returns the clock read before the access, which leaves the start in `%ml_start`."""
    wait: Callable[[str, Sequence[tuple[str, str]]], tuple[ClockRead, ClockRead]]
    """Returns the two clock reads before the consumer, given the prefix of registers and the registers that hold the value, with their
    types. The first leaves the clock before the wait in `%ml_wait`, the second the end in `%ml_end`; between them `%ml_now` becomes a zero
    that depends on the first."""
    unconsumed_end: Callable[[str, Sequence[tuple[str, str]]], ClockRead]
    """Returns the clock read that leaves the end in `%ml_end` where nothing consumes the value; same arguments."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to read the clock around accesses."""

    name: str
    stamps: Callable[[Access], Stamps]
    declare: Callable[[str], str] = lambda registers: ""
    """Returns PTX for the start of a kernel, given the prefix of registers: declares the scheme's registers, with their values without a
    buffer."""
    load: Callable[[str], str] = lambda registers: ""
    """Returns PTX that fills these registers, given the prefix of registers; `%ml_unknown` holds the opaque zero."""
    zero: str = ""
    """Name, without prefix, of the scheme's register that holds the opaque zero; empty if it has none."""
    extra_shared_bytes: int = 0
    """Dynamic shared memory that a launch must add."""
    deferred: DeferredReads | None = None
    """How loads with known consumers are timed; None if by `stamps` too."""
    fallback: str = ""
    """Name of the scheme of the other accesses, which `stamps` times, if `deferred` is given."""


def nothing_to_wait_for(access: Access) -> str:
    """Return the reason why the end of an access without a usable value is only its issue; empty if there is a value."""
    if access.value is not None:
        return ""
    if access.kind == "load":
        return "no instruction reads the loaded value, so nothing waits for it"
    return f"a {access.kind} returns no value to wait for"


def judge(reason: str) -> tuple[str, str]:
    """Return completeness and reason: complete if the reason is empty, else issue-only."""
    return (ISSUE_ONLY, reason) if reason else (COMPLETE, "")


def read_clock(register: str) -> str:
    """Return PTX that reads the clock: always 64 bits, because `%clock` is read through a slow path of variable latency on sm_90."""
    return f"mov.u64 {register}, %clock64;\n"

"""What a checked launch did that no kernel may do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from memlane.launch.configuration import Dim3


@dataclass(frozen=True)
class Actor:
    """A thread at an instruction."""

    block: Dim3
    thread: Dim3
    file: str
    line: int
    """1-based; of the PTX text where there is no line information."""
    op: str
    """The PTX opcode in full, for example `ld.shared.f32`."""

    @property
    def place(self) -> str:
        """`matmul.cu:24`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Report:
    """One thing that the checker found, at one line or between two. `str()` gives it as one paragraph."""

    kind: str
    """`out of bounds`, `use after free`, `misaligned`, `never written`, `data race`, `barrier`, `mask`, `missing wait`, or, of a launch in
    a plan, `undeclared access`."""
    kernel: str
    """The kernel's title."""
    who: Actor
    other: Actor | None
    """Of a race the earlier access; of a barrier or a mask a thread that is not where it should be; of a missing
    wait what was to be waited for."""
    what: str
    """What happened the first time, in words."""
    remedy: str
    count: int
    """How often it happened: lanes for accesses, times for barriers and masks."""
    address: int | None = None
    """Of the access in its state space; None for barriers and masks."""
    nbytes: int | None = None
    space: str = ""
    memory: str = ""
    """What lies there, for example `tile+64` or `argument 1 (f4[1024])+4096`."""

    @property
    def place(self) -> str:
        """File and line, as `matmul.cu:24`."""
        return self.who.place

    def __str__(self) -> str:
        times = "" if self.count == 1 else f" ({self.count:,} times)"
        return f"{self.place}  {self.kind} in {self.kernel}: {self.what}{times}. {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {**asdict(self), "place": self.place, "text": str(self)}

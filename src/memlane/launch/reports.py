"""Define the checker's reports of invalid behaviour."""

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
    """1-based line; of the PTX text if there is no line information."""
    op: str
    """The PTX opcode in full, for example `ld.shared.f32`."""

    @property
    def place(self) -> str:
        """File and line, such as `matmul.cu:24`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Report:
    """One finding of the checker, at one line or between two. `str()` returns it as one paragraph."""

    kind: str
    """`out of bounds`, `use after free`, `misaligned`, `never written`, `data race`, `barrier`, `mask`, `missing wait`, or, for a launch in
    a plan, `undeclared access`."""
    kernel: str
    """Title of the kernel."""
    who: Actor
    other: Actor | None
    """For a race the earlier access; for a barrier or a mask a thread that is not where it should be; for a missing wait the operation to
    wait for."""
    what: str
    """Description of the first occurrence."""
    remedy: str
    count: int
    """Number of occurrences: lanes for accesses, times for barriers and masks."""
    address: int | None = None
    """Address of the access in its state space; None for barriers and masks."""
    nbytes: int | None = None
    space: str = ""
    memory: str = ""
    """Object at that address, such as `tile+64` or `argument 1 (f4[1024])+4096`."""

    @property
    def place(self) -> str:
        """File and line, such as `matmul.cu:24`."""
        return self.who.place

    def __str__(self) -> str:
        times = "" if self.count == 1 else f" ({self.count:,} times)"
        return f"{self.place}  {self.kind} in {self.kernel}: {self.what}{times}. {self.remedy}"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON."""
        return {**asdict(self), "place": self.place, "text": str(self)}

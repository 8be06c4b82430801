"""Where the records of a traced launch went first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Staging:
    """Where records went first, and why there."""

    memory: str
    """`global`: straight into the trace buffer. `shared`: into shared memory behind the kernel's own, and from there into the buffer."""
    records: int
    """Records of a warp that shared memory holds; 0 where they go straight into the buffer."""
    reason: str
    considered: bool = True
    """Whether shared memory was an option."""
    unknown: str = ""
    """Why it is not known how many blocks of the plain kernel a multiprocessor holds at once; empty where it is."""

    def __str__(self) -> str:
        where = f"shared memory first, {self.records} per warp" if self.memory == "shared" else "global memory"
        return f"{where}, because {self.reason}"

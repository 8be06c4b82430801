"""Describe where the records of a traced launch went first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Staging:
    """Where records went first, and why."""

    memory: str
    """`global`: directly into the trace buffer. `shared`: into shared memory after the kernel's own, and from there into the buffer."""
    records: int
    """Records per warp that fit into shared memory; 0 if they go directly into the buffer."""
    reason: str
    considered: bool = True
    """Whether shared memory was an option."""
    unknown: str = ""
    """Reason why it is unknown how many blocks of the plain kernel fit on a multiprocessor; empty if it is known."""

    def __str__(self) -> str:
        where = f"shared memory first, {self.records} per warp" if self.memory == "shared" else "global memory"
        return f"{where}, because {self.reason}"

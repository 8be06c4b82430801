"""What the probes of a trace changed about the kernel that they were put into."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.chip import ModelledTime


@dataclass(frozen=True)
class Footprint:
    """What a kernel takes of a multiprocessor, as it was assembled and launched."""

    registers: int
    """Of 32 bits, for each thread."""
    local_bytes: int
    """Stack of each thread in local memory: arrays and spilled registers."""
    shared_bytes: int
    """Of each block, static and dynamic."""
    resident_blocks: int
    """Blocks that one multiprocessor holds at once."""


@dataclass(frozen=True)
class Perturbation:
    """A launch without its probes and with them. The hit rate of the L1 cache is not here: no counter of the hardware is read."""

    plain: Footprint | None = None
    probed: Footprint | None = None
    """Both None where there is no assembled code to read them from; `unknown` says why."""
    unknown: str = ""
    plain_ns: float | None = None
    probed_ns: float | None = None
    """Median times of launches repeated with the memory as it was before each; None where nobody asked for them."""
    rounds: int = 0
    """How often each was timed."""
    plain_time: ModelledTime | None = None
    probed_time: ModelledTime | None = None
    """What limited these times where they are modelled; None where they were measured."""

    @property
    def slowdown(self) -> float | None:
        """Time with probes over time without."""
        return self.probed_ns / self.plain_ns if self.plain_ns and self.probed_ns is not None else None

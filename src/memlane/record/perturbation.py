"""Record what the probes of a trace changed about the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.chip import ModelledTime


@dataclass(frozen=True)
class Footprint:
    """Resources of a multiprocessor that a kernel takes, as assembled and launched."""

    registers: int
    """Registers of 32 bits per thread."""
    local_bytes: int
    """Stack per thread in local memory: arrays and spilled registers."""
    shared_bytes: int
    """Shared memory per block, static and dynamic."""
    resident_blocks: int
    """Blocks that fit on one multiprocessor at once."""


@dataclass(frozen=True)
class Perturbation:
    """A launch without and with its probes. The L1 hit rate is not included, because no hardware counter is read."""

    plain: Footprint | None = None
    probed: Footprint | None = None
    """Footprints without and with probes; both None without assembled code to read, and `unknown` gives the reason."""
    unknown: str = ""
    plain_ns: float | None = None
    probed_ns: float | None = None
    """Median times of repeated launches with the memory restored before each; None unless requested."""
    rounds: int = 0
    """How often each was timed."""
    plain_time: ModelledTime | None = None
    probed_time: ModelledTime | None = None
    """Limits of these times if they are modelled; None if measured."""

    @property
    def slowdown(self) -> float | None:
        """Time with probes divided by time without; None if not measured."""
        return self.probed_ns / self.plain_ns if self.plain_ns and self.probed_ns is not None else None

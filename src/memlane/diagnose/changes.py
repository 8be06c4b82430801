"""Hold what changed from one trace, or one set of counts, to another: of a number, of a source line, of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.diagnose.side import Line

CERTAINTY = 0.99
"""Confidence level of the intervals."""


@dataclass(frozen=True)
class Change:
    """One number before and after; None if unknown."""

    before: float | None
    after: float | None
    low: float | None = None
    high: float | None = None
    """Upper bound of `after - before` at confidence `CERTAINTY`, with `low` below; None if noise was not estimated or there was too little
    data."""
    is_exact: bool = False
    """Whether the numbers have no noise."""

    @property
    def difference(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def ratio(self) -> float | None:
        """After divided by before; None if unknown."""
        return None if self.after is None or not self.before else self.after / self.before

    @property
    def is_known(self) -> bool:
        """Whether the numbers allow a decision between change and no change."""
        return self.difference is not None and (self.is_exact or self.low is not None)

    @property
    def is_change(self) -> bool:
        """Whether the difference exceeds noise."""
        if self.difference is None:
            return False
        if self.is_exact:
            return abs(self.difference) > 1e-9
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class LineChange:
    """One operation of one source line on both sides."""

    file: str
    before: int
    """Line number on the first side, 1-based."""
    after: int
    op: str
    """Opcode with its modifiers on the second side."""
    text: str
    """The source line on the second side; empty if unknown."""
    was: str
    """The source line, or the opcode, on the first side if it differs; else empty."""
    requests: Change
    """Warp-level accesses per launch."""
    sectors_per_request: Change
    wavefronts_per_request: Change
    cycles_p50: Change
    """Latency in cycles: the median over the warps of each warp's median."""
    cycles_per_warp: Change
    """Total cycles of a warp in this access: the median over the warps."""

    @property
    def changes(self) -> dict[str, Change]:
        return {name: getattr(self, name) for name in MEASURES}

    @property
    def is_change(self) -> bool:
        """Whether any number changed by more than noise."""
        return any(change.is_change for change in self.changes.values())


MEASURES = ("requests", "sectors_per_request", "wavefronts_per_request", "cycles_p50", "cycles_per_warp")


@dataclass(frozen=True)
class KernelChange:
    """One kernel on both sides."""

    before: str
    """Name on the first side, without parameters."""
    after: str
    lines: tuple[LineChange, ...]
    only_before: tuple[Line, ...]
    """Lines with accesses on the first side only."""
    only_after: tuple[Line, ...]
    cycles_of_life: Change
    """Median lifetime of the warps in cycles, with probes, whose records may hide a gain."""
    time_ns: Change
    """Time of a launch without probes, if both sides measured it (`perturbation`). Modelled times have no noise; the noise of measured ones
    is unknown here."""
    launches: tuple[int, int]
    notes: tuple[str, ...] = ()
    """Differences between the two sides other than the code."""

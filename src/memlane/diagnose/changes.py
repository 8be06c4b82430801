"""Describe what changed between two traces, or two counts: the numbers before and after, and a summary in words."""

from __future__ import annotations

from dataclasses import dataclass

from memlane.diagnose.side import Line
from memlane.number_format import plural, rounded

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
    probed_ns: Change
    """Modelled time of a launch with its probes, if both sides have it: the median over the launches."""
    launches: tuple[int, int]
    notes: tuple[str, ...] = ()
    """Differences between the two sides other than the code."""


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. `str()` summarises it in a few sentences."""

    kernels: tuple[KernelChange, ...]
    names: tuple[str, str]
    """Names of the sides: paths, or `before` and `after`."""
    not_compared: tuple[str, ...]
    """Kernels that only one side has, with that side."""
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """Summarise the changes in a few sentences."""
        return summary(self)

    @property
    def is_change(self) -> bool:
        """Whether anything changed by more than noise."""
        return any(
            kernel.cycles_of_life.is_change
            or kernel.time_ns.is_change
            or kernel.probed_ns.is_change
            or kernel.only_before
            or kernel.only_after
            or any(line.is_change for line in kernel.lines)
            for kernel in self.kernels
        )


_WORDS = {
    "requests": "accesses",
    "sectors_per_request": "sectors per request",
    "wavefronts_per_request": "wavefronts per request",
    "cycles_p50": "median latency",
    "cycles_per_warp": "cycles of a warp",
}
_MOST = 3
"""Maximum number of lines named in a summary."""


def summary(comparison: Comparison) -> str:
    """Return what changed, in a few sentences."""
    return " ".join(sentences(comparison))


def sentences(comparison: Comparison) -> list[str]:
    """Return what changed: a sentence per kernel, and one that names the kernels that were not compared."""
    found = [_describe_kernel(kernel) for kernel in comparison.kernels]
    if comparison.not_compared:
        found.append(f"Not compared: {', '.join(comparison.not_compared)}.")
    return found


def _describe_kernel(kernel: KernelChange) -> str:
    name = kernel.after if kernel.before == kernel.after else f"{kernel.before} -> {kernel.after}"
    changed = sorted((line for line in kernel.lines if line.is_change), key=_weight, reverse=True)
    parts = _describe_whole(kernel)
    parts += [_describe_line(line) for line in changed[:_MOST]]
    if len(changed) > _MOST:
        parts.append(f"{plural(len(changed) - _MOST, 'more line')} changed")
    parts += [f"line {line.line} ({line.op}) is gone" for line in kernel.only_before[:_MOST]]
    parts += [f"line {line.line} ({line.op}) is new" for line in kernel.only_after[:_MOST]]
    is_noisy = any(line.cycles_p50.difference is not None and not line.cycles_p50.is_exact for line in kernel.lines)
    beyond = " beyond noise" if is_noisy else ""
    if not parts:
        return f"{name}: no change{beyond}."
    still = sum(not line.is_change for line in kernel.lines)
    rest = f"; no change{beyond} in {plural(still, 'other access')}" if still else ""
    return f"{name}: {'; '.join(parts)}{rest}."


def _describe_whole(kernel: KernelChange) -> list[str]:
    """Describe the kernel as a whole: the time of a launch, without probes if known, else the lifetime of its traced warps.

    A launch with longer-lived warps may take less time, so the lifetime is told only where no time is known.
    """
    for time, how in ((kernel.time_ns, "without probes"), (kernel.probed_ns, "with probes")):
        if time.before is not None and time.after is not None:
            in_us = Change(time.before / 1e3, time.after / 1e3)
            return [f"a launch {how} takes {_from_to(in_us, ' us')}"] if abs(time.after - time.before) >= 1e-9 else []
    life = kernel.cycles_of_life
    return [f"a traced warp lives {_from_to(life, ' cycles')}"] if life.is_change else []


def _describe_line(line: LineChange) -> str:
    place = f"line {line.after}" if line.before == line.after else f"line {line.before} -> {line.after}"
    told = [f"{_WORDS[name]} {_from_to(change)}" for name, change in line.changes.items() if change.is_change]
    return f"{place} ({line.op}): {', '.join(told)}"


def _from_to(change: Change, unit: str = "") -> str:
    assert change.before is not None
    assert change.after is not None
    percent = None if change.ratio is None else 100 * (change.ratio - 1)
    share = "" if percent is None else f" ({percent:+.1f} %)" if abs(percent) < 0.95 else f" ({percent:+.0f} %)"
    return f"{rounded(change.before)} -> {rounded(change.after)}{unit}{share}"


def _weight(line: LineChange) -> float:
    """Return the importance of a change: cycles per warp if known, else transactions of all requests."""
    cycles = line.cycles_per_warp.difference
    if cycles is not None:
        return abs(cycles)
    moved = [line.sectors_per_request.difference, line.wavefronts_per_request.difference]
    return sum(abs(one) for one in moved if one is not None) * (line.requests.after or 0)

"""Limit the transactions of a kernel, and report what exceeds the limits, with the finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from memlane.chip import SECTOR_BYTES
from memlane.diagnose.finding import Finding
from memlane.diagnose.rules import explain
from memlane.errors import MemlaneError
from memlane.number_format import plural_noun
from memlane.record import Counts, SiteCounts, kernel_label


@dataclass(frozen=True)
class Limits:
    """Maximum cost of one operation on one source line of a kernel per launch; None: no limit."""

    max_sectors_per_request: float | None = None
    """Sectors of global memory per request, on average."""
    max_conflicts: float | None = None
    """Excess wavefronts of shared memory, in total."""
    max_excess_bytes: float | None = None
    """Bytes of excess sectors of global memory, in total."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
                raise MemlaneError(f"{one.name} must be a number of 0 or more, got {value!r}")

    @property
    def any(self) -> bool:
        """Whether any limit is set."""
        return any(getattr(self, one.name) is not None for one in fields(self))

    def beyond(self, counts: Counts, sources: Mapping[str, str] | None = None) -> list[str]:
        """Return a paragraph for each exceeded limit of a launch, with the finding at that place if a rule has one."""
        findings = explain(counts, sources)
        told = []
        for entry in counts.by_line():
            for name, measure in _MEASURES.items():
                limit, value = getattr(self, name), measure(entry)
                if limit is not None and value is not None and value > limit:
                    told.append(_describe_excess(entry, name, limit, value, findings, sources or {}))
        return told


def _describe_excess(entry: SiteCounts, name: str, limit: float, value: float, findings: list[Finding], sources: Mapping[str, str]) -> str:
    site = entry.site
    at_place = [
        one
        for one in findings
        if (one.kernel, one.file, one.op, one.space) == (site.kernel, site.file, site.op, site.space) and site.line in one.lines
    ]
    first = next(iter(at_place), None)
    lines = sources.get(site.file, "").splitlines()
    quoted = f"\n{site.line:>6} | {lines[site.line - 1].strip()}" if 0 < site.line <= len(lines) else ""
    said = str(first) if first else f"{site.file}:{site.line}  {site.op} in {kernel_label(site.kernel)}"
    noun, rest = _WORDS[name]
    measured = f"{_number(value)} {noun if value == 1 else plural_noun(noun)} {rest}"
    return f"{said}\n       {measured}, {name}={_number(limit)} was allowed{quoted}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def _sectors_per_request(entry: SiteCounts) -> float | None:
    if entry.sectors is None or entry.site.space == "local" or entry.site.is_box or not entry.requests:
        return None
    return entry.sectors / entry.requests


def _excess_bytes(entry: SiteCounts) -> float | None:
    return None if entry.excess_sectors is None or entry.site.space == "local" else entry.excess_sectors * SECTOR_BYTES


_MEASURES: Mapping[str, Callable[[SiteCounts], float | None]] = {
    "max_sectors_per_request": _sectors_per_request,
    "max_conflicts": lambda entry: entry.conflicts,
    "max_excess_bytes": _excess_bytes,
}
_WORDS = {
    "max_sectors_per_request": ("sector", "per request on average"),
    "max_conflicts": ("wavefront", "above the ideal"),
    "max_excess_bytes": ("byte", "of sectors above the ideal"),
}

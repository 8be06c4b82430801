"""Read one side of a comparison, a trace, counts, or a file of either, as lines of kernels."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import RecordError
from memlane.record import (
    Counts,
    LaunchInfo,
    LineSummary,
    Place,
    SiteCounts,
    Trace,
    is_record,
    kernel_label,
    load,
    source_line,
    summarise,
    total_by_place,
)
from memlane.record.plain_data import from_plain
from memlane.source import shortened

Numbers = npt.NDArray[np.float64]

LAUNCHES = 5
"""Number of launches of a kernel on a side from which launches are resampled instead of warps."""
_BLOCK, _LAUNCH = 6, 40
"""Bit positions of the block and of the launch in the number of a warp: a block has at most 32 warps, and block numbers have 32 bits."""
_NONE: Numbers = np.zeros(0)
_COMMENT = re.compile(r"//.*$|/\*.*?\*/")


@dataclass(frozen=True, eq=False)
class Line:
    """One operation on one source line of a kernel."""

    file: str
    line: int
    op: str
    space: str
    text: str
    """The source line without indentation; empty if unknown."""
    requests: int | None
    """Requests over all launches."""
    sectors_per_request: float | None
    wavefronts_per_request: float | None
    latencies: Numbers = field(default_factory=lambda: _NONE, repr=False)
    """Median cycles of each warp, or of each launch with `LAUNCHES` launches or more."""
    times: Numbers = field(default_factory=lambda: _NONE, repr=False)
    """Total cycles of each warp in its accesses here, or the median of these per launch."""
    ends: frozenset[tuple[str, str]] = frozenset()
    """How the ends of its accesses were read: their completeness (`complete`, `issue-only`, ...) and the scheme."""

    @property
    def key(self) -> str:
        """The line's text without blanks and comments."""
        return "".join(_COMMENT.sub("", self.text).split())

    @property
    def opcode(self) -> str:
        return self.op.partition(".")[0]


@dataclass(frozen=True, eq=False)
class SideKernel:
    """One kernel of a side."""

    title: str
    lines: tuple[Line, ...]
    launches: int
    shapes: tuple[str, ...]
    """Distinct grids and blocks of its launches."""
    lives: Numbers = field(default_factory=lambda: _NONE, repr=False)
    """Lifetime of each warp in cycles, or the median of each block or launch, according to what was sampled."""
    sampled: bool = False
    staged: frozenset[str] = frozenset()
    """Where its records were first written: `shared` or `global` memory; empty if unknown."""
    plain_ns: float | None = None
    """Time of a launch without probes, the median over its launches; None unless all of them were timed."""
    probed_ns: float | None = None
    """Modelled time of a launch with its probes, the median over its launches; None unless all of them have one."""
    limited_by: tuple[str, ...] = ()
    """Distinct limiters of its modelled times, without probes if known."""

    @property
    def label(self) -> str:
        return kernel_label(self.title)


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison."""

    name: str
    chip: str
    modelled: bool
    is_trace: bool
    schemes: tuple[str, ...]
    kernels: tuple[SideKernel, ...]
    failed: str = ""
    """Why the program, or else its first failed launch, ended; empty if none failed."""


def read_side(subject: Trace | Counts | Sequence[Counts] | str | os.PathLike[str], name: str) -> Side:
    """Return the side that `subject` describes; `name` names it if it has no path."""
    if isinstance(subject, str | os.PathLike):
        return _of_file(Path(subject))
    if isinstance(subject, Trace):
        return _of_trace(subject, name)
    several = [subject] if isinstance(subject, Counts) else subject
    if not isinstance(several, Sequence) or not several or not all(isinstance(one, Counts) for one in several):
        raise TypeError(f"compare takes traces, counts, or the paths of their files; got a {type(subject).__name__}")
    texts = {file: text for one in several for file, text in one.sources.items()}
    return _of_counts([(one.kernel, one.chip, one.grid, one.block, one.sites) for one in several], name, texts)


# -- traces ------------------------------------------------------------------------------------------------------------------------


def _of_trace(trace: Trace, name: str) -> Side:
    summaries: dict[str, list[LineSummary]] = {}
    for entry in summarise(trace):
        summaries.setdefault(entry.kernel, []).append(entry)
    by_kernel: dict[str, list[LaunchInfo]] = {}
    for launch in trace.launches:
        by_kernel.setdefault(launch.kernel, []).append(launch)
    rows = _Rows(trace)
    ends: dict[Place, set[tuple[str, str]]] = {}
    for site in trace.sites:
        if site.scheme:
            ends.setdefault(site.place, set()).add((site.completeness, site.scheme))
    kernels = tuple(_kernel_of(trace, rows, ends, kernel, by_kernel.get(kernel, []), entries) for kernel, entries in summaries.items())
    schemes = tuple(dict.fromkeys(launch.scheme for launch in trace.launches if launch.scheme))
    failed = trace.failed or next((launch.failed for launch in trace.launches if launch.failed), "")
    return Side(name, trace.chip, trace.modelled, True, schemes, kernels, failed)


def _kernel_of(
    trace: Trace,
    rows: _Rows,
    ends: Mapping[Place, set[tuple[str, str]]],
    kernel: str,
    launches: list[LaunchInfo],
    entries: list[LineSummary],
) -> SideKernel:
    sampling_shift = _sampling_shift(launches)
    lines = []
    for entry in entries:
        place = (kernel, entry.file, entry.line, entry.op, entry.space)
        latencies, times = rows.of_place(place, sampling_shift)
        requests = entry.accesses_estimated if entry.requests is None else entry.requests
        text = source_line(trace.sources, entry.file, entry.line)
        per_request = entry.sectors_per_request, entry.wavefronts_per_request
        read = frozenset(ends.get(place, ()))
        lines.append(Line(entry.file, entry.line, entry.op, entry.space, text, requests, *per_request, latencies, times, read))
    sampled = any(launch.sample is not None for launch in launches)
    lives = _lives(trace, [launch.id for launch in launches], sampling_shift)
    staged = frozenset(launch.staging.memory for launch in launches if launch.staging is not None)
    shapes = _shapes((one.grid, one.block) for one in launches)
    plain_ns, probed_ns = _plain_ns(launches), _probed_ns(launches, trace.clock_mhz)
    return SideKernel(kernel, tuple(lines), len(launches), shapes, lives, sampled, staged, plain_ns, probed_ns, _limited_by(launches))


def _limited_by(launches: Sequence[LaunchInfo]) -> tuple[str, ...]:
    plain = [None if one.perturbation is None else one.perturbation.plain_time for one in launches]
    times = plain if _plain_ns(launches) is not None else [one.time for one in launches]
    return tuple(dict.fromkeys(time.limited_by for time in times if time is not None))


def _plain_ns(launches: Sequence[LaunchInfo]) -> float | None:
    timed = [one.perturbation.plain_ns for one in launches if one.perturbation is not None and one.perturbation.plain_ns is not None]
    return float(np.median(timed)) if timed and len(timed) == len(launches) else None


def _probed_ns(launches: Sequence[LaunchInfo], clock_mhz: float) -> float | None:
    timed = [one.time.cycles for one in launches if one.time is not None]
    return 1e3 * float(np.median(timed)) / clock_mhz if timed and len(timed) == len(launches) and clock_mhz else None


def _sampling_shift(launches: Sequence[LaunchInfo]) -> int:
    """Return the shift that reduces a warp's number to the unit that was sampled, and has to be resampled.

    It is that of launches if there are several, of blocks if whole blocks were sampled, since the warps of a block are alike, else of
    warps.
    """
    if len(launches) >= LAUNCHES:
        return _LAUNCH
    return _BLOCK if any(launch.sample is not None and launch.sample.whole_blocks for launch in launches) else 0


class _Rows:
    """The rows of a trace, by place and by warp."""

    def __init__(self, trace: Trace) -> None:
        self._places: dict[Place, int] = {}
        numbers = np.array([self._places.setdefault(site.place, len(self._places)) for site in trace.sites], np.intp)
        columns = {name: trace.table[name].to_numpy().astype(np.int64) for name in ("launch", "block", "warp", "site", "start", "end")}
        cycles = columns["end"] - columns["start"]
        place = numbers[columns["site"]] if len(cycles) else np.zeros(0, np.intp)
        warp = _numbered(columns)
        order = np.lexsort((cycles, warp, place))
        self._cycles, self._warp = cycles[order].astype(np.float64), warp[order]
        self._bounds = np.searchsorted(place[order], np.arange(len(self._places) + 1))

    def of_place(self, place: Place, sampling_shift: int) -> tuple[Numbers, Numbers]:
        """Return median and sum of each warp's cycles there, or the medians of these per sampled unit."""
        number = self._places.get(place)
        if number is None or self._bounds[number] == self._bounds[number + 1]:
            return _NONE, _NONE
        part = slice(self._bounds[number], self._bounds[number + 1])
        cycles, warp = self._cycles[part], self._warp[part]
        firsts = np.flatnonzero(np.concatenate(([True], warp[1:] != warp[:-1])))
        counts = np.diff(np.append(firsts, len(warp)))
        # The cycles of a warp are sorted, so its median is in the middle.
        medians = (cycles[firsts + (counts - 1) // 2] + cycles[firsts + counts // 2]) / 2
        sums = np.add.reduceat(cycles, firsts)
        return _medians_by(medians, warp[firsts] >> sampling_shift), _medians_by(sums, warp[firsts] >> sampling_shift)


def _lives(trace: Trace, launches: Sequence[int], sampling_shift: int) -> Numbers:
    warps = trace.warps
    # The end of a warp is 0 if unknown.
    mine = np.isin(warps["launch"], launches) & (warps["end_cycles"] > warps["begin_cycles"])
    lives = (warps["end_cycles"][mine] - warps["begin_cycles"][mine]).astype(np.float64)
    numbers = _numbered({name: warps[name][mine].astype(np.int64) for name in ("launch", "block", "warp")})
    return _medians_by(lives, numbers >> sampling_shift)


def _numbered(columns: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return a number for each warp of the trace."""
    return (columns["launch"] << _LAUNCH) + (columns["block"] << _BLOCK) + columns["warp"]


def _medians_by(numbers: Numbers, key: npt.NDArray[np.int64]) -> Numbers:
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order])) + 1
    if len(bounds) + 1 >= len(numbers):  # all keys are distinct
        return numbers
    return np.array([np.median(part) for part in np.split(numbers[order], bounds) if len(part)], np.float64)


# -- counts and files --------------------------------------------------------------------------------------------------------------

_Extents = tuple[int, int, int]
_Counted = tuple[str, str, _Extents, _Extents, Sequence[SiteCounts]]
"""Kernel, chip, grid, block, sites."""


def _of_counts(launches: Sequence[_Counted], name: str, sources: Mapping[str, str]) -> Side:
    kernels = []
    for title in dict.fromkeys(launch[0] for launch in launches):
        mine = [launch for launch in launches if launch[0] == title]
        places = total_by_place(one for launch in mine for one in launch[4])
        lines = tuple(_counted_line(place, total, sources) for place, total in places.items())
        kernels.append(SideKernel(title, lines, len(mine), _shapes((launch[2], launch[3]) for launch in mine)))
    return Side(name, launches[0][1] if launches else "", False, False, (), tuple(kernels))


def _counted_line(place: Place, total: SiteCounts, sources: Mapping[str, str]) -> Line:
    _, file, line, op, space = place
    each = [None if number is None or not total.requests else number / total.requests for number in (total.sectors, total.wavefronts)]
    return Line(file, line, op, space, source_line(sources, file, line), total.requests, each[0], each[1])


@dataclass(frozen=True)
class _Head:
    """The head of a launch in a file of counts."""

    kernel: str
    chip: str
    grid: _Extents
    block: _Extents


@dataclass(frozen=True)
class _Texts:
    """The source texts in a file of counts."""

    sources: Mapping[str, str]


def _of_file(path: Path) -> Side:
    try:
        if is_record(path):
            return _of_trace(load(path), str(path))
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):  # not text, not JSON, or nested too deeply
        document = None
    if not isinstance(document, dict) or document.get("kind") != "counts":
        raise RecordError(f"{path} is neither a record file of memlane trace nor the output of memlane count --json")
    try:
        launches = [_launch(launch, f"launches[{number}]") for number, launch in enumerate(document["launches"])]
        from_plain(_Texts, {"sources": document.get("sources") or {}}, "it")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(
            f"{path} is damaged: missing or unreadable: {shortened(str(error))}; write it again with memlane count --json"
        ) from None
    return replace(_of_counts(launches, str(path), document.get("sources") or {}), failed=str(document.get("failed") or ""))


def _launch(launch: dict[str, Any], where: str) -> _Counted:
    sites = [
        from_plain(SiteCounts, {**entry["counts"], "site": entry}, f"{where}.sites[{number}]")
        for number, entry in enumerate(launch["sites"])
    ]
    head = from_plain(_Head, launch, where)
    return head.kernel, head.chip, head.grid, head.block, sites


def _shapes(launches: Iterable[tuple[_Extents, _Extents]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{'x'.join(map(str, grid))} of {'x'.join(map(str, block))}" for grid, block in launches))

"""Compare two traces, or two counts: what changed at each source line, and which changes exceed noise.

Counts are deterministic, so every difference is real. Times are not: each warp gives one number (its median latency at a line, its cycles
there, its lifetime), and resampling the warps of both sides gives an interval for the difference of the medians. If the interval contains
zero, no change is claimed. That is the noise within a run; the variation between runs is known only from traces with several launches, and
with `LAUNCHES` of them on both sides launches are resampled instead. The emulator's times have no noise, unless only some warps were
traced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from memlane.diagnose.changes import CERTAINTY, Change, Comparison, KernelChange, LineChange
from memlane.diagnose.matching import match_lines
from memlane.diagnose.side import Line, Side, SideKernel, read_side
from memlane.diagnose.spread import Numbers, median_change
from memlane.errors import CommandError
from memlane.record import Counts, Trace

Subject = Trace | Counts | Sequence[Counts] | str | os.PathLike[str]


def compare(a: Subject, b: Subject, kernels: Mapping[str, str] | None = None) -> Comparison:
    """Compare `a` with `b` and return what changed: traces, counts, or the paths of their files (`memlane trace`, `memlane count --json`).

        change = ml.compare("before.parquet", "after.parquet")
        print(change)                               # a few sentences; change.kernels[0].lines has the numbers
        assert not change.is_change

    Kernels of the same name are compared with each other, and their lines by text, wherever they stand. `kernels` maps names in `a` to
    names in `b`; then only these pairs are compared. Raises CommandError if nothing can be compared: kernels of different names, a trace
    and counts; RecordError for files that are neither; TypeError for other objects.
    """
    return compare_sides(read_side(a, "before"), read_side(b, "after"), kernels)


def compare_sides(first: Side, second: Side, kernels: Mapping[str, str] | None = None) -> Comparison:
    """Return what changed from one side to the other; `kernels` and errors are those of `compare`."""
    if first.is_trace != second.is_trace:
        trace, counts = (first, second) if first.is_trace else (second, first)
        raise CommandError(
            (f"{trace.name} is a trace and {counts.name} holds counts, which have no times; compare two traces or two files of counts"),
            exit_code=1,
        )
    pairs = _pairs(first, second, kernels)
    notes, timed = _conditions(first, second)
    changes = tuple(_kernel(one, other, first, second, timed) for one, other in pairs)
    taken = [{one.label for one, _ in pairs}, {other.label for _, other in pairs}]
    rest = [
        f"{kernel.label} (only in {side.name})"
        for side, own in zip((first, second), taken, strict=True)
        for kernel in side.kernels
        if kernel.label not in own and not kernels
    ]
    return Comparison(changes, (first.name, second.name), tuple(rest), notes)


def _pairs(first: Side, second: Side, wanted: Mapping[str, str] | None) -> list[tuple[SideKernel, SideKernel]]:
    if wanted:
        return [(_named(first, before), _named(second, after)) for before, after in wanted.items()]
    there = {kernel.label: kernel for kernel in second.kernels}
    pairs = [(kernel, there[kernel.label]) for kernel in first.kernels if kernel.label in there]
    if pairs:
        return pairs
    if not first.kernels or not second.kernels:
        empty = first if not first.kernels else second
        raise CommandError(f"{empty.name} holds no accesses, so there is nothing to compare", exit_code=1)
    here, other = (", ".join(kernel.label for kernel in side.kernels) for side in (first, second))
    raise CommandError(
        f"{first.name} has {here} and {second.name} has {other}, which are different kernels; to compare two of them anyway, pair them "
        f"with --kernel {first.kernels[0].label}={second.kernels[0].label}",
        exit_code=1,
    )


def _named(side: Side, name: str) -> SideKernel:
    for kernel in side.kernels:
        if name in (kernel.label, kernel.title):
            return kernel
    listed = ", ".join(kernel.label for kernel in side.kernels) or "none"
    raise CommandError(f"{side.name} has no kernel {name}; it has: {listed}", exit_code=1)


def _conditions(first: Side, second: Side) -> tuple[tuple[str, ...], bool]:
    """Return notes on differing conditions of the two sides, and whether their times can be compared."""
    notes = [f"{side.name} ends where its program failed: {side.failed.rstrip('.')}" for side in (first, second) if side.failed]
    if first.chip != second.chip:
        notes.append(
            f"{first.name} was taken on {first.chip}, {second.name} on {second.chip}: transactions are counted by the rules of each chip"
        )
    if not first.is_trace:
        return tuple(notes), False
    reasons = []
    if first.modelled != second.modelled:
        reasons.append("one side was measured and the other modelled")
    if first.chip != second.chip:
        reasons.append("the chips differ")
    if first.schemes != second.schemes:
        reasons.append(f"the probes differ ({', '.join(first.schemes) or 'none'}; {', '.join(second.schemes) or 'none'})")
    if reasons:
        notes.append(f"times are not compared: {' and '.join(reasons)}")
    return tuple(notes), not reasons


def _kernel(one: SideKernel, other: SideKernel, first: Side, second: Side, timed: bool) -> KernelChange:
    matched = match_lines(one.lines, other.lines)
    sampled = one.sampled or other.sampled  # The choice of traced warps is random, even if the times are not.
    is_exact = first.modelled and second.modelled and not sampled
    lines = tuple(_line(before, after, one, other, timed, is_exact) for before, after in matched.pairs)
    notes = []
    if one.shapes != other.shapes:
        notes.append(f"grid and block differ: {' and '.join(one.shapes)} before, {' and '.join(other.shapes)} after")
    if sampled:
        notes.append("on at least one side only some of the warps were traced; its times cover only those warps")
    if one.staged and other.staged and one.staged != other.staged:
        notes.append(
            f"records went {_staged(one.staged)} before and {_staged(other.staged)} after: the lifetime of a warp includes the cost of that"
        )
    if timed:
        notes += _notes_on_ends(matched.pairs)
        if one.limited_by and other.limited_by:
            before, after = " and ".join(one.limited_by), " and ".join(other.limited_by)
            both = f"{before} before and after" if before == after else f"{before} before and by {after} after"
            notes.append(f"the modelled time is limited by {both}")
    return KernelChange(
        before=one.label,
        after=other.label,
        lines=lines,
        only_before=tuple(matched.only_before),
        only_after=tuple(matched.only_after),
        cycles_of_life=_median_change(one.lives, other.lives, timed, is_exact),
        time_ns=_time_change(one.plain_ns, other.plain_ns, timed, first.modelled and second.modelled),
        probed_ns=_time_change(one.probed_ns, other.probed_ns, timed, True),
        launches=(one.launches, other.launches),
        notes=tuple(notes),
    )


_MOST = 3
"""Maximum number of lines named in a note."""
_STAGES = {"global": "straight into global memory", "shared": "into shared memory first"}


def _staged(memories: Iterable[str]) -> str:
    return " and ".join(_STAGES.get(memory, memory) for memory in sorted(memories))


def _have_same_ends(before: Line, after: Line) -> bool:
    """Return whether the times of both lines have the same meaning as far as known: their ends were read in the same way."""
    return not before.ends or not after.ends or before.ends == after.ends


def _notes_on_ends(pairs: Sequence[tuple[Line, Line]]) -> list[str]:
    """Return a sentence on the lines whose ends were read differently on the two sides; an empty list if there are none."""
    unlike = [pair for pair in pairs if not _have_same_ends(*pair)]
    told = [f"line {after.line}, {after.op} ({_ends(before, after)}; {_ends(after, before)})" for before, after in unlike[:_MOST]]
    left = f" and {len(unlike) - _MOST} more" if len(unlike) > _MOST else ""
    return [f"times are not compared for accesses whose ends were read differently: {', '.join(told)}{left}"] if told else []


def _ends(line: Line, other: Line) -> str:
    """Return how the ends of a line's accesses were read, with the schemes if these differ from the other line's."""
    schemes = {scheme for _, scheme in line.ends} != {scheme for _, scheme in other.ends}
    return " and ".join(sorted({f"{label} by {scheme}" if schemes else label for label, scheme in line.ends}))


def _line(before: Line, after: Line, one: SideKernel, other: SideKernel, timed: bool, is_exact: bool) -> LineChange:
    def exact(name: str) -> Change:
        return Change(getattr(before, name), getattr(after, name), is_exact=True)

    timed = timed and _have_same_ends(before, after)
    requests = Change(_per(before.requests, one.launches), _per(after.requests, other.launches), is_exact=True)
    was = before.text if before.text != after.text else before.op if before.op != after.op else ""
    return LineChange(
        file=after.file,
        before=before.line,
        after=after.line,
        op=after.op,
        text=after.text,
        was=was,
        requests=requests,
        sectors_per_request=exact("sectors_per_request"),
        wavefronts_per_request=exact("wavefronts_per_request"),
        cycles_p50=_median_change(before.latencies, after.latencies, timed, is_exact),
        cycles_per_warp=_median_change(before.times, after.times, timed, is_exact),
    )


def _median_change(before: Numbers, after: Numbers, timed: bool, is_exact: bool) -> Change:
    """Return the change of a median, with an interval unless the numbers have no noise."""
    found = median_change(before, after, CERTAINTY) if timed else None
    if found is None:
        return Change(None, None)
    return Change(*found[:2], is_exact=True) if is_exact else Change(*found)


def _time_change(before: float | None, after: float | None, timed: bool, is_exact: bool) -> Change:
    return Change(before, after, is_exact=is_exact) if timed and before is not None and after is not None else Change(None, None)


def _per(number: int | None, launches: int) -> float | None:
    return None if number is None or not launches else number / launches

"""List the rules, and apply them to the evidence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from memlane.diagnose import (
    bank_conflicts,
    cache_thrashing,
    contended_atomics,
    dependent_chain,
    divergence,
    imbalance,
    latency_outliers,
    local_memory,
    low_occupancy,
    misaligned,
    narrow_access,
    partial_sectors,
    partial_warps,
    reloaded_sectors,
    uncoalesced,
)
from memlane.diagnose.collect import merge_evidence, of_trace
from memlane.diagnose.evidence import HOW_TO_GET, SAME, Evidence
from memlane.diagnose.finding import Finding
from memlane.diagnose.merging import merge_alike
from memlane.diagnose.rule import Rule, Verdict
from memlane.errors import RecordError
from memlane.record import Counts, LaunchInfo, Site, Trace, load

RULES: tuple[Rule, ...] = (
    uncoalesced.RULE,
    bank_conflicts.RULE,
    partial_sectors.RULE,
    misaligned.RULE,
    narrow_access.RULE,
    contended_atomics.RULE,
    local_memory.RULE,
    divergence.RULE,
    partial_warps.RULE,
    dependent_chain.RULE,
    low_occupancy.RULE,
    imbalance.RULE,
    cache_thrashing.RULE,
    reloaded_sectors.RULE,
    latency_outliers.RULE,
)
"""All rules, in the order in which equal findings are listed. A new rule is a new module with a `RULE`, added here."""


LANE_ORDER_RULES = frozenset(rule.RULE.id for rule in (uncoalesced, bank_conflicts, partial_sectors, misaligned, contended_atomics))
"""Rules whose finding disappears if the lanes of an access are contiguous."""


@dataclass(frozen=True)
class Unexamined:
    """A rule that could not examine some kernels because evidence is missing."""

    rule: str
    title: str
    kernels: tuple[str, ...]
    missing: tuple[str, ...]
    """Missing evidence."""
    how_to_get: tuple[str, ...]
    """How to obtain each of it."""

    def __str__(self) -> str:
        return f"{self.title}: without {' and '.join(self.missing)}; {', and '.join(dict.fromkeys(self.how_to_get))}"


class Findings(list[Finding]):
    """Findings, the costliest first, with the rules that could not be applied."""

    def __init__(self, found: Iterable[Finding] = (), unexamined: Iterable[Unexamined] = ()) -> None:
        super().__init__(found)
        self.unexamined = tuple(unexamined)


def explain(subject: Trace | Counts | Sequence[Counts] | str | os.PathLike[str], sources: Mapping[str, str] | None = None) -> Findings:
    """Return the problems with the memory accesses of a trace or of counts, the costliest first; empty if no rule finds any.

        for finding in ml.explain(trace):           # or ml.explain("transpose.parquet"), ml.explain(counts)
            print(finding)

    `subject` is a trace, the path of its record file, or counts. `sources`: texts of source files by name, if the counts do not contain
    them. Launches of one kernel are merged. Rules without the evidence that they need (counts have no times, a trace of a GPU has counts
    only on request) are listed in the result's `unexamined`, with a remedy. Raises RecordError for a trace that holds neither times nor
    counts, or whose records disagree with their sites; see `uncounted_launches` for traces that were counted only in part.
    """
    if isinstance(subject, Trace):
        evidence = _of_trace(subject, "the trace")
    elif isinstance(subject, str | os.PathLike):
        evidence = _of_trace(load(subject), os.fspath(subject))
    else:
        several = [subject] if isinstance(subject, Counts) else subject
        if not isinstance(several, Sequence) or not all(isinstance(one, Counts) for one in several):
            raise TypeError(f"explain takes a trace, the path of a record file, or counts; got a {type(subject).__name__}")
        evidence = merge_evidence(
            [
                Evidence(one.kernel, one.chip, one.how, one.sites, one.branches, sources=sources or one.sources)
                for one in several
                if one.sites
            ]
        )
    return examine(evidence)


def examine(evidence: Sequence[Evidence], rules: Sequence[Rule] = RULES) -> Findings:
    """Return the findings of these rules about the kernels."""
    weighed: list[tuple[float, Finding]] = []
    lacking: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for rule in rules:
        for part in (one for one in evidence if one.own_sites):
            missing = tuple(need for need in rule.needs if part.missing(need))
            if missing:
                lacking.setdefault((rule.id, missing), []).append(part.kernel)
            else:
                found = [_finding(rule, verdict, part) for verdict in merge_alike(rule.examine(part), part)]
                weighed += [(_weight(one, part), one) for one in found]
    titles = {rule.id: rule.title for rule in rules}
    unexamined = [
        Unexamined(rule, titles[rule], tuple(dict.fromkeys(kernels)), missing, tuple(HOW_TO_GET[need] for need in missing))
        for (rule, missing), kernels in lacking.items()
    ]
    ordered = sorted(weighed, key=lambda pair: -pair[0])
    return Findings([replace(finding, rank=rank) for rank, (_, finding) in enumerate(ordered, 1)], unexamined)


def _weight(finding: Finding, evidence: Evidence) -> float:
    """Return the sort key of a finding in warp cycles.

    With a predicted gain, it is the same share of the warps' time: cycles waited at an access are not saved if the warps then wait for
    something else. The start of a launch, in which no warp lives, is not part of the whole.
    """
    if finding.saved_us is None or not finding.launch_us or evidence.life <= 0:
        return finding.cost_cycles
    started = sum(launch.predicted.launch_us for launch in evidence.launches if launch.predicted is not None)
    return min(1.0, max(0.0, finding.saved_us) / max(finding.launch_us - started, 1e-3)) * evidence.life


def uncounted_launches(trace: Trace) -> tuple[LaunchInfo, ...]:
    """Return the launches with memory accesses in the trace but without counts; most rules cannot examine them."""
    with_sites = {site.kernel for site in trace.sites}
    return tuple(launch for launch in trace.launches if not launch.counts and launch.kernel in with_sites)


def clean_kernels(trace: Trace, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return the titles of the trace's kernels that were counted and have no finding."""
    guilty = {finding.kernel for finding in findings}
    counted = [launch.kernel for launch in trace.launches if any(entry.requests for entry in launch.counts)]
    return tuple(dict.fromkeys(kernel for kernel in counted if kernel not in guilty))


def _of_trace(trace: Trace, name: str) -> list[Evidence]:
    silent = uncounted_launches(trace)
    if silent and len(silent) == len(trace.launches):
        if all(launch.failed for launch in silent):
            raise RecordError(f"{name} has no transaction counts, because no launch completed: {silent[0].failed}")
        if trace.modelled and not trace.table.num_rows:
            raise RecordError(
                f"{name} has no accesses, because none of its memory instructions was executed, so there is nothing to explain"
            )
        if not trace.table.num_rows:
            raise RecordError(
                f"{name} has neither records nor transaction counts, so there is nothing to explain; record it again with "
                "`memlane trace --counts`"
            )
    return of_trace(trace, name)


def _finding(rule: Rule, verdict: Verdict, evidence: Evidence) -> Finding:
    site, cost = verdict.site, verdict.cost
    line = site.line if verdict.line is None else verdict.line
    lines = evidence.sources.get(site.file, "").splitlines()
    excess = verdict.transactions - verdict.ideal
    measured = cost.measured and evidence.life > 0
    about = verdict.about or evidence.sites_of_access(site)
    least, most = _between(evidence, verdict.unit, about)
    launch_us = evidence.launch_us(about) if rule.id in LANE_ORDER_RULES else None
    return Finding(
        rule=rule.id,
        title=rule.title,
        rank=0,
        kernel=site.kernel,
        file=site.file,
        line=line,
        op=site.op,
        space=site.space,
        source=lines[line - 1].strip() if 0 < line <= len(lines) else "",
        requests=verdict.requests,
        unit=verdict.unit,
        transactions=verdict.transactions,
        ideal_transactions=verdict.ideal,
        bytes_requested=verdict.bytes_requested,
        excess_bytes=None if verdict.transaction_bytes is None else excess * verdict.transaction_bytes,
        what=verdict.what,
        cause=verdict.cause,
        remedy=verdict.remedy,
        chip=evidence.chip_name,
        how=evidence.how,
        cost_cycles=cost.cycles,
        cost_low=cost.low,
        cost_high=cost.high,
        cost_share=min(cost.cycles / evidence.life, 1.0) if measured else None,
        cost_ns=cost.cycles / evidence.clock_mhz * 1000 if measured and evidence.clock_mhz else None,
        cost_measured=cost.measured,
        times_modelled=cost.measured and evidence.modelled,
        method=cost.method,
        evidence=verdict.numbers,
        lines=verdict.lines or (line,),
        column=_column(evidence, site) if line == site.line and len(verdict.lines) < 2 else None,
        arrays=tuple(dict.fromkeys(name for one in about if (name := one.array or one.array_label))),
        least_per_request=least,
        most_per_request=most,
        launch_us=None if launch_us is None else launch_us[0],
        saved_us=None if launch_us is None else launch_us[1],
        called_at=tuple(dict.fromkeys(called for one in about if (called := _called(one)))),
    )


def _between(evidence: Evidence, unit: str, about: Sequence[Site]) -> tuple[float, float] | tuple[None, None]:
    """Return the minimum and maximum transactions per request of some sites; (None, None) if they are equal, or for another unit."""
    counted = [evidence.by_site[one.instruction] for one in about if one.instruction in evidence.by_site]
    moved = [(one.sectors if unit == "sectors" else one.wavefronts, one.requests) for one in counted if one.requests]
    means = [number / requests for number, requests in moved if number is not None]
    if unit not in ("sectors", "wavefronts") or not means or max(means) <= (1 + SAME) * min(means):
        return None, None
    return min(means), max(means)


def _column(evidence: Evidence, site: Site) -> int | None:
    """Return the column of a site if another access of its line has a different one; else None."""
    columns = {one.column for one in evidence.own_sites if (one.file, one.line) == (site.file, site.line)}
    return site.column if len(columns) > 1 and site.column else None


def _called(site: Site) -> str:
    """Return the call path from the kernel to a site, such as `a.cu:12 > a.cu:3`."""
    return " > ".join(f"{PurePath(one.file).name}:{one.line}" for one in (*site.calls, *site.inlined))

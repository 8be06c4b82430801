"""The table of rules, and what asks them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memlane.diagnose import bank_conflicts, uncoalesced
from memlane.diagnose.finding import Finding
from memlane.diagnose.rule import KernelTotals, Rule, Verdict
from memlane.errors import RecordError
from memlane.record import Counts, LaunchInfo, SiteCounts, Trace, load, total_by_place

RULES: tuple[Rule, ...] = (uncoalesced.RULE, bank_conflicts.RULE)
"""In the order in which equal findings are told. A new rule is a new module with a `RULE`, named here."""


def explain(subject: Trace | Counts | Sequence[Counts] | str | os.PathLike[str], sources: Mapping[str, str] | None = None) -> list[Finding]:
    """What is wrong with the memory accesses, worst first; an empty list where no rule finds anything.

    `subject` is a trace that holds counts, the path of its record file, or counts. `sources` gives the text of source files by name; a
    trace brings its own. Launches of one kernel are taken together. RecordError if nothing in the trace was counted; see
    `uncounted_launches` for traces of which only a part was.
    """
    if isinstance(subject, Trace):
        evidence = [_of_trace(subject, "the trace")]
    elif isinstance(subject, str | os.PathLike):
        evidence = [_of_trace(load(subject), os.fspath(subject))]
    else:
        several = [subject] if isinstance(subject, Counts) else subject
        if not isinstance(several, Sequence) or not all(isinstance(one, Counts) for one in several):
            raise TypeError(f"explain takes a trace, the path of a record file, or counts; got a {type(subject).__name__}")
        evidence = [_Evidence(one.chip, one.how, one.sites, sources or {}) for one in several]
    findings = [finding for part in _merged(evidence) for finding in _examine(part)]
    ordered = sorted(findings, key=lambda finding: -finding.excess_transactions)
    return [replace(finding, rank=rank) for rank, finding in enumerate(ordered, 1)]


def uncounted_launches(trace: Trace) -> tuple[LaunchInfo, ...]:
    """The launches with memory accesses in the trace but without counts: `explain` has nothing to say about them."""
    with_sites = {site.kernel for site in trace.sites}
    return tuple(launch for launch in trace.launches if not launch.counts and launch.kernel in with_sites)


def clean_kernels(trace: Trace, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Titles of the kernels in the trace of which accesses were counted and in which no rule found anything."""
    guilty = {finding.kernel for finding in findings}
    counted = [launch.kernel for launch in trace.launches if any(entry.requests for entry in launch.counts)]
    return tuple(dict.fromkeys(kernel for kernel in counted if kernel not in guilty))


@dataclass(frozen=True)
class _Evidence:
    """Counts from one chip, and the source text they speak of."""

    chip: str
    how: str
    counts: Iterable[SiteCounts]
    sources: Mapping[str, str]


def _of_trace(trace: Trace, name: str) -> _Evidence:
    silent = uncounted_launches(trace)
    if silent and len(silent) == len(trace.launches):
        if all(launch.failed for launch in silent):
            raise RecordError(f"{name} holds no transaction counts, because its launches broke off: {silent[0].failed}")
        if trace.modelled and not trace.table.num_rows:
            raise RecordError(f"{name} holds no access, because none of its sites was executed, so there is nothing to explain")
        raise RecordError(
            f"{name} holds no transaction counts, so there is nothing to explain; record it again with `memlane trace --counts`"
        )
    counts = [entry for launch in trace.launches for entry in launch.counts]
    return _Evidence(trace.chip, "emulated" if trace.modelled else "counted on the device", counts, trace.sources)


def _merged(evidence: Iterable[_Evidence]) -> list[_Evidence]:
    """One for each chip and way of counting: numbers of different origin are not added up."""
    merged: dict[tuple[str, str], _Evidence] = {}
    for part in evidence:
        key = (part.chip, part.how)
        before = merged.get(key)
        merged[key] = part if before is None else replace(part, counts=(*before.counts, *part.counts))
    return list(merged.values())


def _examine(evidence: _Evidence) -> list[Finding]:
    by_place = total_by_place(evidence.counts)
    kernels = dict.fromkeys(place[0] for place in by_place)
    totals = {kernel: KernelTotals.of(entry for place, entry in by_place.items() if place[0] == kernel) for kernel in kernels}
    findings = []
    for rule in RULES:
        for entry in by_place.values():
            verdict = rule.examine(entry, totals[entry.site.kernel])
            if verdict is not None:
                findings.append(_finding(rule, entry, verdict, evidence))
    return findings


def _finding(rule: Rule, counts: SiteCounts, verdict: Verdict, evidence: _Evidence) -> Finding:
    site = counts.site
    lines = evidence.sources.get(site.file, "").splitlines()
    excess = verdict.transactions - verdict.ideal
    return Finding(
        rule=rule.id,
        title=rule.title,
        rank=0,
        kernel=site.kernel,
        file=site.file,
        line=site.line,
        op=site.op,
        space=site.space,
        source=lines[site.line - 1].strip() if 0 < site.line <= len(lines) else "",
        requests=counts.requests,
        unit=verdict.unit,
        transactions=verdict.transactions,
        ideal_transactions=verdict.ideal,
        bytes_requested=counts.bytes,
        excess_bytes=None if verdict.transaction_bytes is None else excess * verdict.transaction_bytes,
        what=verdict.what,
        cause=verdict.cause,
        remedy=verdict.remedy,
        chip=evidence.chip,
        how=evidence.how,
    )

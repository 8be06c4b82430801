"""Write versioned JSON documents for programs.

Every document is one object:

    {"memlane_json": 1, "kind": KIND, ...}

`memlane_json` grows when a field changes its meaning or is removed; new fields may be added at any time, so readers must ignore fields that
they do not know. Unknown numbers are null, never 0 or NaN. Units are in the names. Documents about a program that was run (counts,
findings, fix, reports, summary) have `failed`: in one line why the program stopped early, so that later launches are missing; null for a
program that ended normally. Counts, reports and summary also have `failed_launches`: list of {id, kernel, why} of launches that failed,
even where the program continued; they are not among the counted ones. The kinds:

    kind "findings"   findings: list, costliest first, of the fields of `memlane.diagnose.Finding` with `per_request`, `ideal_per_request`,
                      `ratio`, `excess_transactions`, `cost` and `time` (sentences), `place` and the paragraph as `text`; unexamined: list
                      of {rule, title, kernels, missing, how_to_get}, rules that could not be checked in these kernels; rules: list of
                      {id, title, needs} of all rules that were checked; uncounted_launches: ids of the launches without counts;
                      clean_kernels: titles of the kernels without findings
    kind "counts"     launches: list of {chip, target, how, kernel, grid, block, thread_instructions, exact_share, total,
                      order_dependent, sites, merged, branches};
                      `total` has the fields of `memlane.record.Totals`; sites carry the fields of `Site` and, under `counts`, those of
                      `SiteCounts` over the launch (`bytes` requested by the lanes, `sectors` of 32 bytes) with `bytes_moved`, `conflicts`,
                      `excess_sectors`, `lanes_per_request` and `lanes_per_address`, and `exactness`: "exact", "merged", "hint" or
                      "not checked" against the assembled code; `order_dependent`: ids of the sites whose counts may depend on the order in
                      which threads run;
                      `merged`: the same for the accesses that the assembler merged from several sites, if requested;
                      sources: known texts of the source files, by the names in the sites
    kind "comparison" before, after: names of the two sides; summary, changed, certainty (of the intervals); kernels: list of {before,
                      after, launches, cycles_of_life, time_ns (of a launch without probes), probed_ns (modelled, with probes), lines,
                      only_before, only_after}; each number is {before, after, low, high (bounds of the difference; null where noise was
                      not examined), is_exact, changed (null: cannot be said)}
    kind "reports"    launches: number of launches checked; kernels: their titles; reports: list of the fields of `memlane.launch.Report`
                      with `place` and the paragraph as `text`
    kind "summary"    chip, target, modelled (times come from the emulator's clock), version, driver (of the GPU; empty
                      if there was none), records: {kept, lost},
                      accesses_not_kept (whose transactions are unknown), failed_launches (id, kernel, why;
                      their records are those made before the failure), windows_cycles (of the empty probe, by scheme), sites: list
                      of the fields of `Site` (`completeness` with its `reason` and `evidence`, `copies` in the assembled code, what
                      tracing `changed`), lines: list of the fields of `memlane.record.LineSummary` (`cycles_*`: from
                      start to end; `lifetime_share`: 0 to 1, serialised by the probe), perturbations: list of {launch, kernel, and
                      the fields of `memlane.record.Perturbation`, times in ns; slowdown: time with probes over time without}
    kind "predictions"
                      launches: list of {kernel, launches (number of identical ones), blocks, threads_per_block, predictions: list of the
                      fields of `memlane.model.kernel.Prediction` with `limiting`: us between two events, cycles, launch_us, parts and
                      waits, refused: reason for each chip that cannot run it},
                      not_modelled: what the model leaves out
    kind "banks"      rows, columns of the tile; entries: list of the fields of `memlane.layout.Wavefronts` with `conflicts`, `mean` minus
                      `ideal`
    kind "layout"     result of a search: layout, python and cuda (the layout as text), rows, columns, size, extra_operations and
                      extra_lookups of the address compared with row-major; entries, row_major, rap: the patterns under it, under the
                      row-major layout and under RAP, as in "banks"; examined: number of candidates; families: their kinds; beats_rap,
                      verdict

    kind "fix"        kernels: labels of those examined; arrays: list of {kernel, target, modelled, array, element_bytes,
                      ideal_wavefronts, original, tried, refused, best, language, source, cuda, verdict}; `original` and each of `tried` is
                      {layout, wavefronts, time_ns, times_as_fast, same_output, in_source (the program was compiled again with longer rows;
                      else the compiled kernel was rewritten), limited_by (what limited the modelled time; null where it was measured),
                      registers, shared_bytes, blocks}, each of `refused` {layout, reason}; `best`, `source` and `cuda` are null where no
                      layout is better; global_arrays: list of {kernel, parameter (its position), shape, type, sectors, ideal_sectors,
                      time_ns, tried, refused, best, launches_to_pay, verdict}; each of these `tried` is {layout, sectors, time_ns,
                      same_output, remap_ns, exposed_ns}

Findings and summaries have `samples`: for each launch that was traced in part {launch, text, weight: warps of the window per traced warp,
and the fields of `memlane.record.Sample`}; the `accesses` of a line are those recorded, `accesses_estimated` those of the window. Findings
and summaries have `times`: for each launch whose time was modelled {launch, kernel, with_probes, limited_by: the part of the chip that set
it, or "latency", cycles, scoreboard: cycles without the floors, floors: list of {name, cycles, moved}, missing: rates that the chip file
does not have, chip}. Findings, summaries and the launches of counts have `skipped`: accesses that were not examined, {function, op, file,
line, reason, kernels}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memlane.diagnose import RULES, Finding, Findings
from memlane.record import Counts, LaunchInfo, SiteCounts, Skipped, Trace, summarise
from memlane.report.failures import failed_fields
from memlane.report.modelled_times import times_document
from memlane.report.sample_notes import samples_of

if TYPE_CHECKING:
    from memlane.measure import FailedLaunch

VERSION = 1

Document = dict[str, Any]


def to_json(document: Mapping[str, Any]) -> str:
    """Return the document as text: two spaces of indentation, names in the order above, a line feed at the end."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def findings_document(
    findings: Sequence[Finding],
    uncounted: Sequence[LaunchInfo] = (),
    clean: Sequence[str] = (),
    skipped: Sequence[Skipped] = (),
    sampled: Sequence[LaunchInfo] = (),
    failed: str = "",
    timed: Trace | None = None,
) -> Document:
    """Return the document of kind "findings". `timed`: the trace, for what limited its modelled times."""
    return {
        **document_head("findings"),
        "failed": failed or None,
        "findings": [finding.as_dict() for finding in findings],
        "unexamined": [asdict(one) for one in findings.unexamined] if isinstance(findings, Findings) else [],
        "rules": [{"id": rule.id, "title": rule.title, "needs": list(rule.needs)} for rule in RULES],
        "uncounted_launches": [launch.id for launch in uncounted],
        "clean_kernels": list(clean),
        "times": [] if timed is None else times_document(timed),
        "samples": samples_of(sampled),
        "skipped": [asdict(one) for one in skipped],
    }


def counts_document(
    counts: Counts | Sequence[Counts],
    sources: Mapping[str, str] | None = None,
    failed: str = "",
    failed_launches: Sequence[FailedLaunch] = (),
) -> Document:
    """Return the document of kind "counts", of one launch or several.

    `sources`: texts of the source files, by the names that the sites use. `failed`: why the program that launched them stopped early.
    `failed_launches`: launches that failed, which are not counted.
    """
    launches = [counts] if isinstance(counts, Counts) else counts
    texts = {"sources": dict(sources)} if sources else {}
    parts = failed_fields(failed, failed_launches)
    return {**document_head("counts"), **parts, "launches": [_counts(launch) for launch in launches], **texts}


def summary_document(trace: Trace) -> Document:
    """Return the document of kind "summary": the trace by source line."""
    return {
        **document_head("summary"),
        "failed": trace.failed or None,
        "chip": trace.chip,
        "target": trace.target,
        "devices": list(trace.devices),
        "modelled": trace.modelled,
        "version": trace.version,
        "driver": trace.driver,
        "records": {"kept": trace.table.num_rows, "lost": trace.lost},
        "accesses_not_kept": sum(launch.accesses_not_kept for launch in trace.launches),
        "failed_launches": [{"id": launch.id, "kernel": launch.kernel, "why": launch.failed} for launch in trace.launches if launch.failed],
        "windows_cycles": dict(trace.windows),
        "samples": samples_of(trace.launches),
        "staging": [
            {"launch": launch.id, "kernel": launch.kernel, **asdict(launch.staging)}
            for launch in trace.launches
            if launch.staging is not None
        ],
        "times": times_document(trace),
        "perturbations": [_perturbation(launch) for launch in trace.launches if launch.perturbation is not None],
        "skipped": [asdict(one) for one in trace.skipped],
        "sites": [asdict(site) for site in trace.sites],
        "lines": [asdict(entry) for entry in summarise(trace)],
    }


def _perturbation(launch: LaunchInfo) -> Document:
    assert launch.perturbation is not None
    return {"launch": launch.id, "kernel": launch.kernel, **asdict(launch.perturbation), "slowdown": launch.perturbation.slowdown}


def document_head(kind: str) -> Document:
    return {"memlane_json": VERSION, "kind": kind}


def _counts(counts: Counts) -> Document:
    counts = counts.checked
    return {
        "chip": counts.chip,
        "target": counts.target,
        "how": counts.how,
        "kernel": counts.kernel,
        "grid": list(counts.grid),
        "block": list(counts.block),
        "thread_instructions": counts.thread_instructions,
        "exact_share": counts.exact_share,
        "total": counts.total().as_dict(),
        "order_dependent": sorted(counts.order_dependent),
        "sites": [_site(entry) for entry in counts.sites],
        "merged": [_site(entry) for entry in counts.merged],
        "branches": [asdict(branch) for branch in counts.branches],
        "skipped": [asdict(one) for one in counts.skipped],
    }


def _site(entry: SiteCounts) -> Document:
    totals = asdict(entry)
    site = totals.pop("site")
    return {**site, "counts": {**totals, **entry.derived()}}

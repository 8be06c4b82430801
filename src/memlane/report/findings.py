"""Render findings for the terminal: the worst in a few lines each, one line each, or all with the derivation of their cost."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from memlane.diagnose import CYCLES, RULES, Finding, Findings, Unexamined
from memlane.number_format import percent, plural, rounded
from memlane.record import LaunchInfo, Skipped, Trace, kernel_label
from memlane.report.failures import broken_off_note
from memlane.report.modelled_times import COSTS, time_notes
from memlane.report.skipped_accesses import skipped_note
from memlane.report.table import plain

TOP = 3
"""Number of findings shown by default."""
MODELLED_TIMES = "Times are modelled by the emulator, not measured."


def render_worst(
    findings: Sequence[Finding],
    clean: Sequence[str] = (),
    top: int = TOP,
    *,
    notes: Sequence[str] = (),
    brief: bool = False,
) -> RenderableType:
    """Return the `top` worst findings: title, place, cost, cause and remedy; with `brief` a line for each.

    `clean`: titles of kernels without a finding. `notes`: sentences that follow.
    """
    parts: list[RenderableType] = []
    for finding in findings[:top]:
        parts += [plain(_line(finding), "bold red")] if brief else _short(finding)
    if findings[:top] and brief:
        parts.append(Text())
    if len(findings) > top:
        parts.append(plain(f"{top} of {plural(len(findings), 'finding')}; --top {len(findings)} shows all, --why how each cost was found."))
    elif findings:
        parts.append(plain(f"{plural(len(findings), 'finding')}; --why shows how {'each' if len(findings) > 1 else 'its'} cost was found."))
    if clean:
        parts.append(plain(clean_note(findings, clean)))
    parts += [plain(note) for note in notes]
    return Group(*parts)


def headline(finding: Finding) -> str:
    """Return the most important number of a finding: what share of the launch or of its warps' time it costs, or else its excess traffic.

    The share of the predicted time of the launch comes first: it is without probes, and includes what the other warps do meanwhile.
    """
    if finding.saved_share is not None:
        return f"{percent(finding.saved_share)} of the kernel's predicted time"
    if finding.cost_share is not None:
        return f"{percent(finding.cost_share)} of the {'modelled ' if finding.times_modelled else ''}time of its warps"
    if finding.unit == CYCLES:
        return f"{'about' if finding.cost_measured else 'at least'} {plural(round(finding.cost_cycles), 'warp cycle')}"
    return finding.excess


def _line(finding: Finding) -> str:
    return f"{finding.rank}. {finding.where}  {finding.title}, {kernel_label(finding.kernel)}: {headline(finding)}"


def _short(finding: Finding) -> list[RenderableType]:
    parts: list[RenderableType] = [
        plain(f"{finding.rank}. {finding.title}, {kernel_label(finding.kernel)}: {headline(finding)}", "bold red"),
        Padding(plain(f"{finding.where}  {finding.source}".rstrip(), "cyan"), (0, 0, 0, 3)),
        Padding(plain(f"Cause: {cause_in_short(finding)}."), (0, 0, 0, 3)),
        *([Padding(plain(f"Cost: {finding.launch}."), (0, 0, 0, 3))] if finding.launch else []),
        Padding(plain(f"Fix: {finding.remedy}"), (0, 0, 0, 3)),
        Text(),
    ]
    return parts


def cause_in_short(finding: Finding) -> str:
    """Return the cause, with the transactions per request if the finding is about transactions."""
    if finding.unit not in ("sectors", "wavefronts") or not finding.requests:
        return f"{finding.what}, because {finding.cause}"
    per_request, ideal = (rounded(value) for value in (finding.per_request, finding.ideal_per_request))
    least, most = finding.least_per_request, finding.most_per_request
    between = "" if least is None or most is None else f" on average, {rounded(least)} to {rounded(most)}"
    return f"{finding.cause} ({finding.op}: {per_request} {finding.unit} per request{between}, ideally {ideal})"


def clean_note(findings: Sequence[Finding], clean: Sequence[str]) -> str:
    """Return a sentence that names the kernels without findings and the number of rules that were checked."""
    unexamined = findings.unexamined if isinstance(findings, Findings) else ()
    asked = len(RULES) - len({one.rule for one in unexamined if set(one.kernels) & set(clean)})
    return f"{', '.join(map(kernel_label, clean))}: no problems found ({plural(asked, 'rule')} checked)."


def short_notes(
    findings: Sequence[Finding],
    uncounted: Sequence[LaunchInfo] = (),
    clean: Sequence[str] = (),
    skipped: Sequence[Skipped] = (),
    sampled: Sequence[LaunchInfo] = (),
    failed: str = "",
    modelled: bool = False,
) -> list[str]:
    """Return sentences that a reader of the worst findings needs: what was not examined, and where the times come from."""
    notes: list[str] = []
    if not findings and not clean:
        what = "no memory access that could be observed" if skipped else "no access to memory"
        notes.append(f"Nothing was counted, because {what} was executed; there is nothing to explain.")
    if uncounted:
        kernels = ", ".join(dict.fromkeys(kernel_label(launch.kernel) for launch in uncounted))
        notes.append(f"Transactions were not counted in {plural(len(uncounted), 'launch')} of {kernels}.")
    unexamined = findings.unexamined if isinstance(findings, Findings) else ()
    if unexamined:
        rules = len({one.rule for one in unexamined})
        notes.append(f"{rules} of {plural(len(RULES), 'rule')} could not be checked in all kernels; --why says what they need.")
    if skipped:
        notes.append(skipped_note(skipped))
    for text in dict.fromkeys(f"{kernel_label(launch.kernel)}: times cover {launch.sample}" for launch in sampled):
        notes.append(f"{text}; transactions cover the whole launch.")
    if modelled and findings:
        notes.append(MODELLED_TIMES)
    if failed:
        notes.append(broken_off_note(failed))
    return notes


def render_findings(
    findings: Sequence[Finding],
    uncounted: Sequence[LaunchInfo] = (),
    clean: Sequence[str] = (),
    skipped: Sequence[Skipped] = (),
    sampled: Sequence[LaunchInfo] = (),
    failed: str = "",
    timed: Trace | None = None,
) -> RenderableType:
    """Return each finding as a paragraph under its source line, worst first.

    `uncounted`: launches without counts, which are listed as not examined. `clean`: titles of kernels without a finding, which are listed
    as such. `skipped`: accesses that are not sites, also listed. `sampled`: launches that were traced only in part; findings cover all of
    them. `failed`: why the traced program stopped early. `timed`: the trace, if notes shall tell what limited its modelled times.
    """
    parts: list[RenderableType] = []
    for finding in findings:
        heading = plain(f"{finding.rank}. {finding.title}, {kernel_label(finding.kernel)}", "bold red")
        parts.append(heading)
        if finding.source:
            parts.append(Padding(plain(f"{finding.line:>4}  {finding.source}", "cyan"), (0, 0, 0, 3)))
        parts.append(Padding(plain(str(finding)), (0, 0, 0, 3)))
        launch = f" {finding.launch}." if finding.launch else ""
        parts += [Padding(plain(f"Cost: {finding.time}{launch}", "dim"), (0, 0, 0, 3)), Text()]
    unexamined = findings.unexamined if isinstance(findings, Findings) else ()
    if clean:
        parts.append(plain(clean_note(findings, clean)))
    if findings:
        origins = dict.fromkeys(f"{finding.how}, by the rules of {finding.chip}" for finding in findings)
        parts += [Text()] if clean else []
        predicted = any(one.saved_us is not None for one in findings)
        more = " If the kernel's time without a finding is predicted, its rank follows from that." if predicted else ""
        ranked = f"Ranked by cost: the warp cycles that fixing each would save.{more}"
        parts.append(plain(f"Transactions were {'; '.join(origins)}. {ranked}", "dim"))
    elif not clean:
        what = "no memory access that could be observed" if skipped else "no access to memory"
        parts.append(plain(f"Nothing was counted, because {what} was executed; there is nothing to explain."))
    if uncounted:
        kernels = ", ".join(dict.fromkeys(kernel_label(launch.kernel) for launch in uncounted))
        parts.append(plain(f"Not examined, because their transactions were not counted: {plural(len(uncounted), 'launch')} of {kernels}."))
    parts += [plain(note) for note in unexamined_notes(unexamined)]
    if skipped:
        parts.append(plain(skipped_note(skipped)))
    for text in dict.fromkeys(f"{kernel_label(launch.kernel)}: times cover {launch.sample}" for launch in sampled):
        parts.append(plain(f"{text}; transactions cover the whole launch.", "dim"))
    notes = time_notes(timed) if timed is not None and (findings or clean) else []
    parts += [plain(note, "dim") for note in (*notes, *([COSTS] if notes and findings else []))]
    if failed:
        parts.append(plain(broken_off_note(failed)))
    return Group(*parts)


def unexamined_notes(unexamined: Sequence[Unexamined]) -> list[str]:
    """Return a sentence for each set of missing data: the rules that need it, the kernels, and how to record it."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for one in unexamined:
        groups.setdefault((one.missing, one.how_to_get, one.kernels), []).append(one.title)
    return [
        f"Not examined in {', '.join(map(kernel_label, kernels))}: {', '.join(titles)}. It needs {' and '.join(missing)}: "
        f"{'; '.join(dict.fromkeys(how_to_get))}."
        for (missing, how_to_get, kernels), titles in groups.items()
    ]

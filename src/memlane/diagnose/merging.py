"""Merge the verdicts of one rule that are about one array and differ in their lines alone, into one verdict with all lines.

Four fields of a structure that are loaded on four lines, or the seven loads of a stencil, have one cause and one remedy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from memlane.diagnose.cost import Cost
from memlane.diagnose.evidence import SAME, Evidence
from memlane.diagnose.rule import Verdict
from memlane.record import Site


def merge_alike(verdicts: Iterable[Verdict], evidence: Evidence) -> list[Verdict]:
    """Return the verdicts of one rule, with those merged that have the same array, cause, remedy and transactions per request."""
    groups: dict[Hashable, list[list[Verdict]]] = {}
    for number, one in enumerate(verdicts):
        key = _key(one, evidence)
        found = groups.setdefault(number if key is None else key, [])
        for group in found:
            if _is_alike(group[0], one):
                group.append(one)
                break
        else:
            found.append([one])
    return [_merged(group, evidence) if len(group) > 1 else group[0] for found in groups.values() for group in found]


def _key(one: Verdict, evidence: Evidence) -> Hashable | None:
    """Return what verdicts have in common that may be merged; None for a verdict that stands alone."""
    if not one.is_of_access:
        return None
    sites = _about(one, evidence)
    arrays = tuple(dict.fromkeys((each.array, each.argument) for each in sites))
    if one.site.space != "local" and any(not array and argument is None for array, argument in arrays):
        return None
    nbytes = 0 if one.site.space == "local" else one.site.nbytes
    return one.site.file, one.site.space, nbytes, one.site.calls, one.site.inlined, arrays, one.unit, one.cause, one.remedy


def _is_alike(one: Verdict, other: Verdict) -> bool:
    """Return whether two verdicts have the same transactions per request, if they are about transactions."""
    if one.unit not in ("sectors", "wavefronts"):
        return True
    rates = [verdict.transactions / max(verdict.requests, 1) for verdict in (one, other)]
    ideals = [verdict.ideal / max(verdict.requests, 1) for verdict in (one, other)]
    return all(max(pair) <= (1 + SAME) * min(pair) for pair in (rates, ideals))


def _about(one: Verdict, evidence: Evidence) -> Sequence[Site]:
    return one.about or evidence.sites_of_access(one.site)


def _merged(group: Sequence[Verdict], evidence: Evidence) -> Verdict:
    """Return one verdict with the sums of several, at the place of the costliest."""
    worst = max(group, key=lambda one: one.cost.cycles)
    requests = sum(one.requests for one in group)
    lines = tuple(sorted({one.site.line for one in group}))
    return replace(
        worst,
        transactions=sum(one.transactions for one in group),
        ideal=sum(one.ideal for one in group),
        requests=requests,
        bytes_requested=sum(one.bytes_requested for one in group),
        what=worst.what if worst.retell is None else worst.retell(requests),
        cost=_sum([one.cost for one in group], worst.cost, len(lines)),
        about=tuple(dict.fromkeys(site for one in group for site in _about(one, evidence))),
        lines=lines,
    )


def _sum(costs: Sequence[Cost], worst: Cost, lines: int) -> Cost:
    """Return the summed cost of accesses on several lines; it has no upper bound if one of them has none."""
    highest = [one.high for one in costs if one.high is not None]
    where = f"of {lines} lines" if lines > 1 else "of its accesses"
    return Cost(
        sum(one.cycles for one in costs),
        sum(one.low for one in costs),
        sum(highest) if len(highest) == len(costs) else None,
        f"the sum {where}; of the costliest: {worst.method}",
        any(one.measured for one in costs),
    )

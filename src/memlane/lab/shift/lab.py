"""Run the lab: its patterns and kernels in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.result import Result, reached_on
from memlane.lab.shift.cases import COUNTS, KINDS, LAYOUTS, NONE, PATTERNS, RAP, RAS, TABLES, WARPS, WIDTHS
from memlane.lab.shift.kernels import KERNELS, outcomes
from memlane.lab.shift.measure import Bench, Case, Cycles
from memlane.lab.shift.tables import figures, rows, tables
from memlane.launch import Target

SOURCES = ["src/memlane/lab/shift", "src/memlane/lab/figures.py", "src/memlane/layout", "src/memlane/optimize"]
WHOLE = "whole kernels"
CASES = (*PATTERNS, WHOLE)


@dataclass(frozen=True)
class Effort:
    """Amount of measurement."""

    runs: int
    draws: int
    warps: tuple[int, ...]
    widths: tuple[int, ...]
    tables: tuple[str, ...]
    tiles: int
    rounds: int


FULL, MODELLED = Effort(1000, 32, WARPS, WIDTHS, TABLES, 16384, 5), Effort(32, 32, WARPS, WIDTHS, TABLES, 64, 1)
QUICK = Effort(4, 4, (1, 32), WIDTHS[:1], TABLES[-1:], 16, 1)


def run(target: Target, request: Request) -> Result:
    """Measure the chosen patterns and kernels."""
    chosen = request.chosen(CASES)
    effort = QUICK if request.quick else MODELLED if target.modelled else FULL
    bench, measured = Bench(target, effort.runs, effort.draws), dict[Case, Cycles]()
    found, cases = [], Cases()
    for name in cases.each(one for one in chosen if one != WHOLE):
        with cases.measuring(name):
            request.tell(name)
            measured |= {case: bench.cycles(case) for case in _cases(name, effort)}
    for kernel in cases.each(KERNELS if WHOLE in chosen else ()):
        with cases.measuring(kernel.name):
            request.tell(kernel.name)
            found.append(outcomes(target, kernel, effort.tiles, effort.rounds))
    made = tables(bench, measured, found, max(effort.warps))
    numbers = reached_on("h200", target, rows(measured, found, made, max(effort.warps)))
    return Result("shift", (*numbers, *cases.failed), made, figures(measured), interrupted=cases.interrupted)


SHIFT = Lab("shift", "What shifted and other layouts of shared memory gain, and what it costs to compute their addresses.", CASES, run)


def _cases(pattern: str, effort: Effort) -> Iterator[Case]:
    for width, kind, warps, count, layout, included in product(effort.widths, KINDS, effort.warps, COUNTS, LAYOUTS, (False, True)):
        yield Case(pattern, layout, width, kind, warps, count, included)
    most = max(effort.warps)
    for width, layout, table in product(effort.widths, (RAS, RAP), effort.tables):
        for kind, count in product(KINDS, COUNTS):
            yield Case(pattern, layout, width, kind, most, count, True, table)
    for width, kind, layout, table in product(effort.widths, KINDS, (NONE, RAS, RAP), effort.tables):
        for included in (False, True):
            yield Case(pattern, layout, width, kind, most, 1, included, table, bare=True)

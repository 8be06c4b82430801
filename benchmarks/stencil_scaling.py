"""Measure stencils on several GPUs: strong and weak scaling over 1, 2, 4 and 8 of them, every transport, 1 to 8 steps between exchanges.

Each time is the median of 3 calls of `steps` of about 0.1 s, everything included that a user waits for. All steps
between exchanges are run overlapped and not, over each transport between devices of one process, in slabs, and then in all other ways to
cut the grid; `mpi`, `mpi-cuda` and `nccl` by as many ranks. Predictions are those of `stencil_scaling_predicted.json`, written and
committed before this script was first run. Rows of `predicted over measured` compare each number of steps with what the model says of it.
What a case finds no time for is named in a row `left out`; settings that should be slow come last.

Rows of cases that a run does not measure, or has no time for, are kept from the result file that is there already, with their commit and
date in the note. So machines of 2, 4 and 8 GPUs can follow each other. On emulated devices all times are those of the emulator's clock.

    python benchmarks/stencil_scaling.py                # all GPUs of the machine, in less than 10 minutes
    python benchmarks/stencil_scaling.py --counts 1,4   # some numbers of devices
    python benchmarks/stencil_scaling.py --rejudge h200 # compare the stored times with the model of today; needs no GPU
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from harness import Row, results_of, show
from running import machine, measure, parser
from stencil_scaling_cases import CASES, GAINS, WEAK, case_of, named
from stencil_scaling_gains import BEST, BY, COUNTS, EACH_STEP, NO_TIME, TWICE, earlier, over_all, split
from stencil_scaling_judged import Setting, model_rows, predicted_us, rejudge, settings_of, shared_row
from stencil_scaling_parts import CALLS, FACES, call_rows, call_us, exchange_rows, peer_times, rank_rows

from memlane.driver import Device
from memlane.errors import MemlaneError
from memlane.lab.result import NOT_MEASURED
from memlane.lab.stencil.cases import Case
from memlane.lab.stencil.measure import parts_of
from memlane.lab.stencil.predict import Point
from memlane.launch import Target
from memlane.stencils.choice import default_variant
from memlane.targets import devices as named_devices
from memlane.timeloop.shared import SharedRun

SOURCES = [
    "src/memlane/stencils",
    "src/memlane/timeloop",
    "src/memlane/network",
    "benchmarks/stencil_scaling.py",
    "benchmarks/stencil_scaling_cases.py",
    "benchmarks/stencil_scaling_gains.py",
    "benchmarks/stencil_scaling_judged.py",
    "benchmarks/stencil_scaling_parts.py",
    "benchmarks/stencil_scaling_ranks.py",
]
RANKS, BY_RANKS = "MPI ranks", " by "
RANK_TRANSPORTS = ("", f"{BY_RANKS}mpi-cuda", f"{BY_RANKS}nccl")
DOUBLED = tuple(f"{name}, {TWICE}" for name in list(CASES)[:2])
MINUTES = 9.0
_ROUNDS, _ROUND_S, _MOST_STEPS = 3, 0.1, 10_000
"""Rounds, and the time of one, the same for all numbers of devices: a round is a call of `steps`, which starts in 0.4 to 0.7 ms on two
devices."""
_SHARE = 0.5
"""Share of a case's limit after which it begins nothing more: what has begun then must end within the rest."""
_MOST_COMPARED = 1 << 27
"""Cells of the largest grid whose fields are compared with those of one device."""


@dataclass
class Found:
    """The measurements of a case on some devices."""

    us: dict[Setting, float] = field(default_factory=dict)
    steps_per_launch: dict[Setting, int] = field(default_factory=dict)
    parts: dict[Setting, Point] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def best(self, **where: object) -> Setting | None:
        """Return the fastest setting that has some values."""
        own = [one for one in self.us if all(getattr(one, name) == value for name, value in where.items())]
        return min(own, key=lambda one: self.us[one], default=None)


# -- measuring -----------------------------------------------------------------------------------------------------------------


def step_us(run: SharedRun, expected_us: float) -> float:
    """Return the time of a step: the median of some runs, or the emulator's clock over two exchanges."""
    unit = run.exchange_every * run.problem.period
    if run.target.modelled:
        return run.timeline(unit).elapsed_ns / 1e3 / unit
    steps = unit * max(1, min(_MOST_STEPS, int(1e6 * _ROUND_S / expected_us)) // unit)
    return call_us(run, steps, _ROUNDS)


Values = dict[str, Any]


def shared(case: Case, values: Values, targets: Sequence[Target], setting: Setting) -> SharedRun:
    return SharedRun(
        case.problem, values, targets=targets, exchange_every=setting.k, transport=setting.transport, overlap=setting.overlap,
        decomposition=setting.parts or None,
    )  # fmt: skip


def measured(
    case: Case, values: Values, targets: Sequence[Target], transports: Sequence[str], options: argparse.Namespace, until: float
) -> Found:
    """Run a case in all settings that there is time for."""
    found, count = Found(), len(targets)
    settings, chip = list(settings_of(case, count, transports, options.quick)), targets[0].chip
    if not options.quick:  # what is left out where time runs out should be slow
        settings = in_turn({one: predicted_us(case, chip, count, one) for one in settings})
    for setting in settings:
        if time.time() > until:
            found.left_out.append(f"{setting}: no time")
            continue
        try:
            run = shared(case, values, targets, setting)
            fused = run.variant.steps
            found.us[setting] = step_us(run, predicted_us(case, chip, count, setting, fused))
            found.steps_per_launch[setting] = fused
            if setting.k <= 2 and not setting.parts and setting.transport != "persistent":
                found.parts[setting] = parts_of(run.timeline(2 * setting.k), count, 2 * setting.k)
        except MemlaneError as error:
            found.left_out.append(f"{setting}: {error}")
    return found


def in_turn(expected: Mapping[Setting, float]) -> list[Setting]:
    """Return settings in the order of measurement: an exchange after each step, then all others in slabs, then other ways to cut.

    Transports take turns, each with the slabs that should be fastest, so that the choice of the model is measured for all of them.
    """
    ranks: dict[Setting, int] = {}
    for transport in dict.fromkeys(one.transport for one in expected):
        own = sorted((one for one in expected if one.transport == transport), key=lambda one: (bool(one.parts), expected[one]))
        ranks |= {one: rank for rank, one in enumerate(own)}
    return sorted(expected, key=lambda one: (bool(one.parts), one.k > 1 or not one.overlap, ranks[one]))


def compared_rows(where: str, case: Case, values: Values, targets: Sequence[Target], transports: Sequence[str]) -> Iterator[Row]:
    """Yield for each transport how many cells after 6 steps have other bits than on one device."""
    if prod(case.shape) > _MOST_COMPARED:
        return
    alone = SharedRun(case.problem, values, targets=targets[:1]).steps(6)[case.field].gather()
    for transport in transports:
        setting = Setting(transport, 2, True)
        try:
            several = shared(case, values, targets, setting).steps(6)[case.field].gather()
        except MemlaneError as error:
            yield Row(f"{where}, {transport}", NOT_MEASURED, None, "", note=str(error)[:300])
            continue
        differ = int(np.count_nonzero(several.view(np.uint32) != alone.view(np.uint32)))
        yield Row(f"{where}, {transport}", DIFFER, differ, "", 0.0, note="wrong" if differ else "")


DIFFER = "cells that differ from one device"


# -- rows ----------------------------------------------------------------------------------------------------------------------


def alone_rows(name: str, case: Case, target: Target) -> Iterator[Row]:
    """Yield the times of one device with the model's kernels and with one launch per step, and the model's predictions of both."""
    problem, values = case.problem, case.values()
    run = SharedRun(problem, values, targets=[target])
    us = step_us(run, predicted_us(case, target.chip, 1, Setting("", run.variant.steps, True), run.variant.steps))
    yield Row(named(name, 1), BEST, round(us, 3), "us", note=str(run.variant))
    one_step = default_variant(problem, problem.rules[0])
    single = run if run.variant.steps == 1 else SharedRun(problem, values, targets=[target], exchange_every=1, variant=one_step)
    each = us if single is run else step_us(single, predicted_us(case, target.chip, 1, Setting("", 1, True), 1))
    yield Row(named(name, 1), EACH_STEP, round(each, 3), "us", note=str(single.variant))
    errors = {}
    for one, took in ((run, us), (single, each)):
        steps = one.variant.steps
        errors[f"{steps} a launch"] = round(predicted_us(case, target.chip, 1, Setting("", steps, True), steps) / took - 1, 4)
    worst = max(map(abs, errors.values()))
    note = "" if worst <= 0.2 else "the model was fitted to other slabs of the same rules"
    yield Row(named(name, 1), "predicted over measured, less 1, worst", worst, "", 0.2, peer=errors, note=note)


def shared_rows(
    name: str, case: Case, targets: Sequence[Target], by: str, options: argparse.Namespace, until: float, where: str
) -> Iterator[Row]:
    """Yield what several devices take by some transports, and how that compares with the parts of a step and with the model."""
    count, values = len(targets), case.values()
    yield from compared_rows(where, case, values, targets, BY[by])
    found = measured(case, values, targets, BY[by], options, until)
    best = found.best()
    if best is None:
        yield Row(where, NOT_MEASURED, None, "", 0.0, note="; ".join(found.left_out)[:300])
        return
    peer = {str(setting): round(us, 2) for setting, us in found.us.items()}
    yield Row(where, BEST, round(found.us[best], 3), "us", peer=peer, note=f"{best}, {found.steps_per_launch[best]} a launch")
    first = found.best(k=1)
    if first is not None:
        yield Row(where, EACH_STEP, round(found.us[first], 3), "us", note=str(first))
    for transport in dict.fromkeys(setting.transport for setting in found.us):
        yield from transport_rows(where, transport, GAINS.get((name, count, transport)), found)
    yield from hidden_rows(where, found)
    yield shared_row(where, found.steps_per_launch)
    asked = list(settings_of(case, count, BY[by], options.quick))
    yield from model_rows(where, case, targets[0].chip, count, found.us, found.steps_per_launch, asked)
    if where == named("7-point 256^3", count) and not targets[0].modelled and time.time() < until:
        for tool, us in peer_times(case.shape, count).items():
            yield Row(where, f"time of a step, {tool}", round(us, 2), "us")
    if found.left_out:
        yield Row(where, "left out", float(len(found.left_out)), "settings", note="; ".join(found.left_out)[:300])


def transport_rows(where: str, transport: str, reach: float | None, found: Found) -> Iterator[Row]:
    """Yield the gain of the best k over an exchange after each step."""
    best, first = found.best(transport=transport), found.best(transport=transport, k=1)
    if best is None or first is None:
        return
    gain = round(found.us[first] / found.us[best], 4)
    note = f"{best}; k = 1: {found.us[first]:.2f} us" + (
        "" if reach is None or gain >= reach else "; the exchange is hidden at k = 1 already"
    )
    yield Row(f"{where}, {transport}", "gain of the best k over k = 1", gain, "", reach, "higher", note=note)


def hidden_rows(where: str, found: Found) -> Iterator[Row]:
    """Yield by how much overlapped steps take longer than the longer of inner region and exchange, borders added."""
    for setting, point in found.parts.items():
        behind = found.parts.get(replace(setting, overlap=False))
        if not setting.overlap or point.boundary == 0 or behind is None:
            continue
        hidden = max(point.inner, behind.exchange) + point.boundary
        over, most = found.us[setting] - hidden, max(1.5, 0.05 * hidden)
        peer = {
            "inner, us": point.inner,
            "exchange alone, us": behind.exchange,
            "borders, us": point.boundary,
            "step, us": found.us[setting],
        }
        note = "" if over <= most else "launches of borders and of the planes between them share the device"
        yield Row(
            f"{where}, {setting}", "step over max(inner, exchange) + borders", round(over, 3), "us", round(most, 3),
            peer={one: round(us, 3) for one, us in peer.items()}, note=note,
        )  # fmt: skip


# -- cases ---------------------------------------------------------------------------------------------------------------------


def counts_of(options: argparse.Namespace) -> list[int]:
    """Return the numbers of devices that are measured, the most first, then one, then those between."""
    most = 2 if options.target.startswith("emulator") else len(named_devices(options.target))
    asked = [int(one) for one in options.counts.split(",")] if options.counts else [one for one in COUNTS if one <= most]
    return sorted(dict.fromkeys(asked), key=lambda count: (count != max(asked), count != 1, -count))


def names_of(counts: Sequence[int]) -> list[str]:
    """Return the cases in the order of their importance: all of the largest number of devices and of one before those between."""
    found: list[str] = []
    found += [title + by for title in DOUBLED if max(counts) == 1 for by in BY]
    for several in (counts[:2], counts[2:]):
        grids = [named(name, count) for name in (*list(CASES)[:2], WEAK, *list(CASES)[2:]) for count in several]
        found += [title + by for title in grids for by in (BY if " devices" in title else ("",))]
        found += [named(FACES, count) + by for count in several if count > 1 for by in BY]
        found += [named(CALLS, count) for count in several]
        found += [named(RANKS, count) + by for count in (several if max(counts) > 1 else (2,)) if count > 1 for by in RANK_TRANSPORTS]
    return found


def run_case(title: str, options: argparse.Namespace) -> list[Row]:
    """Measure one case on some devices."""
    plain, by = split(title)
    plain, _, transport = plain.partition(BY_RANKS)
    name, _, devices = plain.rpartition(", ")
    count, until = int(devices.split()[0]), min(options.until or float("inf"), time.time() + _SHARE * options.limit)
    if time.time() > until:
        return [Row(title, NOT_MEASURED, None, "", note=NO_TIME)]
    if name == RANKS:
        return list(rank_rows(title, count, transport or "mpi", options))
    is_one = devices == TWICE
    targets = (Device(0), Device(0)) if is_one and options.target.startswith("cuda") else named_devices(options.target, count)
    if name == FACES:
        return list(exchange_rows(title, targets, BY[by], options.quick))
    case = case_of(name, count, options.quick)
    if name == CALLS:
        return list(call_rows(title, case, targets))
    rows = alone_rows(name, case, targets[0]) if count == 1 else shared_rows(name, case, targets, by, options, until, title)
    return reached(list(rows), targets[0], is_stated=not is_one)


def reached(rows: Sequence[Row], target: Target, is_stated: bool) -> list[Row]:
    """Return rows without what H200s are to reach where these are none, or one stands for two."""
    is_stated = is_stated and target.chip.name == "h200" and not target.modelled
    return [row if is_stated or row.metric == DIFFER else Row(**{**vars(row), "reach": None}) for row in rows]


def main() -> None:
    """Measure all cases of the devices that there are."""
    command = parser(__doc__, "cuda:0")
    command.add_argument("--counts", default="", help="numbers of devices, as 1,2 (default: 1, 2, 4 and 8, as many as there are)")
    command.add_argument("--minutes", type=float, default=MINUTES, help=f"what all cases may take together (default {MINUTES:g})")
    command.add_argument("--only", default="", help="regular expression of the cases to measure; rows of the others are kept")
    command.add_argument("--rejudge", metavar="CHIP", help="measure nothing; compare the stored times of a chip with the model of today")
    command.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    command.set_defaults(limit=80.0)
    options = command.parse_args()
    if options.rejudge:
        show(rejudge(results_of(options.rejudge, options.out) / "stencil_scaling.json"))
        return
    options.until = options.until or time.time() + 60 * options.minutes
    names = [one for one in names_of(counts_of(options)) if re.search(options.only, one)] if options.case is None else [options.case]
    head = machine(options) if options.rows is None else {}
    before = earlier(results_of(head["chip"], options.out) / "stencil_scaling.json") if head else []
    forward = ["--until", str(options.until), "--limit", str(options.limit)]
    is_h200 = bool(head) and head["chip"] == "h200"
    measure("stencil_scaling", names, run_case, options, forward, over_all=lambda rows: over_all(before, names, rows, is_h200))


if __name__ == "__main__":
    main()

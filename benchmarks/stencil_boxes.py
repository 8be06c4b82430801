"""Measure stencils on 4 and 8 GPUs in slabs and in boxes: every way to cut the grid, next to the model's prediction.

Prediction, written before the first run, by the model: slabs are fastest everywhere, because planes are copied as they lie, and axes of
boxes are exchanged one after another, each message packed and unpacked by launches. On H200s with NVLink, best k: 7-point 256^3 on 4 GPUs
7.3 us a step in slabs and 8.8 in 2x2x1; on 8 GPUs 5.7 us in slabs, 7.8 in 4x2x1 and 9.2 in 2x2x2; 512^3 on 8 GPUs 26 us in slabs, of which
several steps share a launch, and 39 in both kinds of boxes.

    python benchmarks/stencil_boxes.py                # 4 and 8 GPUs, as far as the machine has them
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from harness import Row
from running import measure, parser
from stencil_scaling import Values, step_us

from memlane.errors import MemlaneError
from memlane.lab.stencil.cases import HIMENO, HIMENO_SIZES, SEVEN, Case
from memlane.launch import Target
from memlane.stencils.scaling import best_exchange
from memlane.stencils.scaling.regions import divisions
from memlane.targets import devices as named_devices
from memlane.timeloop.shared import SharedRun

SOURCES = ["src/memlane/stencils", "src/memlane/timeloop", "benchmarks/stencil_boxes.py"]
GRIDS = {
    "7-point 256^3": Case(SEVEN, (256, 256, 256)),
    "7-point 512^3": Case(SEVEN, (512, 512, 512)),
    "Himeno M": Case(HIMENO, HIMENO_SIZES["M"]),
}
_QUICK = Case(SEVEN, (16, 24, 96))
COUNTS = (4, 8)
TRANSPORTS = ("peer", "flags")
EVERY = (1, 2, 4)
"""Steps between two exchanges."""
STEP, CHOSEN = "time of a step, best k and transport", "fastest cut over that of the model"


def us_of(case: Case, values: Values, targets: Sequence[Target], parts: tuple[int, ...], every: Sequence[int]) -> dict[str, float]:
    """Return the time of a step for each transport and number of steps between exchanges; of what cannot be, none."""
    found = {}
    for transport in TRANSPORTS:
        for k in every:
            try:
                run = SharedRun(case.problem, values, targets=targets, exchange_every=k, transport=transport, decomposition=parts)
                found[f"{transport}, k = {k}"] = round(step_us(run, 50.0), 3)
            except MemlaneError:
                continue
    return found


def differ(case: Case, values: Values, targets: Sequence[Target], parts: tuple[int, ...]) -> int:
    """Return how many cells after 5 steps have other bits than on one device."""
    runs = [
        SharedRun(case.problem, values, targets=targets, exchange_every=2, decomposition=parts),
        SharedRun(case.problem, values, targets=targets[:1]),
    ]
    fields = [run.steps(5)[case.field].gather().view(np.uint32) for run in runs]
    return int(np.count_nonzero(fields[0] != fields[1]))


def rows_of(title: str, case: Case, targets: Sequence[Target], quick: bool) -> Iterator[Row]:
    """Yield a row for each way to cut a grid."""
    values, best, expected = case.values(), {}, {}
    for axes in (1, 2, 3):
        for parts in divisions(case.shape, len(targets), axes):
            us = us_of(case, values, targets, parts, EVERY[:1] if quick else EVERY)
            if not us:
                continue
            cut, first = "x".join(map(str, parts)), min(us, key=us.__getitem__)
            best[cut] = us[first]
            model = best_exchange(case.problem, len(targets), chip=targets[0].chip, candidates=EVERY, decomposition=parts)
            expected[cut] = model.step_us
            yield Row(f"{title}, {cut}", STEP, us[first], "us", peer={**us, "model, us": round(model.step_us, 2)}, note=first)
            wrong = differ(case, values, targets, parts)
            yield Row(f"{title}, {cut}", "cells that differ from one device", wrong, "", 0.0, note="wrong" if wrong else "")
    if best:
        chosen = min(expected, key=expected.__getitem__)
        lost = round(best[chosen] / min(best.values()), 4)
        yield Row(title, CHOSEN, lost, "", 1.05, note=f"chosen: {chosen}; fastest: {min(best, key=best.__getitem__)}")


def run_case(title: str, options: argparse.Namespace) -> list[Row]:
    """Measure one grid on some devices."""
    name, _, devices = title.rpartition(", ")
    count = int(devices.split()[0])
    targets = named_devices(options.target, count)
    return list(rows_of(title, _QUICK if options.quick else GRIDS[name], targets, options.quick))


def main() -> None:
    """Measure all grids on 4 and 8 devices, if there are so many."""
    options = parser(__doc__, "cuda").parse_args()
    most = 4 if options.target.startswith("emulator") else len(named_devices(options.target))
    counts = [count for count in COUNTS if count <= most] or [most]
    measure("stencil_boxes", [f"{name}, {count} devices" for count in counts for name in GRIDS], run_case, options)


if __name__ == "__main__":
    main()

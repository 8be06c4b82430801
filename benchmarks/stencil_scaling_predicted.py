"""Predict stencils on 1, 2, 4 and 8 H200s by the model, committed before `stencil_scaling` measures them.

For each case, number of devices and transport the fastest of 1 to 8 steps between exchanges, each overlapped and not, in slabs along Z and
in the fastest cut along two and three axes; the times of all steps stand beside it. The numbers are those of `memlane stencil plan`.
Nothing is measured, and no GPU is needed.

    python benchmarks/stencil_scaling_predicted.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from harness import Row, write
from stencil_scaling_cases import CASES, EVERY, REACHES, SPEED_UPS, SPEED_UPS_EACH_STEP, WEAK, WEAK_REACH, case_of, named

from memlane.errors import NetworkError, StencilError
from memlane.lab.stencil.cases import Case
from memlane.stencils.scaling import Prediction, plan_scaling

SOURCES = [
    "src/memlane/stencils/scaling",
    "src/memlane/stencils/choice.py",
    "src/memlane/network",
    "benchmarks/stencil_scaling_predicted.py",
    "benchmarks/stencil_scaling_cases.py",
]
CHIP = "h200"
COUNTS = (1, 2, 4, 8)
LINKS = {
    "peer": ("h200-nvlink", "peer"),
    "flags": ("h200-nvlink", "flags"),
    "persistent": ("h200-nvlink", "persistent"),
    "host": ("h200-nvlink", "host"),
    "flags, ring of four": ("h200-nvlink-ring", "flags"),
}
"""The network and the link whose times are used, by transport. The last are whole exchanges as a kernel of another program made them."""
AXES = (1, 2, 3)


def predictions(case: Case, count: int, transport: str, axes: int) -> list[Prediction]:
    """Return the predictions for all steps between exchanges, overlapped and not; none where the grid cannot be cut so."""
    found: list[Prediction] = []
    network, link = LINKS.get(transport, ("", ""))
    for overlap in (True, False) if count > 1 else (True,):
        try:
            found += plan_scaling(
                case.problem.rules[0], case.problem.grid, count, EVERY, chip=CHIP, network=network if count > 1 else "",
                transport=link if count > 1 else "", swap=case.problem.swap, axes=axes, overlap=overlap,
            ).rows  # fmt: skip
        except (StencilError, NetworkError):  # a number of devices without such divisors, or more than the network has
            return []
    return found


def rows_of(name: str, case: Case, count: int) -> Iterator[Row]:
    """Yield a row for each transport and number of axes, and one for the fastest of all."""
    fastest: list[tuple[Prediction, str]] = []
    for transport in LINKS if count > 1 else ("",):
        for axes in AXES if count > 1 else (1,):
            found = predictions(case, count, transport, axes)
            if not found:
                continue
            best = min(found, key=lambda one: one.step_us)
            fastest.append((best, transport))
            peer = {f"k = {one.exchange_every}{'' if one.is_overlapped else ', not overlapped'}": round(one.step_us, 2) for one in found}
            where = f", {transport}, {'x'.join(map(str, best.decomposition))}" if count > 1 else ""
            yield Row(named(name, count) + where, "time of a step, predicted", round(best.step_us, 2), "us", peer=peer, note=_how(best))
    best, transport = min(fastest, key=lambda one: one[0].step_us)
    reach = REACHES.get((name, count))
    note = f"{transport or 'one device'}, {_how(best)}"
    yield Row(named(name, count), "time of a step, best k and transport, predicted", round(best.step_us, 2), "us", reach, note=note)


def _how(one: Prediction) -> str:
    words = "overlapped" if one.is_overlapped else "not overlapped"
    return f"k = {one.exchange_every}, {one.steps_per_launch} a launch, {words}, bound by {one.bound}"


def each_step(name: str) -> Iterator[Row]:
    """Yield what several devices gain over one where each step is a launch, and an exchange follows it."""

    def step_us(count: int) -> float:
        case = case_of(name, count)
        plan = plan_scaling(
            case.problem.rules[0], case.problem.grid, count, 1, chip=CHIP, network=LINKS["peer"][0], swap=case.problem.swap, axes=1,
            steps_per_launch=1,
        )  # fmt: skip
        return plan.best(count).step_us

    alone = step_us(1)
    for count in COUNTS[1:]:
        reach, gain = SPEED_UPS_EACH_STEP.get((name, count)), round(alone / step_us(count), 4)
        note = "" if reach is None or gain >= reach else LESS
        yield Row(named(name, count), "speed-up over one device, k = 1, predicted", gain, "", reach, "higher", note=note)


LESS = "the model expects less than is to be reached"


def speed_ups(rows: list[Row]) -> Iterator[Row]:
    """Yield what is predicted of several devices over one."""
    best = {row.case: row.value for row in rows if row.metric.startswith("time of a step, best")}
    for name, count in ((name, count) for name in (*CASES, WEAK) for count in COUNTS[1:]):
        alone, several = best[named(name, 1)], best[named(name, count)]
        assert alone is not None
        assert several is not None
        reach = WEAK_REACH.get(count) if name == WEAK else SPEED_UPS.get((name, count))
        metric = "efficiency" if name == WEAK else "speed-up over one device"
        note = "" if reach is None or alone / several >= reach else LESS
        yield Row(named(name, count), f"{metric}, predicted", round(alone / several, 4), "", reach, "higher", note=note)


def main() -> None:
    """Predict all cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="directory of the result instead of benchmarks/results/h200")
    options = parser.parse_args()
    rows = [row for name in (*CASES, WEAK) for count in COUNTS for row in rows_of(name, case_of(name, count), count)]
    write(
        "stencil_scaling_predicted",
        [*rows, *speed_ups(rows), *(row for name in CASES for row in each_step(name))],
        chip=CHIP,
        driver="none: predicted",
        directory=options.out,
    )


if __name__ == "__main__":
    main()

"""Measure launches of few to many planes, the slabs and borders of several devices, next to the prediction of `stencils/scaling`.

Each case is a rule on slabs of growing thickness, with the kernels of several devices: they compute a range of planes of a larger grid, and
read one more on each side. A graph of 1,000 launches, whose fields change places, and one of 200 are timed; the difference over 800 is the
time of a launch, of the medians of 6 runs each. The last rows of a case are the model's error, average and worst. The model was fitted to a
sweep of kernels for whole grids of these sizes, so this measures how far it holds for other kernels of the same rules.

Prediction (written before the first run of this script): 10 % on average and 25 % at worst, largest where a launch has 2 to 4 planes.

    python benchmarks/stencil_slabs.py
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from harness import Row
from running import measure, parser
from stencil_rules import RULES

import memlane as ml
from memlane.launch import Target
from memlane.plan import PlanBuilder
from memlane.stencils import Code, DirectKernel, Problem
from memlane.stencils.choice import default_variant
from memlane.stencils.geometry import stored_shape
from memlane.stencils.scaling import CalibratedModel, Demand
from memlane.targets import BoundPlan
from memlane.targets import target as named_target
from memlane.timeloop.engine import architecture, compiled

SOURCES = [
    "src/memlane/stencils/scaling",
    "src/memlane/stencils/direct.py",
    "src/memlane/stencils/choice.py",
    "benchmarks/stencil_slabs.py",
    "benchmarks/stencil_rules.py",
]

CASES = {
    "7-point, Z x 256 x 256": ("seven", (256, 256), (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256)),
    "7-point, Z x 512 x 512": ("seven", (512, 512), (2, 4, 8, 16, 32, 64, 128, 256)),
    "Himeno, Z x 128 x 128": ("himeno", (128, 128), (2, 4, 8, 16, 32, 48, 64, 96, 128, 256)),
    "Himeno, Z x 256 x 512": ("himeno", (256, 512), (2, 4, 8, 16, 32, 64, 128)),
}
"""The rule, the cells of a plane, and the numbers of planes."""
ROUNDS, FEW, MANY = 7, 200, 1000
WHOLE, FIRST = 1024, 100
"""Planes of the whole grid, and the first one that is computed."""


def launch_us(target: Target, problem: Problem, planes: int, quick: bool) -> tuple[float, str]:
    """Return the time of a launch for so many planes in microseconds, and its variant."""
    (rule,) = problem.rules
    variant = default_variant(problem, rule)
    kernel = DirectKernel(problem, rule, variant)
    loaded = target.load(compiled(Code(problem, (kernel,)), architecture(target)))
    count = sum(1 if length is None else length for length in problem.scalars.values())
    shape = stored_shape((planes + 2, *problem.grid.shape[1:]))
    memory = {name: target.zeros(shape, "f4") for name in problem.fields}
    memory["scalars"] = target.array(np.full((1, max(1, count)), 0.1, "f4"))
    took = []
    for turns in (2, 4) if quick else (FEW, MANY):
        builder = PlanBuilder()
        views = {name: builder.array(name, array.shape, "f4") for name, array in memory.items()}
        fields = [*(views[name] for name in kernel.outputs), *(views[name] for name in kernel.inputs)]
        place = FIRST - 1, FIRST - 1, FIRST + planes, FIRST, FIRST + planes
        with builder.repeat(turns, rotate=[tuple(views[name] for name in cycle) for cycle in problem.swap]) as loop:
            loop.launch(loaded[kernel.name].ref, kernel.grid_of(planes), kernel.block, *fields, views["scalars"], 0, *place)
        run = BoundPlan(builder.plan(), memory, targets=[target], modules=[loaded]).run
        times = []
        for _ in range(2 if quick else ROUNDS):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        took.append(statistics.median(times[1:]))
    return (took[1] - took[0]) / (2 if quick else MANY - FEW) * 1e6, str(variant)


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Measure the slabs of one case."""
    target = named_target(options.target)
    rule, plane, thicknesses = CASES[name]
    rows, errors = [], []
    for planes in (2, 4) if options.quick else thicknesses:
        shape = (planes, *(16 for _ in plane)) if options.quick else (planes, *plane)
        swap = ("p_new", "p") if rule == "himeno" else ("new", "u")
        problem = Problem(RULES[rule].rules, ml.Grid((WHOLE, *shape[1:])), (swap,), cut=(0,))
        us, variant = launch_us(target, problem, planes, options.quick)
        model = CalibratedModel.of(problem, target.chip).on_share(shape, Demand(problem).field_bytes(shape))
        expected = model.launch(shape, 1, False).us
        errors.append(expected / us - 1)
        case = name.replace("Z", str(planes))
        rows.append(Row(case, "time of a launch", round(us, 3), "us", peer={"model, us": round(expected, 3)}, note=variant))
    average, worst = statistics.mean(map(abs, errors)), max(errors, key=abs)
    why = "thin slabs: what a launch takes beside its planes is only fitted"
    for metric, value, reach in (("error of the model, average", average, 0.10), ("error of the model, worst", abs(worst), 0.20)):
        rows.append(Row(name, metric, round(value, 4), "", reach, note="" if value <= reach else why))
    return rows


def main() -> None:
    """Measure all cases."""
    options = parser(__doc__, "cuda:0").parse_args()
    measure("stencil_slabs", list(CASES), run_case, options)


if __name__ == "__main__":
    main()

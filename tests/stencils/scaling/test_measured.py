"""The calibrated model against the launches that were measured on an H200."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

import memlane as ml
from memlane.chip import load
from memlane.stencils import Problem
from memlane.stencils.scaling import CalibratedModel, Demand
from tests.stencils.scaling.problems import himeno, seven

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "stencil_slabs.json"
PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"


def test_the_model_is_as_near_to_the_measured_launches_as_its_page_says() -> None:
    errors = []
    for row in json.loads(MEASURED.read_text())["rows"]:
        if row["metric"] != "time of a launch":
            continue
        name, _, extents = row["case"].partition(", ")
        stencil, swap = (seven, ("new", "u")) if name == "7-point" else (himeno, ("p_new", "p"))
        shape = tuple(map(int, extents.split(" x ")))
        problem = Problem(stencil.rules, ml.Grid(shape), swap)  # type: ignore[arg-type]
        model = CalibratedModel.of(problem, load("h200")).on_share(shape, Demand(problem).field_bytes(shape))
        errors.append(abs(model.launch(shape, 1, False).us / row["value"] - 1))
    assert len(errors) == 41
    said = re.search(r"it is off by (\d+) % on average and (\d+) % at most", " ".join(PAGE.read_text().split()))
    assert said
    assert (round(100 * mean(errors)), round(100 * max(errors))) == (int(said[1]), int(said[2]))


@ml.stencil
def box(new, u, a):  # type: ignore[no-untyped-def]
    new[0, 0, 0] = sum(a[0] * u[z, y, x] for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1))


def test_rules_that_read_many_values_are_bound_by_instructions() -> None:
    """279 Gcell/s of a 27-point rule, 431 of a 7-point one, 2.62 TFLOPS of 34 operations of Himeno XL: the benchmark of one device."""
    rates = {}
    for stencil, shape, swap in (
        (box, (512,) * 3, ("new", "u")),
        (seven, (512,) * 3, ("new", "u")),
        (himeno, (512, 512, 1024), ("p_new", "p")),
    ):
        problem = Problem(stencil.rules, ml.Grid(shape), swap)  # type: ignore[arg-type]
        us = CalibratedModel.of(problem, load("h200")).launch(shape, 1, False).us
        rates[stencil.rules[0].name] = problem.grid.cells / us / 1e3
    assert abs(rates["box"] / 279 - 1) < 0.05
    assert abs(rates["seven"] / 431 - 1) < 0.06
    assert abs(rates["himeno"] * 34 / 2623 - 1) < 0.06

"""The calibrated model against the plans that runs on several devices make: the same regions, and the same time on the engine's clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.plan import Launch
from memlane.stencils import DirectKernel, Problem, Turn
from memlane.stencils.choice import default_variant
from memlane.stencils.scaling import CalibratedModel, plan_scaling
from memlane.stencils.scaling.regions import Share, steps_of
from tests.stencils.scaling.problems import himeno, seven


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize(("stencil", "swap"), [(seven, ("new", "u")), (himeno, ("p_new", "p"))], ids=["seven", "himeno"])
def test_regions_are_those_of_the_plan(stencil: Any, swap: tuple[str, str], k: int) -> None:
    problem = Problem(stencil.rules, ml.Grid((200, 16, 64)), swap, cut=(0,))  # type: ignore[arg-type]
    turn = Turn(problem, (DirectKernel(problem, problem.rules[0], default_variant(problem, problem.rules[0])),), k)
    planned = [(one.halo[0][0] + one.border[0][0], 60 - sum(one.border[0])) for one in turn.with_borders(turn.needs)]
    share = Share((60, 16, 64), ((True, True), (False, False), (False, False)))
    modelled = []
    for step in steps_of(share, [(1, 1)] * 3, k, "linked", True):
        assert step.inner is not None
        modelled.append((step.borders[0][0], step.inner[0]))
    assert modelled == planned


@pytest.mark.parametrize(("plane", "latency_us", "bound"), [((1024, 1024), 2.23, "computation"), ((64, 64), 60.0, "communication")])
@pytest.mark.parametrize("k", [1, 2])
def test_a_step_takes_what_its_plan_takes_on_the_clock(plane: tuple[int, int], latency_us: float, bound: str, k: int) -> None:
    """The clock knows queues, copies and what waits for what, and gets the times of single kernels from the model. It lets kernels of one
    device follow each other, so the two agree where borders are short beside the rest."""
    chip = load("h200")
    chip = replace(chip, links=replace(chip.links, peer_us=latency_us))
    cells = np.zeros((96, 8, 32), np.float32)  # planes count, what they hold does not
    run = seven.on(ml.Grid(cells.shape), exchange_every=k).prepare(
        u=cells, a=np.ones(7, np.float32), swap=("new", "u"), targets=ml.devices("emulator:h200", 3)
    )
    model = CalibratedModel.of(Problem(seven.rules, ml.Grid((96, *plane)), ("new", "u")), chip).on_share((96, *plane), 1e12)  # type: ignore[arg-type]

    def kernel_ns(launch: Launch, device: int) -> float:
        begin, behind = [one for one in launch.arguments if isinstance(one, int)][-2:]
        return 1e3 * (model.launch((behind - begin, *plane), 1, bound == "communication").us - model.launch_us)

    ends = [max(span.end_ns for span in ml.predicted(run.plan(turns * k), [chip] * 3, kernel_ns).spans) for turns in (4, 8)]
    row = plan_scaling(seven, (96, *plane), 3, k, chip=chip, axes=1, steps_per_launch=1).best()
    assert row.bound == bound
    assert row.step_us == pytest.approx((ends[1] - ends[0]) / (4 * k) / 1e3, rel=0.12)

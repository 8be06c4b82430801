"""The calibrated model against the plans that runs on several devices make: the same regions, and the same time on the engine's clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.network import Link, Transfer
from memlane.plan import Launch
from memlane.plan.order import executions
from memlane.stencils import DirectKernel, Problem, Turn
from memlane.stencils.choice import default_variant
from memlane.stencils.scaling import CalibratedModel, best_exchange, plan_scaling
from memlane.stencils.scaling.regions import Share, can_cut, steps_of
from tests.stencils.scaling.problems import diagonal, himeno, seven


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


@pytest.mark.parametrize("k", [1, 2, 3])
def test_regions_along_rows_are_those_of_the_plan(k: int) -> None:
    """Borders along a row have whole vectors of 8 cells."""
    problem = Problem(seven.rules, ml.Grid((16, 16, 800)), (("new", "u"),), cut=(2,))
    turn = Turn(problem, (DirectKernel(problem, problem.rules[0], default_variant(problem, problem.rules[0])),), k)
    planned = [(one.halo[2][0] + one.border[2][0], 200 - sum(one.border[2])) for one in turn.with_borders(turn.needs)]
    share = Share((16, 16, 200), ((False, False), (False, False), (True, True)))
    found = list(steps_of(share, [(1, 1)] * 3, k, "linked", True, [1, 1, 8]))
    assert [(one.borders[0][2], (one.inner or (0, 0, 0))[2]) for one in found] == planned
    assert planned[-1] == (8, 184)
    assert not can_cut(Share((16, 16, 16), share.neighbours), [(1, 1)] * 3, 1, "linked", [1, 1, 8])


@pytest.mark.parametrize(("stencil", "k"), [(seven, 1), (seven, 2), (diagonal, 1)])
def test_boxes_exchange_their_axes_as_their_plans_do(stencil: Any, k: int) -> None:
    """All at once where no launch reads a corner, else one after another, which takes a message more."""
    chip = load("h200")
    chip = replace(chip, links=replace(chip.links, peer_us=80.0, peer_order_us=None))
    shape, fields = (48, 48, 64), {name: np.ones(7, np.float32) for name in ("a",) if name in stencil.rules[0].scalars}
    run = stencil.on(ml.Grid(shape), exchange_every=k, decomposition=(2, 2, 1)).prepare(
        u=np.zeros(shape, np.float32), **fields, swap=("new", "u"), targets=ml.devices("emulator:h200", 4)
    )
    model = CalibratedModel.of(Problem(stencil.rules, ml.Grid(shape), ("new", "u")), chip).on_share((24, 24, 64), 1e6)  # type: ignore[arg-type]

    def kernel_ns(launch: Launch, device: int) -> float:
        numbers = [one for one in launch.arguments if isinstance(one, int)]
        if "pack" in launch.kernel.name:
            return 1e3 * (model.pack_us(0) / 2 - model.launch_us)
        return 1e3 * (model.launch((numbers[-6] - numbers[-7], numbers[-1] - numbers[-2], 64), 1, False).us - model.launch_us)

    ends = [max(span.end_ns for span in ml.predicted(run.plan(turns * k), [chip] * 4, kernel_ns).spans) for turns in (4, 8)]
    row = best_exchange(Problem(stencil.rules, ml.Grid(shape), ("new", "u")), 4, chip=chip, candidates=[k], steps_per_launch=1,
                        decomposition=(2, 2, 1))  # fmt: skip
    messages = 1 if stencil is seven and k == 1 else 2
    assert row.bound == "communication"
    assert 80 * messages < k * row.exchange_us < 80 * messages + 20
    assert row.step_us == pytest.approx((ends[1] - ends[0]) / (4 * k) / 1e3, rel=0.12)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("boundary", ["fixed", "periodic"])
def test_a_device_waits_for_events_of_others_as_often_as_its_plan_says(k: int, boundary: str) -> None:
    shape, link = (96, 8, 32), Link("peer", Transfer(1.0, 1.0), "share the rate", order_us=1.0)
    run = seven.on(ml.Grid(shape, boundary=boundary), exchange_every=k, overlap=True).prepare(
        u=np.zeros(shape, np.float32), a=np.ones(7, np.float32), swap=("new", "u"), targets=ml.devices("emulator:h200", 4)
    )
    waits = []
    for turns in (8, 24):  # some of the first turns wait for less
        order = executions(run.plan(turns * k))
        device = {one.number: one.queues[0][0] for one in order}
        waits.append(Counter(device[one.number] for one in order for other in one.waits if device[other] != device[one.number]))
    for at in range(4):
        neighbours = 2 if boundary == "periodic" or at in (1, 2) else 1
        assert (waits[1][at] - waits[0][at]) / 16 == link.ordered_us(neighbours, k)


@pytest.mark.parametrize(("plane", "latency_us", "bound"), [((1024, 1024), 2.23, "computation"), ((64, 64), 60.0, "communication")])
@pytest.mark.parametrize("k", [1, 2])
def test_a_step_takes_what_its_plan_takes_on_the_clock(plane: tuple[int, int], latency_us: float, bound: str, k: int) -> None:
    """The clock knows queues, copies and what waits for what, and gets the times of single kernels from the model. It lets kernels of one
    device follow each other, so the two agree where borders are short beside the rest."""
    chip = load("h200")
    chip = replace(chip, links=replace(chip.links, peer_us=latency_us, peer_order_us=None))  # which the clock of plans does not have
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

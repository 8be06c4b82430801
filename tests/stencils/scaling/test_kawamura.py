"""The paper's model against the arithmetic of the paper, written out here, and against what its text says of the results."""

from __future__ import annotations

import pytest

import memlane as ml
from memlane.chip import load
from memlane.errors import StencilError
from memlane.stencils import Problem
from memlane.stencils.scaling import CellWork, KawamuraModel, ScalingPlan, cell_work, plan_scaling
from tests.stencils.scaling.problems import himeno, seven, wires

STEPS = range(1, 7)


def published(rule: object, shape: tuple[int, int, int], devices: int, work: CellWork | None = None) -> ScalingPlan:
    return plan_scaling(
        rule, shape, devices, STEPS, chip="m2050", network="tsubame2", model="kawamura", axes=1, work=work  # type: ignore[arg-type]
    )  # fmt: skip


def times(plan: ScalingPlan) -> list[float]:
    return [one.step_us for one in plan.rows]


def test_what_a_cell_costs_is_counted_as_in_the_paper() -> None:
    problem = Problem(seven.rules, ml.Grid((8, 8, 8)), ("new", "u"))  # type: ignore[arg-type]
    assert cell_work(problem, seven.rules[0]) == CellWork(18, 8)
    problem = Problem(himeno.rules, ml.Grid((8, 8, 8)), ("p_new", "p"))  # type: ignore[arg-type]
    assert cell_work(problem, himeno.rules[0]).nbytes == 88  # 9 rows of p, 12 coefficients, 1 written, 4 bytes each


def test_the_machine_is_that_of_the_paper() -> None:
    problem = Problem(seven.rules, ml.Grid((256, 256, 256)), ("new", "u"))  # type: ignore[arg-type]
    model = KawamuraModel.of(problem, load("m2050"))
    assert (model.gflops, model.gb_per_s, model.launch_us, model.notes) == (1000, 120, 12, ())
    assert model.kernel_us((62, 256, 256)) == pytest.approx(62 * 65536 * 8 / 120e3 + 12)  # bound by memory
    assert KawamuraModel.of(problem, load("m2050"), CellWork(180, 8)).kernel_us((1, 256, 256)) == pytest.approx(65536 * 0.18e-3 + 12)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_step_of_four_processes_by_hand(k: int) -> None:
    """Equations 1 to 4, plane by plane: 64 planes of 65,536 cells on each process, neighbours on both sides."""
    plane = 65536 * 8 / 120e3  # us
    inner = sum((64 - 2 * step) * plane + 12 for step in range(1, k + 1))
    boundary = 2 * sum((k + 2 * (k - step)) * plane + 12 for step in range(1, k + 1))
    face = k * 65536 * 4
    copies, messages = 2 * (25 + face / 6e3), 2 * (25 + face / 3.2e3)
    row = published(seven, (256, 256, 256), 4).rows[k - 1]
    assert row.inner_us == pytest.approx(inner / k)
    assert row.boundary_us == pytest.approx(boundary / k)
    assert row.exchange_us == pytest.approx((copies + messages + copies) / k)
    assert row.step_us == pytest.approx((max(inner, copies + messages + copies) + boundary) / k)


def test_seven_points_on_two_processes_are_bound_by_computation_and_get_slower_with_k() -> None:
    """Section 4.2 and figure 10."""
    plan = published(seven, (256, 256, 256), 2)
    assert {one.bound for one in plan.rows} == {"computation"}
    assert times(plan) == sorted(times(plan))


@pytest.mark.parametrize("devices", [4, 8, 16])
def test_seven_points_on_four_or_more_are_bound_by_communication(devices: int) -> None:
    """Figure 11: the model's optimum on 4 processes is 3 steps. Section 4.2: 8.7 to 12.3 % were gained. Figure 8: more processes do not
    help."""
    plan = published(seven, (256, 256, 256), devices)
    assert {one.bound for one in plan.rows} == {"communication"}
    assert plan.best().exchange_every == 3
    assert 1.08 < times(plan)[0] / plan.best().step_us < 1.16
    assert plan.rows[0].exchange_us == published(seven, (256, 256, 256), 4).rows[0].exchange_us


def test_himeno_on_eight_processes_gets_slower_with_k_and_on_sixteen_two_steps_are_best() -> None:
    """Figures 12 and 13; the paper counts 28 operations and 88 bytes a cell."""
    work = CellWork(28, 88)
    eight, sixteen = (published(himeno, (256, 128, 128), devices, work) for devices in (8, 16))
    assert eight.rows[0].bound == "computation"
    assert times(eight) == sorted(times(eight))
    assert sixteen.rows[0].bound == "communication"
    assert sixteen.best().exchange_every == 2
    assert times(sixteen) == pytest.approx(times(published(himeno, (256, 128, 128), 16)))  # operations do not count


def test_limits() -> None:
    """Without latency redundant work buys nothing; with a huge one the fewest exchanges win."""
    for latency, best in ((0.0, 1), (1e6, 6)):
        plan = plan_scaling(seven, (256,) * 3, 4, STEPS, chip="m2050", network=wires(latency), model="kawamura", axes=1)
        assert plan.best().exchange_every == best
    assert plan_scaling(seven, (256,) * 3, 1, STEPS, chip="m2050", model="kawamura").best().exchange_us == 0


def test_a_chip_nobody_measured_says_what_is_assumed() -> None:
    plan = plan_scaling(seven, (64,) * 3, 2, 1, chip="a100", network="h200-nvlink", model="kawamura")
    assert "a100: a launch is assumed to cost 0.7 us, because its file has no [links] launch_us" in plan.notes
    assert any("Gflop/s are used" in note for note in plan.notes)


def test_the_paper_launches_each_step_by_itself() -> None:
    with pytest.raises(StencilError, match=r"2 steps of seven cannot share a launch \(has a launch for each step\): use 1 step a launch"):
        plan_scaling(seven, (64,) * 3, 2, 2, network="h200-nvlink", model="kawamura", steps_per_launch=2)

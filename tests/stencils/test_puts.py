"""Stencils whose devices store into each other's halos and signal each other by flags: the bits of one device, and no race."""

from dataclasses import replace

import pytest

import memlane as ml
from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import StencilError
from memlane.plan import Plan, Repeat, Wait, races
from memlane.stencils import Variant
from memlane.timeloop.shared import SharedRun
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_boxes import corners
from tests.stencils.test_shared import FUSED, SWAP, SWAP3, flow, heat, lopsided, prepared, smooth, values
from tests.targets.test_signals import SideBySide, patient

__all__ = ["patient"]


@pytest.mark.parametrize(
    ("stencil", "swap", "devices", "every", "variant", "boundary"),
    [
        pytest.param(heat, SWAP, 2, 1, None, "periodic", id="one step, two devices around"),
        pytest.param(heat, SWAP, 3, 4, FUSED, "periodic", id="two launches of two steps, around"),
        pytest.param(heat, SWAP, 4, 2, FUSED, "fixed", id="a launch of two steps"),
        pytest.param(heat, SWAP, 5, 3, None, "reflecting", id="slabs too thin to be cut"),
        pytest.param(lopsided, SWAP3, 2, 3, None, (0.5, "fixed"), id="three fields that swap, more reach up than down"),
        pytest.param(lopsided, SWAP3, 3, 2, FUSED, "periodic", id="the same by launches of two steps"),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, swap, devices, every, variant, boundary):
    grid = ml.Grid((31, 40), boundary=boundary)
    many = prepared(stencil, grid, devices, every, "flags", variant=variant, overlap=True, swap=swap, r=0.1)
    one = prepared(stencil, grid, swap=swap, r=0.1)
    assert_bits_of_one_device(many, one, (1, 2 * every + 1), planned=4 * every)
    assert "by stores into the neighbours' halos, with flags by which devices signal each other" in repr(many)


@ml.stencil
def spread(new, square, u, c):
    value = 0.5 * u[0, 0, 0] + 0.25 * u[-1, 0, 1] - c[0, 1, 0] * u[2, 0, 0]
    new[0, 0, 0] = value
    square[0, 0, 0] = value * u[0, -1, 0]


@ml.stencil
def carried(new, u):
    new[0, 0] = u[0, 0] - 0.5 * u[-1, 0]


@pytest.mark.parametrize(
    ("stencil", "shape", "swap", "devices", "variant", "boundary", "dtype", "stored"),
    [
        pytest.param(heat, (31, 40), SWAP, 2, None, "periodic", "f4", 4, id="both sides of each go to the other"),
        pytest.param(heat, (33, 37), SWAP, 3, None, (0.5, "fixed"), "f2", 4, id="rows that do not end with a vector, halves"),
        pytest.param(lopsided, (31, 40), SWAP3, 3, None, "reflecting", "f4", 4, id="three fields that swap, more reach up than down"),
        pytest.param(spread, (25, 11, 70), SWAP, 3, Variant(2, (32, 2), 3, 2, unroll=3), "fixed", "f8", 4, id="a field that is not sent"),
        pytest.param(heat, (8, 40), SWAP, 4, None, "fixed", "f4", 2, id="devices in the middle have nothing between borders"),
        pytest.param(carried, (24, 16), SWAP, 3, None, "periodic", "f4", 0, id="upwards alone, so no flag says that halos are free"),
    ],
)
def test_borders_of_one_launch_store_into_halos_themselves(stencil, shape, swap, devices, variant, boundary, dtype, stored):
    """`stored`: the borders in the plan that do so; what is left is put."""
    grid = ml.Grid(shape, dtype=dtype, boundary=boundary)
    more = {"u": values("u", shape).astype(dtype), "swap": swap, **{name: 0.1 for rule in stencil.rules for name in rule.scalars}}
    more |= {
        name: values("c", shape).astype(dtype) for rule in stencil.rules for name in ("square", "stiff", "old", "c") if name in rule.fields
    }
    many = prepared(stencil, grid, devices, 1, "flags", variant, overlap=True, **more)
    one = prepared(stencil, grid, variant=variant, **more)
    assert_bits_of_one_device(many, one, (1, 6), planned=5)
    lines = str(many.plan()).splitlines()
    borders = [line for line in lines if "border" in line and "raise" in line]
    assert len(borders) == stored
    is_sent = [device for device in range(devices) if not any(f"device {device} " in line for line in borders)]
    assert sorted(int(line.split("device ")[1][0]) for line in lines if " put: put" in line) == is_sent


def test_rules_that_read_each_others_halos_send_all_fields_in_one_put():
    grid = ml.Grid((13, 6, 9), boundary=("reflecting", "periodic", 1.5))
    step = flow.then(smooth)
    one, many = prepared(step, grid, swap=SWAP), prepared(step, grid, 3, 1, "flags", swap=SWAP)
    assert_bits_of_one_device(many, one, [4])
    assert sum("  put: put " in line for line in str(many.plan()).splitlines()) == 3


def test_boxes_store_faces_as_they_lie_and_corners_arrive_axis_after_axis():
    grid = ml.Grid((13, 14, 37), boundary=("periodic", "fixed", "reflecting"))
    fields = {name: values(name, grid.shape) for name in ("u", "c")}
    many = corners.on(grid, exchange_every=2, decomposition=(2, 1, 2), transport="flags").prepare(
        **fields, swap=SWAP, r=0.1, targets=ml.devices("emulator:h200", 4)
    )
    one = corners.on(grid).prepare(**fields, swap=SWAP, r=0.1, targets=ml.target("emulator:h200"))
    assert_bits_of_one_device(many, one, [5])
    text = str(many.plan())
    assert "pack" not in text
    assert "put along axis 2: put" in text


def unwaiting(plan: Plan) -> list[Plan]:
    """Return the plan once for each wait in it, with nothing behind that wait any more."""
    (loop,) = plan.steps
    assert isinstance(loop, Repeat)
    found = []
    for place, step in enumerate(loop.steps):
        if isinstance(step.action, Wait):
            without = [
                replace(
                    one,
                    after=tuple(at for at in one.after if at != place),
                    after_last_turn=tuple(at for at in one.after_last_turn if at != place),
                )
                for one in loop.steps
            ]
            without[place] = replace(without[place], queue=99)
            found.append(Plan((replace(loop, steps=tuple(without)),)))
    return found


@pytest.mark.parametrize(("devices", "every", "waits"), [(2, 1, 2), (3, 1, 3), (3, 2, 6)])
def test_no_wait_can_be_left_out(devices, every, waits):
    run = prepared(heat, ml.Grid((31, 40), boundary="periodic"), devices, every, "flags", overlap=True, swap=SWAP, r=0.1)
    plan = run.plan(5 * every)
    assert races(plan) == []
    without = unwaiting(plan)
    assert len(without) == waits
    for one in without:
        assert races(one), str(one)


@pytest.mark.parametrize(("every", "variant"), [(1, None), (3, None), (2, FUSED)])
@pytest.mark.usefixtures("patient")
def test_devices_run_side_by_side_with_nothing_but_flags_between_them(every, variant):
    """Each device replays graphs of its own, in a thread of its own and in any order that its own queues allow."""
    grid = ml.Grid((33, 24), boundary="periodic")
    targets = [SideBySide(at, every + at) for at in range(3)]
    run = heat.on(grid, exchange_every=every, transport="flags", overlap=True).prepare(
        u=values("u", grid.shape), r=0.1, swap=SWAP, targets=targets, variant=variant or Variant(4, (64, 1), 4, 1)
    )
    assert isinstance(run, SharedRun)
    one = prepared(heat, grid, swap=SWAP, r=0.1)
    assert_bits_of_one_device(run, one, (2 * every, 7 * every + 1))


def test_devices_that_do_not_reach_each_other():
    targets = [Emulator(load("h200")) for _ in range(2)]  # both with the addresses of device 0
    grid = ml.Grid((12, 16))
    with pytest.raises(StencilError, match=r"devices cannot reach each other's memory: .* are not peers.*pass transport='host'"):
        heat.on(grid, transport="flags").prepare(u=values("u", grid.shape), r=0.1, swap=SWAP, targets=targets)

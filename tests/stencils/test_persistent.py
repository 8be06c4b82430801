"""Kernels that stay on their devices for many steps and signal each other: the bits of one device, and no endless wait."""

import numpy as np
import pytest

import memlane as ml
from memlane.errors import LaunchError, StencilError
from memlane.plan import races
from memlane.stencils import PersistentStage, PutStage, Variant, persistent_stage
from memlane.timeloop import residence
from tests.stencils.test_boxes import poison
from tests.stencils.test_random import defined
from tests.stencils.test_shared import FUSED, SWAP, SWAP3, heat, lopsided, prepared, values

FAR = ml.stencil(
    defined("def rule(new, u, c):\n    new[0, 0, 0] = u[-1, 0, 0] + 0.5 * u[2, 0, 1] - c[0, 1, 0] * u[0, 0, -1] + c[1, 0, 0]\n")
)


@pytest.mark.parametrize(
    ("stencil", "shape", "devices", "variant", "boundary"),
    [
        pytest.param(heat, (31, 40), 2, None, "periodic", id="two devices around"),
        pytest.param(heat, (5, 40), 4, None, (0.5, "fixed"), id="slabs of a plane or two, all of them border"),
        pytest.param(
            FAR, (23, 11, 70), 3, Variant(4, (32, 2), 2, 1), ("fixed", "periodic", "reflecting"), id="tiles, more reach up than down"
        ),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, shape, devices, variant, boundary, monkeypatch):
    """By launches of at most three steps, by fewer blocks than there are tiles."""
    monkeypatch.setattr(persistent_stage, "MOST_STEPS", 3)
    grid, more = ml.Grid(shape, boundary=boundary), {"r": 0.1} if stencil is heat else {}
    many = prepared(stencil, grid, devices, transport="persistent", variant=variant, swap=SWAP, **more)
    one = prepared(stencil, grid, swap=SWAP, **more)
    for steps in (1, 8):
        many._residence.blocks[0] = 2 + steps
        assert np.array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())
        assert many.reductions == one.reductions
    assert races(many.plan(7)) == []
    assert [line.split(":")[0] for line in str(many.plan(7)).splitlines()] == [
        f"  {at}  {devices} devices queue 0  {steps} steps" for at, steps in enumerate((3, 3, 1))
    ]
    assert "kernels that stay on their devices, store into the neighbours' halos and signal each other by flags" in repr(many)


def test_what_was_not_stored_is_not_read():
    """NaN in all memory beside what neighbours store, and in the field that steps overwrite, reaches no result."""
    grid = ml.Grid((18, 60), boundary=("periodic", "fixed"))
    one, many = (prepared(heat, grid, devices, transport="persistent" if devices > 1 else "auto", swap=SWAP, r=0.1) for devices in (1, 3))
    for steps in (2, 3):
        poison(many, many._wanted)
        for part in many.arrays["new"]:
            part.copy_from(np.full(part.shape, np.nan, part.dtype))
        assert np.array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


def test_what_needs_the_host_between_steps_is_made_by_puts(tmp_path):
    """Steps that reduce, and those with sources; scalars that change are read from a table."""
    grid, schedule = ml.Grid((20, 12), boundary="periodic"), np.linspace(0.02, 0.2, 9, dtype=np.float32)
    one, many = prepared(heat, grid, swap=SWAP, r=0.1), prepared(heat, grid, 3, transport="persistent", swap=SWAP, r=0.1)
    kinds = [type(stage) for stage, _ in many._shared_stages(5, False, True)]
    assert kinds == [PersistentStage, PutStage]
    for run in (one, many):
        run.steps(9, r=schedule)
        run.save(tmp_path / f"{type(run).__name__}.npz")
        run.add_source("u", (4, 5), np.arange(3.0, dtype=np.float32))
        run.steps(4)
    assert {type(stage) for stage, _ in many._shared_stages(5, False, False)} == {PutStage}
    assert np.array_equal(many["u"].gather(), one["u"].gather())


def test_a_device_that_is_never_signalled_gives_up(monkeypatch):
    monkeypatch.setattr(residence, "_MOST_POLLS", 1 << 14)
    run = prepared(heat, ml.Grid((16, 12)), 2, transport="persistent", swap=SWAP, r=0.1)
    signals = run._residence.signals
    ahead = signals[0].numpy()
    ahead[2, 0] = 7  # as if device 0 had made seven steps that device 1 has not
    signals[0].copy_from(ahead)
    with pytest.raises(
        LaunchError, match=r"device 0 \(emulator:h200\) gave up waiting for device 1 \(emulator:h200:1\), which had made \d+ steps since "
        r"the run began, and \d+ were waited for\. Fields are not complete: prepare the run anew",
    ):  # fmt: skip
        run.steps(4)
    assert not any(one.numpy().any() for one in signals)


def test_what_cannot_stay():
    grid = ml.Grid((16, 24))
    with pytest.raises(StencilError, match=r"no kernel can stay on its device for many steps: a step has to be one rule that writes"):
        prepared(lopsided, grid, 2, transport="persistent", swap=SWAP3, r=0.1)
    with pytest.raises(StencilError, match=r"the grid has to be cut along its first axis alone; use transport='flags'"):
        heat.on(grid, transport="persistent", decomposition=(1, 2)).prepare(
            u=values("u", grid.shape), r=0.1, swap=SWAP, targets=ml.devices("emulator:h200", 2)
        )
    for every, variant in ((2, None), ("auto", FUSED)):
        with pytest.raises(StencilError, match=r"kernels that stay on their devices exchange after each step: leave out exchange_every"):
            prepared(heat, grid, 2, every, "persistent", variant, swap=SWAP, r=0.1)
    run = prepared(heat, grid, 2, transport="persistent", swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"kernels that wait for each other have no modelled time: .* use transport='flags'"):
        run.timeline(4)

"""Kernels that stay on their devices for many steps and signal each other: the bits of one device, and no endless wait."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.errors import LaunchError, StencilError
from memlane.stencils import PersistentStage, PutStage, Variant, persistent_stage
from memlane.stencils.persistent import STATE, free_after
from memlane.timeloop import residence
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_boxes import EXAMPLES, poison
from tests.stencils.test_random import defined, problems
from tests.stencils.test_shared import FUSED, SWAP, SWAP3, flow, heat, lopsided, prepared, smooth, values

FAR = ml.stencil(
    defined("def rule(new, u, c):\n    new[0, 0, 0] = u[-1, 0, 0] + 0.5 * u[2, 0, 1] - c[0, 1, 0] * u[0, 0, -1] + c[1, 0, 0]\n")
)


@ml.stencil
def halved(sum, u):
    sum[0, 0] = 0.5 * u[0, 0] + 0.25 * u[-1, 0]


@ml.stencil
def returned(u, sum):
    u[0, 0] = sum[1, 0] - 0.125 * sum[0, -1]


IN_PLACE = halved.then(returned)
"""The second rule overwrites what the first one reads, in the same memory in each step."""


@pytest.mark.parametrize(
    ("stencil", "swap", "shape", "devices", "every", "variant", "boundary", "free"),
    [
        pytest.param(heat, SWAP, (31, 40), 2, 1, None, "periodic", -1, id="two devices around"),
        pytest.param(heat, SWAP, (5, 40), 4, 1, None, (0.5, "fixed"), -1, id="slabs of a plane or two, all of them border"),
        pytest.param(heat, SWAP, (23, 40), 3, 2, None, "periodic", 0, id="halos of two steps, free behind the first"),
        pytest.param(heat, SWAP, (40, 24), 3, 5, None, (0.5, "fixed"), 3, id="turns of five steps and shorter ones"),
        pytest.param(lopsided, SWAP3, (31, 40), 2, 1, None, "periodic", -1, id="three fields that swap, one is sent"),
        pytest.param(lopsided, SWAP3, (31, 40), 3, 3, None, "fixed", 2, id="two fields are sent, one behind the last launch"),
        pytest.param(
            FAR, SWAP, (23, 11, 70), 3, 1, Variant(4, (32, 2), 2, 1), ("fixed", "periodic", "reflecting"), -1,
            id="tiles, more reach up than down",
        ),
        pytest.param(flow.then(smooth), SWAP, (23, 6, 9), 3, 1, None, ("reflecting", "periodic", 1.5), -1, id="two rules"),
        pytest.param(flow.then(smooth), SWAP, (26, 6, 9), 2, 3, None, ("periodic", "fixed", 1.5), 3, id="two rules, three steps"),
        pytest.param(IN_PLACE, (), (24, 20), 3, 1, None, "periodic", 0, id="no field changes places"),
        pytest.param(IN_PLACE, (), (24, 20), 3, 2, None, "reflecting", 2, id="the same, two steps"),
    ],
)  # fmt: skip
def test_the_bits_are_those_of_one_device(stencil, swap, shape, devices, every, variant, boundary, free, monkeypatch):
    """By launches of few steps, by fewer blocks than there are tiles. `free`: behind which launch of a turn neighbours may store."""
    monkeypatch.setattr(persistent_stage, "MOST_STEPS", 3)
    grid, more = ml.Grid(shape, boundary=boundary), {"r": 0.1} if stencil in (heat, lopsided) else {}
    many = prepared(stencil, grid, devices, every, "persistent", variant, swap=swap, **more)
    one = prepared(stencil, grid, swap=swap, **more)
    (stage, _), *_ = many._shared_stages(every, False, False)
    assert free_after(stage.turn, [name for faces in stage.turn.faces(stage.wanted, 0) for name, _ in faces]) == free
    for steps in (1, 2 * every + 2):
        many._residence.blocks[0] = 2 + steps
        assert_bits_of_one_device(many, one, [steps], planned=3 * every)
    most = max(3 // every * every, every)
    assert [line.split(":")[0] for line in str(many.plan(most + every)).splitlines()] == [
        f"  {at}  {devices} devices queue 0  {steps} steps" for at, steps in enumerate((most, every))
    ]
    assert "kernels that stay on their devices, store into the neighbours' halos and signal each other by flags" in repr(many)


@settings(max_examples=EXAMPLES // 4, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(problems().filter(lambda drawn: len(drawn[1]) > 1), st.integers(2, 4), st.integers(1, 3))
def test_random_stencils_have_the_bits_of_one_device(drawn, devices, every):
    text, shape, boundary, dtypes, variant, _ = drawn
    rule, random = ml.stencil(defined(text)), np.random.default_rng(3)
    shape = (max(shape[0], 6 * devices), *shape[1:])
    given_ = {name: random.standard_normal(shape).astype(dtype) for name, dtype in dtypes.items()}
    given_ |= {name: value for name, value in (("r", 0.21), ("k", [0.17])) if name in rule.rules[0].scalars}
    given_ |= {"dtypes": dtypes, "swap": tuple((f"{name}_new", name) for name in dtypes)}
    given_["variant"] = Variant(variant.vector, (32, 2), variant.planes, variant.rows, unroll=variant.unroll)
    grid = ml.Grid(shape, boundary=boundary)
    one = rule.on(grid).prepare(**given_, targets=ml.target("emulator:h200"))
    many = rule.on(grid, exchange_every=every, transport="persistent").prepare(**given_, targets=ml.devices("emulator:h200", devices))
    assert_bits_of_one_device(many, one, [2 * every + 1], planned=every)


@pytest.mark.parametrize("every", [1, 2])
def test_what_was_not_stored_is_not_read(every):
    """NaN in all memory beside what neighbours store, and in the field that steps overwrite, reaches no result."""
    grid = ml.Grid((18, 60), boundary=("periodic", "fixed"))
    one, many = prepared(heat, grid, swap=SWAP, r=0.1), prepared(heat, grid, 3, every, "persistent", swap=SWAP, r=0.1)
    for steps in (2, 3):
        poison(many, many._wanted)
        for part in many.arrays["new"]:
            part.copy_from(np.full(part.shape, np.nan, part.dtype))
        assert np.array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


def test_what_needs_the_host_between_steps_is_made_by_puts(tmp_path):
    """Steps that reduce, and those with sources; scalars that change are read from a table."""
    grid, schedule = ml.Grid((20, 12), boundary="periodic"), np.linspace(0.02, 0.2, 9, dtype=np.float32)
    one, many = prepared(heat, grid, swap=SWAP, r=0.1), prepared(heat, grid, 3, 2, transport="persistent", swap=SWAP, r=0.1)
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
    run = prepared(heat, ml.Grid((16, 12)), 2, 2, transport="persistent", swap=SWAP, r=0.1)
    signals = run._residence.signals
    ahead = signals[0].numpy()
    ahead[STATE, 0] = 7  # as if device 0 had made seven turns that device 1 has not
    signals[0].copy_from(ahead)
    with pytest.raises(
        LaunchError, match=r"device 0 \(emulator:h200\) gave up waiting for device 1 \(emulator:h200:1\), which had made \d+ exchanges "
        r"since the run began, and \d+ were waited for\. Fields are not complete: prepare the run anew",
    ):  # fmt: skip
        run.steps(4)
    assert not any(one.numpy().any() for one in signals)


def test_what_cannot_stay():
    grid = ml.Grid((16, 24))
    line = ml.stencil(defined("def rule(new, u):\n    new[0] = 0.5 * u[-2] + 0.25 * (u[1] + u[0])\n"))
    with pytest.raises(StencilError, match=r"for many steps: the grid has one axis, and .* stores planes or rows; use transport='flags'"):
        line.on(ml.Grid((64,)), transport="persistent").prepare(u=values("u", (64,)), swap=SWAP, targets=ml.devices("emulator:h200", 2))
    with pytest.raises(StencilError, match=r"no kernel can stay on its device for many steps: the grid has to be cut along its first axis"):
        heat.on(grid, transport="persistent", decomposition=(1, 2)).prepare(
            u=values("u", grid.shape), r=0.1, swap=SWAP, targets=ml.devices("emulator:h200", 2)
        )
    with pytest.raises(
        StencilError, match=r"kernels that stay on their devices have no launches of several steps, and the variant is 2 steps"
    ):
        prepared(heat, grid, 2, 2, "persistent", FUSED, swap=SWAP, r=0.1)
    run = heat.on(grid, transport="persistent", decomposition="auto", exchange_every=2).prepare(
        u=values("u", grid.shape), r=0.1, swap=SWAP, targets=ml.devices("emulator:h200", 2)
    )
    assert run.decomposition.process_grid == (2, 1)
    with pytest.raises(StencilError, match=r"kernels that wait for each other have no modelled time: .* use transport='flags'"):
        run.timeline(run.exchange_every)

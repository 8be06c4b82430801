"""Sources and probes: on several devices the bits of one, wherever the cells lie."""

import numpy as np
import pytest

import memlane as ml
from memlane.errors import StencilError
from memlane.plan import races
from tests.stencils.test_shared import FUSED, SWAP, SWAP3, heat, lopsided, prepared

AROUND = [(z, x) for z in (0, 7, 8, 9, 10, 11, 12, 15, 16, 20, 23, 30) for x in (0, 13, 39)]
"""Cells at both ends of each slab of two to four devices, and inside."""


def pulses(cells, rows, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, len(cells))).astype(np.float32)


@pytest.mark.parametrize(
    ("stencil", "swap", "devices", "every", "boundary", "transport", "variant"),
    [
        pytest.param(heat, SWAP, 2, 1, "fixed", "peer", None, id="an exchange after each step"),
        pytest.param(heat, SWAP, 3, 4, "periodic", "host", FUSED, id="sources in halos, around, by the host"),
        pytest.param(lopsided, SWAP3, 2, 5, "periodic", "peer", None, id="halos that hold a cell twice, three fields that swap"),
        pytest.param(lopsided, SWAP3, 4, 3, (0.5, "fixed"), "flags", None, id="four devices that signal each other"),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, swap, devices, every, boundary, transport, variant):
    grid = ml.Grid((31, 40), boundary=boundary)
    runs = [
        prepared(stencil, grid, devices, every, transport, variant, overlap=True, swap=swap, r=0.1),
        prepared(stencil, grid, swap=swap, r=0.1),
    ]
    fields = ["u", "stiff"] if stencil is lopsided else ["u"]
    for run in runs:
        run.steps(2)
        for at, name in enumerate(fields):  # the rule never writes `stiff`, and no exchange sends it again
            run.add_source(name, AROUND, pulses(AROUND, 2 * every + 3, at))
        run.add_probe("u", AROUND[::-1])
        for steps in (1, every, 2 * every + 1):
            run.steps(steps)
    many, one = runs
    assert many.probed("u").shape == (3 * every + 2, len(AROUND))
    assert np.array_equal(many.probed("u"), one.probed("u"))
    assert not np.array_equal(one.probed("u")[0], one.probed("u")[-1])
    assert many.reductions == one.reductions
    for name in one.problem.fields:
        if name != "new":
            assert np.array_equal(many[name].gather(), one[name].gather()), name
    assert races(many.plan(2 * every)) == []


def test_cells_at_the_edges_of_boxes():
    """Parts along both axes: a cell lies in the halos of three neighbours, in memory that begins before the halo."""
    grid = ml.Grid((31, 80), boundary="periodic")
    cells = [(z, x) for z in (0, 14, 15, 16, 30) for x in (0, 1, 38, 39, 40, 41, 79)]
    targets = ml.devices("emulator:h200", 4)
    u, runs = np.random.default_rng(3).random(grid.shape, dtype=np.float32), []
    for more in ({"decomposition": (2, 2), "exchange_every": 3}, {}):
        runs.append(heat.on(grid, **more).prepare(u=u, r=0.1, swap=SWAP, targets=targets if more else targets[0]))
        runs[-1].add_source("u", cells, pulses(cells, 5))
        runs[-1].add_probe("u", cells)
        runs[-1].steps(4).steps(3)
    many, one = runs
    assert np.array_equal(many.probed("u"), one.probed("u"))
    assert np.array_equal(many["u"].gather(), one["u"].gather())
    assert many.reductions == one.reductions


def test_a_grid_of_one_dimension():
    @ml.stencil
    def line(new, u):
        new[0] = 0.25 * u[-2] + 0.5 * u[0] + 0.25 * u[1]

    u, cells, runs = np.random.default_rng(4).random(200, dtype=np.float32), [[0], [63], [64], [65], [66], [99], [100], [199]], []
    for devices, more in ((3, {"exchange_every": 2}), (1, {})):
        run = line.on(ml.Grid((200,)), **more).prepare(u=u, swap=SWAP, targets=ml.devices("emulator:h200", devices))
        run.add_source("u", cells, pulses(cells, 5))
        run.add_probe("u", cells)
        runs.append(run.steps(5))
    assert np.array_equal(runs[0].probed("u"), runs[1].probed("u"))
    assert np.array_equal(runs[0]["u"].gather(), runs[1]["u"].gather())


def test_a_device_without_points_stays_cut():
    many = prepared(heat, ml.Grid((64, 16)), 4, 1, overlap=True, swap=SWAP, r=0.1)
    many.add_probe("u", (3, 3))
    names = {(step.device, step.label) for step in many.plan().steps}
    assert (0, "record_points new") in names
    assert (0, "heat_step high border") not in names
    assert (1, "heat_step high border") in names


def test_a_timeline_makes_steps_with_points():
    runs = [prepared(heat, ml.Grid((31, 40)), devices, 2, swap=SWAP, r=0.1) for devices in (1, 2)]
    for run in runs:
        run.add_source("u", AROUND, pulses(AROUND, 3))
        run.add_probe("u", AROUND)
    runs[1].timeline(4)
    runs[0].steps(4)
    assert np.array_equal(runs[1].probed("u"), runs[0].probed("u"))
    assert np.array_equal(runs[1]["u"].gather(), runs[0]["u"].gather())


@ml.stencil
def pair(new, u, after, w):
    new[0, 0] = 0.5 * u[0, 0] + 0.25 * (u[-1, 0] + u[1, 0])
    after[0, 0] = w[0, 0] + u[0, 0]


@pytest.mark.parametrize("devices", [1, 2])
def test_fields_of_two_types_have_sources_of_their_own(devices):
    grid = ml.Grid((12, 8))
    zero = np.zeros(grid.shape)
    run = pair.on(grid, exchange_every=2).prepare(
        u=zero.astype("f4"), w=zero, dtypes={"w": "f8"}, swap=(("new", "u"), ("after", "w")), targets=ml.devices("emulator:h200", devices)
    )
    run.add_source("u", (6, 3), [1.0])
    run.add_source("w", (5, 3), [1e-12])
    run.add_probe("w", (5, 3))
    run.steps(1)
    assert run["u"].gather()[6, 3] == 1
    assert run.probed("w").dtype == np.float64
    assert run.probed("w")[0, 0] == run["w"].gather()[5, 3] == 1e-12


def test_a_run_that_goes_back_adds_nothing_before_the_first_row(tmp_path):
    run = prepared(heat, ml.Grid((16, 16)), swap=SWAP, r=0.1)
    run.save(tmp_path / "start.npz")
    run.steps(3)
    plain = run["u"].gather()
    run.add_source("u", (4, 4), [1.0, 2.0])
    run.restore(tmp_path / "start.npz")
    assert np.array_equal(run.steps(3)["u"].gather(), plain)
    run.steps(1)
    added = run["u"].gather()
    without = prepared(heat, ml.Grid((16, 16)), swap=SWAP, r=0.1).steps(4)["u"].gather()
    assert np.array_equal(np.argwhere(added != without), [[4, 4]])
    assert added[4, 4] == without[4, 4] + 1


@pytest.mark.parametrize("devices", [1, 2])
def test_cells_that_cannot_be_points(devices):
    run = prepared(heat, ml.Grid((16, 16)), devices, 1, swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"cells of a grid of shape \(16, 16\) have 2 indices inside it, not \(16, 0\)"):
        run.add_probe("u", (16, 0))
    with pytest.raises(StencilError, match=r"are not all different: add up what belongs to one cell"):
        run.add_source("u", [(1, 1), (1, 1)], [[1.0, 2.0]])
    with pytest.raises(StencilError, match=r"a source at 2 cells has a row of 2 values for each step, not \(3,\)"):
        run.add_source("u", [(1, 1), (1, 2)], [1.0, 2.0, 3.0])
    with pytest.raises(StencilError, match=r"field 'u' has no probe: call add_probe\('u', at=...\) first"):
        run.probed("u")

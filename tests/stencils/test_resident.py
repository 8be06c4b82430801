"""Kernels that keep the cells of a device on its multiprocessors: the bits of one device, whatever the tiles, and which tiles there are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.chip import load
from memlane.errors import LaunchError, StencilError
from memlane.ptx import print_module
from memlane.stencils import Grid, PersistentKernel, Problem, ResidentKernel
from memlane.stencils.persistent import SIGNAL_ROWS
from memlane.stencils.tiles import Tile, best_tile, cannot_reside, reads_next_only, tile_us
from memlane.timeloop import residence, shared
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_boxes import EXAMPLES, poison
from tests.stencils.test_random import defined, problems
from tests.stencils.test_shared import SWAP, prepared, values


@ml.stencil
def seven(new, u, a):
    new[0, 0, 0] = (a[0] * u[0, 0, 0] + a[1] * u[-1, 0, 0] + a[2] * u[1, 0, 0] + a[3] * u[0, -1, 0] + a[4] * u[0, 1, 0]
                    + a[5] * u[0, 0, -1] + a[6] * u[0, 0, 1])  # fmt: skip


@ml.stencil
def corners(new, u, c):
    new[0, 0, 0] = 0.5 * u[-1, -1, -1] - 0.25 * u[1, 1, 1] + c[0, 1, -1] * u[1, -1, 0] + 0.125 * u[0, 1, -1] + u[-1, 0, 1]


@ml.stencil
def far(new, u, r):
    new[0, 0, 0] = r * u[-2, 0, 0] + 0.5 * u[1, 0, 2] - u[0, 2, -1] + 0.25 * u[0, -1, -3] + 0.125 * u[2, 0, 0]


@ml.stencil
def upwards(new, u):
    ahead = 0.3 * u[1, -1, 0] + 0.3 * u[1, 0, -1] + 0.3 * u[0, -1, 1] + 0.2 * u[0, 0, 1]
    new[0, 0, 0] = min(ahead, u[1, -1, -1]) if u[1, -1, 1] > u[1, 0, 1] else ahead - u[1, 1, 0] / 3


COEFFICIENTS = np.array([0.4, 0.1, 0.15, 0.05, 0.12, 0.08, 0.1], "f4")


def kept(monkeypatch, tile):
    """Let all runs use a tile."""
    for module in (shared, residence):
        monkeypatch.setattr(module, "tile_of", lambda *_: tile)


@pytest.mark.parametrize(
    ("stencil", "shape", "devices", "boundary", "tile"),
    [
        pytest.param(seven, (12, 8, 32), 2, ("periodic", "fixed", "fixed"), Tile(1, 1, 2, 2, 3, 3), id="whole tiles, two devices around"),
        pytest.param(
            seven, (17, 7, 36), 2, "fixed", Tile(4, 1, 2, 1, 3, 2), id="tiles that share cells, a plane in L2, lanes without cells"
        ),
        pytest.param(seven, (9, 6, 140), 3, (1.5, "periodic", "reflecting"), Tile(4, 2, 1, 2, 2, 2), id="rows of two warps"),
        pytest.param(seven, (8, 5, 66), 2, ("reflecting", 0.5, "periodic"), Tile(2, 2, 1, 3, 3, 2), id="numbers behind faces"),
        pytest.param(corners, (13, 9, 40), 2, ("fixed", "periodic", 2.0), Tile(4, 1, 2, 2, 3, 2), id="corners of tiles and devices"),
        pytest.param(corners, (12, 6, 33), 3, "periodic", Tile(1, 2, 2, 1, 2, 2), id="all around"),
        pytest.param(far, (16, 6, 36), 2, ("fixed", "reflecting", "periodic"), Tile(4, 1, 2, 1, 3, 2), id="two planes far, one warp"),
        pytest.param(far, (18, 9, 24), 3, "periodic", Tile(4, 1, 1, 4, 3, 3), id="tiles as thin as the rule reaches"),
        pytest.param(upwards, (12, 5, 36), 2, "fixed", Tile(1, 2, 1, 1, 4, 3), id="other pairs of cells upwards than downwards"),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, shape, devices, boundary, tile, monkeypatch):
    kept(monkeypatch, tile)
    grid = ml.Grid(shape, boundary=boundary)
    more = {seven: {"a": COEFFICIENTS}, far: {"r": 0.3}}.get(stencil, {})
    many = prepared(stencil, grid, devices, 1, "persistent", swap=SWAP, **more)
    one = prepared(stencil, grid, swap=SWAP, **more)
    assert isinstance(many._staying, ResidentKernel)
    assert_bits_of_one_device(many, one, [1, 2, 4], planned=3)


@pytest.mark.parametrize(("chip", "copies"), [("a100", False), ("h200", True)])
def test_chips_without_bulk_copies_send_by_stores(chip, copies, monkeypatch):
    kept(monkeypatch, Tile(4, 1, 2, 2, 3, 3))
    grid, targets = ml.Grid((18, 8, 32), boundary=("periodic", "fixed", "fixed")), ml.devices(f"emulator:{chip}", 3)
    u, more = values("u", grid.shape), {"a": COEFFICIENTS, "swap": SWAP}
    many = seven.on(grid, exchange_every=1, transport="persistent").prepare(u=u, targets=targets, **more)
    one = seven.on(grid).prepare(u=u, targets=targets[0], **more)
    assert ("cp.async.bulk.global.shared" in print_module(many._module)) == copies
    assert_bits_of_one_device(many, one, [1, 4], planned=2)


@pytest.mark.parametrize(
    ("cells", "size", "reach", "holds"),
    [(7, 3, 1, True), (7, 3, 2, False), (8, 3, 2, True), (9, 3, 3, True), (3, 3, 2, True), (9, 4, 2, False)],
)
def test_a_last_tile_inside_the_one_before_it_reads_from_no_third_one(cells, size, reach, holds):
    assert reads_next_only(cells, size, reach) == holds


@pytest.mark.parametrize(("planes", "rows"), [(13, 40), (14, 41), (37, 33), (26, 35), (17, 34)])
def test_tiles_are_chosen_so_that_blocks_wait_for_all_from_which_they_read(planes, rows):
    """Shapes that are not divided by tiles, and a rule that reads two planes and two rows far, on a chip with few multiprocessors."""
    few = replace(load("h200"), sm_count=12)
    part = Problem((far.rules[0],), Grid((2 * planes, rows, 32)), (("new", "u"),), {}, cut=(0,))
    tile = best_tile(part, [planes, planes + 1], few)
    assert tile is not None
    assert all(reads_next_only(count, tile.planes, 2) for count in (planes, planes + 1))
    assert reads_next_only(rows, tile.height, 2)
    assert tile.stored >= 2


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(problems().filter(lambda drawn: len(drawn[1]) == 3 and len(drawn[3]) == 1), st.integers(2, 3), st.data())
def test_random_stencils_have_the_bits_of_one_device(drawn, devices, data):
    text, shape, boundary, dtypes, _, _ = drawn
    rule, random = ml.stencil(defined(text)), np.random.default_rng(3)
    shape = (max(shape[0], 6 * devices), *shape[1:])
    reach = rule.rules[0].footprint.radius
    planes = data.draw(st.integers(max(reach[0], 1), max(shape[0] // devices - reach[0], 1)))
    rows = data.draw(st.sampled_from([one for one in (1, 2, 4) if one <= shape[1]]))
    warps = data.draw(st.integers(-(-max(reach[1], 1) // rows), max(shape[1] // rows, -(-max(reach[1], 1) // rows))))
    vector = data.draw(st.sampled_from([one for one in (1, 2, 4) if shape[2] % one == 0]))
    if rows * warps > shape[1] or np.dtype(dtypes[next(iter(dtypes))]).itemsize * vector < 4:
        return
    counts = [shape[0] // devices, -(-shape[0] // devices)]
    if not reads_next_only(shape[1], rows * warps, max(reach[1], 1)) or not all(reads_next_only(one, planes, reach[0]) for one in counts):
        return
    tile = Tile(vector, -(-shape[2] // (32 * vector)), rows, warps, planes, data.draw(st.integers(max(reach[0], 1), planes)))
    given_ = {name: random.standard_normal(shape).astype(dtype) for name, dtype in dtypes.items()}
    given_ |= {name: value for name, value in (("r", 0.21), ("k", [0.17])) if name in rule.rules[0].scalars}
    given_ |= {"dtypes": dtypes, "swap": tuple((f"{name}_new", name) for name in dtypes)}
    grid = ml.Grid(shape, boundary=boundary)
    one = rule.on(grid).prepare(**given_, targets=ml.target("emulator:h200"))
    with pytest.MonkeyPatch.context() as patch:
        kept(patch, tile)
        many = rule.on(grid, exchange_every=1, transport="persistent").prepare(**given_, targets=ml.devices("emulator:h200", devices))
    assert isinstance(many._staying, ResidentKernel)
    assert_bits_of_one_device(many, one, [3], planned=1)


@pytest.mark.parametrize("boundary", ["fixed", ("periodic", "reflecting", 1.5)])
def test_one_device_keeps_its_cells_too(boundary, monkeypatch):
    kept(monkeypatch, Tile(4, 1, 2, 2, 3, 2))
    grid = ml.Grid((10, 9, 36), boundary=boundary)
    stays = seven.on(grid, transport="persistent")
    many = stays.prepare(u=values("u", grid.shape), a=COEFFICIENTS, swap=SWAP, targets=ml.target("emulator:h200"))
    assert isinstance(many._staying, ResidentKernel)
    assert_bits_of_one_device(many, prepared(seven, grid, swap=SWAP, a=COEFFICIENTS), [1, 4], planned=2)


def test_scalars_change_and_what_needs_the_host_is_made_otherwise(monkeypatch):
    """Scalars from a table with a row for each step; steps with a source in between are made by puts and waits."""
    kept(monkeypatch, Tile(4, 1, 1, 2, 2, 2))
    grid, schedule = ml.Grid((10, 4, 36), boundary=("periodic", "fixed", 0.5)), np.linspace(0.02, 0.2, 35, dtype=np.float32)
    one, many = (prepared(seven, grid, count, 1, way, swap=SWAP, a=COEFFICIENTS) for count, way in ((1, "auto"), (2, "persistent")))
    for run in (one, many):
        run.steps(5, a=schedule.reshape(5, 7))
        run.add_source("u", (4, 1, 6), np.arange(3.0, dtype=np.float32))
        run.steps(3)
        run.steps(2, a=COEFFICIENTS / 2)
    np.testing.assert_array_equal(many["u"].gather(), one["u"].gather())


def test_what_was_not_stored_is_not_read(monkeypatch):
    """NaN in all memory beside what neighbours store, and in the field that steps overwrite, reaches no result."""
    kept(monkeypatch, Tile(4, 1, 2, 2, 3, 2))
    grid = ml.Grid((14, 9, 36), boundary=("periodic", "fixed", "periodic"))
    one, many = prepared(seven, grid, swap=SWAP, a=COEFFICIENTS), prepared(seven, grid, 2, 1, "persistent", swap=SWAP, a=COEFFICIENTS)
    for steps in (2, 3):
        poison(many, many._wanted)
        for part in many.arrays["new"]:
            part.copy_from(np.full(part.shape, np.nan, part.dtype))
        np.testing.assert_array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


def test_a_device_that_is_never_signalled_gives_up(monkeypatch):
    kept(monkeypatch, Tile(4, 1, 2, 2, 2, 2))
    monkeypatch.setattr(residence, "_MOST_POLLS", 1 << 12)
    run = prepared(seven, ml.Grid((8, 4, 24)), 2, 1, "persistent", swap=SWAP, a=COEFFICIENTS)
    signals = run._residence.signals
    ahead = signals[0].numpy()
    ahead[SIGNAL_ROWS + 2 :, 0] = 7  # as if the blocks of device 0 had made seven steps that device 1 has not
    signals[0].copy_from(ahead)
    with pytest.raises(
        LaunchError, match=r"device 0 \(emulator:h200\) gave up waiting for device 1 .*, which had made \d+ exchanges since"
    ):
        run.steps(4)
    assert not any(one.numpy().any() for one in signals)


def test_more_tiles_than_a_device_holds(monkeypatch):
    kept(monkeypatch, Tile(4, 1, 1, 1, 1, 1))
    run = prepared(seven, ml.Grid((80, 150, 12)), 2, 1, "persistent", swap=SWAP, a=COEFFICIENTS)
    with pytest.raises(
        StencilError, match=r"emulator:h200 holds \d+ blocks at the same time, and its part of the grid is 6000 tiles of 1 planes"
    ):
        run.steps(1)


def problem(stencil, shape, **more):
    return Problem(stencil.rules, Grid(shape), (("new", "u"),), cut=(0,), **more)


def test_tiles_fill_the_multiprocessors_and_fit_into_them():
    chip = load("h200")
    for shape, planes in (((256, 256, 256), 128), ((256, 256, 256), 32), ((100, 90, 72), 50), ((64, 37, 250), 32)):
        tile = best_tile(problem(seven, shape), [planes, planes - 1], chip)
        assert tile is not None
        assert tile.blocks(planes, shape[1]) <= chip.sm_count
        assert tile.stored * tile.height * shape[2] * 4 <= chip.max_shared_bytes
        assert tile.planes <= planes - 1
        assert tile.height <= shape[1]
        assert tile.threads <= 512
        smaller = replace(chip, sm_count=chip.sm_count // 4)
        assert tile_us(problem(seven, shape), tile, smaller) == pytest.approx(tile_us(problem(seven, shape), tile, chip), rel=0.3)
    one = ml.target("emulator:h200")
    with pytest.raises(
        StencilError, match=r"on one device for many steps: the multiprocessors of emulator:h200 do not hold its cells; leave out"
    ):
        seven.on(ml.Grid((512, 256, 256)), transport="persistent").prepare(
            u=np.zeros((512, 256, 256), "f4"), a=COEFFICIENTS, swap=SWAP, targets=one
        )
    large = problem(seven, (256, 256, 256))
    assert best_tile(large, [256], chip) is None  # 64 MiB of cells in 29 MiB of shared memory
    assert best_tile(replace(large, dtypes={"u": "f8", "new": "f8"}), [128], chip) is None
    assert best_tile(replace(large, dtypes={"u": "f8", "new": "f8"}), [32], chip) is not None


def test_what_does_not_stay_on_multiprocessors():
    line = ml.stencil(defined("def rule(new, u):\n    new[0, 0] = 0.5 * u[-2, 0] + u[0, 1]\n"))
    assert cannot_reside(Problem(line.rules, Grid((8, 8)), SWAP)) == "the grid does not have three axes"
    assert cannot_reside(Problem(seven.rules, Grid((8, 8, 8)))) == "more than two fields change"
    assert cannot_reside(Problem(seven.then(far).rules, Grid((8, 8, 8)), SWAP)) == "a step has several rules"
    grid = ml.Grid((8, 8, 32))
    run = prepared(seven, grid, 2, 2, "persistent", swap=SWAP, a=COEFFICIENTS)
    assert isinstance(run._staying, PersistentKernel)  # two steps between exchanges
    u = values("u", grid.shape)
    run = seven.on(grid, transport="persistent").prepare(u=u, a=COEFFICIENTS, swap=SWAP, targets=ml.devices("emulator:h200", 2))
    assert isinstance(run._staying, ResidentKernel)
    assert run.exchange_every == 1
    assert f"exchange every 1 steps by kernels that stay and keep the cells on the multiprocessors, in {run._tile}" in repr(run)

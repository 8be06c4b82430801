"""Plans over devices, decompositions and steps between exchanges by the calibrated model: limits, order, refusals, what is printed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import memlane as ml
from memlane.chip import load
from memlane.errors import ChipError, NetworkError, StencilError
from memlane.network import load as load_network
from memlane.stencils import Problem, Variant
from memlane.stencils.choice import beside_border, estimates
from memlane.stencils.scaling import CalibratedModel, CellWork, Demand, best_exchange, plan_scaling, presumed_swap
from memlane.stencils.scaling import plan as plan_module
from memlane.stencils.scaling.regions import largest_share
from memlane.stencils.tiles import tile_us
from tests.stencils.scaling.problems import himeno, seven, wide, wires

CUBE = (256, 256, 256)


def problem(shape: tuple[int, ...] = CUBE, boundary: object = "fixed") -> Problem:
    return Problem(seven.rules, ml.Grid(shape, boundary=boundary), ("new", "u"))  # type: ignore[arg-type]


def test_one_device_exchanges_nothing() -> None:
    (row,) = plan_scaling(seven, CUBE, 1, range(1, 9), steps_per_launch=1).rows
    assert (row.exchange_us, row.boundary_us, row.decomposition, row.bound) == (0, 0, (1, 1, 1), "computation")
    assert row.step_us == row.inner_us
    assert row.gcells_per_s == pytest.approx(256**3 / row.step_us / 1e3)
    assert row.gcells_per_s < load("h200").copy_gb_per_s / 8  # type: ignore[operator]


@pytest.mark.parametrize("schedule", ["linked", "independent"])
def test_latency_decides_how_often_devices_exchange(schedule: str) -> None:
    found = []
    for latency in (0.0, 3.0, 10.0, 30.0, 1e5):
        network = wires(latency)
        plan = plan_scaling(seven, CUBE, 8, range(1, 9), network=network, axes=1, schedule=schedule, steps_per_launch=1)
        found.append(plan.best().exchange_every)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 8)


def test_what_a_step_takes_on_four_devices_is_what_its_parts_say() -> None:
    rows = plan_scaling(seven, CUBE, 4, range(1, 5), network=wires(500.0), axes=1, steps_per_launch=1).rows
    for row in rows:  # bound by the chain of borders, which the work beside them delays, and exchange
        assert row.bound == "communication"
        assert row.step_us == pytest.approx(row.boundary_us + 0.4 * row.inner_us + row.exchange_us, rel=1e-3)
        assert row.exchange_us == pytest.approx((500 + 2 * row.exchange_every * 65536 * 4 / 1e9) / row.exchange_every)
    rows = plan_scaling(seven, CUBE, 4, range(1, 5), network=wires(50.0), axes=1, schedule="independent").rows
    assert all(row.step_us == pytest.approx(max(row.inner_us, row.exchange_us) + row.boundary_us) for row in rows)


def test_without_an_overlap_computation_follows_the_exchange() -> None:
    rows = plan_scaling(seven, CUBE, 4, [1, 3], network=wires(50.0), axes=1, overlap=False, steps_per_launch=1).rows
    for row in rows:
        assert not row.is_overlapped
        assert row.step_us == pytest.approx(row.inner_us + row.exchange_us + 2.0)  # launches wait for it
    cut = plan_scaling(seven, CUBE, 4, [1, 3], network=wires(50.0), axes=1, steps_per_launch=1).rows
    assert all(one.step_us < other.step_us for one, other in zip(cut, rows, strict=True))


def test_blocks_behind_a_border_have_fewer_planes() -> None:
    """65 tiles in two layers fill an H200. A border of 3 planes, which takes 9 turns of the loop, keeps the second layer waiting."""
    for shape, planes, wanted in (((256, 512, 512), 129, 130), ((512, 512, 512), 258, 257), ((256, 256, 512), 129, 129)):
        slab, variant = problem(shape), Variant(4, (32, 12), planes, 4, 3, unroll=3)
        assert beside_border(slab, slab.rules[0], variant, load("h200")).planes == wanted


def test_kernels_that_stay_take_barriers_for_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: all tiles of a step and a barrier, or the chain of borders and exchange, whichever is longer."""
    monkeypatch.setattr(plan_module, "best_tile", lambda *_: None)  # no multiprocessors keep the cells
    rows = plan_scaling(seven, CUBE, 8, [1, 2], network="h200-nvlink", transport="persistent").rows
    model = CalibratedModel.of(problem(), load("h200"), stays=True)
    for row, chained in zip(rows, (1, 2), strict=True):
        k = row.exchange_every
        on_share = model.on_share((32, 256, 256), Demand(problem()).field_bytes((32 + 2 * k, 256, 256)))
        slots = 132 * 4 * 32 * load("h200").clock_mhz
        tiles = [
            on_share.launch((planes, 256, 256), 1, at > 0).us - model.launch_us + planes * 65536 * 18 / slots
            for at, planes in enumerate((34, 32)[2 - k :])
        ]
        whole = (1 + 0.035 * (k - 1)) * (sum(tiles) + k * (1.6 + 3.0))
        exchange = 3.9 + 2 * k * 262144 / 395e3 + 0.63
        assert k * row.exchange_us == pytest.approx(exchange)
        assert k * row.inner_us == pytest.approx(whole)
        chain = exchange + k * row.boundary_us + (chained - 1) * (1.6 + 3.0)
        assert k * row.step_us == pytest.approx(max(whole, chain))
        assert (row.decomposition, row.steps_per_launch) == ((8, 1, 1), 1)
    plan = plan_scaling(seven, CUBE, [1, 2], 1, network="h200-nvlink", transport="persistent")
    assert "kernels that stay on their devices: 1.6 us for a barrier of the grid are assumed" in plan.notes
    assert plan.rows[0] == plan_scaling(seven, CUBE, 1, 1).rows[0]  # no kernel stays on one device


def test_cells_that_stay_on_multiprocessors_take_the_time_of_their_tiles_and_of_the_ends() -> None:
    """Measured on two and four H200s: with 4 planes a device a step takes the way of the planes that are sent, from one to the other."""
    for count, shape, measured in ((2, CUBE, 9.17), (4, CUBE, 5.76), (2, (8, 256, 256), 4.25), (2, (8, 512, 512), 6.98)):
        (row,) = plan_scaling(seven, shape, count, 1, network="h200-nvlink", transport="persistent").rows
        assert row.tile is not None
        assert row.step_us == pytest.approx(row.inner_us + row.exchange_us)
        assert row.inner_us == pytest.approx(tile_us(problem(shape), row.tile, load("h200")))
        assert row.step_us == pytest.approx(measured, rel=0.1)
    (row,) = plan_scaling(seven, CUBE, 2, 1, network=wires(2.0, 40.0, "persistent"), transport="persistent").rows
    assert row.step_us == pytest.approx(2.9 + row.inner_us / row.tile.planes + 262144 / 40e3)
    assert plan_scaling(seven, (512,) * 3, 2, 1, network="h200-nvlink", transport="persistent").rows[0].tile is None


def test_whole_exchanges_by_kernels_that_stay_are_as_measured_in_a_ring() -> None:
    ring, alone = (
        load_network(name).link(4, transport) for name, transport in (("h200-nvlink-ring", "flags"), ("h200-nvlink", "persistent"))
    )
    for nbytes in (4096, 65536, 262144, 1048576):
        assert alone.exchange_us(nbytes, 2) == pytest.approx(ring.exchange_us(nbytes, 2), rel=0.08)


def test_slower_links_never_make_a_step_faster() -> None:
    fast, slow, slowest = (
        plan_scaling(seven, CUBE, [2, 4, 8], range(1, 5), network=wires(2.0, rate), steps_per_launch=1).rows for rate in (400.0, 40.0, 4.0)
    )
    assert all(a.step_us <= b.step_us <= c.step_us for a, b, c in zip(fast, slow, slowest, strict=True))


def test_fields_that_fit_into_l2_make_four_devices_faster_than_four_times() -> None:
    plan = plan_scaling(seven, CUBE, [1, 4], 1, network="h200-nvlink", transport="stores", axes=1, steps_per_launch=1)
    assert plan.best(1).step_us / plan.best(4).inner_us > 4  # the exchange aside
    large = plan_scaling(seven, (1024,) * 3, [1, 4], 1, network="h200-nvlink", axes=1, steps_per_launch=1)
    assert 3.7 < large.speedup(large.best(4)) <= 4  # type: ignore[operator]


def test_a_launch_takes_what_its_bytes_and_its_start_take() -> None:
    """By the rates in the chip's file, for a large region; a region of few planes is limited by its start and its march."""
    chip = load("h200")
    model = CalibratedModel.of(problem(), chip).on_share(CUBE, 1e12)
    read, write = chip.bandwidth.dram_read, chip.bandwidth.dram_write
    assert read is not None
    assert write is not None
    bytes_us = 512**3 * 4 * (1 / read + 1 / write) / 1e3
    assert 1.0 < model.launch((512, 512, 512), 1, False).us / bytes_us < 1.2  # planes and rows at seams are read twice
    small = CalibratedModel.of(problem(), chip)
    few, more = (small.launch((planes, 256, 256), 1, True).us for planes in (2, 4))
    assert small.launch_us < few < more < few + 2 * 3 * chip.latency.l2 / chip.clock_mhz
    assert model.launch((0, 256, 256), 1, False).us == 0


def test_waves_of_blocks_are_whole() -> None:
    """With 132 multiprocessors 65 planes more or less make no difference as long as no multiprocessor gets another block."""
    model = CalibratedModel.of(problem(), load("h200"))
    one, two = model.launch((16, 256, 256), 1, True), model.launch((24, 256, 256), 1, True)  # 128 and 192 blocks of 8 planes
    three = model.launch((32, 256, 256), 1, True)  # 256 blocks: two waves, as before
    assert one.busy_us < two.busy_us == three.busy_us


def test_decompositions_are_compared() -> None:
    plan = plan_scaling(seven, CUBE, 8, 1, network=wires(0.0, 1.0))  # so slow that bytes are all that counts
    cut = {row.decomposition: row.exchange_us for row in plan.rows}
    assert len(cut) == 3
    assert {sum(part > 1 for part in parts) for parts in cut} == {1, 2, 3}
    assert min(cut, key=cut.__getitem__) != (8, 1, 1)  # slabs have the largest faces
    two = plan_scaling(seven, (512, 32, 32), 4, 1, network="h200-nvlink", axes=2)
    assert [row.decomposition for row in two.rows] == [(2, 2, 1)]


def test_faces_have_the_bytes_that_neighbours_read() -> None:
    asked = Demand(Problem(wide.rules, ml.Grid((60, 10, 8), dtype="f8"), ("new", "u")))  # type: ignore[arg-type]
    assert asked.reach == ((3, 2), (0, 1), (1, 0))
    slab = largest_share((60, 10, 8), (3, 1, 1), (False,) * 3)
    assert asked.face_bytes(slab, 0, 2) == 2 * 3 * 10 * 8 * 8
    both = largest_share((60, 10, 8), (3, 2, 1), (False,) * 3)
    assert asked.face_bytes(both, 1, 2) == 2 * 1 * (20 + 2 * 3 + 2 * 2) * 8 * 8  # with the corners that axis 0 has brought


def test_fields_that_are_exchanged() -> None:
    @ml.stencil
    def waves(new, u, old, speed):  # type: ignore[no-untyped-def]
        new[0, 0] = 2 * u[0, 0] - old[0, 0] + speed[0, 0] * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])

    asked = Demand(Problem(waves.rules, ml.Grid((16, 16)), ("new", "u", "old")))  # type: ignore[arg-type]
    assert asked.exchanged(1) == ("u",)
    assert asked.exchanged(2) == ("u", "old")  # the second step reads old in the halo
    assert Demand(problem()).exchanged(3) == ("u",)


def test_fields_that_change_places_are_told_where_that_is_not_clear() -> None:
    @ml.stencil
    def two(new, v, u, w):  # type: ignore[no-untyped-def]
        new[0, 0] = u[1, 0]
        v[0, 0] = w[0, 1]

    with pytest.raises(
        StencilError, match=r"which fields change places after a step is not clear: new, v written, u, w read at a distance"
    ):
        presumed_swap(two.rules)


def test_periodic_grids_have_neighbours_everywhere() -> None:
    fixed, periodic = (
        plan_scaling(seven, ml.Grid(CUBE, boundary=one), 2, 1, network=wires(0.0, 100.0), axes=1) for one in ("fixed", "periodic")
    )
    assert periodic.best().exchange_us == pytest.approx(2 * fixed.best().exchange_us)


def test_the_best_steps_between_exchanges_for_a_run() -> None:
    chip = load("h200")
    rows = plan_scaling(seven, CUBE, 8, range(1, 9), network="h200-nvlink", axes=1)
    assert best_exchange(problem(), 8, chip=chip, network="h200-nvlink") == rows.best()
    assert best_exchange(problem(), 8, chip=chip).exchange_every >= 1  # by the chip's own links
    assert best_exchange(problem(), 1, chip=chip).exchange_us == 0
    assert best_exchange(problem((12, 256, 256)), 4, chip=chip, candidates=range(1, 9)).exchange_every <= 3  # a device has 3 planes
    other = replace(load("a100"), name="mine")
    assert best_exchange(problem(), 4, chip=other).devices == 4  # its file has no links: those of an H200 stand in
    with pytest.raises(NetworkError, match="no network is called 'none'"):
        best_exchange(problem(), 4, chip=other, network="none")


def test_steps_that_share_a_launch() -> None:
    rows = plan_scaling(seven, CUBE, [1, 2], range(1, 9), network="h200-nvlink", axes=1, steps_per_launch=4)
    assert {row.exchange_every for row in rows.rows} == {4, 8}
    assert any(
        "1, 2, 3, 5, 6, 7 steps an exchange, because steps between exchanges are a multiple of the 4 steps" in one for one in rows.notes
    )
    alone = plan_scaling(seven, CUBE, 1, 1, steps_per_launch=1).best()
    assert 1.5 < alone.step_us / rows.best(1).step_us < 2.1  # measured on one H200: 38.9 and 21.0 us
    assert plan_scaling(seven, CUBE, 1, 1).best() == rows.best(1)  # where nobody says how many, as many as are fastest
    with pytest.raises(StencilError, match=r"cannot share a launch \(axis 0 has a reflecting face\): use 1 step a launch"):
        plan_scaling(seven, ml.Grid(CUBE, boundary="reflecting"), 2, 4, network="h200-nvlink", steps_per_launch=4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"devices": 64, "grid": (32, 8, 8), "axes": 1}, StencilError,
         "64 devices cannot share a grid of 32 planes along axis 0: use 32 or fewer"),
        ({"devices": 8, "grid": (32, 8, 8), "exchange_every": 5, "axes": 1}, StencilError,
         "5 steps between exchanges reach 5 cells along axis 0, and a device has only 4 of its 32 cells there: exchange every 4 steps"),
        ({"devices": 7, "grid": (32, 8, 8), "axes": 2}, StencilError,
         r"a grid of \(32, 8, 8\) cells cannot be cut for 7 devices along \[2\] axes"),
        ({"devices": [2, 0]}, StencilError, r"devices must be whole numbers from 1 to 4,096, not \[2, 0\]"),
        ({"exchange_every": 0}, StencilError, "steps between exchanges must be whole numbers from 1 to 64, not 0"),
        ({"model": "roofline"}, StencilError, "no model is called 'roofline'; known: memlane, kawamura"),
        ({"schedule": "late"}, StencilError, "no schedule is called 'late'; known: independent, linked"),
        ({"model": "kawamura", "schedule": "linked"}, StencilError, "the model kawamura knows the schedule independent only"),
        ({"model": "kawamura", "transport": "persistent"}, StencilError, "has a launch for each step and knows no kernels that stay: use"),
        ({"transport": "persistent", "steps_per_launch": 2}, StencilError, "kernels that stay on their devices have no launches of 2"),
        ({"transport": "persistent", "axes": [2, 3]}, StencilError, "share a grid that is cut along its first axis alone: use 1 axis"),
        ({"work": CellWork(1, 1)}, StencilError, "operations and bytes of a cell are for the model kawamura"),
        ({"chip": "h2"}, ChipError, "unknown chip 'h2'; known chips: a100, "),
        ({"network": "ethernet"}, NetworkError, "no network is called 'ethernet'; known: h200-nvlink, h200-nvlink-ring, tsubame2"),
        ({"network": "", "chip": "a100"}, NetworkError,
         "the chip file of a100 has no links between peers: name a network; known: h200-nvlink"),
        ({"devices": 16}, NetworkError, "network h200-nvlink describes one node of 8 devices and no links between nodes: use at most 8"),
        ({"transport": "pigeon"}, NetworkError,
         "network h200-nvlink has no transport 'pigeon' inside a node; it has peer, stores, flags, persistent, host"),
        ({"exchange_every": 2.5}, StencilError, "steps between exchanges must be whole numbers from 1 to 64, not 2.5"),
        ({"dtypes": {"v": "f8"}}, StencilError, "dtypes names 'v', which is not a field; the fields are new, u"),
        ({"swap": ("new", "v")}, StencilError, "swap names 'v', which is not a field; the fields are new, u"),
        ({"grid": (32, 32)}, StencilError, "seven has 3 dimensions and the grid has 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options: dict[str, object], error: type[Exception], message: str) -> None:
    given: dict[str, object] = {"grid": (64, 64, 64), "devices": 2, "network": "h200-nvlink", **options}
    with pytest.raises(error, match=message):
        plan_scaling(seven, **given)  # type: ignore[arg-type]


def test_a_function_that_is_no_stencil_is_told_so() -> None:
    with pytest.raises(
        StencilError, match=r"a plan is made for a stencil, as @ml.stencil makes of a function, not for <built-in function abs>"
    ):
        plan_scaling(abs, CUBE)  # type: ignore[arg-type]


def test_grids_that_do_not_fit_into_memory_are_left_out() -> None:
    plan = plan_scaling(seven, (3072, 3072, 3072), [1, 2, 4], 1, network="h200-nvlink", axes=1)
    assert plan.devices == (2, 4)
    assert "Left out: 1 device, because its fields need 216 GiB on a device, and h200 has 131 GiB" in plan.notes
    assert plan.to_rows()[0]["speedup"] is None
    with pytest.raises(StencilError, match=r"nothing is left to predict. Left out: 1 device, because its fields need 216 GiB on a device"):
        plan_scaling(seven, (3072, 3072, 3072), 1)


def test_part_of_a_range_that_cannot_be_is_left_out_and_said() -> None:
    plan = plan_scaling(seven, (32, 64, 64), 8, range(1, 9), network="h200-nvlink", axes=1)
    assert [row.exchange_every for row in plan.rows] == [1, 2, 3, 4]
    (note,) = [one for one in plan.notes if one.startswith("Left out")]
    assert note.startswith("Left out of 8x1x1: 5, 6, 7, 8 steps an exchange, because 5 steps between exchanges reach 5 cells along axis 0")


def test_a_plan_prints_and_serialises() -> None:
    plan = ml.plan_scaling(himeno, (256, 128, 128), [1, 2], [1, 2], network="h200-nvlink", axes=1)
    lines = str(plan).splitlines()
    assert lines[0] == "himeno on 256 x 128 x 128 cells of f4; h200, h200-nvlink"
    assert lines[1].split("  ")[0] == "devices"
    assert sum(" * " in line for line in lines[2:5]) == 2
    assert "Predicted, not measured." in str(plan)
    document = json.loads(plan.to_json())
    assert document["rows"] == plan.to_rows()
    best = [row for row in document["rows"] if row["best"]]
    assert [row["devices"] for row in best] == [1, 2]
    assert best[1]["speedup"] == pytest.approx(plan.best(1).step_us / plan.best(2).step_us, abs=0.001)
    with pytest.raises(StencilError, match="the plan has no row for 3 devices; it has 1, 2"):
        plan.best(3)


def test_few_blocks_march_through_few_planes() -> None:
    """110 blocks of 128 planes took 37 us a step on an H200: each turn waits for memory, and there are too few blocks to hide it."""
    slab = problem((128, 256, 256))
    two = [one for one in estimates(slab, slab.rules[0], load("h200")) if one.variant.steps == 2]
    assert two[0].variant.planes < 32
    long = next(one for one in two if one.variant.planes == 128 and one.variant.vector == 2)
    assert long.limit == "the turns of a block"
    assert 128 * 65536 / long.cells_per_s == pytest.approx(37e-6, rel=0.03)


@pytest.mark.parametrize("transport", ["nccl", "mpi-cuda"])
def test_transports_without_measured_times_get_those_of_the_first_link_and_say_so(transport: str) -> None:
    first, given = (plan_scaling(seven, CUBE, 2, [1, 2], network="h200-nvlink", transport=one) for one in ("peer", transport))
    assert [row.step_us for row in first.rows] == [row.step_us for row in given.rows]
    said = f"h200-nvlink has no times of {transport}: those of peer stand for them, without being fitted"
    assert said in given.notes
    assert said not in first.notes
    own = wires(2.0, 40.0, transport)  # of a network that has them, they are used, and nothing is said
    assert not [note for note in plan_scaling(seven, CUBE, 2, 1, network=own, transport=transport).notes if "stand for" in note]


@pytest.mark.parametrize("transport", ["peer", "flags"])
def test_rows_that_are_cut_cost_more_than_slabs(transport: str) -> None:
    """Borders along rows take whole warps for few cells."""
    for shape in (CUBE, (512, 512, 512)):
        times = {
            parts: best_exchange(
                problem(shape), 2, chip=load("h200"), transport=transport, candidates=[1], decomposition=parts, steps_per_launch=1
            ).step_us
            for parts in ((2, 1, 1), (1, 2, 1), (1, 1, 2))
        }
        assert times[1, 1, 2] > 1.15 * times[1, 2, 1] >= 1.15 * times[2, 1, 1]


def test_nothing_is_saved_where_nothing_is_exchanged() -> None:
    """A rule that reads nothing along the axis that is cut, with one launch between two exchanges."""

    @ml.stencil
    def beside(new, u):  # type: ignore[no-untyped-def]
        new[0, 0] = u[0, -1] + u[0, 1]

    for boundary in ("fixed", ("fixed", "periodic")):
        rows = plan_scaling(beside, ml.Grid((64, 64), boundary=boundary), 2, [1, 8], axes=1, steps_per_launch=1).rows
        assert [row.exchange_us for row in rows] == [0, 0]

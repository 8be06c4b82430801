"""The calibrated model against the launches that were measured on an H200."""

from __future__ import annotations

import heapq
import json
import re
from pathlib import Path
from statistics import mean

import pytest

import memlane as ml
from memlane.chip import load
from memlane.stencils import Problem
from memlane.stencils.choice import _layers, _turns, estimate, estimates
from memlane.stencils.scaling import CalibratedModel, Demand, best_exchange
from memlane.stencils.scaling.regions import Share, steps_of
from memlane.stencils.scaling.work import Exchange
from memlane.stencils.schedule import FusedSchedule
from memlane.stencils.variant import Variant
from tests.stencils.scaling.problems import himeno, seven

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "stencil_slabs.json"
SHARED = MEASURED.with_name("stencil_scaling.json")
OLDER = re.compile("measured at commit (7d372ba8c853|9ad3a81847ee|090477019680)")
"""In notes of times before copies stopped waiting for the neighbour's border, where there is one launch between two exchanges."""
PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"


def test_the_model_is_as_near_to_the_measured_launches_as_its_page_says() -> None:
    errors = []
    for row in json.loads(MEASURED.read_text())["rows"]:
        if row["metric"] != "time of a launch":
            continue
        name, _, extents = row["case"].partition(", ")
        stencil, swap = (seven, ("new", "u")) if name == "7-point" else (himeno, ("p_new", "p"))
        shape = tuple(map(int, extents.split(" x ")))
        problem = Problem(stencil.rules, ml.Grid(shape), (swap,))
        model = CalibratedModel.of(problem, load("h200")).on_share(shape, Demand(problem).field_bytes(shape))
        errors.append(abs(model.launch(shape, 1, False).us / row["value"] - 1))
    assert len(errors) == 41
    said = re.search(r"it is off by (\d+) % on average and (\d+) % at most", " ".join(PAGE.read_text().split()))
    assert said
    assert (round(100 * mean(errors)), round(100 * max(errors))) == (int(said[1]), int(said[2]))


@ml.stencil
def box(new, u, a):  # type: ignore[no-untyped-def]
    new[0, 0, 0] = sum(a[0] * u[z, y, x] for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1))


@ml.stencil
def five(new, u, a):  # type: ignore[no-untyped-def]
    new[0, 0] = a[0] * u[0, 0] + a[1] * u[-1, 0] + a[2] * u[1, 0] + a[3] * u[0, -1] + a[4] * u[0, 1]


def test_rules_that_read_many_values_are_bound_by_instructions() -> None:
    """279 Gcell/s of a 27-point rule, 431 of a 7-point one, 2.62 TFLOPS of 34 operations of Himeno XL: the benchmark of one device."""
    rates = {}
    for stencil, shape, swap in (
        (box, (512,) * 3, ("new", "u")),
        (seven, (512,) * 3, ("new", "u")),
        (himeno, (512, 512, 1024), ("p_new", "p")),
    ):
        problem = Problem(stencil.rules, ml.Grid(shape), (swap,))
        us = CalibratedModel.of(problem, load("h200")).launch(shape, 1, False).us
        rates[stencil.rules[0].name] = problem.grid.cells / us / 1e3
    assert abs(rates["box"] / 279 - 1) < 0.05
    assert abs(rates["seven"] / 431 - 1) < 0.06
    assert abs(rates["himeno"] * 34 / 2623 - 1) < 0.06


def of_problem(name: str, devices: int) -> Problem:
    """Return the problem of a case of the benchmark of several devices."""
    shapes = {"7-point 256^3": (256, 256, 256), "Himeno M": (256, 128, 128), "7-point 512^3": (512, 512, 512)}
    shape = {**shapes, "Himeno L": (512, 256, 256), "7-point 512^3 a device": (512 * devices, 512, 512)}[name]
    stencil, swap = (himeno, ("p_new", "p")) if name.startswith("Himeno") else (seven, ("new", "u"))
    return Problem(stencil.rules, ml.Grid(shape), (swap,))


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", ["7-point 256^3", "Himeno M", "7-point 512^3", "Himeno L", "7-point 512^3 a device"])
def test_steps_of_slabs_on_several_devices_take_what_is_predicted(name: str, devices: int) -> None:
    """Each measured k, overlapped and not, with the kernels that ran, within 20 %. How borders that send their planes themselves share the
    device is not in the model: `flags` with one launch between two exchanges. Older times of copies with one launch are of other plans."""
    rows, errors = json.loads(SHARED.read_text())["rows"], {}
    kernels = {row["case"]: row["peer"] for row in rows if row["metric"] == "steps that share a launch"}
    for row in rows:
        if row["metric"] != "time of a step, best k and transport" or row["case"] not in (
            f"{name}, {devices} devices",
            f"{name}, {devices} devices by flags",
        ):
            continue
        for setting, us in row["peer"].items():
            found = re.fullmatch(r"(peer|host|flags), k = (\d+)(, not overlapped)?", setting)
            steps = int(kernels[row["case"]][setting])
            is_one = found is not None and int(found[2]) == steps
            if found and not (is_one and (OLDER.search(row["note"]) if found[1] != "flags" else not found[3])):
                errors[setting] = best_exchange(
                    of_problem(name, devices), devices, chip=load("h200"), transport=found[1], candidates=[int(found[2])],
                    steps_per_launch=steps, overlap=not found[3],
                ).step_us / us - 1  # fmt: skip
    assert len(errors) >= (15 if devices == 2 else 9)  # with present plans; on four devices time ran out before slow settings
    assert {setting: round(error, 2) for setting, error in errors.items() if abs(error) > 0.2} == {}
    assert mean(map(abs, errors.values())) < 0.1


@pytest.mark.parametrize(
    ("stencil", "shape", "steps", "measured_us"),
    [(seven, (512,) * 3, 3, 126.3), (seven, (256,) * 3, 4, 22.0), (five, (16384,) * 2, 10, 101.5), (himeno, (512, 512, 1024), 2, 3144)],
)
def test_the_kernel_that_is_chosen_on_one_device_makes_as_many_steps_as_the_fastest_measured(
    stencil: ml.Stencil, shape: tuple[int, ...], steps: int, measured_us: float
) -> None:
    """The times of a step are those of stencil.json and stencil_scaling.json on an H200."""
    problem = Problem(stencil.rules, ml.Grid(shape), (("p_new", "p") if stencil is himeno else ("new", "u"),))
    best = estimates(problem, stencil.rules[0], load("h200"))[0]
    assert best.variant.steps == steps
    assert problem.grid.cells / best.cells_per_s * 1e6 == pytest.approx(measured_us, rel=0.05)


@pytest.mark.parametrize(("box", "measured_us"), [((128, 256, 256), 20.9), ((256, 512, 512), 64.5)])
def test_kernels_of_one_row_a_thread_make_more_instructions_for_each_cell(box: tuple[int, ...], measured_us: float) -> None:
    """A thread's instructions for addresses, tests and the loop are for 2 cells there, and for 16 cells in the kernel of 4 rows.

    Measured: launches on half of 256^3 and of 512^3, without the exchange beside which they ran."""
    half = Problem(seven.rules, ml.Grid(box), (("new", "u"),))
    variant = Variant(2, (32, 16), 17, 1, 2, 0, 3) if box[1] == 256 else Variant(4, (32, 12), 129, 4, 3, 0, 3)
    us = half.grid.cells / estimate(half, half.rules[0], variant, load("h200")).cells_per_s * 1e6
    assert us == pytest.approx(measured_us, rel=0.05)


@pytest.mark.parametrize("nbytes", [1e6, 1e9])
def test_a_region_of_few_blocks_leaves_multiprocessors_to_others(nbytes: float) -> None:
    """8 planes of Himeno M are 32 blocks on 132 multiprocessors: they take as long as 32 planes, and occupy a quarter of the device."""
    model = CalibratedModel.of(Problem(himeno.rules, ml.Grid((64, 128, 128)), ("p_new", "p")), load("h200"))
    few, many = (model.on_share((64, 128, 128), nbytes).launch((planes, 128, 128), 1, True) for planes in (8, 32))
    assert few.us > 0.9 * many.us
    assert few.busy_us == pytest.approx(many.busy_us / 4, rel=0.05)


def test_puts_to_neighbours_are_work_of_the_device() -> None:
    model = CalibratedModel.of(Problem(seven.rules, ml.Grid((512,) * 3), ("new", "u")), load("h200")).on_share((128, 512, 512), 1e9)
    steps = list(steps_of(Share((128, 512, 512), ((True, True), (False, False), (False, False))), [(1, 1)] * 3, 2, "linked", True))
    without, stored, ordered = (model.turn_us(steps, 1, one)[0] for one in (Exchange(20), Exchange(20, 15), Exchange(20, 0, 400)))
    assert stored - without == pytest.approx(15, abs=1)
    assert (ordered, model.turn_us(steps, 1, Exchange(20, 0, 400))[1]) == (400, False)


def test_a_thin_last_layer_of_blocks_ends_soon_after_the_others() -> None:
    """259 planes in layers of 129 are three, the last of which has one plane: no third of the time more.

    Measured on half of 512^3 beside another GPU, without overlap: 72.0 us a step with one launch of three steps between exchanges, of 256
    planes, and 70.7 us with two, the first of 259."""
    times = []
    for planes in (256, 259):
        half = Problem(seven.rules, ml.Grid((planes, 512, 512)), (("new", "u"),))
        one = estimate(half, half.rules[0], Variant(4, (32, 12), 129, 4, 3, 0, 3), load("h200"))
        times.append(half.grid.cells / one.cells_per_s)
    assert 1.0 < times[1] / times[0] < 1.1


@pytest.mark.parametrize("planes", [16, 34, 66, 130])
@pytest.mark.parametrize("nz", [40, 70, 129, 131, 256, 259, 300])
@pytest.mark.parametrize("room", [5, 64, 132, 264])
def test_blocks_end_when_a_scheduler_that_places_them_in_order_ends_them(planes: int, nz: int, room: int) -> None:
    problem = Problem(seven.rules, ml.Grid((nz, 160, 300)), (("new", "u"),))
    kernel = FusedSchedule(problem, seven.rules[0], Variant(4, (32, 12), planes, 4, 3, 0, 3))
    thick, thin, a_layer = _layers(kernel)
    assert a_layer * kernel.grid[2] == kernel.blocks
    free = [0] * room
    for number in range(kernel.blocks):
        heapq.heappush(free, heapq.heappop(free) + (thin if number >= kernel.blocks - a_layer else thick))
    assert max(free) <= _turns(kernel, room) <= max(free) + thin

"""Stencils on several emulated devices: the same bits as on one, whatever the slabs, exchanges, boundaries and kernels."""

import re
from functools import cache
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.errors import DeviceError, StencilError
from memlane.plan import KernelRef, races
from memlane.stencils import Problem, PutStage, Turn, Variant, decomposed
from memlane.stencils.exchange import SharedStage
from memlane.timeloop.shared import SharedRun
from memlane.timeloop.variants import code_of
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_random import defined

SWAP, SWAP3 = ("new", "u"), ("new", "u", "old")


@ml.stencil
def heat(new, u, r, change):
    new[0, 0] = u[0, 0] + r * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])
    change = max(change, abs(u[-1, 0] - u[0, 1]))


@ml.stencil
def lopsided(new, u, old, stiff, r):
    new[0, 0] = 2 * u[0, 0] - old[0, 0] + r * stiff[1, 0] * (u[-2, 0] + u[1, 1] - 2 * u[0, 0])


@ml.stencil
def flow(moved, u):
    moved[0, 0, 0] = u[0, 0, 0] - 0.25 * u[-1, 0, 0] + 0.125 * u[2, 0, 1]


@ml.stencil
def smooth(new, moved, total):
    new[0, 0, 0] = 0.5 * moved[0, 0, 0] + 0.25 * (moved[-1, 0, 0] + moved[1, 1, 0])
    total += moved[-1, 0, 0]


@cache
def values(name, shape):
    return np.random.default_rng(len(name) + sum(shape)).random(shape, dtype=np.float32)


def prepared(stencil, grid, devices=1, every="auto", transport="auto", variant=None, overlap="auto", **more):
    fields = {name for rule in stencil.rules for name in rule.fields} - {"new", "moved"}
    given = {name: values(name, grid.shape) for name in fields} | more
    targets = ml.devices("emulator:h200", devices)
    where = stencil.on(grid, exchange_every=every, transport=transport, overlap=overlap)
    return where.prepare(**given, targets=targets, variant=variant)


FUSED = Variant(4, (32, 2), 5, 1, steps=2, ahead=1)


@pytest.mark.parametrize(
    ("stencil", "swap", "devices", "every", "variant", "boundary"),
    [
        pytest.param(heat, SWAP, 2, 1, None, (0.5, "fixed"), id="one step, a number behind the outer faces"),
        pytest.param(heat, SWAP, 3, 4, FUSED, "periodic", id="two launches of two steps, around"),
        pytest.param(heat, SWAP, 3, 2, FUSED, "fixed", id="a launch of two steps"),
        pytest.param(heat, SWAP, 5, 5, None, "reflecting", id="slabs too thin to be cut"),
        pytest.param(lopsided, SWAP3, 2, 3, None, "periodic", id="three fields that swap, more reach up than down"),
        pytest.param(lopsided, SWAP3, 3, 2, FUSED, (0.5, "fixed"), id="the same by launches of two steps"),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, swap, devices, every, variant, boundary):
    grid = ml.Grid((31, 40), boundary=boundary)
    many = prepared(stencil, grid, devices, every, variant=variant, overlap=True, swap=swap, r=0.1)
    one = prepared(stencil, grid, swap=swap, r=0.1)
    assert_bits_of_one_device(many, one, (1, every, 2 * every + 1), planned=4 * every)
    assert np.array_equal(np.asarray(many["u"]), one["u"].gather())


def test_rules_of_one_step_that_read_each_others_halos():
    """The first reads two planes ahead, the second one on each side of what the first wrote; reflecting faces, three axes, by the host."""
    grid = ml.Grid((13, 6, 9), boundary=("reflecting", "periodic", 1.5))
    step = flow.then(smooth)
    one, many = prepared(step, grid, swap=SWAP), prepared(step, grid, 3, 1, "host", swap=SWAP)
    assert_bits_of_one_device(many, one, [4], planned=2)
    assert "pinned memory of the host" in repr(many)
    assert {one.home for one in many.plan().buffers} == {0, 1, 2, "pinned"}


def test_what_was_not_exchanged_is_not_read():
    """NaN in every halo that no exchange fills, and in memory that steps overwrite, reaches no result."""
    grid = ml.Grid((24, 16))
    many = prepared(heat, grid, 2, 3, overlap=False, swap=SWAP, r=0.1)
    assert "high border" not in str(many.plan())
    before = many.steps(3)["u"].gather()
    for part in many.arrays["new"]:
        part.copy_from(np.full(part.shape, np.nan, part.dtype))
    one = prepared(heat, grid, swap=SWAP, r=0.1, u=before)
    assert np.array_equal(many.steps(7)["u"].gather(), one.steps(7)["u"].gather())


def test_a_halo_that_was_not_exchanged_would_be_seen():
    many = prepared(heat, ml.Grid((24, 16)), 2, 2, swap=SWAP, r=0.1)
    lower, _ = many.arrays["u"]
    halo = lower.numpy()
    halo[-2:] = np.nan  # what device 1 sends
    lower.copy_from(halo)
    u = many.steps(1)["u"].gather()
    assert np.isnan(u[11]).any()
    assert np.isfinite(u[12:]).all()
    assert np.isfinite(u[:11]).all()


@cache
def reaching(low, high, far):
    """A rule that reads so many planes before and behind in the field that changes, and in one that does not."""
    return defined(f"def rule(new, u, fixed):\n    new[0, 0] = u[-{low}, 0] + u[{high}, 0] + fixed[-{far}, 0] + fixed[{far}, 0]\n")


@st.composite
def turns(draw):
    """Rules of two dimensions with any reach along axis 0, in slabs, with a number of launches for each exchange."""
    low, high, far = (draw(st.integers(0, 3)) for _ in range(3))
    devices, every = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    boundary = draw(st.sampled_from(["fixed", "periodic"]))
    steps = draw(st.sampled_from([1, 1, 2]))
    thin = max(1, steps * every * max(low, high, far))
    planes = draw(st.integers(devices * thin, devices * thin + 40))
    return low, high, far, devices, every, boundary, steps, planes, draw(st.booleans())


@settings(max_examples=25, deadline=None)
@given(turns())
def test_plans_have_no_race(drawn):
    low, high, far, devices, every, boundary, steps, planes, overlaps = drawn
    rule = ml.stencil(reaching(low, high, far))
    problem = Problem(rule.rules, ml.Grid((planes, 16), boundary=boundary), (SWAP,), {}, cut=(0,))
    variant = Variant(4, (32, 1), 4, 1, steps=steps)
    kernels = tuple(one for one in code_of(problem, variant, True).kernels if one.variant.steps == steps)
    turn = Turn(problem, kernels, every)
    cut = decomposed(problem.grid, [1.0] * devices).with_halos(*turn.halo)
    for stage in (SharedStage, PutStage):
        plan = stage(cut, turn, 3, turn.needs, overlaps=overlaps).plan(
            {kernel.name: KernelRef("0" * 64, kernel.name) for kernel in kernels}
        )
        assert races(plan) == []
    computed = {plane for subdomain in cut.subdomains for plane in range(subdomain.start, subdomain.stop)}
    assert computed == set(range(planes))


def test_scalars_that_change_and_snapshots_of_other_numbers_of_devices(tmp_path):
    grid, schedule = ml.Grid((20, 12), boundary="periodic"), np.linspace(0.02, 0.2, 9, dtype=np.float32)
    one, many = prepared(heat, grid, swap=SWAP, r=0.1), prepared(heat, grid, 3, 2, variant=FUSED, swap=SWAP, r=0.1)
    one.steps(9, r=schedule)
    many.steps(9, r=schedule)
    assert np.array_equal(many["u"].gather(), one["u"].gather())
    many.save(tmp_path / "state.npz")
    again = prepared(heat, grid, 2, 1, swap=SWAP, r=0.3)
    again.restore(tmp_path / "state.npz")
    assert again.step == 9
    assert np.array_equal(again.steps(4)["u"].gather(), one.steps(4)["u"].gather())


def test_the_model_says_after_how_many_steps_devices_exchange():
    """Exchanges take long beside the steps of a small grid, so they are few; but no halo is wider than a slab."""
    run = prepared(heat, ml.Grid((18, 16)), 3, swap=SWAP, r=0.1)
    assert 1 < run.exchange_every <= 6
    assert "us a step expected, bound by communication, by the model of h200" in run.reason


@pytest.mark.parametrize(("options", "is_said"), [({}, True), ({"transport": "peer"}, False), ({"exchange_every": 2}, False)])
def test_kernels_that_stay_are_named_where_they_are_expected_to_be_faster(options, is_said):
    """Not where the transport is given, and not where devices are to exchange less often than such kernels do."""
    given = {"u": np.zeros((64, 64, 64), np.float32), "swap": ("moved", "u"), "targets": ml.devices("emulator:h200", 2)}
    reason = flow.on(ml.Grid((64, 64, 64)), **options).prepare(**given).reason
    assert (re.search(r"model of h200; \d\.\d us with transport='persistent'$", reason) is not None) == is_said


def test_one_device_exchanges_nothing_so_each_step_stands_alone():
    run = SharedRun(prepared(heat, ml.Grid((24, 16)), swap=SWAP, r=0.1).problem, {"u": values("u", (24, 16)), "r": 0.1},
                    targets=[ml.target("emulator:h200")])  # fmt: skip
    assert run.exchange_every == 1
    assert run.timeline(1).spans


def test_what_is_sent_does_not_wait_for_what_arrives():
    """Through the host too, an exchange of five devices takes no longer than one of three."""
    times = []
    for devices in (3, 5):
        targets = ml.devices("emulator:m2050", devices)
        grid = ml.Grid((8 * devices, 64))
        where = heat.on(grid, exchange_every=1, overlap=False)
        run = where.prepare(u=values("u", grid.shape), r=0.1, swap=SWAP, targets=targets)
        assert "because the chip file of m2050 has no links between devices" in repr(run)
        times.append(max(span.end_ns for span in run.timeline().spans))
    assert times[1] < 1.1 * times[0]


def test_slabs_are_as_thick_as_devices_are_fast():
    subdomains = decomposed(ml.Grid((100, 8)), [3.0, 1.0]).with_halos((2, 1), (0, 0)).subdomains
    assert [(subdomain.start, subdomain.stop, subdomain.below, subdomain.above) for subdomain in subdomains] == [
        (0, 75, 0, 1),
        (75, 100, 2, 0),
    ]
    assert [subdomain.planes for subdomain in decomposed(ml.Grid((5, 8)), [1e9, 1, 1, 1]).subdomains] == [2, 1, 1, 1]
    around = decomposed(ml.Grid((6, 8), boundary="periodic"), [1, 1]).with_halos((2, 1), (0, 0))
    assert [around.planes_of(subdomain) for subdomain in around.subdomains] == [[4, 5, 0, 1, 2, 3], [1, 2, 3, 4, 5, 0]]


def test_a_plan_says_what_waits_for_what():
    run = prepared(heat, ml.Grid((64, 32)), 2, 2, overlap=True, swap=SWAP, r=0.1)
    lines = str(run.plan()).splitlines()
    assert len(lines) == 10  # two launches of two parts on each device, and two copies
    assert "heat_step low border" in lines[6] or "heat_step low border" in lines[4]
    up = next(line for line in lines if "u up" in line)
    assert "copy 256 B u@0 -> u@1" in up
    line = run.timeline(4)
    assert run.step == 4
    copies = [span for span in line.spans if span.kind == "copy"]
    assert len(copies) == 4
    assert all(span.end_ns > span.start_ns for span in copies)
    alone = prepared(heat, ml.Grid((64, 32)), swap=SWAP, r=0.1).steps(4)
    assert np.array_equal(run["u"].gather(), alone["u"].gather())
    with pytest.raises(StencilError, match=r"a plan makes a multiple of 2 steps, because devices exchange planes after so many, not 3"):
        run.plan(3)


def test_a_cell_that_is_not_finite_is_found_on_any_device():
    u = values("u", (24, 16)).copy()
    u[19, 7] = np.inf
    for devices in (1, 3):
        run = prepared(heat, ml.Grid((24, 16)), devices, 1, swap=SWAP, r=0.1, u=u)
        with pytest.raises(StencilError, match=r"field 'new' is not finite at cell \(16, 7\) after step 4"):
            run.steps(8, stop_on_nan=4)


def test_what_cannot_be_shared():
    grid = ml.Grid((12, 16))
    with pytest.raises(
        StencilError, match=r"13 devices cannot share a grid of 12 planes along axis 0: use 12 or fewer, or cut other axes too, as with"
    ):
        prepared(heat, grid, 13, swap=SWAP, r=0.1)
    with pytest.raises(
        StencilError, match=r"device 0 has 4 of the 12 planes, and its neighbours would need 5 of them at each exchange: exchange"
    ):
        prepared(heat, grid, 3, 5, swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"devices exchange planes every 1 or more steps, or 'auto', not 0"):
        prepared(heat, grid, 2, 0, swap=SWAP, r=0.1)
    with pytest.raises(
        StencilError, match=r"devices exchange planes every 3 steps, and each launch of 2 steps.* exchange after a multiple of 2"
    ):
        prepared(heat, grid, 2, 3, variant=FUSED, swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"a variant for several devices is a Variant or None, not 'timed'"):
        prepared(heat, grid, 2, variant="timed", swap=SWAP, r=0.1)
    with pytest.raises(
        StencilError, match=r"'tcp' is not a transport: use 'peer', 'flags', 'persistent', 'host', 'mpi', 'mpi-cuda', 'nccl', or 'auto'"
    ):
        prepared(heat, grid, 2, transport="tcp", swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"overlap is True, False or 'auto', not 'never'"):
        prepared(heat, grid, 2, overlap="never", swap=SWAP, r=0.1)
    target = ml.target("emulator:h200")
    with pytest.raises(StencilError, match=r"a target is named twice: pass different devices"):
        heat.on(grid).prepare(u=values("u", grid.shape), r=0.1, swap=SWAP, targets=[target, target])
    with pytest.raises(StencilError, match=r"targets is empty: pass at least one"):
        heat.on(grid).prepare(u=values("u", grid.shape), r=0.1, swap=SWAP, targets=[])
    run = prepared(heat, grid, 2, swap=SWAP, r=0.1)
    assert run["u"].slabs is run["u"].subdomains  # the name of before
    with pytest.raises(
        AttributeError, match=r"u lies in subdomains on 2 devices, not in one array: use gather\(\), or `subdomains` one by one"
    ):
        run["u"].__cuda_array_interface__  # noqa: B018


def test_memory_that_does_not_suffice_is_said_for_the_device():
    shape = (1 << 22, 1 << 22)
    u, targets = np.broadcast_to(np.float32(0), shape), ml.devices("emulator:h200", 2)
    with pytest.raises(DeviceError, match=r"no memory left for 'u' on emulator:h200: it needs 32 TiB, and 1\d\d GiB of 131 GiB are free"):
        heat.on(ml.Grid(shape)).prepare(u=u, r=0.1, swap=SWAP, targets=targets)


@pytest.mark.parametrize(("devices", "probed"), [(1, False), (2, False), (1, True), (2, True)])
def test_plans_are_bound_to_memory_once(monkeypatch: pytest.MonkeyPatch, devices: int, probed: bool) -> None:
    """Scalars and points keep their memory: the third call of `steps` finds the plans of the first two, and on a GPU their graphs."""
    bound = []
    for module in ("engine", "shared"):
        place = import_module(f"memlane.timeloop.{module}")
        made = place.bound_to
        monkeypatch.setattr(place, "bound_to", lambda *given, made=made: bound.append(1) or made(*given))
    run = prepared(heat, ml.Grid((24, 32), boundary="periodic"), devices, every=2, r=0.1)
    if probed:
        run.add_source("u", (11, 3), np.ones(100, np.float32))
        run.add_probe("u", (12, 4))
    run.steps(8).steps(8)
    known = len(bound)
    run.steps(8, r=0.2).steps(8)
    assert len(bound) == known
    if probed:
        assert len(run.probed("u")) == 32

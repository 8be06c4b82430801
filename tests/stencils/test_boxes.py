"""Grids cut along several axes: the same bits as on one device, faces, edges and corners exchanged, and nothing read that was not."""

import os
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.errors import StencilError
from memlane.plan import KernelRef, races
from memlane.stencils import Problem, PutStage, Turn, Variant, cannot_fuse, decomposed
from memlane.stencils.exchange import SharedStage
from memlane.stencils.faces import PACK, UNPACK, kernel_name
from memlane.stencils.fused import FusedKernel
from memlane.timeloop.variants import code_of
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_random import defined, problems
from tests.stencils.test_shared import flow, heat, lopsided, smooth, values

SWAP, SWAP3 = ("new", "u"), ("new", "u", "old")
SLOW = pytest.mark.slow


@ml.stencil
def corners(new, u, c, r, change):
    v = 0.3 * u[0, 0, 0] + c[0, 0, 0] * u[1, 1, 1] + 0.2 * u[-1, -1, -1] + 0.1 * u[1, -1, 2] - c[0, 1, 0] * u[-1, 1, 0]
    new[0, 0, 0] = v + r * u[0, -2, 0]
    change = max(change, abs(u[0, 0, 1] - u[0, -1, 0]))


def prepared(stencil, grid, parts=None, every="auto", variant=None, **more):
    options = {name: more.pop(name) for name in ("transport", "overlap") if name in more}
    fields = {name for rule in stencil.rules for name in rule.fields} - {"new", "moved"}
    given = {name: values(name, grid.shape) for name in fields} | more
    targets = ml.devices("emulator:h200", 1 if parts is None else prod(parts))
    where = stencil.on(grid, exchange_every=every, decomposition=parts, **options)
    return where.prepare(**given, targets=targets, variant=variant)


FUSED3, FUSED2 = Variant(4, (32, 8), 5, 2, steps=2), Variant(4, (32, 2), 5, 1, steps=2, ahead=1)


@pytest.mark.parametrize(
    ("stencil", "swap", "shape", "parts", "every", "variant", "boundary", "transport"),
    [
        pytest.param(corners, SWAP, (9, 14, 37), (1, 2, 2), 1, None, ("periodic", "fixed", "reflecting"), "peer", id="rows and columns"),
        pytest.param(corners, SWAP, (11, 23, 61), (2, 1, 3), 2, FUSED3, ("fixed", 0.5, "periodic"), "host", id="two steps a launch"),
        pytest.param(
            corners,
            SWAP,
            (13, 14, 18),
            (2, 2, 1),
            2,
            None,
            ("periodic", "periodic", "fixed"),
            "auto",
            id="around both ways",
            marks=pytest.mark.slow,
        ),
        pytest.param(lopsided, SWAP3, (31, 77), (2, 3), 3, None, "periodic", "auto", id="three fields that swap"),
        pytest.param(
            lopsided,
            SWAP3,
            (19, 90),
            (1, 4),
            2,
            FUSED2,
            (0.5, "fixed"),
            "auto",
            id="the same in columns, by launches of two",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_bits_are_those_of_one_device(stencil, swap, shape, parts, every, variant, boundary, transport):
    grid = ml.Grid(shape, boundary=boundary)
    many = prepared(stencil, grid, parts, every, variant, overlap=True, transport=transport, swap=swap, r=0.1)
    one = prepared(stencil, grid, swap=swap, r=0.1)
    assert_bits_of_one_device(many, one, (1, 2 * every + 1), planned=4 * every)


@pytest.mark.parametrize(("boundary", "variant"), [("periodic", None), (("fixed", 0.5), Variant(4, (32, 4), 1, 1, steps=2, ahead=1))])
def test_a_grid_of_one_dimension_is_cut_along_its_row(boundary, variant):
    line = ml.stencil(defined("def rule(new, u):\n    new[0] = 0.5 * u[-2] + 0.25 * (u[1] + u[0])\n"))
    u, grid = values("u", (83,)), ml.Grid((83,), boundary=boundary)
    many = line.on(grid, exchange_every=2).prepare(u=u, swap=SWAP, targets=ml.devices("emulator:h200", 3), variant=variant)
    one = line.on(grid).prepare(u=u, swap=SWAP, targets=ml.target("emulator:h200"))
    assert_bits_of_one_device(many, one, [5], planned=8)


def test_rules_of_one_step_and_a_reduction_of_cells_that_are_read_around():
    """The first reads two planes ahead, the second one on each side of what the first wrote, which it computes in halos too."""
    grid, step = ml.Grid((11, 7, 19), boundary=("reflecting", "periodic", 1.5)), flow.then(smooth)
    one, many = prepared(step, grid, swap=SWAP), prepared(step, grid, (2, 1, 2), 1, swap=SWAP)
    assert_bits_of_one_device(many, one, [3])
    (stage, _), *_ = many._shared_stages(1, False, True)
    assert races(stage.plan(many._refs)) == []
    exact = [prepared(step, grid, parts, "auto", swap=SWAP, exact_sums=True).steps(3).reductions for parts in (None, (1, 2, 2))]
    assert exact[0] == exact[1]


def poison(run, margins):
    """Write NaN wherever memory holds more than a part's own cells and so many around."""
    for name, memory in run.arrays.items():
        for subdomain, part in zip(run.decomposition.subdomains, memory, strict=True):
            held = part.numpy()
            widths = margins.get(name, ((0, 0),) * len(subdomain.spans))
            valid = tuple(
                span.rows(span.start - (low if span.below else 0), span.stop + (high if span.above else 0))
                for span, (low, high) in zip(subdomain.spans, widths, strict=True)
            )
            kept = held[valid].copy()
            held[...] = np.nan
            held[valid] = kept
            part.copy_from(held)


@pytest.mark.parametrize(("overlap", "transport"), [(True, "peer"), (False, "peer"), (True, "flags")])
def test_what_was_not_exchanged_is_not_read(overlap, transport):
    """NaN in all memory beside what exchanges bring, in padding and in the field that steps overwrite, reaches no result."""
    grid = ml.Grid((18, 60), boundary=("periodic", "fixed"))
    many = prepared(heat, grid, (2, 2), 2, overlap=overlap, transport=transport, swap=SWAP, r=0.1)
    assert ("high border along axis 1" in str(many.plan())) == overlap
    one = prepared(heat, grid, swap=SWAP, r=0.1)
    for steps in (2, 3):
        poison(many, many._wanted)
        for part in many.arrays["new"]:
            part.copy_from(np.full(part.shape, np.nan, part.dtype))
        assert np.array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


@pytest.mark.parametrize("transport", ["peer", "host", "flags"])
def test_axes_are_exchanged_at_once_where_no_launch_reads_a_corner(transport):
    grid = ml.Grid((18, 60), boundary=("periodic", 0.5))
    many = prepared(heat, grid, (2, 3), 1, transport=transport, overlap=True, swap=SWAP, r=0.1)
    one = prepared(heat, grid, swap=SWAP, r=0.1)
    assert not many._reads_corners
    for part, subdomain in zip(many.arrays["u"], many.decomposition.subdomains, strict=True):
        held = part.numpy()
        held[_outside(held.shape[0], subdomain.own[0])[:, None] & _outside(held.shape[1], subdomain.own[1])] = np.nan  # the corners alone
        part.copy_from(held)
    for part in many.arrays["new"]:
        part.copy_from(np.full(part.shape, np.nan, part.dtype))
    assert_bits_of_one_device(many, one, [4], planned=3)
    assert prepared(heat, grid, (2, 3), 2, swap=SWAP, r=0.1)._reads_corners


def _outside(count, own):
    return (np.arange(count) < own.start) | (np.arange(count) >= own.stop)


def test_a_corner_that_was_not_exchanged_would_be_seen():
    diagonal = ml.stencil(defined("def rule(new, u):\n    new[0, 0] = 0.5 * (u[-1, -1] + u[1, 1])\n"))
    run = diagonal.on(ml.Grid((16, 40)), exchange_every=1, decomposition=(2, 2)).prepare(
        u=values("u", (16, 40)), swap=SWAP, targets=ml.devices("emulator:h200", 4)
    )
    memory = run.arrays["u"][0]
    held, (planes, row) = memory.numpy(), run.decomposition.subdomains[0].spans
    held[planes.rows(8, 9), row.rows(20, 21)] = np.nan  # the one cell that device 3 has
    memory.copy_from(held)
    assert np.argwhere(np.isnan(run.steps(1)["u"].gather())).tolist() == [[7, 19]]


EXAMPLES = int(os.environ.get("MEMLANE_STENCIL_EXAMPLES", "8"))


@st.composite
def cuts(draw):
    """A random stencil, and how many parts its grid has along each axis: no more than six."""
    text, shape, boundary, dtypes, variant, _ = draw(problems())
    every, parts = draw(st.integers(1, 2)), []
    for extent, least in zip(shape, (1,) * len(shape), strict=True):
        parts.append(draw(st.integers(1, max(1, min(3, extent // 4, 6 // prod(parts or [least]))))))
    return (
        text,
        shape,
        boundary,
        dtypes,
        variant,
        tuple(parts),
        every,
        draw(st.booleans()),
        draw(st.sampled_from(["peer", "flags", "host"])),
    )


@settings(max_examples=EXAMPLES // 2, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(cuts())
def test_random_stencils_have_the_bits_of_one_device(drawn):
    text, shape, boundary, dtypes, variant, parts, every, overlap, transport = drawn
    rule, random = ml.stencil(defined(text)), np.random.default_rng(3)
    given_ = {name: random.standard_normal(shape).astype(dtype) for name, dtype in dtypes.items()}
    given_ |= {name: value for name, value in (("r", 0.21), ("k", [0.17])) if name in rule.rules[0].scalars}
    swap = tuple((f"{name}_new", name) for name in dtypes)
    grid = ml.Grid(shape, boundary=boundary)
    problem = Problem(rule.rules, grid, swap, {**dtypes, **{f"{name}_new": dtype for name, dtype in dtypes.items()}})
    if variant.steps > 1 and (cannot_fuse(problem, variant.steps) or not FusedKernel(problem, problem.rules[0], variant).is_possible):
        variant = Variant(variant.vector, (32, 2), variant.planes)
    options = {"exchange_every": every * variant.steps, "decomposition": parts, "overlap": overlap, "transport": transport}
    given_ |= {"dtypes": dtypes, "swap": swap, "variant": variant}
    one = rule.on(grid).prepare(**given_, targets=ml.target("emulator:h200"))
    try:
        many = rule.on(grid, **options).prepare(**given_, targets=ml.devices("emulator:h200", prod(parts)))
    except StencilError as error:
        if "its neighbours would need" not in str(error):
            raise
        return
    with ml.Checker() as checker:
        assert_bits_of_one_device(many, one, [2 * every * variant.steps + 1])
    assert not checker.reports


@st.composite
def turns(draw):
    """Rules of three dimensions with any reach along each axis, in boxes, with a number of launches for each exchange."""
    reaches = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(3)]
    parts = draw(st.sampled_from([(1, 1, 2), (1, 2, 1), (2, 1, 2), (1, 3, 2), (2, 2, 1), (2, 2, 2), (1, 2, 3)]))
    steps, every = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 3))
    shape = []
    for pair, count, most in zip(reaches, parts, (30, 30, 90), strict=True):
        least = count * max(1, steps * every * max(pair))
        shape.append(draw(st.integers(least, max(least, most))))
    boundary = tuple(draw(st.sampled_from(["fixed", "periodic"])) for _ in range(3))
    return reaches, parts, steps, every, tuple(shape), boundary, draw(st.booleans()), draw(st.booleans())


@settings(max_examples=20, deadline=None)
@given(turns())
def test_plans_have_no_race(drawn):
    reaches, parts, steps, every, shape, boundary, overlaps, through_host = drawn
    reads = []
    for axis, pair in enumerate(reaches):
        for sign, reach in zip((-1, 1), pair, strict=True):
            at = [0, 0, 0]
            at[axis] = sign * reach
            reads.append(f"u{at} + c{at}")
    rule = ml.stencil(defined(f"def rule(new, u, c):\n    new[0, 0, 0] = {' + '.join(reads)}\n"))
    variant, cut = Variant(4, (32, 8), 4, 2, steps=steps), tuple(axis for axis, count in enumerate(parts) if count > 1)
    problem = Problem(rule.rules, ml.Grid(shape, boundary=boundary), (SWAP,), {}, cut=cut)
    kernels = tuple(one for one in code_of(problem, variant, True).kernels if one.variant.steps == steps)
    turn = Turn(problem, kernels, every)
    boxes = decomposed(problem.grid, [1.0] * prod(parts), parts).with_halos(*turn.halo)
    refs = {name: KernelRef("0" * 64, name) for name in (kernels[0].name, kernel_name(PACK, [4]), kernel_name(UNPACK, [4]))}
    options = {"overlaps": overlaps, "corners": turn.reads_corners}
    plan = SharedStage(boxes, turn, 3, turn.needs, through_host=through_host, **options).plan(refs)
    assert races(plan) == []
    assert races(PutStage(boxes, turn, 3, turn.needs, **options).plan(refs)) == []
    computed = np.zeros(shape, int)
    for subdomain in boxes.subdomains:
        computed[subdomain.region] += 1
    assert (computed == 1).all()


def test_boxes_are_as_large_as_devices_are_fast():
    boxes = decomposed(ml.Grid((30, 256)), [2.0, 2.0, 1.0, 1.0], (2, 2)).with_halos((1, 1), (2, 3)).subdomains
    assert [subdomain.region for subdomain in boxes][::3] == [(slice(0, 20), slice(0, 128)), (slice(20, 30), slice(128, 256))]
    assert boxes[0].own == (slice(0, 20), slice(0, 128))
    assert boxes[3].own == (slice(1, 11), slice(8, 136))  # two cells of halo, and six so that vectors lie as in the whole grid
    around = decomposed(ml.Grid((6, 12), boundary="periodic"), [1.0] * 6, (2, 3))
    assert [(low.device, high.device) for low, high in around.neighbours_along(1)] == [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]


def test_the_model_chooses_how_a_grid_is_cut():
    run = heat.on(ml.Grid((8, 4096)), decomposition="auto", exchange_every=1).prepare(
        u=values("u", (8, 4096)), r=0.1, swap=SWAP, targets=ml.devices("emulator:h200", 2)
    )
    assert run.decomposition.process_grid in ((2, 1), (1, 2))
    assert ("in 1 x 2 parts" in repr(run)) == (run.decomposition.process_grid == (1, 2))


def test_a_cell_that_is_not_finite_is_found_in_any_box():
    u = values("u", (24, 40)).copy()
    u[19, 33] = np.inf
    for parts in (None, (2, 2)):
        run = prepared(heat, ml.Grid((24, 40)), parts, 1, swap=SWAP, r=0.1, u=u)
        with pytest.raises(StencilError, match=r"field 'new' is not finite at cell \(18, 33\) after step 2"):
            run.steps(2, stop_on_nan=2)


def test_snapshots_of_other_decompositions(tmp_path):
    grid = ml.Grid((20, 36), boundary="periodic")
    many, one = prepared(heat, grid, (2, 2), 2, swap=SWAP, r=0.1), prepared(heat, grid, swap=SWAP, r=0.1)
    many.steps(3).save(tmp_path / "state.npz")
    again = prepared(heat, grid, (1, 3), 2, swap=SWAP, r=0.3)
    again.restore(tmp_path / "state.npz")
    assert np.array_equal(again.steps(4)["u"].gather(), one.steps(7)["u"].gather())
    assert {span.kind for span in many.timeline(4).spans} == {"launch", "copy"}
    assert many.step == 7


def test_what_cannot_be_cut():
    grid = ml.Grid((12, 16))
    with pytest.raises(StencilError, match=r"how many parts there are along each of the 2 axes of the grid, as \(2, 2\), or 'auto', not 4"):
        heat.on(grid, decomposition=4)
    with pytest.raises(StencilError, match=r"not \(2, 2, 1\)"):
        heat.on(grid, decomposition=(2, 2, 1))
    where = heat.on(grid, decomposition=(2, 2))
    for count in (1, 3):
        with pytest.raises(StencilError, match=rf"decomposition=\(2, 2\) makes 4 parts along 2 axes, for {count} devices and a grid of 2"):
            where.prepare(u=values("u", grid.shape), r=0.1, swap=SWAP, targets=ml.devices("emulator:h200", count))
    with pytest.raises(StencilError, match=r"17 devices cannot share a grid of 16 cells along axis 1: use 16 or fewer there"):
        decomposed(grid, [1.0] * 17, (1, 17))
    with pytest.raises(
        StencilError,
        match=r"device 0 has 5 of the 16 cells along axis 1, and its neighbours would need 6 of them at each exchange: exchange after",
    ):
        prepared(heat, grid, (1, 3), 6, swap=SWAP, r=0.1)
    with pytest.raises(StencilError, match=r"rows are cut, and threads of .* have 16 cells of a row: use 1, 2, 4 or 8"):
        prepared(heat, grid, (1, 2), 1, Variant(16, (32, 2), 4), swap=SWAP, r=0.1)

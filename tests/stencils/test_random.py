"""Random stencils: generated kernels on the emulator, under the checker, against the rule's function on NumPy arrays, bit by bit."""

import linecache
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.errors import StencilError
from memlane.stencils import FusedKernel, Problem, Variant, cannot_fuse

_made = []


def defined(text):
    """A function of the given text, which the language can look up."""
    name = f"<rule {len(_made)}>"
    _made.append(name)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = {}
    exec(compile(text, name, "exec"), namespace)
    return namespace["rule"]


@st.composite
def problems(draw):
    dimensions = draw(st.integers(1, 3))
    radius = draw(st.integers(1, 2))
    shape = tuple(draw(st.sampled_from([radius, 3, 5, 7, 8, 13][1 if radius > 1 else 0 :])) for _ in range(dimensions - 1))
    shape = (*shape, draw(st.sampled_from([3, 5, 8, 17, 33])))
    sides = st.sampled_from(["fixed", "reflecting", 0.75, -2.0])
    boundary = tuple("periodic" if draw(st.booleans()) else (draw(sides), draw(sides)) for _ in range(dimensions))
    offsets = st.tuples(*[st.integers(-radius, radius)] * dimensions)
    where = lambda name: f"{name}[{', '.join(map(str, draw(offsets)))}]"  # noqa: E731
    zero = ", ".join(["0"] * dimensions)
    names = ["u", "v"][: draw(st.integers(1, 2))]
    terms = [
        f"{draw(st.sampled_from(['r', '0.3', 'k[0]' if dimensions > 1 else 'r']))} * {where(draw(st.sampled_from(names)))}"
        for _ in range(4)
    ]
    condition = f"{where('u')} > {where(names[-1])}"
    lines = [f"    s = {' + '.join(terms)}", f"    t = min(s, {where('u')}) if {condition} else s - {where(names[-1])} / 3"]
    lines += [f"    {name}_new[{zero}] = {'t' if name == 'u' else f's * {where(names[0])} + r'}" for name in names]
    used = "\n".join(lines)
    parameters = [f"{name}_new" for name in names if f"{name}_new" in used] + [
        name for name in [*names, "r", "k"] if re.search(rf"\b{name}\b", used)
    ]
    text = f"def rule({', '.join(parameters)}):\n{used}\n"
    dtypes = [draw(st.sampled_from(["f4", "f4", "f8", "f2"])) for _ in names]
    vector, planes = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 7))
    if draw(st.booleans()):
        warps, rows = draw(st.integers(2, 4)), draw(st.integers(1, 3)) if dimensions == 3 else 1
        early, unroll = draw(st.integers(0, 2)), draw(st.integers(1, 3))
        variant = Variant(vector, (32, warps), planes, rows, steps=draw(st.integers(2, 3)), ahead=early, unroll=unroll)
    else:
        block, rows = draw(st.sampled_from([(32, 1), (8, 4), (32, 2)])), draw(st.integers(1, 3))
        turns = {"ahead": draw(st.integers(0, 1)), "unroll": draw(st.integers(1, 4)), "group": draw(st.integers(0, 2))}
        variant = Variant(vector, block, planes, rows if dimensions == 3 else 1, **turns)
    return text, shape, boundary, dict(zip(names, dtypes, strict=True)), variant, draw(st.integers(1, 4))


EXAMPLES = int(os.environ.get("MEMLANE_STENCIL_EXAMPLES", "8"))  # each takes a second: 25 are for whoever changes kernels


def given_values(rule, shape, dtypes):
    """Random fields, and the scalars that the rule has."""
    random = np.random.default_rng(3)
    values = {name: random.standard_normal(shape).astype(dtype) for name, dtype in dtypes.items()}
    values |= {"r": 0.21} if "r" in rule.rules[0].scalars else {}
    values |= {"k": [0.17]} if "k" in rule.rules[0].scalars else {}
    return values | {"dtypes": dtypes, "swap": tuple((f"{name}_new", name) for name in dtypes)}


def can_fuse(rule, grid, values, variant):
    dtypes = values["dtypes"]
    problem = Problem(rule.rules, grid, values["swap"], {**dtypes, **{f"{name}_new": dtype for name, dtype in dtypes.items()}})
    return not cannot_fuse(problem, variant.steps) and FusedKernel(problem, problem.rules[0], variant).is_possible


@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(problems())
def test_kernels_equal_the_reference(problem):
    text, shape, boundary, dtypes, variant, steps = problem
    rule = ml.stencil(defined(text))
    grid = ml.Grid(shape, boundary=boundary)
    values = given_values(rule, shape, dtypes)
    if variant.steps > 1 and not can_fuse(rule, grid, values, variant):
        variant = replace(variant, steps=1, rows=1)
    with ml.Checker() as checker:
        run = rule.on(grid).prepare(**values, fmad=False, variant=variant, targets=ml.target("emulator:h200")).steps(steps)
    expected = rule.on(grid).reference(steps, **values)
    for name in dtypes:
        np.testing.assert_array_equal(run[name].gather(), expected[name], err_msg=f"{text}{grid} {variant}")
    assert not checker.reports


@pytest.mark.slow
@settings(max_examples=5 * EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(problems(), st.integers(9, 21), st.integers(2, 3), st.sampled_from(["peer", "flags", "host"]), st.integers(1, 2), st.booleans())
def test_several_steps_a_launch_on_several_devices_equal_the_reference(problem, planes, devices, transport, turns, overlap):
    text, shape, boundary, dtypes, variant, _ = problem
    assume(len(shape) > 1 and all("reflecting" not in pair for pair in boundary))
    variant = variant if variant.steps > 1 else replace(variant, steps=2, block=(32, 3), group=0)
    rule, grid = ml.stencil(defined(text)), ml.Grid((planes, *shape[1:]), boundary=boundary)
    values, every = given_values(rule, grid.shape, dtypes), variant.steps * turns
    assume(can_fuse(rule, grid, values, variant))
    on_grid = rule.on(grid, transport=transport, exchange_every=every, overlap=overlap)
    try:
        run = on_grid.prepare(**values, fmad=False, variant=variant, targets=ml.devices("emulator:h200", devices))
    except StencilError:  # slabs are thinner than halos
        assume(False)
    run.steps(2 * every + 1)
    expected = on_grid.reference(2 * every + 1, **values)
    for name in dtypes:
        np.testing.assert_array_equal(run[name].gather(), expected[name], err_msg=f"{text}{grid} {run}")


@pytest.mark.parametrize("condition", ["fixed", "periodic", "reflecting", 3.5])
def test_each_condition_at_every_face_edge_and_corner(condition):
    offsets = [(z, y, x) for z in (-1, 0, 1) for y in (-1, 0, 1) for x in (-1, 0, 1)]
    terms = " + ".join(f"{position + 1} * u[{z}, {y}, {x}]" for position, (z, y, x) in enumerate(offsets))
    rule = ml.stencil(defined(f"def rule(new, u):\n    new[0, 0, 0] = {terms}\n"))
    u = np.random.default_rng(5).integers(-8, 8, (3, 4, 5)).astype("f4")  # whole numbers, so that sums are exact
    run = rule.on(ml.Grid((3, 4, 5), boundary=condition)).prepare(u=u, swap=("new", "u"), targets=ml.target("emulator:h200")).steps(1)
    expected = np.zeros_like(u)
    for cell in np.ndindex(u.shape):
        total = 0.0
        for position, offset in enumerate(offsets):
            at = [one + by for one, by in zip(cell, offset, strict=True)]
            outside = any(not 0 <= one < extent for one, extent in zip(at, u.shape, strict=True))
            if condition == "periodic":
                value = u[tuple(one % extent for one, extent in zip(at, u.shape, strict=True))]
            elif condition == "reflecting":
                value = u[
                    tuple(min(max(one, 0), extent - 1) for one, extent in zip(at, u.shape, strict=True))
                ]  # of radius 1: the cell itself
            else:
                value = 3.5 if outside else u[tuple(at)]
            total += (position + 1) * value
        is_inside = all(0 < one < extent - 1 for one, extent in zip(cell, u.shape, strict=True))
        expected[cell] = total if condition != "fixed" or is_inside else u[cell]
    assert np.array_equal(run["u"].gather(), expected)


@pytest.mark.parametrize(
    ("shape", "boundary", "variant"),
    [
        ((4, 5, 9), ("periodic", (1.5, "fixed"), "periodic"), Variant(2, (32, 3), 4, 3, 2)),
    ],
)
def test_steps_of_one_launch_equal_launches_of_one_step(shape, boundary, variant):
    """Offsets along several axes at once, so that rows of other warps are read at several planes; a mask that no step changes."""
    text = """def rule(new, u, c):
    v = 0.3 * u[0, 0, 0] + c[0, 0, 0] * u[1, 1, 1] + 0.2 * u[-1, -1, -1] + 0.1 * u[1, -1, 2] - c[0, 1, 0] * u[-1, 1, 0]
    new[0, 0, 0] = min(v, u[0, 0, 1])
"""
    rule = ml.stencil(defined(text))
    random = np.random.default_rng(8)
    values = {"u": random.random(shape, np.float32), "c": random.random(shape, np.float32), "swap": ("new", "u")}
    grid, target = ml.Grid(shape, boundary=boundary), ml.target("emulator:h200")
    with ml.Checker() as checker:
        fused = rule.on(grid).prepare(**values, variant=variant, targets=target).steps(2 * variant.steps + 1)
    single = rule.on(grid).prepare(**values, targets=target).steps(2 * variant.steps + 1)
    assert np.array_equal(fused["u"].gather(), single["u"].gather())
    assert not checker.reports


def test_poisoned_padding_does_not_reach_results():
    """Padding of rows holds NaN, so a cell that is read outside of the grid and gets into a result shows."""
    rule = ml.stencil(defined("def rule(new, u):\n    new[0, 0] = 0.25 * (u[-1, 0] + u[1, 0] + u[0, -2] + u[0, 2])\n"))
    u, target = np.random.default_rng(9).random((9, 45), np.float32), ml.target("emulator:h200")
    for boundary in ("fixed", "periodic", "reflecting", 0.5):
        for variant in (Variant(4, (32, 1), 3), Variant(4, (32, 2), 4, 1, 2)):
            if boundary == "reflecting" and variant.steps > 1:
                continue
            run = rule.on(ml.Grid((9, 45), boundary=boundary)).prepare(u=u, swap=("new", "u"), variant=variant, fmad=False, targets=target)
            for name in ("u", "new"):
                padded = run.engine.arrays[name].numpy()
                padded[:, 45:] = np.nan
                padded[...] = np.nan if name == "new" else padded
                run.engine.arrays[name].copy_from(padded)
            run.steps(2)
            assert np.array_equal(run["u"].gather(), rule.on(ml.Grid((9, 45), boundary=boundary)).reference(2, u=u, swap=("new", "u"))["u"])


def test_cells_beside_a_vector_that_are_needed_before_it():
    """The cell before a thread's vector is read a plane further than any cell of the vector."""
    rule = ml.stencil(defined("def rule(new, u):\n    new[0, 0] = u[-2, -1] + 2 * u[-1, 1] + 3 * u[0, -1] + 4 * u[1, -2]\n"))
    u = np.random.default_rng(4).integers(-9, 9, (8, 11)).astype("f4")
    run = rule.on(ml.Grid((8, 11), boundary="periodic")).prepare(
        u=u, swap=("new", "u"), variant=Variant(2, (32, 1), 4), targets=ml.target("emulator:h200")
    )
    rolled = [np.roll(u, (-dz, -dx), (0, 1)) for dz, dx in ((-2, -1), (-1, 1), (0, -1), (1, -2))]
    expected = sum((one + 1) * values for one, values in enumerate(rolled))
    assert np.array_equal(run.steps(1)["u"].gather(), expected)


def test_double_to_half_is_rounded_once():
    rule = ml.stencil(defined("def rule(new, u, v):\n    new[0] = u[0] + v[0]\n"))
    u, v = np.full(8, 2048.0, "f2"), np.full(8, 1.0 + 2.0**-40)  # by float32 it would be 2049, which is halfway between two halves
    values = {"u": u, "v": v, "dtypes": {"u": "f2", "v": "f8"}, "swap": ("new", "u")}
    run = rule.on(ml.Grid(8)).prepare(**values, targets=ml.target("emulator:h200"))
    assert (run.steps(1)["u"].gather() == 2050).all()

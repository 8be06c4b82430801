"""Random stencils: generated kernels on the emulator, under the checker, against the rule's function on NumPy arrays, bit by bit."""

import linecache
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.stencils import Variant

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
    variant = Variant(draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([(32, 1), (8, 4), (32, 2)])), draw(st.integers(1, 5)))
    return text, shape, boundary, dict(zip(names, dtypes, strict=True)), variant, draw(st.integers(1, 5))


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(problems())
def test_kernels_equal_the_reference(problem):
    text, shape, boundary, dtypes, variant, steps = problem
    rule = ml.stencil(defined(text))
    grid = ml.Grid(shape, boundary=boundary)
    random = np.random.default_rng(3)
    values = {name: random.standard_normal(shape).astype(dtype) for name, dtype in dtypes.items()}
    values |= {"r": 0.21} if "r" in rule.rules[0].scalars else {}
    values |= {"k": [0.17]} if "k" in rule.rules[0].scalars else {}
    values["dtypes"] = dtypes
    values["swap"] = tuple((f"{name}_new", name) for name in dtypes)
    with ml.Checker() as checker:
        run = rule.on(grid).prepare(**values, fmad=False, variant=variant, targets=ml.target("emulator:h200")).steps(steps)
    expected = rule.on(grid).reference(steps, **values)
    for name in dtypes:
        np.testing.assert_array_equal(run[name].gather(), expected[name], err_msg=f"{text}{grid} {variant}")
    assert not checker.reports


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

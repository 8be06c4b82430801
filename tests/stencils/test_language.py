"""Rules are read from Python: what they say, and where a refusal points."""

import math

import numpy as np
import pytest

import memlane as ml
from memlane.errors import StencilError

HALF = 0.5


def test_the_footprint_and_the_roles_of_parameters_are_inferred():
    @ml.stencil
    def wave(new, u, old, speed, a, change, peak):
        step = HALF * speed[0, 0] * (u[-2, 0] + u[1, 0] + a[1] * u[0, 3])
        change += abs(step)
        peak = max(peak, step)
        new[0, 0] = 2 * u[0, 0] - old[0, 0] + step

    (rule,) = wave.rules
    assert rule.fields == ("new", "u", "old", "speed")
    assert rule.writes == ("new",)
    assert rule.scalars == {"a": 2}
    assert rule.reductions == {"change": "sum", "peak": "max"}
    assert (rule.footprint.low, rule.footprint.high) == ((2, 0), (1, 3))


def refusal(function, line, caret):
    """The message of the refusal of a stencil, whose carets must stand under `caret` in the given line of the function."""
    with pytest.raises(StencilError) as caught:
        ml.stencil(function)
    span = caught.value.span
    assert span is not None
    assert span.text == caret
    assert span.line - function.__code__.co_firstlineno == line
    assert f"{span.line}:{span.column}" in str(caught.value)
    assert str(caught.value).endswith("^" * len(caret))
    return caught.value.message


def test_an_offset_that_is_no_constant():
    def rule(new, u, k):
        new[0, 0] = u[k, 0]

    assert "the offset k is not a constant whole number" in refusal(rule, 1, "k")


def test_a_field_that_is_not_declared():
    def rule(new, u):
        new[0, 0] = u[0, 0] + v[0, 1]  # noqa: F821

    assert "v is not a field of this stencil: add it to the parameters" in refusal(rule, 1, "v")


def test_a_read_of_what_the_same_rule_writes():
    def rule(new, u):
        new[0, 0] = u[0, 0] + new[0, -1]

    assert "new is read by the rule that writes it" in refusal(rule, 1, "new[0, -1]")


def test_a_function_that_a_rule_may_not_call():
    def rule(new, u):
        new[0] = math.gamma(u[0])

    assert "math.gamma is not a function that a stencil may call: it has abs, acos, asin, atan" in refusal(rule, 1, "math.gamma")


def test_a_wrong_number_of_indices():
    def rule(new, u):
        new[0, 0] = u[0, 0, 1]

    assert "u has 3 indices here, and the rule has 2 dimensions" in refusal(rule, 1, "u[0, 0, 1]")


def test_other_refusals():
    def loop(new, u):
        while u[0] < 1:
            new[0] = u[0]

    def elsewhere(new, u):
        new[1] = u[0]

    def unused(new, u, k):
        new[0] = u[0]

    def undeclared(new, u):
        new[0] = u[0] * factor  # noqa: F821

    with pytest.raises(StencilError, match=r"a stencil has assignments and for loops;"):
        ml.stencil(loop)
    assert "a rule writes its own cell only: write new[0] = ..." in refusal(elsewhere, 1, "new[1]")
    with pytest.raises(StencilError, match=r"parameter 'k' of unused is not used: remove it"):
        ml.stencil(unused)
    assert "factor is not declared" in refusal(undeclared, 1, "factor")


def test_a_text_that_cannot_be_found():
    namespace = {}
    exec("def rule(new, u):\n    new[0] = u[0]\n", namespace)
    with pytest.raises(StencilError, match=r"the text of rule cannot be found: define the stencil in a file"):
        ml.stencil(namespace["rule"])


def test_arithmetic_on_conditions_is_refused_with_its_place():
    @ml.stencil
    def rule(new, u):
        new[0] = (u[0] < 0) * (u[1] < 0)

    with pytest.raises(StencilError, match=r"numbers come from conditions by where\(condition, 1.0, 0.0\)"):
        rule.on(ml.Grid(8)).prepare(u=np.zeros(8, "f4"), swap=("new", "u"), targets=ml.target("emulator"))


@pytest.mark.parametrize(
    ("boundary", "sentence"),
    [
        ("open", r"'open' is not a boundary: use 'fixed', 'periodic', 'reflecting', or a finite number"),
        (("fixed",) * 3, r"the boundary has 3 entries for 2 axes"),
        ((("periodic", "fixed"), 0.0), r"axis 0 is periodic at one side only"),
        (float("nan"), r"nan is not a boundary"),
    ],
)
def test_boundaries_that_cannot_be(boundary, sentence):
    with pytest.raises(StencilError, match=sentence):
        ml.Grid((8, 8), boundary=boundary)


def test_a_pair_of_conditions_in_one_dimension_is_that_of_the_two_sides():
    assert ml.Grid(8, boundary=(1.0, "reflecting")).conditions == ml.Grid(8, boundary=((1.0, "reflecting"),)).conditions


def test_a_radius_wider_than_the_grid():
    @ml.stencil
    def rule(new, u):
        new[0, 0] = u[0, 3]

    with pytest.raises(StencilError, match=r"rule reads 3 cells along axis 1, and the grid has 2 there, so a periodic boundary would"):
        rule.on(ml.Grid((8, 2), boundary="periodic"))


def test_powers_of_constants_are_constants():
    """As Python computes them: 2**-3 is a float. A constant in single precision must not make the others double."""

    @ml.stencil
    def scaled(new, u):
        new[0, 0] = u[0, 0] / 2**0.5 + u[-1, 0] * 2**-3 + u[1, 0] * 10**-2 + u[0, 1] * 2**3 / 7

    u = np.random.default_rng(1).random((9, 40), dtype=np.float32)
    run = scaled.on(ml.Grid((9, 40))).prepare(u=u, swap=("new", "u"), fmad=False, targets=ml.target("emulator:h200")).steps(3)
    expected = scaled.on(ml.Grid((9, 40))).reference(3, u=u, swap=("new", "u"))["u"]
    assert expected.dtype == np.float32
    assert np.array_equal(run["u"].gather(), expected)

    def no_number(new, u):
        new[0] = u[0] * 0**-1

    def not_real(new, u):
        new[0] = u[0] * (-2) ** 0.5

    assert "this constant cannot be computed: " in refusal(no_number, 1, "0**-1")
    assert "this constant is not real: (-2) ** 0.5" in refusal(not_real, 1, "(-2) ** 0.5")

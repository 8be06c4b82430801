"""Loops over constants and helper functions are written out before a rule is read; plain Python on NumPy slices says what they mean."""

import numpy as np
import pytest

import memlane as ml
from memlane.errors import StencilError

WEIGHTS = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
"""Of the second derivative to eighth order."""
RADIUS = 4


def laplacian(f, scale=1.0):
    """A helper with a loop of its own, a default and a local name that the rule has too."""
    total = 2 * WEIGHTS[0] * f[0, 0]
    for i, weight in enumerate(WEIGHTS[1:], 1):
        total += weight * (f[-i, 0] + f[i, 0] + f[0, -i] + f[0, i])
    return scale * total


def clipped(value, low, high):
    return low if value < low else high if value > high else value


@ml.stencil
def wave(new, u, old, v, c):
    total = 2 * u[0, 0] - old[0, 0]
    near = sum(v[i, j] for i in range(-1, 2) for j in range(-1, 2) if i * j != 0)
    new[0, 0] = clipped(total + c * laplacian(u) + laplacian(v, scale=0.125) + 0.001 * near, -2, high=1.5)


def both(rule, shape, steps=1, **values):
    """Return the result on the emulator, which the reference on NumPy arrays must equal bit by bit."""
    grid = ml.Grid(shape, dtype="f8", boundary="periodic")
    run = rule.on(grid).prepare(**values, fmad=False, targets=ml.target("emulator")).steps(steps)
    expected = rule.on(grid).reference(steps, **values)
    for name, field in expected.items():
        assert (run[name].gather() == field).all(), name
    return run


def test_a_rule_of_eighth_order_is_what_plain_numpy_gives():
    random = np.random.default_rng(3)
    u, old, v = (random.standard_normal((21, 40)) for _ in range(3))
    found = both(wave, (21, 40), u=u, old=old, v=v, c=0.05, swap=("new", "u", "old"))["u"].gather()

    def at(f, i, j):
        return np.roll(f, (-i, -j), (0, 1))

    def second(f):
        return 2 * WEIGHTS[0] * f + sum(
            WEIGHTS[i] * (at(f, -i, 0) + at(f, i, 0) + at(f, 0, -i) + at(f, 0, i)) for i in range(1, RADIUS + 1)
        )

    near = at(v, -1, -1) + at(v, -1, 1) + at(v, 1, -1) + at(v, 1, 1)
    expected = np.clip(2 * u - old + 0.05 * second(u) + 0.125 * second(v) + 0.001 * near, -2, 1.5)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)
    assert wave.footprint.low == wave.footprint.high == (RADIUS, RADIUS)


def test_names_of_a_helper_are_its_own():
    factor = 3.0

    def scaled(f, factor):
        result = f[0] * factor
        return result + 1

    @ml.stencil
    def rule(new, u):
        result = scaled(u, 2.0) - scaled(u, -0.0)
        new[0] = result * factor + sum(u[i] for i in (-1, 1))

    u = np.linspace(-1, 1, 9)
    found = both(rule, 9, u=u, swap=("new", "u"))["u"].gather()
    np.testing.assert_allclose(found, 6 * u + np.roll(u, 1) + np.roll(u, -1))


@ml.stencil
def functions(new, u):
    x = abs(u[0]) + 0.1
    first = np.sqrt(x) + cbrt(x) + np.exp(x) + exp2(x) + expm1(x) + log(x) + log2(x) + log10(x) + log1p(x)  # noqa: F821
    second = sin(x) + cos(x) + tan(x / 2) + np.arcsin(x / 4) + acos(x / 4) + np.arctan(x) + sinh(x) + cosh(x) + tanh(x)  # noqa: F821
    new[0] = first + second + np.arctan2(u[0], x) + hypot(u[0], x) + floor(u[0]) + ceil(u[0]) + x**0.3  # noqa: F821


@pytest.mark.parametrize("dtype", ["f4", pytest.param("f8", marks=pytest.mark.slow)])
def test_functions_are_those_of_numpy(dtype):
    u = np.linspace(-2, 2, 33).astype(dtype)
    grid = ml.Grid(33, dtype=dtype)
    run = functions.on(grid).prepare(u=u, swap=("new", "u"), targets=ml.target("emulator")).steps(1)
    expected = functions.on(grid).reference(1, u=u, swap=("new", "u"))["u"]
    x = np.abs(u.astype("f8")) + 0.1
    plain = (np.sqrt(x) + np.cbrt(x) + np.exp(x) + np.exp2(x) + np.expm1(x) + np.log(x) + np.log2(x) + np.log10(x) + np.log1p(x)
             + np.sin(x) + np.cos(x) + np.tan(x / 2) + np.arcsin(x / 4) + np.arccos(x / 4) + np.arctan(x)
             + np.sinh(x) + np.cosh(x) + np.tanh(x) + np.arctan2(u, x) + np.hypot(u, x) + np.floor(u) + np.ceil(u) + x**0.3)  # fmt: skip
    for found in (run["u"].gather(), expected):
        np.testing.assert_allclose(found, plain, rtol=3e-6 if dtype == "f4" else 1e-14)


def test_coefficients_are_indexed_in_a_loop():
    @ml.stencil
    def rule(new, u, a):
        value = 0.0
        for k in range(3):
            value += a[k] * u[k - 1, 1 - k]
        new[0, 0] = value

    u = np.random.default_rng(5).random((7, 9))
    found = both(rule, (7, 9), u=u, a=[1.0, 2.0, 4.0], swap=("new", "u"))["u"].gather()
    np.testing.assert_allclose(found, np.roll(u, (1, -1), (0, 1)) + 2 * u + 4 * np.roll(u, (-1, 1), (0, 1)))


def test_lines_of_a_helper_are_lines_of_its_text():
    (rule,) = wave.rules
    first = laplacian.__code__.co_firstlineno
    assert {first + 2, first + 4} <= {one.line for one in rule.body}


def again(f):
    return again(f) + f[0]


def nothing(f):
    f = 1  # noqa: F841


def changes(f):
    f = 2 * f[0]
    return f


def refused(function):
    with pytest.raises(StencilError) as caught:
        ml.stencil(function)
    assert caught.value.span is not None
    return caught.value.message, caught.value.span.text


def test_what_cannot_be_written_out():
    def unknown(new, u, n):
        for i in range(n):
            new[0] = u[i]

    def endless(new, u):
        value = u[0]
        for i in range(10**12):
            value += u[0] * i
        new[0] = value

    def taken(new, u):
        for u in range(3):
            new[0] = u

    def assigned(new, u):
        value = u[0]
        for i in range(3):
            i = i + 1
            value += i * u[0]
        new[0] = value

    def recursive(new, u):
        new[0] = again(u)

    def valueless(new, u):
        new[0] = nothing(u)

    def too_many(new, u):
        new[0] = clipped(u[0], 1)

    def assigning(new, u):
        new[0] = changes(u)

    def hidden(new, u):
        new[0] = sum(u[i] for i in range(3) if u[0] > 0)

    def empty(new, u):
        new[0] = u[0] + sum(u[i] for i in range(0))

    def torn(new, u):
        value = u[0]
        for i, j in ((1, 2), (3,)):
            value += u[i] * u[j]
        new[0] = value

    assert refused(unknown) == ("range(n) is not known before the run: loop over a range of constants or a tuple of numbers", "range(n)")
    assert refused(endless)[0] == "a loop of a stencil is written out, with at most 10,000 turns: use fewer"
    assert refused(taken) == ("u is in use already: give the loop a name of its own", "u")
    assert refused(assigned)[0] == "i is a constant of a loop or an argument: give the new value a name of its own"
    assert refused(recursive)[0] == "again calls itself, or 32 functions call each other: a stencil has no recursion"
    assert refused(valueless) == ("nothing does not end with return and a value, so a stencil cannot call it", "nothing(u)")
    assert refused(too_many)[0] == "clipped cannot be called so: missing a required argument: 'high'"
    assert refused(assigning)[0] == "changes assigns to its parameter f: a helper gives new values new names"
    assert refused(hidden) == ("this condition is not known before the run: use where in the sum", "u[0] > 0")
    assert refused(empty)[0] == "this sum has no terms"
    assert refused(torn) == ("(3,) does not fit (i, j)", "i, j")

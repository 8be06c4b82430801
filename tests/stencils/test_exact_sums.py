"""Sums that are exact: those of `math.fsum`, which rounds the exact sum once, on any number of devices and by any kernel."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memlane as ml
from memlane.stencils import Variant
from memlane.stencils.sums import LIMBS, WORDS, exact_value
from tests.stencils.test_shared import SWAP


@ml.stencil
def blur(new, u, total, squares, most):
    new[0, 0] = 0.5 * u[0, 0] + 0.25 * (u[-1, 0] + u[0, 1])
    total += u[0, 0]
    most = max(most, u[-1, 0])
    squares += u[-1, 0] * u[0, 1]


@ml.stencil
def scaled(new, u, squares):
    new[0, 0] = u[0, 0]
    squares += u[0, 0]


SHAPE = (23, 50)


def field(dtype="f4", seed=1):
    """Numbers of very different sizes and both signs, so that each order of additions has another sum."""
    random = np.random.default_rng(seed)
    return (random.standard_normal(SHAPE) * 10.0 ** random.integers(-12, 12, SHAPE)).astype(dtype)


def summed(u, devices=1, dtype="f4", rule=blur, variant=None, **more):
    grid = ml.Grid(SHAPE, dtype, boundary="periodic")
    targets = ml.devices("emulator:h200", devices)
    run = rule.on(grid, **more).prepare(u=u, swap=SWAP, targets=targets, exact_sums=True, fmad=False, variant=variant)
    return run.steps(1).reductions


def test_sums_are_exact_and_rounded_once():
    u = field()
    found = summed(u)
    products = np.roll(u, 1, 0) * np.roll(u, -1, 1)  # rounded to single precision, as the rule says
    assert found == {
        "total": math.fsum(u.ravel().astype(float)),
        "squares": math.fsum(products.ravel().astype(float)),
        "most": float(u.max()),
    }
    assert found["total"] != float(u.sum(dtype=np.float64))
    assert list(found) == ["total", "most", "squares"]  # as in the rule


@pytest.mark.parametrize(
    ("devices", "more"),
    [(2, {"exchange_every": 1}), (3, {"exchange_every": 2, "transport": "host"}), (4, {"decomposition": (2, 2), "exchange_every": 1})],
    ids=["two devices", "three, by the host", "boxes"],
)
def test_the_bits_do_not_depend_on_how_cells_are_shared(devices, more):
    assert summed(field(), devices, **more) == summed(field())


def test_the_bits_do_not_depend_on_the_kernel():
    assert summed(field(), variant=Variant(2, (16, 4), 3, 1)) == summed(field())


def test_numbers_of_all_sizes():
    """The largest and the least doubles, and what cancels but for one of them; sums that overflow, and what is not a number."""
    for extremes in ([1.7e308, -1.7e308, 5e-324], [1.7e308, 1.7e308, -1.7e308], [2.5e-310, -1e-300, 1.0], [1.7e308, 1.7e308, 0.0]):
        u = np.zeros(SHAPE)
        u[[0, 3, 17], [0, 40, 49]] = extremes
        expected = sum(map(int_of, extremes))
        found = summed(u, dtype="f8", rule=scaled)["squares"]
        assert found == (expected / (1 << 1074) if abs(expected) < int_of(1.79e308) else math.inf)
    for extremes, expected in (([math.inf, 1.0], math.inf), ([-math.inf, 1.0], -math.inf)):
        u = np.zeros(SHAPE)
        u[[0, 17], [0, 49]] = extremes
        assert summed(u, dtype="f8", rule=scaled)["squares"] == expected
    for extremes in ([math.inf, -math.inf], [math.nan, 1.0]):
        u[[0, 17], [0, 49]] = extremes
        assert math.isnan(summed(u, dtype="f8", rule=scaled)["squares"])


def int_of(value):
    """A double in units of the least one."""
    numerator, denominator = float(value).as_integer_ratio()
    return numerator * ((1 << 1074) // denominator)


@given(st.lists(st.integers(-(1 << 60), 1 << 60), min_size=LIMBS, max_size=LIMBS), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_words_of_several_devices_are_one_integer(limbs, parts):
    """Whatever the words hold beyond 32 bits, they are added as integers and divided once."""
    pieces = [np.zeros(WORDS, np.int64) for _ in range(parts)]
    for at, limb in enumerate(limbs):
        for number, piece in enumerate(pieces):
            piece[at] = limb // parts + (limb % parts if number == 0 else 0)
    total = sum(limb << 32 * at for at, limb in enumerate(limbs))
    try:
        expected = total / (1 << 1074)
    except OverflowError:
        expected = math.inf if total > 0 else -math.inf
    assert exact_value([piece.view(np.float64) for piece in pieces]) == expected

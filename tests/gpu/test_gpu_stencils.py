"""Stencils on GPUs: exact sums, sources and probes have the bits that emulated devices give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import memlane as ml
from memlane.driver import Device, probe
from memlane.launch import Target
from memlane.targets import devices
from memlane.timeloop.shared import SharedRun
from tests.stencils.several import assert_bits_of_one_device
from tests.stencils.test_exact_sums import blur, field
from tests.stencils.test_points import AROUND, pulses
from tests.stencils.test_shared import SWAP, SWAP3, heat, lopsided, values

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["one GPU", "one GPU twice", "two GPUs"])
def targets(gpu: Device, request: pytest.FixtureRequest) -> tuple[Target, ...]:
    if request.param == "one GPU":
        return (gpu,)
    if request.param == "one GPU twice":
        return Device(0), Device(0)
    if len(probe().devices) < 2:
        pytest.skip("this machine has no second GPU")
    return devices("cuda", 2)


def test_sums_are_exact(targets: tuple[Target, ...]) -> None:
    u = field()
    grid = ml.Grid(u.shape, boundary="periodic")
    where = blur.on(grid, exchange_every=2, transport="flags") if len(targets) > 1 else blur.on(grid)
    run = where.prepare(u=u, swap=SWAP, targets=targets, exact_sums=True, fmad=False)
    found = run.steps(1).reductions
    products = np.roll(u, 1, 0) * np.roll(u, -1, 1)
    assert found["total"] == math.fsum(u.ravel().astype(float))
    assert found["squares"] == math.fsum(products.ravel().astype(float))
    assert found["most"] == float(u.max())


@pytest.mark.parametrize("transport", ["flags", "host"])
def test_sources_and_probes(targets: tuple[Target, ...], transport: str) -> None:
    grid, found = ml.Grid((31, 40), boundary="periodic"), []
    for own in (targets, (ml.target("emulator:h200"),)):
        more: dict[str, Any] = {"exchange_every": 3, "transport": transport} if len(own) > 1 else {}
        run = heat.on(grid, **more).prepare(u=values("u", grid.shape), r=0.1, swap=SWAP, targets=own, fmad=False)
        run.add_source("u", AROUND, pulses(AROUND, 6))
        run.add_probe("u", AROUND)
        run.steps(5).steps(4)
        found.append((run.probed("u"), run["u"].gather()))
    (probed, u), (expected_probed, expected) = found
    assert np.array_equal(probed, expected_probed)
    assert np.array_equal(u, expected)


@pytest.mark.parametrize(("stencil", "swap", "every"), [(heat, SWAP, 1), (heat, SWAP, 3), (lopsided, SWAP3, 1), (lopsided, SWAP3, 3)])
def test_kernels_that_stay(stencil: Any, swap: tuple[str, ...], every: int) -> None:
    """Two of them do not fit on one GPU, so that takes two."""
    if len(probe().devices) < 2:
        pytest.skip("this machine has no second GPU")
    grid = ml.Grid((1031, 640), boundary="periodic")
    given = {name: values(name, grid.shape) for rule in stencil.rules for name in rule.fields if name != "new"}
    where = stencil.on(grid, exchange_every=every, transport="persistent")
    many = where.prepare(**given, r=0.1, swap=swap, targets=devices("cuda", 2))
    one = stencil.on(grid).prepare(**given, r=0.1, swap=swap, targets=ml.target("cuda"))
    assert isinstance(many, SharedRun)
    assert_bits_of_one_device(many, one, (every, 1000 * every + 1, 7))

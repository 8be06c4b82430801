"""Devices that signal each other by flags: two GPUs where there are two, and two targets of one GPU everywhere.

With one GPU both parts of a grid run on streams of their own, so their graphs run side by side and wait for each other as those of two GPUs
do. What each wait needs to end is started without it (`stencils.puts`).
"""

from __future__ import annotations

import time

import numpy as np
import pytest

import memlane as ml
from memlane.driver import Device, probe
from memlane.errors import LaunchError
from memlane.launch import Target
from memlane.plan import PlanBuilder
from memlane.targets import BoundPlan, devices, signals
from memlane.timeloop.shared import SharedRun
from tests.plan.test_signals import ring
from tests.stencils.scaling.problems import seven
from tests.stencils.test_puts import corners, heat, values
from tests.stencils.test_shared import FUSED, SWAP

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["one GPU twice", "two GPUs"])
def pair(gpu: Device, request: pytest.FixtureRequest) -> tuple[Target, ...]:
    if request.param == "one GPU twice":
        return Device(0, fmad=False), Device(0, fmad=False)
    if len(probe().devices) < 2:
        pytest.skip("this machine has no second GPU")
    return devices("cuda", 2)


def test_flags_order_turns_and_count_on(pair: tuple[Target, ...]) -> None:
    """Each turn stores a row in the other's memory; many more turns than one graph has, so that graphs follow each other, too."""
    memory = {f"rows{at}": target.array(np.arange(32, dtype="f4").reshape(4, 8) + 100 * at) for at, target in enumerate(pair)}
    bound = BoundPlan(ring(5000), memory, targets=pair)
    assert bound._is_separable
    for runs in (1, 2):
        done = bound.run()
        assert [int(np.asarray(done[f"flag{at}"].numpy())[0]) for at in range(2)] == [5000 * runs] * 2  # type: ignore[union-attr]
    assert done["rows0"].numpy()[3].tolist() == [116.0 + at for at in range(8)]  # type: ignore[union-attr]
    assert done["rows1"].numpy()[3].tolist() == [16.0 + at for at in range(8)]  # type: ignore[union-attr]
    assert {span.kind for span in bound.time().spans} == {"put", "wait", "copy"}


@pytest.mark.parametrize("every", [1, 3, 4])
@pytest.mark.parametrize("boundary", ["periodic", "fixed"])
def test_a_stencil_has_the_bits_of_one_device(pair: tuple[Target, ...], every: int, boundary: str) -> None:
    grid = ml.Grid((60, 64), boundary=boundary)
    options = {"u": values("u", grid.shape), "r": 0.1, "swap": SWAP, "variant": FUSED if every == 4 else None}
    one = heat.on(grid).prepare(**options, targets=pair[0])
    many = heat.on(grid, exchange_every=every, transport="flags").prepare(**options, targets=pair)
    assert isinstance(many, SharedRun)
    for steps in (1, 997):
        assert np.array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


def test_faces_with_gaps_and_corners(pair: tuple[Target, ...]) -> None:
    grid = ml.Grid((13, 40, 70), boundary=("periodic", "fixed", "reflecting"))
    fields = {name: values(name, grid.shape) for name in ("u", "c")}
    one = corners.on(grid).prepare(**fields, swap=SWAP, r=0.1, targets=pair[0])
    before = one.steps(100)["u"].gather()
    for parts in ((1, 2, 1), (1, 1, 2)):
        many = corners.on(grid, exchange_every=2, decomposition=parts, transport="flags").prepare(**fields, swap=SWAP, r=0.1, targets=pair)
        assert np.array_equal(many.steps(100)["u"].gather(), before)


@pytest.mark.parametrize("shape", [(60, 64), (96, 80, 160)])
def test_kernels_that_stay_on_two_gpus(gpu: Device, shape: tuple[int, ...]) -> None:
    if len(probe().devices) < 2:
        pytest.skip("this machine has no second GPU")
    grid, rule = ml.Grid(shape, boundary="periodic"), heat if len(shape) == 2 else seven
    options = {"u": values("u", grid.shape), "swap": SWAP} | ({"r": 0.1} if len(shape) == 2 else {"a": [0.4, *[0.1] * 6]})
    pair = devices("cuda", 2)
    one = rule.on(grid).prepare(**options, targets=pair[0])
    many = rule.on(grid, transport="persistent").prepare(**options, targets=pair)
    for steps in (1, 2501):
        assert np.array_equal(many.steps(steps)["u"].gather(), one.steps(steps)["u"].gather())


def test_a_wait_that_nobody_ends_is_an_error_and_not_a_hang(pair: tuple[Target, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signals.LIMIT, "2")
    b = PlanBuilder()
    flag = b.flag("flag", 1)
    put = b.put([], [flag], device=0)
    b.wait([flag], device=1, after=[put])
    bound = BoundPlan(b.plan(), targets=pair)
    bound.run()
    (count,) = (one for (is_wait, _), one in bound._actions.flags._counts.items() if not is_wait)
    count.copy_from(np.zeros(2, "u4"))  # the put raises the flag to 1 again, and 2 is waited for
    began = time.monotonic()
    with pytest.raises(
        LaunchError, match=r"device 1 \(cuda:\d\) waited 2 s at step 1 \(wait for flag\) for flag 'flag', which device 0 .* 1 t"
    ):
        bound.run()
    assert 0.5 < time.monotonic() - began < 15
    bound.run()

"""Volume rendering on the device: the picture beside NumPy's, and what a trace of it says."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.driver import Device
from memlane.lab import Request
from memlane.lab.volume import reference
from memlane.lab.volume.frames import difference, measure
from memlane.lab.volume.observe import trace_fetches
from memlane.lab.volume.renderer import Renderer
from memlane.lab.volume.scene import FRONT, SHAPES, TURNED, Scene, View

pytestmark = pytest.mark.gpu
SCENE = Scene(64, 64)


@pytest.fixture(scope="module")
def renderer(gpu: Device) -> Renderer:
    return Renderer(gpu, SCENE)


def test_the_volume_is_that_of_numpy(renderer: Renderer) -> None:
    assert np.abs(renderer.volume.astype(int) - reference.volume(64)).max() <= 1


@pytest.mark.parametrize("view", [FRONT, TURNED, View(30, -20, 75)], ids=str)
def test_the_picture_is_that_of_numpy(renderer: Renderer, view: View) -> None:
    expected = reference.render(renderer.volume, SCENE, view)
    assert [difference(renderer, view, shape, expected) <= reference.TOLERANCE for shape in SHAPES] == [True] * 8


def test_every_fetch_of_every_warp_is_recorded_and_waited_for(renderer: Renderer) -> None:
    seen = trace_fetches(renderer, FRONT, "8x16", "dependent")
    assert seen is not None
    fetched = reference.render(renderer.volume, SCENE, FRONT).fetched
    counts = fetched.reshape(16, 4, 8, 8).max(axis=(1, 3))  # of warps of 8 x 4 pixels
    assert seen.lost == 0
    assert abs(int(seen.accesses.sum()) - int(counts.sum())) <= 0.01 * counts.sum()  # a ray may end a sample earlier in 32 bits
    assert seen.access_time > 60  # no texture fetch takes less
    assert {site.completeness for site in seen.of.sites if site.scheme} == {"complete"}


def test_the_warps_of_one_sm_are_those_on_it(renderer: Renderer) -> None:
    every, some = trace_fetches(renderer, FRONT, "8x16", "dependent"), trace_fetches(renderer, FRONT, "8x16", "dependent", sms="0")
    assert every is not None
    if some is not None:  # 32 blocks need not come to every SM
        assert set(some.of.table["sm"].to_pylist()) == {0}
        assert len(some.warp) < len(every.warp)


def test_hit_rates_are_counted_or_the_reason_is_said(renderer: Renderer) -> None:
    found = measure(renderer, [(FRONT, "8x16")], {}, Request())
    rate = found.of[FRONT, "8x16"].hit_rate
    assert bool(found.hits_unknown) == (rate is None)
    assert rate is None or 0 < rate < 1

"""The lab of volume rendering: its picture by another renderer, its definitions by hand, and a quick run on the emulator."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

from memlane.audit import prove
from memlane.compile import assemble, cuda
from memlane.errors import CommandError, LaunchError
from memlane.instrument import TraceOptions, trace
from memlane.lab import Request
from memlane.lab.result import NOT_MEASURED
from memlane.lab.volume import frames, reference
from memlane.lab.volume.claims import ALL_SAME
from memlane.lab.volume.frames import difference
from memlane.lab.volume.lab import CASES, VOLUME, run_with
from memlane.lab.volume.observe import Observed, observed, trace_fetches
from memlane.lab.volume.renderer import FETCHES, SOURCE, Renderer
from memlane.lab.volume.scene import FRONT, SHAPES, TURNED, Scene, Settings, View, settings_of, view_of
from memlane.lab.volume.tables import FRAME_RATE, HIT_RATE
from memlane.launch import Target
from memlane.sass import disassemble
from memlane.targets import target

pytestmark = pytest.mark.slow

SMALL = Scene(16, 16)
NO_TRACE: Any = None


@pytest.fixture(scope="module")
def emulator() -> Target:
    return target("emulator:h200", deterministic=True)


@pytest.fixture(scope="module")
def renderer(emulator: Target) -> Renderer:
    return Renderer(emulator, SMALL)


def test_the_volume_is_that_of_numpy(renderer: Renderer) -> None:
    expected = reference.volume(16)
    assert np.abs(renderer.volume.astype(int) - expected).max() <= 1  # sines of 32 bits
    assert expected.max() > 200
    assert (expected == 0).mean() > 0.2


@pytest.mark.parametrize("view", [FRONT, TURNED, View(30, -20, 75)], ids=str)
def test_the_picture_is_that_of_numpy(renderer: Renderer, view: View) -> None:
    expected = reference.render(renderer.volume, SMALL, view)
    assert difference(renderer, view, "8x16", expected) <= reference.TOLERANCE
    assert expected.pixels[..., 3].max() > 100  # something is to be seen


def test_other_viewpoints_make_other_pictures(renderer: Renderer) -> None:
    front, turned = (reference.render(renderer.volume, SMALL, view) for view in (FRONT, View(30, -20, 75)))
    assert difference(renderer, FRONT, "8x16", turned) > 10 * reference.TOLERANCE
    assert (front.pixels != turned.pixels).any()


def test_the_shape_of_a_block_does_not_change_the_picture(renderer: Renderer) -> None:
    first = renderer.pixels(FRONT, SHAPES[0])
    assert all((renderer.pixels(FRONT, shape) == first).all() for shape in SHAPES[1:])


def test_a_view_turns_the_volume_about_x_then_y_then_z() -> None:
    # Rz(90) Rx(90) takes the volume's x up, its z to the right and its y towards the eye.
    assert TURNED.axes.tolist() == [[0, 0, 1], [1, 0, 0], [0, -1, 0]]
    assert TURNED.eye.tolist() == [0, 4, 0]
    assert View(0, 90, 0).axes[0].tolist() == [0, 0, 1]  # what was along z has come to lie along x
    assert FRONT.axes.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, -1]]


def test_filtering_has_eight_bits_of_fraction() -> None:
    values = np.zeros((2, 2, 2), np.uint8)
    values[0, 0, 1] = 255
    at = np.array([[1.5, 0.5, 0.5], [0.8, 0.5, 0.5], [1.0, 1.0, 1.0], [9.0, -4.0, 0.5]])
    assert reference.filtered(values, at) == pytest.approx([1.0, 77 / 256, 1 / 8, 1.0])  # 0.3 is 76.8 of 256


def test_a_ray_ends_where_it_is_opaque() -> None:
    picture = reference.render(np.full((16, 16, 16), 255, np.uint8), SMALL, FRONT)
    middle = picture.fetched.reshape(16, 16)[8, 8]
    assert middle == 7  # 1 - (1 - 3 * 2 / 16)^7 is the first over 0.95
    assert reference.rays(SMALL, FRONT).samples.reshape(16, 16)[8, 8] == 16


def observation(accesses: list[int], cycles: list[int], life: list[int]) -> Observed:
    return Observed(np.arange(len(accesses)), np.array(accesses), np.array(cycles), np.array(life), 0, 0, 1.0, None, NO_TRACE)


def test_the_access_frequency_is_the_reciprocal_of_the_mean_access_time() -> None:
    seen = observation([2, 3], [200, 600], [1000, 1000])
    assert seen.access_time == 160
    assert seen.frequency == 6.25
    assert seen.share == 0.4
    assert seen.other_time == 240
    assert seen.means.tolist() == [100, 200]
    # 200 and 600 lie 120 below and above 2 and 3 times 160; over 5 accesses, with 2 warps and 1 degree of freedom
    assert seen.within == pytest.approx(1.959964 * (2 * (120**2 + 120**2)) ** 0.5 / 5, rel=1e-6)


def test_the_warp_to_look_into_has_many_accesses_and_long_ones() -> None:
    assert observation([100, 95, 50, 92], [1000, 1900, 4950, 1850], [1] * 4).chosen == 3  # means 10, 20, 99 and 20.1


def test_an_observation_is_what_the_rows_of_a_trace_say(renderer: Renderer) -> None:
    seen = trace_fetches(renderer, FRONT, "8x16", "dependent")
    assert seen is not None
    fetched = reference.render(renderer.volume, SMALL, FRONT).fetched.reshape(16, 16)
    blocks = [fetched[:, at : at + 8] for at in (0, 8)]  # two of 8 x 16 threads, in warps of 8 x 4
    warps = [int(block[row : row + 4].max()) for block in blocks for row in range(0, 16, 4)]
    assert dict(zip(seen.warp.tolist(), seen.accesses.tolist(), strict=True)) == {n: count for n, count in enumerate(warps) if count}
    assert seen.idle == warps.count(0)
    assert seen.access_time == pytest.approx(renderer.target.chip.latency.texture + renderer.target.chip.latency.clock, rel=0.2)
    assert (seen.life > seen.cycles).all()
    series = seen.series(seen.chosen)
    assert (len(series), series.sum()) == (seen.accesses[seen.chosen], seen.cycles[seen.chosen])
    empty = replace(seen.of, table=seen.of.table.slice(0, 0))
    assert observed(empty) is None


def test_a_sample_of_the_warps_stands_for_all(renderer: Renderer) -> None:
    every, some = (trace_fetches(renderer, FRONT, "32x4", "dependent", every=n) for n in (1, 4))
    assert every is not None
    assert some is not None
    assert (every.weight, some.weight) == (1, 4)
    assert len(some.warp) + some.idle == (len(every.warp) + every.idle) / 4
    assert set(some.warp) <= set(every.warp)


def test_the_kernel_has_one_fetch_and_its_probe_is_proved() -> None:
    module = cuda(SOURCE)
    opcodes = Counter(one.opcode for one in disassemble(assemble(module, arch="sm_90").data).functions["render"].instructions)
    assert opcodes["TEX"] == 1
    traced = trace(module, TraceOptions("dependent", FETCHES))
    assert [proof.completeness for proof in prove(traced, assemble(traced.module, arch="sm_90").data)] == ["complete"]


def test_a_quick_run_measures_what_is_asked_for(emulator: Target) -> None:
    told: list[str] = []
    settings = Settings((FRONT, TURNED), ("1x128", "2x64", "8x16", "128x1"))
    result = run_with(emulator, Request(True, ("image", "share", "warps"), told.append), settings)
    by_case = {(row.case, row.metric): row for row in result.rows}
    assert [row.holds for row in result.rows if row.case.startswith("image")] == [True, True]
    assert by_case["(0, 0, 0), 1x128, dependent", "access frequency"].peer["records lost"] == 0
    assert 0 < (by_case["(0, 0, 0), 128x1", "hit rate of the texture cache"].value or 0) < 1
    assert ("(0, 0, 0), 8x16", "frame rate") not in by_case  # not asked for
    assert set(result.tables) == {"shapes", "frames", "correlations", "warps", "series", "claims", "paper"}
    assert {name for name, table in result.tables.items() if table.printed} == {"shapes", "correlations", "claims", "paper"}
    assert [(line[0], line[1], line[3]) for line in result.tables["paper"].lines[:2]] == [("simple", "1x128", 20), ("simple", "128x1", 13)]
    assert all(line[4] is not None and line[4] > 0 for line in result.tables["paper"].lines)
    assert {"fig_5", "fig_10", "fig_11"} <= set(result.figures)
    assert [picture.shape for picture in result.pictures.values()] == [(16, 16, 3)] * 2
    assert "(0, 0, 0), 1x128" in told
    found = {(line[0], line[1]) for line in result.tables["claims"].lines}
    assert {figure for figure, _ in found} <= {"5", "10", "11"}
    assert {holds for _, holds in found} == {"a model cannot tell"}  # of times of an emulator


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (SimpleNamespace(views=["1,2"]), r"--view 1,2: give three angles in degrees, about x, y and z, such as 90,0,90"),
        (SimpleNamespace(views=["a,0,0"]), r"--view a,0,0: give three angles"),
        (SimpleNamespace(views=["0,0,inf"]), r"--view 0,0,inf: give three angles"),
        (SimpleNamespace(shapes=["3x4"]), r"--shape 3x4: blocks have 128 threads here; choose from: 1x128, .*128x1"),
        (SimpleNamespace(size=2), r"--size 2: give a number from 4 to 2048"),
        (SimpleNamespace(image=100_000), r"--image 100000: give a number from 4 to 8192"),
    ],
    ids=str,
)
def test_what_cannot_be_rendered_is_named(wrong: SimpleNamespace, message: str) -> None:
    given: dict[str, Any] = {"views": [], "shapes": [], "size": None, "image": None, **vars(wrong)}
    with pytest.raises(CommandError, match=message):
        settings_of(**given)


def test_settings_are_what_was_asked_for(emulator: Target) -> None:
    chosen = settings_of(["10,20,-30.5"], ["128x1", "1x128"], 32, None)
    assert (chosen.views, chosen.shapes) == ((View(10, 20, -30.5),), ("1x128", "128x1"))
    assert chosen.scene(emulator, quick=False) == Scene(32, 256)
    assert settings_of([], [], None, None) == Settings()
    assert view_of("90,0,90") == TURNED
    with pytest.raises(CommandError, match="--only fig: no such case; choose from: image, share, frequency, warps"):
        VOLUME.run(emulator, Request(only=("fig",)))
    assert VOLUME.cases == CASES
    for case, shapes in (("warps", "2x64 with 8x16"), ("share", "1x128 with 128x1")):
        with pytest.raises(CommandError, match=f"--only {case} compares {shapes}; leave --shape out, or name both"):
            run_with(emulator, Request(only=(case,)), Settings(shapes=("8x16", "1x128")))


def test_hit_rates_that_cannot_be_measured_are_unknown_and_the_rest_is_measured(emulator: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*of: object) -> NoReturn:
        raise LaunchError("the profiler has no permission")

    monkeypatch.setattr(frames, "modelled", failed)
    result = run_with(emulator, Request(True, ("frequency",)), settings_of(["0,0,0"], ["8x16", "16x8", "1x128"], 8, 16))
    by = {(row.case, row.metric): row for row in result.rows}
    assert by["hit rates of the texture cache", NOT_MEASURED].note == "the profiler has no permission"
    unknown = "its measurement failed or was interrupted"
    assert by["(0, 0, 0), 8x16", HIT_RATE].note == f"unknown: {unknown}"
    assert by["(0, 0, 0), 8x16", FRAME_RATE].value
    about = [row for row in result.rows if "hit rate" in f"{row.case} {row.metric}" and row.value is None and row.note]
    assert not [row for row in about if ALL_SAME in row.note]
    assert [row for row in about if unknown in row.note]

"""The lab of stencils on several devices: its predictions by the paper's formulas, its times by the numbers of the chip file."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from memlane.errors import CommandError, LaunchError
from memlane.lab import LABS, Request, Result, machine
from memlane.lab.stencil.cases import HIMENO, HIMENO_SIZES, SEVEN, Case, Settings, counts, settings_of
from memlane.lab.stencil.claims import chosen_by, claims, hidden_share, lost_by_choice, slope
from memlane.lab.stencil.lab import run_with
from memlane.lab.stencil.measure import AS_PUBLISHED, Effort, Measured, _timed, measure, measure_kernel, parts_of
from memlane.lab.stencil.plots import figures
from memlane.lab.stencil.predict import Point, predict
from memlane.lab.stencil.tables import rows as rows_of
from memlane.plan import Span, Timeline
from memlane.targets import devices, target
from memlane.timeloop.shared import SharedRun

M2050 = "emulator:m2050"
SMALL = Case(SEVEN, (24, 8, 32))


@pytest.fixture(scope="module")
def scaling() -> Result:
    return LABS["stencil"].run(target(M2050), Request(only=("scaling",)))


@pytest.fixture(scope="module")
def found() -> Result:
    """Predictions and runs of two devices at a small size."""
    return run_with(target(M2050), Request(quick=True, only=("scaling", "measured")), Settings((SMALL,), 2))


def test_predictions_are_the_equations_of_the_paper(scaling: Result) -> None:
    """Equations 1 to 4 for 4 processes, plane by plane: 64 planes of 65,536 cells, 8 bytes a cell at 120 GB/s, 12 us a launch; a message
    and a copy take 25 us, and 3.2 and 6 GB/s."""
    table = scaling.tables["predicted_steps"]
    steps = {line[3]: line[4] for line in table.lines if line[:3] == ("7-point, 256 x 256 x 256", "kawamura", "4")}
    assert len(steps) == 8
    for k in (1, 2, 3, 8):
        plane = 65536 * 8 / 120e3
        inner = sum((64 - 2 * step) * plane + 12 for step in range(1, k + 1))
        boundary = 2 * sum((k + 2 * (k - step)) * plane + 12 for step in range(1, k + 1))
        face = k * 65536 * 4
        exchange = 4 * (25 + face / 6e3) + 2 * (25 + face / 3.2e3)
        assert steps[str(k)] == pytest.approx((max(inner, exchange) + boundary) / k)


def test_the_paper_s_optima_are_those_of_its_model(scaling: Result) -> None:
    best = {(line[0][:6], line[2]): line[7] for line in scaling.tables["predicted"].lines if line[1] == "kawamura"}  # type: ignore[index]
    assert [best["7-poin", count] for count in ("2", "4")] == ["1", "3"]
    assert [best["himeno", count] for count in ("8", "16")] == ["1", "2"]
    said = {(line[0], line[3]): line[1] for line in scaling.tables["claims"].lines}
    assert said["11", "model kawamura, published machine"] == "yes"
    assert said["12", "model kawamura, published machine"] == "yes"
    assert said["9", "model kawamura, published machine"] == "no"  # 2 steps are best, 3 measured


def test_everything_is_written(found: Result, tmp_path: Path) -> None:
    drawn = "fig_10_11_modelled_24x8x32_host"
    assert set(found.figures) == {"fig_7_24x8x32", "fig_8_24x8x32", drawn, "fig_8_modelled_7-point_24x8x32_host"}
    one = replace(found, figures={drawn: found.figures[drawn]})  # drawing all takes seconds
    paths, left_out = one.save(tmp_path, machine(target(M2050)), ["memlane", "lab", "stencil"])
    names = {path.name for path in paths}
    assert {"result.json", "predicted.csv", "predicted_steps.csv", "modelled.csv", "claims.csv"} <= names
    assert left_out or f"{drawn}.png" in names
    stored = json.loads((tmp_path / "result.json").read_text())
    assert (stored["benchmark"], stored["chip"]) == ("lab_stencil", "emulator-m2050")
    assert all(row["reach"] is None for row in stored["rows"])  # what H200s are to reach is nothing for a model
    with (tmp_path / "modelled.csv").open(newline="") as file:
        assert [line[1:4] for line in csv.reader(file)][1:] == [["1", "-", "1"], *(["2", "host", str(k)] for k in (1, 2))]


def test_a_time_of_an_emulated_device_is_called_modelled(found: Result) -> None:
    for row in found.rows:
        assert "measured" not in row.metric.replace("not measured", ""), row
    for name, figure in found.figures.items():
        assert "measured" not in name
        assert "measured" not in str(figure)


def test_exchanges_take_what_the_chip_file_says(found: Result) -> None:
    """Two copies of k planes through the host, one after another: 10 us and 6 GB/s each."""
    lines = [line for line in found.tables["modelled"].lines if line[1] == "2"]
    for line in lines:
        k = int(str(line[3]))
        assert line[6] == pytest.approx(2 * (10 + k * 8 * 32 * 4 / 6e3) / k, abs=0.01)


def test_models_are_given_the_exchanges_of_the_run(found: Result) -> None:
    for line in found.tables["modelled"].lines[1:]:
        k, exchange = int(str(line[3])), float(line[6] or 0)
        plane = 256 * 8 / 120e3
        inner = sum((12 - step) * plane + 12 for step in range(1, k + 1))
        boundary = sum((k + 2 * (k - step)) * plane + 12 for step in range(1, k + 1))
        assert line[8] == pytest.approx((max(inner, k * exchange) + boundary) / k, abs=0.02)


def test_a_kernel_beside_the_models_of_a_kernel() -> None:
    kernel = measure_kernel(replace(SMALL, shape=(16, 8, 32)), target(M2050), AS_PUBLISHED, Effort.of(True, True))
    assert kernel.modelled["kawamura"] == pytest.approx(16 * 256 * 8 / 120e3 + 12)
    assert kernel.us > 12
    assert SMALL.as_published().planes == 24  # a block marches along all of Z
    assert Case(HIMENO, (8, 8, 32)).as_published().planes == 1  # a thread for each cell


def test_what_a_step_consists_of() -> None:
    """Two devices, one turn of two steps, by hand."""
    spans = (
        Span("step high border", "launch", ((0, 2),), 0, 10),
        Span("step", "launch", ((0, 0),), 5, 45),
        Span("step high border", "launch", ((0, 2),), 10, 16),
        Span("step", "launch", ((0, 0),), 45, 80),
        Span("step low border", "launch", ((1, 1),), 0, 12),
        Span("step", "launch", ((1, 0),), 5, 100),
        Span("u up, to the host", "copy", ((0, 3),), 16, 30),
        Span("u up, from the host", "copy", ((1, 3),), 30, 56),
    )
    point = parts_of(Timeline(spans, True), 2, 2)
    assert (point.step, point.inner, point.exchange, point.boundary) == pytest.approx((0.05, 0.0475, 0.02, 0.008))
    late = Span("u down", "copy", ((1, 4),), 40, 56)  # device 0 has sent before device 1 is ready
    assert parts_of(Timeline((*spans[:6], Span("u up", "copy", ((0, 3),), 16, 30), late), True), 2, 2).exchange == pytest.approx(0.008)


def test_fields_that_differ_are_an_error() -> None:
    run = SharedRun(SMALL.problem, SMALL.values(), targets=devices(M2050, 2), exchange_every=1, transport="host")
    with pytest.raises(LaunchError, match=r"seven_point on 24 x 8 x 32, 2 devices, exchanged every 1 steps: after 1 steps fields differ"):
        _timed(run, Effort.of(True, True), np.zeros(SMALL.shape, np.float32))


def test_one_device_says_what_was_not_run() -> None:
    result = run_with(target(M2050), Request(quick=True, only=("measured",)), Settings((SMALL,), 1))
    notes = [row.note for row in result.rows if row.metric == "not measured"]
    assert notes == ["not run: an exchange needs 2 devices, and emulator:m2050 is alone"]
    assert [line[:4] for line in result.tables["modelled"].lines] == [("7-point, 24 x 8 x 32", "1", "-", "1")]
    assert not any(name.startswith("fig_1") for name in result.figures)


def test_steps_that_reach_further_than_a_slab_are_left_out() -> None:
    run = measure(SMALL, devices(M2050, 24), (24,), "host", Effort.of(True, True))
    assert run.over_steps(24).keys() == {1}
    assert run.notes == ["24 devices: 2 steps reach further than a slab of 1 planes"]


def test_sizes_that_do_not_fit_are_noted() -> None:
    large = predict(Case(HIMENO, HIMENO_SIZES["XL"]), "kawamura", (1, 8))
    assert large.devices == (8,)
    assert large.notes[0].startswith("1 devices: nothing is left to predict. Left out: 1 device, because its fields need 14 GiB")


def run_of(times: dict[int, Point], models: dict[int, float]) -> Measured:
    points = {(2, k): point for k, point in times.items()}
    expected = {(2, k): Point(us, 0, 0, 0) for k, us in models.items()}
    return Measured(SMALL, "host", points, models={"kawamura": expected, "memlane": expected})


def test_each_number_of_steps_is_run_in_the_same_way() -> None:
    """An exchange that is overlapped in one run and not in the next would make their times depend on more than the number of steps."""
    case = Case(HIMENO, (64, 8, 32))
    effort = replace(Effort.of(True, True), every=(1, 2, 3))
    run = measure(case, devices(M2050, 2), (2,), "host", effort)
    assert all(run.points[2, k].boundary > 0 and run.behind[2, k].boundary == 0 for k in effort.every)
    for k in effort.every:  # two copies of k planes, one after another; what is sent up does not wait for what is sent down
        assert run.behind[2, k].exchange == pytest.approx(2 * (10 + k * 8 * 32 * 4 / 6e3) / k, abs=0.01)
        assert run.behind[2, k].step == pytest.approx(run.behind[2, k].inner + run.behind[2, k].exchange, rel=0.01)
    rows = rows_of([], [run], [], [], "modelled")
    (best,) = [row for row in rows if row.metric == "time of a step, best k, modelled" and "2 devices" in row.case]
    times = {(k, overlapped): run.step_us(2, k, overlapped) for k in effort.every for overlapped in (True, False)}
    assert best.value == round(min(times.values()), 2)
    assert times[run.fastest(2)] == min(times.values())
    assert best.note == ("" if run.fastest(2)[1] else "the exchange follows all planes")
    (chosen,) = [row for row in rows if row.metric.startswith("k and overlap chosen")]
    assert chosen.value == pytest.approx(times[run.expected_fastest(2)] / min(times.values()), abs=1e-4)


def test_what_is_lost_by_the_choice_of_a_model() -> None:
    run = run_of({1: Point(10, 4, 6, 3), 2: Point(8, 4, 3, 3), 3: Point(9, 4, 2, 3)}, {1: 10, 2: 9, 3: 7})
    assert (run.best(2), chosen_by(run, "kawamura", 2)) == (2, 3)
    assert lost_by_choice(run, "kawamura", 2) == pytest.approx(1 / 8)
    assert hidden_share(run, 2) == pytest.approx(10 / 9)
    said = {claim.found: claim.holds for claim in claims([], [run], [], True)}
    assert said["7-point, bound by communication: 2 or 3 steps are best"] == "yes"
    assert said["the model, given measured exchanges, finds the best number of steps though its times are off"] == "no"
    slower = run_of({1: Point(10, 8, 6, 3), 2: Point(8, 7, 3, 3)}, {1: 10, 2: 9})
    assert {claim.holds for claim in claims([], [slower], [], True) if "bound by computation" in claim.found} == {"no"}
    assert slope({2: 5.0, 10: 21.0}) == 2


def test_claims_are_about_runs_with_one_step_a_launch() -> None:
    """Two steps a launch make k = 2 the fastest, though bound by computation; with one step a launch, as in the paper, k = 1 is."""
    fused = run_of({1: Point(10, 8, 6, 1), 2: Point(7, 6, 3, 1)}, {1: 10, 2: 11})
    run = replace(fused, single={(2, 2): Point(12, 10, 3, 1)})
    text = "7-point, bound by computation: k = 1 is best"
    assert {claim.holds for claim in claims([], [fused], [], False) if claim.found == text} == {"no"}
    (claim,) = [claim for claim in claims([], [run], [], False) if claim.found == text]
    assert (claim.holds, claim.here) == ("yes", "inner 8.0, exchange 6.0 us; k = 1 to 2: 10.0, 12.0 us")
    rows = {row.metric: row for row in rows_of([], [replace(run, points={(1, 1): Point(18, 18, 0, 0), **run.points})], [], [], "measured")}
    assert rows["k chosen by model kawamura over the best, overlapped, measured"].value == 1
    assert rows["k chosen by model memlane over the best, overlapped, measured"].value == round(10 / 7, 4)
    assert rows["error of model kawamura, average"].peer == {"k = 1": 0, "k = 2": round(11 / 12 - 1, 4), "worst": round(1 - 11 / 12, 4)}
    best = rows["time of a step, best k, measured"]
    assert (best.value, best.peer["k = 2 us"], best.peer["k = 2 us, one step a launch"]) == (7, 7, 12)
    (figure,) = [one for name, one in figures([], [run], [], "measured").items() if name.startswith("fig_10_11")]
    (panel,) = figure.panels
    assert list(panel.series["measured, one step a launch"]) == [(1, 10), (2, 12)]


def test_parts_on_gpus_are_medians_of_timelines_after_the_timed_runs() -> None:
    """A first timeline may be several times too long: the clocks of a GPU rise, and its first launches load code."""

    class Timed:
        exchange_every, step = 2, 0
        targets = (1, 2)
        target = SimpleNamespace(modelled=False)
        asked: ClassVar[list[str]] = []

        def steps(self, count: int) -> Timed:
            self.asked.append(f"steps {count}")
            return self

        def timeline(self, steps: int) -> Timeline:
            self.asked.append("timeline")
            us = 50 if self.asked.count("timeline") == 1 else 8
            return Timeline((Span("step", "launch", ((0, 0),), 0, us * 1000 * steps), Span("step", "launch", ((1, 0),), 0, 1)), False)

    run = Timed()
    point = _timed(run, replace(Effort.of(True, False), rounds=3))  # type: ignore[arg-type]
    assert run.asked == ["steps 2", "steps 60", "steps 60", "steps 60", "steps 60", *["timeline"] * 5]
    assert point.inner == 8
    assert 0 < point.step < 1e3  # by the host's clock


@pytest.mark.slow
def test_both_regimes_show_on_emulated_m2050s() -> None:
    """The quick run: two devices are bound by computation, four by communication where a cell takes 8 bytes and not 88."""
    result = LABS["stencil"].run(target(M2050), Request(quick=True, only=("measured", "kernel")))
    assert not [row for row in result.rows if row.metric == "not measured"]
    assert {line[0] for line in result.tables["modelled"].lines} == {"7-point, 64 x 96 x 96", "himeno, 128 x 32 x 32"}
    bound = {line[3]: line[2] for line in result.tables["claims"].lines if "bound by" in str(line[2])}
    for by, claim in bound.items():
        assert ("communication" if "7-point" in str(by) and "4 devices" in str(by) else "computation") in str(claim)
    assert len(bound) == 4
    assert len(result.tables["modelled_kernels"].lines) == 4
    assert all(line[4] is not None and line[4] > 0 for line in result.tables["modelled_kernels"].lines)  # predicted


def test_sizes_and_devices_of_a_command_line() -> None:
    assert settings_of(("L", "7-point:512", "himeno:256x32x32", "64"), 3) == Settings(
        (Case(HIMENO, (512, 256, 256)), Case(SEVEN, (512,) * 3), Case(HIMENO, (256, 32, 32)), Case(SEVEN, (64,) * 3)), 3
    )
    assert counts(6) == (1, 2, 4, 6)
    assert [case.shape[1:] for case in Settings().sliced(target(M2050), quick=False)] == [(256, 256), (128, 128)]  # as in figure 14
    assert [case.shape[1:] for case in Settings().sliced(target(M2050), quick=True)] == [(96, 96), (32, 32)]
    for size in ("XXL", "5-point:64", "7-point:64x64", "4", "himeno:9999", "himeno:"):
        with pytest.raises(CommandError, match=rf"--size {size}: give S, M, L, XL for Himeno's sizes, or 8 to 2048 cells along each axis"):
            settings_of((size,), None)
    with pytest.raises(CommandError, match="--devices 0: give a number from 1 to 32"):
        settings_of((), 0)
    with pytest.raises(CommandError, match="--only speed: no such case; choose from: scaling, measured, kernel"):
        LABS["stencil"].run(target(M2050), Request(only=("speed",)))

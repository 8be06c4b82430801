"""`memlane lab`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from memlane.errors import LaunchError
from memlane.lab import result as results
from memlane.lab.bandwidth import lab as bandwidths
from tests.cli.conftest import Command


def test_a_quick_run_on_the_emulator(memlane: Command, tmp_path: Path) -> None:
    answer = memlane("lab", "latency", "--quick", "--only", "shared store", "--out", "found")
    assert answer.code == 0
    assert "latency, on emulator:h200, modelled; cycles" in answer.out
    assert "Wrote result.json, latency.csv" in answer.out
    assert "issue-only" in answer.out
    assert "--write-chip" not in answer.out  # nothing of a model belongs into a chip file
    stored = json.loads((tmp_path / "found" / "result.json").read_text())
    assert stored["chip"] == "emulator-h200"
    assert {row["case"] for row in stored["rows"]} == {"shared store", "dependent, shared store"}


def test_ctrl_c_leaves_what_was_measured(memlane: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(meter: object) -> NoReturn:
        raise KeyboardInterrupt

    first, second, *others = bandwidths._CASES
    monkeypatch.setattr(bandwidths, "_CASES", (first, replace(second, measure=interrupted), *others))
    answer = memlane("lab", "bandwidth", "--quick", "--out", "found")
    assert answer.code == 130
    assert "Wrote result.json" in answer.out
    assert answer.err.splitlines()[-2:] == [
        "not measured: device to pinned: interrupted, and cases after it were not begun",
        "memlane: interrupted; found has what was measured before",
    ]
    stored = json.loads((tmp_path / "found" / "result.json").read_text())
    assert {row["case"] for row in stored["rows"]} == {first.name, second.name}
    monkeypatch.setattr(bandwidths, "_CASES", (replace(first, measure=interrupted), *others))
    answer = memlane("lab", "bandwidth", "--quick", "--out", "nothing")
    said = "not measured: pinned to device: interrupted, and cases after it were not begun\n"
    assert (answer.code, answer.err) == (130, f"pinned to device ...\n{said}memlane: interrupted\n")
    assert not (tmp_path / "nothing").exists()


def test_ctrl_c_while_figures_are_drawn_leaves_the_results(memlane: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*of: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "draw", interrupted)
    answer = memlane("lab", "bandwidth", "--quick", "--only", "pinned to device", "--out", "found")
    said = "memlane: interrupted while files were written; found has the results, without all figures"
    assert (answer.code, answer.err.splitlines()[-1]) == (130, said)
    assert json.loads((tmp_path / "found" / "result.json").read_text())["rows"]
    assert (tmp_path / "found" / "bandwidth.csv").exists()


def test_a_lab_whose_cases_all_fail_says_so(memlane: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(meter: object) -> NoReturn:
        raise LaunchError("no memory")

    monkeypatch.setattr(bandwidths, "_CASES", (replace(bandwidths._CASES[0], measure=failed),))
    answer = memlane("lab", "bandwidth", "--quick", "--out", "found")
    assert (answer.code, answer.err.splitlines()[1:]) == (
        1,
        ["not measured: pinned to device: no memory", "memlane: no case could be measured; found/result.json says why"],
    )


def test_bad_input_is_told_before_anything_is_measured(memlane: Command) -> None:
    answer = memlane("lab", "latency", "--write-chip")
    assert (answer.code, answer.err) == (
        2,
        "memlane: --write-chip: the times of emulator:h200 come from its chip file; measure on a GPU: --target cuda:0\n",
    )
    answer = memlane("lab", "latency", "--only", "L4")
    assert answer.code == 2
    assert answer.err.startswith("memlane: --only L4: no such case; choose from: shared, L1")


def test_volume_takes_viewpoints_shapes_and_sizes(memlane: Command, tmp_path: Path) -> None:
    chosen = ("--view", "30,0,0", "--shape", "8x16", "--size", "8", "--image", "8", "--only", "image")
    answer = memlane("lab", "volume", "--quick", *chosen, "--out", "found")
    assert answer.code == 0
    assert "Wrote result.json, image_30_0_0.png to found" in answer.out
    stored = json.loads((tmp_path / "found" / "result.json").read_text())
    assert [row["case"] for row in stored["rows"]] == ["image, seen from (30, 0, 0)"]
    assert "--only image --view 30,0,0 --shape 8x16 --size 8 --image 8" in stored["command"]
    answer = memlane("lab", "volume", "--view", "90,90")
    assert (answer.code, answer.err) == (2, "memlane: --view 90,90: give three angles in degrees, about x, y and z, such as 90,0,90\n")


def test_reduction_takes_sizes_and_blocks(memlane: Command, tmp_path: Path) -> None:
    answer = memlane("lab", "reduction", "--quick", "--only", "beyond", "--size", "2^10", "--block", "64", "--out", "found")
    assert answer.code == 0
    stored = json.loads((tmp_path / "found" / "result.json").read_text())
    assert stored["rows"] == []  # ideas are measured on a GPU
    assert stored["command"].endswith("--quick --only beyond --size '2^10' --block 64")
    answer = memlane("lab", "reduction", "--block", "100")
    assert (answer.code, answer.err) == (2, "memlane: --block 100: blocks have 64, 128, 256, 512, 1024 threads\n")
    answer = memlane("lab", "reduction", "--size", "2^31")
    assert answer.err == "memlane: --size 2^31: give a number of elements from 16 to 2^30, such as 2^24 or 1000003\n"


def test_bandwidths_of_a_model_are_not_for_a_chip_file(memlane: Command, tmp_path: Path) -> None:
    answer = memlane("lab", "bandwidth", "--quick", "--only", "pinned to device;kernel to kernel", "--out", "found")
    assert answer.code == 0
    assert "bandwidth, on emulator:h200, modelled" in answer.out
    assert "Wrote result.json, bandwidth.csv" in answer.out
    assert "--write-chip" not in answer.out
    stored = json.loads((tmp_path / "found" / "result.json").read_text())
    assert {row["case"] for row in stored["rows"]} == {"pinned to device", "kernel to kernel"}
    answer = memlane("lab", "bandwidth", "--write-chip")
    assert answer.code == 2
    assert answer.err.startswith("memlane: --write-chip: the times of emulator:h200 come from its chip file; ")


def test_stencil_takes_sizes_and_devices(memlane: Command, tmp_path: Path) -> None:
    chosen = ("--only", "scaling", "--size", "S", "--devices", "2")
    answer = memlane("lab", "stencil", *chosen, "--target", "emulator:m2050", "--out", "found")
    assert answer.code == 0
    assert "predicted, on emulator:m2050, modelled" in answer.out
    stored = json.loads((tmp_path / "found" / "result.json").read_text())
    assert {row["case"].partition(" of ")[0] for row in stored["rows"]} >= {"himeno, 128 x 64 x 64, 2", "himeno, 128 x 64 x 64, 32"}
    assert stored["command"].endswith("--only scaling --size S --devices 2")
    answer = memlane("lab", "stencil", "--size", "huge")
    assert answer.code == 2
    assert answer.err.startswith("memlane: --size huge: give S, M, L, XL for Himeno's sizes, or 8 to 2048 cells along each axis, Z first")

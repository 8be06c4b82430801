"""`memlane fix`: on scripts and on single kernels, as text and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memlane.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FIX = ["fix", "--target", "emulator:h200"]
KERNEL = [str(EXAMPLES / "transpose.cu"), "--kernel", "tiled", "--grid", "1", "--block", "32,32"]
ARGUMENTS = ["--arg", "f4[32,32]", "--arg", "f4[32,32]=random:7", "--arg", "32:i4"]


def test_a_script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")  # which a table in a file need not heed: names stay whole, with their numbers behind them
    assert main([*FIX, str(EXAMPLES / "transpose.py"), "--", "64"]) == 0
    out = capsys.readouterr().out
    assert "tiled: tile on emulator:h200" in out
    rows = [line for line in out.splitlines() if line.startswith(("as it is ", "XorSwizzle(", "Padded(", "Skewed(", "RandomPermuteShift("))]
    tried = [line for line in rows if "makes" not in line]
    assert len(tried) >= 4
    assert all(re.match(r"(as it is|\w+\([^)]*\)( in the source)?)( \(other output\))?( +[\d,.]+){6}$", line) for line in tried), tried
    assert "\ntile[TILE][TILE + 1]   // line 23\n" in out
    assert "No bank conflicts in naive, padded: nothing to fix in shared memory." in " ".join(out.split())
    assert "by the emulator's model" in " ".join(out.split())


def test_one_kernel_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIX, *KERNEL, *ARGUMENTS, "--json", "--array", "tile", "--columns", "32"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["kernels"]) == ("fix", ["tiled"])
    (one,) = found["arrays"]
    assert (one["array"], one["element_bytes"], one["ideal_wavefronts"]) == ("tiled(float*, float const*, int)::tile", 4, 64)
    assert one["original"]["wavefronts"] == 32 * 33
    assert one["best"] in {layout["layout"] for layout in one["tried"] if layout["wavefronts"] == 64}
    assert "place(int i, int j)" in one["cuda"]
    assert all(layout["same_output"] for layout in one["tried"])
    assert any(layout["in_source"] for layout in one["tried"])
    assert all(layout["layout_alone"] is None for layout in one["tried"])  # a padding in the source is not rewritten


def test_json_tells_what_a_layout_gains_without_the_instructions_of_rewriting(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = [str(EXAMPLES / "ptx" / "transpose.ptx"), *KERNEL[1:]]
    assert main([*FIX, *kernel, *ARGUMENTS, "--json", "--array", "tile", "--columns", "32"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["arrays"]
    alone = {layout["layout"]: layout for layout in one["tried"] if layout["layout_alone"] is not None}
    assert {name.partition("(")[0] for name in alone} == {"Padded"}
    assert all(layout["layout_alone"] > layout["times_as_fast"] and not layout["in_source"] for layout in alone.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--columns", "0"], "--columns 0: it must be at least 1"),
        (["--launch", "3"], "made one launch, number 0; there is no launch 3"),
        (["--array", "rows"], "no shared array 'rows' in tiled(float*, float const*, int); it has: tiled(float*, float const*, int)::tile"),
    ],
)
def test_what_cannot_be(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIX, *KERNEL, *ARGUMENTS, *options]) != 0
    assert message in capsys.readouterr().err


def test_extents_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIX, *KERNEL, *ARGUMENTS, "--columns", "5000"]) == 0
    assert "could be tried" in capsys.readouterr().out

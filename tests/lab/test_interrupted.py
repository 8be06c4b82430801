"""Labs that Ctrl-C ends, or in which a case fails: what was measured before is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlane.errors import LaunchError
from memlane.lab import LABS, Request, machine
from memlane.lab.interface import Cases
from memlane.lab.result import NOT_MEASURED, problems
from memlane.targets import target

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("lab", "only", "at", "kept", "broken"),
    [
        ("bandwidth", (), 2, {"pinned to device"}, "device to pinned"),
        ("stencil", ("scaling", "measured"), 3, set(), "7-point, 64 x 96 x 96, host"),
        ("volume", ("image", "frequency"), 2, {"image, seen from (0, 0, 0)"}, "hit rates of the texture cache"),
        pytest.param("volume", ("frequency",), 5, {"(0, 0, 0), 1x128"}, "(0, 0, 0), 4x32", marks=SLOW),
        pytest.param("latency", (), 3, {"shared"}, "L1", marks=SLOW),
        pytest.param("reduction", ("ladder", "reasons"), 3, set(), "reasons", marks=SLOW),
        pytest.param("remap", (), 2, {"k-means, 512"}, "Needleman-Wunsch, 16", marks=SLOW),
        pytest.param("shift", ("contiguous", "stride", "diagonal"), 3, set(), "diagonal", marks=SLOW),
    ],
)
def test_an_interrupted_lab_keeps_what_it_has_measured(
    lab: str, only: tuple[str, ...], at: int, kept: set[str], broken: str, tmp_path: Path
) -> None:
    """Ctrl-C comes while case number `at` begins."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == at:
            raise KeyboardInterrupt

    chip = target("emulator:m2050" if lab == "stencil" else "emulator:h200")
    result = LABS[lab].run(chip, Request(True, only, tell))
    assert result.interrupted
    assert len(told) == at
    (row,) = [row for row in result.rows if "interrupted" in row.note]
    assert (row.case, row.metric, row.value, row.holds) == (broken, NOT_MEASURED, None, False)
    measured = {row.case for row in result.rows if row.metric != NOT_MEASURED}
    assert kept <= measured
    assert measured
    result.save(tmp_path, machine(chip), ["memlane", "lab", lab])
    assert problems(json.loads((tmp_path / "result.json").read_text())) == []


def test_a_case_that_fails_leaves_the_others() -> None:
    cases, measured = Cases(), []
    for name in cases.each("abcd"):
        with cases.measuring(name):
            if name == "b":
                raise LaunchError("no room")
            if name == "c":
                raise KeyboardInterrupt
            measured.append(name)
    assert (measured, cases.interrupted) == (["a"], True)
    assert [(row.case, row.note) for row in cases.failed] == [("b", "no room"), ("c", "interrupted, and cases after it were not begun")]

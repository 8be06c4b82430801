"""`memlane predict`: a column for each chip, the reasons, JSON, and what it says to bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memlane.cli import main

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "copies.py")


def test_a_column_for_each_chip_and_a_reason_for_each_launch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", EXAMPLE, "--chip", "h200,a100", "--launch", "1", "--", "65536"]) == 0
    out = capsys.readouterr().out
    assert [name for name in ("h200", "a100") if name not in out.splitlines()[1]] == []
    assert [words for words in ("vectors", "limited by", "busy: ", "warps: ", "Not modelled: ") if words not in out] == []


def test_a_chip_that_cannot_run_a_launch_has_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    transpose = str(Path(EXAMPLE).with_name("transpose.py"))
    assert main(["predict", transpose, "--chip", "s1070,a100", "--launch", "2", "--", "64"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "s1070: block.y is 32" in out or "s1070: a block of" in out
    assert "a100:" in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", EXAMPLE, "--launch", "0", "--json", "--", "65536"]) == 0
    document = json.loads(capsys.readouterr().out)
    (launch,) = document["launches"]
    assert document["kind"] == "predictions"
    assert launch["predictions"][0]["chip"] == "h200"
    assert launch["predictions"][0]["us"] > 3


def test_an_unknown_chip_is_said_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", EXAMPLE, "--chip", "h200,h300"]) == 2
    assert "unknown chip 'h300'" in capsys.readouterr().err

"""The examples that a user would copy run as they stand."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("script", "shown"), [("upload.py", "split_structures"), ("stream.py", "upload 7")], ids=["particles as arrays", "an array in a file"]
)
def test_an_example_of_uploads_runs(script: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / script
    monkeypatch.setattr(sys, "argv", [str(path), "1024"])
    runpy.run_path(str(path), run_name="__main__")
    assert shown in capsys.readouterr().out

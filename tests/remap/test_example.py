"""The example that a user would copy runs as it stands."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "upload.py"


def test_the_example_uploads_particles_as_arrays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "1024"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "split_structures" in capsys.readouterr().out

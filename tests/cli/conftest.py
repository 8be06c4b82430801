"""Running the command line in the test's own directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from memlane.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Of standard output."""
        return self.out.splitlines()


Command = Callable[..., Answer]


@pytest.fixture
def memlane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`memlane("trace", path, ...)` runs the command line, without a GPU and in an empty directory; 120 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLANE_TARGET", "emulator:h200")
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: object) -> Answer:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of the transposes, made once; to be read only."""
    path = tmp_path_factory.mktemp("record") / "transpose.parquet"
    assert main(["trace", str(EXAMPLES / "transpose.py"), "--target", "emulator:h200", "--output", str(path), "--", "64"]) == 0
    return path


@pytest.fixture
def record(memlane: Command, recorded: Path) -> str:
    """A copy of it in the working directory."""
    return shutil.copy(recorded, "transpose.parquet")

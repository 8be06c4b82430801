"""The README shows what the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.cli import main

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- demo:begin -->\n", "<!-- demo:end -->"


def test_the_demo_in_the_readme_is_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition(BEGIN)[2].partition(END)[0].removeprefix("```\n").removesuffix("```\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["trace", str(ROOT / "examples" / "transpose.py"), "--target", "emulator:h200"]) == 0
    assert main(["explain", "transpose.parquet"]) == 0
    printed = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    lines = [line for line in shown.splitlines() if line.strip() not in ("", "...")]
    assert len(lines) > 10
    assert [line for line in lines if line.rstrip() not in printed] == []

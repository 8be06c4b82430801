"""The page on the checker shows what the command prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from memlane.cli import main

PAGE = Path(__file__).resolve().parent.parent / "docs" / "checker.md"
BEGIN, END = "<!-- checker:begin -->\n```\n$ memlane ", "\n```\n<!-- checker:end -->"


def test_the_output_on_the_page_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    program = page.partition("```cuda\n")[2].partition("```")[0]
    command, _, shown = page.partition(BEGIN)[2].partition(END)[0].partition("\n")
    (tmp_path / "average.cu").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("MEMLANE_TARGET", raising=False)
    assert main(shlex.split(command)) == 1
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.splitlines()

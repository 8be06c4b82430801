"""The README shows what the commands print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- demo:begin -->\n", "<!-- demo:end -->"


def printed(folder: Path, *command: str) -> str:
    """By a process of its own: modelled cycles depend on what a target has run before."""
    environment = {**os.environ, "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-m", "memlane", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_in_the_readme_is_what_the_commands_print(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition(BEGIN)[2].partition(END)[0].removeprefix("```\n").removesuffix("```\n")
    trace = printed(tmp_path, "trace", str(ROOT / "examples" / "transpose.py"), "--target", "emulator:h200")
    explained = printed(tmp_path, "explain", "transpose.parquet")
    found = {line.rstrip() for line in (trace + explained).splitlines()}
    lines = [line for line in shown.splitlines() if line.strip() not in ("", "...")]
    assert len(lines) > 10
    assert lines[0].startswith("1. "), "the first screen leads to a finding"
    assert [line for line in lines if line.rstrip() not in found] == []

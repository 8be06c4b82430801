"""Makes the benchmark scripts importable, and runs them as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.fixture
def quick(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """`quick("counts", "transpose")` runs one case small on the emulator and gives the rows of its result file."""

    def run(benchmark: str, case: str) -> list[dict[str, Any]]:
        command = [sys.executable, f"benchmarks/{benchmark}.py", "--target", "emulator:h200", "--quick"]
        command += ["--case", case, "--out", str(tmp_path)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600)
        rows: list[dict[str, Any]] = json.loads((tmp_path / f"{benchmark}.json").read_text())["rows"]
        return rows

    return run

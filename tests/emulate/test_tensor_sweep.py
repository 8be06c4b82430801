"""The sweep over copies of boxes that a GPU is asked for, on the emulator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.emulate.running import emulator
from tests.gpu.tensor_trials import SAME, trials


def test_what_is_provoked_is_refused_and_the_rest_is_the_same() -> None:
    """Of some classes the first: those whose kernels other tests compile too."""
    listed = trials()
    provoked = [number for number, trial in enumerate(listed) if trial.error]
    assert len(provoked) == 8
    first = {trial.group: trial for trial in reversed(listed)}
    target = emulator()
    for group in ("none", "load, plain, 2d", "store, plain, 2d", "load, filled with nan", "swizzle by address"):
        assert first[group].run(target).startswith(SAME), group
    command = [sys.executable, "-m", "tests.gpu.tensor_sweep", "--target", "emulator", "--from", str(provoked[0]), "--to", str(len(listed))]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"begin {provoked[0]}\nerror {provoked[0]} kernel load"), done.stdout
    assert "a box that begins 4 bytes into a row (x is 1)" in done.stdout

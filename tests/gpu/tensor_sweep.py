"""What a GPU does with copies of boxes by tensor maps, simplest first, a line for each copy.

    python -m tests.gpu.tensor_sweep                      on the first GPU, a minute at most
    python -m tests.gpu.tensor_sweep --target emulator    the same without one

A fault ends everything in its process, so copies run in processes, one after another and none longer than 8 seconds: one runs until a copy
fails, then the next begins with the next class of copies, after a kernel without tensor maps has shown that the GPU is well. The first that
fails runs again under `compute-sanitizer`, if there is one. What is compared with is NumPy, so that nothing is compiled but kernels.

Predicted: all copies are the same, and those that are provoked at the end fail with the error that stands there. Of what is `unknown`
nothing is predicted; `same` there means as the emulator has it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from memlane.errors import MemlaneError
from memlane.launch import Target
from memlane.targets import target as open_target
from tests.gpu.tensor_trials import SAME, UNKNOWN, Trial, trials

LIMIT_S, TURN_S, BUDGET_S = 8.0, 3.0, 56.0
"""Of a process, how long it begins new trials, and of all together."""
FIRST_LIMIT_S, SANITIZER_LIMIT_S = 20.0, 15.0
"""Of the process that loads the driver for the first time, and of the one under the sanitizer."""


def run_from(first: int, last: int, target: Target) -> int:
    """Runs trials until one fails or the time of a process is spent, and prints for each its number and what it said."""
    listed, begun = trials()[first:last], time.monotonic()
    for number, trial in enumerate(listed, first):
        if number > first and time.monotonic() - begun > TURN_S:
            break
        print(f"begin {number}", flush=True)
        try:
            said = trial.run(target)
        except MemlaneError as error:
            name = re.search(r"CUDA_ERROR_\w+", str(error))
            print(f"error {number} {name[0] if name else error}", flush=True)
            return 1
        print(f"ended {number} {said}", flush=True)
    return 0


@dataclass
class Sweep:
    """The processes of one run. `spent` tells the time since it began."""

    target: str
    spent: Callable[[], float]
    sanitized: bool = False
    unexpected: int = 0

    def run(self) -> int:
        listed = trials()
        number = self._process(listed, 0, 1, FIRST_LIMIT_S)[0] + 1
        while number < len(listed):
            if self.spent() > BUDGET_S - LIMIT_S:
                print(f"no time left for {len(listed) - number} more")
                return 1
            trial = listed[number]
            end = number + 1 if trial.is_alone else next((at for at, one in enumerate(listed) if one.is_alone and at > number), len(listed))
            reached, failed = self._process(listed, number, end)
            number = reached + 1
            if not failed:
                continue
            trial = listed[reached]
            if not trial.is_alone:
                self._sanitize(reached)
                number = next((at for at, one in enumerate(listed) if at > reached and one.group != trial.group), len(listed))
                print(f"  left out: {number - reached - 1} more of {trial.group!r}")
                self._process(listed, 0, 1)
        print(f"{self.unexpected} not as predicted, {self.spent():.0f} s")
        return int(self.unexpected > 0)

    def _process(self, listed: list[Trial], first: int, last: int, limit_s: float = LIMIT_S) -> tuple[int, bool]:
        """Runs trials in a process; returns the number of the last that began, and whether it failed."""
        command = [sys.executable, "-m", "tests.gpu.tensor_sweep", "--target", self.target, "--from", str(first), "--to", str(last)]
        output = _output_of(command, limit_s)
        reached, failed, over = first, "no trial", False
        for line in output.splitlines():
            word, _, rest = line.partition(" ")
            if word not in ("begin", "ended", "error") or not rest[:1].isdigit():
                continue
            reached, said = int(rest.split(" ", 1)[0]), rest.partition(" ")[2]
            failed = "" if word == "ended" else said or "did not end"
            if word != "begin":
                over = word == "error"
                self._print(listed[reached], said)
        if failed and not over and reached > first:
            return reached - 1, False  # it had less than the whole time: once more, in a process of its own
        if failed and not over:
            last_line = output.strip().splitlines()[-1:] or ["nothing"]
            self._print(listed[reached], f"{failed} within {limit_s:.0f} s or its process broke: {last_line[0][:200]}")
        return reached, bool(failed)

    def _print(self, trial: Trial, said: str) -> None:
        wanted = trial.error or SAME
        on_gpu = self.target.startswith("cuda")
        right = said.startswith(wanted) if on_gpu or not trial.error else not said.startswith(SAME)
        self.unexpected += not right and trial.group != UNKNOWN
        print(f"{'as predicted' if right else 'NOT PREDICTED'} | {trial.group} | {trial.label} | {said[:300]}", flush=True)

    def _sanitize(self, number: int) -> None:
        tool = shutil.which("compute-sanitizer") or next(map(str, Path("/usr/local/cuda/bin").glob("compute-sanitizer")), None)
        if self.sanitized or tool is None or self.spent() > BUDGET_S - SANITIZER_LIMIT_S:
            return
        self.sanitized = True
        command = [
            tool,
            sys.executable,
            "-m",
            "tests.gpu.tensor_sweep",
            "--target",
            self.target,
            "--from",
            str(number),
            "--to",
            str(number + 1),
        ]
        lines = [line for line in _output_of(command, SANITIZER_LIMIT_S).splitlines() if line.startswith("=") and "Host Frame" not in line]
        print("\n".join(f"  {line}" for line in lines[:10]), flush=True)


def _output_of(command: list[str], limit_s: float) -> str:
    """What a process writes until it ends, or has to."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as late:
        written = late.stdout or b""
        return written.decode(errors="replace") if isinstance(written, bytes) else written
    return done.stdout


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--target", default="cuda:0")
    options.add_argument("--from", dest="first", type=int)
    options.add_argument("--to", dest="last", type=int)
    chosen = options.parse_args()
    if chosen.first is not None:
        return run_from(chosen.first, chosen.last, open_target(chosen.target))
    if chosen.target.startswith("cuda"):
        from cuda.bindings import nvjitlink

        print(f"nvJitLink {'.'.join(map(str, nvjitlink.version()))}", flush=True)
    begun = time.monotonic()
    return Sweep(chosen.target, lambda: time.monotonic() - begun).run()


if __name__ == "__main__":
    raise SystemExit(main())

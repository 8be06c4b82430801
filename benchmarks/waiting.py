"""Time how long `count`, `trace` and `fix` of an unrolled kernel take: the first time, and again.

The kernel is `benchmarks/kernels/bitonic.cu`, `bitonic<float, 512>`, some 900 instructions of PTX in 330 basic blocks, in 4 blocks of 256
threads on an emulated H200. The first time the store of machine code is empty; the second command is the same again. Memlane's own modules
are compiled to bytecode before, as where it is installed. Times are those of the processor, of the command and the processes that it
starts, the least of several rounds.

Prediction: a first count takes 4.5 s, of which LLVM has 3; a first trace 17 s, for LLVM selects the instructions of 200,000 lines; a first
fix 22 s, for 12 kernels are compiled. Again: 1.3 s, 2.8 s and 5 s. So none of the reaches is met.

    python benchmarks/waiting.py
    python benchmarks/waiting.py --case count
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import ROOT, Row
from running import measure, parser

SOURCES = [
    "src/memlane/cli",
    "src/memlane/emulate",
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/measure",
    "src/memlane/optimize",
    "src/memlane/ptx",
    "benchmarks/waiting.py",
    "benchmarks/kernels/bitonic.cu",
]
COMMANDS = ("count", "trace", "fix")
Kernel = tuple[str, int, int, int]
"""Its name, blocks, threads of each, and keys."""
LARGE: Kernel = ("bitonic<float,512>", 4, 256, 2048)
SMALL: Kernel = ("bitonic<float,32>", 1, 16, 32)
REACH_S = {"first": 3.0, "again": 1.0}
ROUNDS = {"first": 1, "again": 3}
WHY = {
    ("count", "first"): "LLVM takes most: the functions of the runtime, each once for a machine, and the kernel",
    ("trace", "first"): "LLVM selects instructions for 200,000 lines, the scoreboard and the probes of each instruction in line",
    ("fix", "first"): "the kernel is compiled for each layout, with the clock",
    ("count", "again"): "most of it is the start of Python and its libraries, and the CUDA compiler",
    ("trace", "again"): "the probes are put in again, and the module with them is checked again",
    ("fix", "again"): "the layouts are put into the kernel again, and searched for again",
}


class Bench:
    """A folder for a command, with a store of machine code and bytecode of its own."""

    def __init__(self, folder: Path, name: str, quick: bool) -> None:
        self._name, self._folder, self._kernel = name, folder, SMALL if quick else LARGE
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "MEMLANE_CACHE")}
        self._environment = {**(dict(os.environ) if quick else kept), "PYTHONPATH": str(ROOT / "src")}
        if not quick:
            self._environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")

    def seconds(self, store: str, kernel: Kernel | None = None) -> float:
        """Return the processor time of the command with a cache of this name. Raises RuntimeError if it fails."""
        environment = {**self._environment, "MEMLANE_CACHE_DIR": str(self._folder / store)}
        kernel_name, blocks, threads, keys = kernel or self._kernel
        command = [sys.executable, "-m", "memlane", self._name, str(ROOT / "benchmarks" / "kernels" / "bitonic.cu"), "-k", kernel_name]
        command += ["--grid", str(blocks), "--block", str(threads), "--arg", f"f4[{keys}]=random:1", "--target", "emulator:h200"]
        command += ["-o", "trace.parquet", "--force"] if self._name == "trace" else []
        with (self._folder / "said").open("w+") as said:
            process = subprocess.Popen(command, env=environment, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=said)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read()
        if process.returncode:
            raise RuntimeError(text.strip().rpartition("\n")[2])
        return usage.ru_utime + usage.ru_stime


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Time the first run and a repeated one."""
    with tempfile.TemporaryDirectory() as made:
        bench = Bench(Path(made), name, options.quick)
        rounds = {when: 1 if options.quick else number for when, number in ROUNDS.items()}
        if not options.quick:
            bench.seconds("other", kernel=SMALL)  # Now bytecode is there, as where memlane is installed.
        first = min(bench.seconds(f"store{number}") for number in range(rounds["first"]))
        again = min(bench.seconds("store0") for _ in range(rounds["again"]))
    return [row_of(name, "first", first), row_of(name, "again", again)]


def row_of(name: str, when: str, seconds: float) -> Row:
    reach = REACH_S[when]
    return Row(name, f"{when}, processor time", round(seconds, 2), "s", reach, note="" if seconds <= reach else WHY[name, when])


def main() -> None:
    measure("waiting", COMMANDS, run_case, parser(__doc__, "emulator:h200").parse_args())


if __name__ == "__main__":
    main()

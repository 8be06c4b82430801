"""How fast are the emulator, the parser and the commands, on one core of this machine, and beside other ways to run a kernel on a CPU?

A *thread-instruction* is one PTX instruction executed by one active lane whose guard is true; the counting layer counts them, and a
launch without it does the same work, so its rate is theirs over its own wall time. Compile times are left out of the rates and measured
alone, each in a process of its own. Every timing is the best of a few rounds, and what is compared takes turns within a round: others on
the machine can only slow a run down.

The peers compute the same product at a size that they finish, so what is shown of them is the number of thread-instructions that this
product takes in PTX, at that size, over their own time.

Prediction: on the tiled matrix product of 512 x 512 a thousand million thread-instructions a second without layers, 300 million with
counts, 100 million with counts and clock, 100 million with the checker, the median over all examples at least a third of that; a tenth of
a product's rate for the divergent product of a sparse matrix; 1.8 times as fast on two cores; Numba's simulator slower by three orders of
magnitude, Triton's interpreter by two, NumPy's product faster by ten; the first launch of 300 instructions within 1 s and of 5,000 within
15 s, from the store of machine code within 0.1 s and 0.5 s; 2^26 threads need no more memory than 2^20; a PTX module of 20,000 lines parsed
in under 2 s; `import memlane` in under 0.3 s; `memlane trace examples/transpose.py` at 1024 x 1024 in under 20 s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from first_launch import module_text, synthetic
from harness import ROOT, Row, interleaved
from peers import seconds_of
from replay import each_launch
from running import EXAMPLES, example, example_arguments, measure, parser

from memlane.emulate import Emulator
from memlane.launch import Launch, Layers, Observation
from memlane.ptx import parse

SOURCES = [
    "src/memlane",
    "examples",
    "benchmarks/emulator.py",
    "benchmarks/first_launch.py",
    "benchmarks/peers.py",
    "benchmarks/replay.py",
    "benchmarks/resident.py",
]

REACHES = {
    "function only": (1000e6, Layers()),
    "with counts": (300e6, Layers(counts=True)),
    "with counts and clock": (100e6, Layers(counts=True, clock=True)),
    "with checker": (100e6, Layers(check=True)),
}
FIRST_LAUNCHES = {300: (1.0, 0.1), 5000: (15.0, 0.5)}
"""Instructions to seconds: compiled, and from the store of machine code."""
PEERS = {"Numba's simulator": (16, 32), "Triton's interpreter": (16, 128), "NumPy": (16, 512)}
"""The size of the product, quick and else."""
IMPORT = "import time; t = time.perf_counter(); import memlane; print(time.perf_counter() - t)"


def best(repeats: int, action: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some runs."""
    return min(seconds(action) for _ in range(repeats))


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds of one run."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


# -- rates ---------------------------------------------------------------------------------------------------------------------


def thread_instructions(launch: Launch) -> int:
    """Return the thread instructions of one launch."""
    seen: list[Observation] = []
    launch.kernel.target.launch(replace(launch, layers=Layers(counts=True, report=seen.append)))
    count = seen[0].thread_instructions
    if count is None:
        raise RuntimeError("the emulator did not say how many instructions it executed")
    return count


def on_cores(launch: Launch, cores: int) -> Launch:
    """Return the launch after setting the number of cores of its emulator."""
    where = launch.kernel.target
    if not isinstance(where, Emulator):
        raise SystemExit(f"this measures the emulator, not {where.name}; give --target emulator:h200")
    where.state.threads = cores
    return launch


def again(launch: Launch) -> Callable[[], float]:
    """Return a function that measures the launch again."""
    return lambda: seconds(lambda: launch.kernel.target.launch(launch))


def rates(name: str, arguments: list[str], where: str, rounds: int, only: str | None = None) -> dict[str, float]:
    """Return the thread instructions per second by choice of layers, on one core, over all launches of an example or of one kernel."""
    spent = dict.fromkeys(REACHES, 0.0)
    executed = 0

    def visit(number: int, launch: Launch) -> None:
        nonlocal executed
        if only is not None and only not in launch.kernel.title:
            return
        executed += thread_instructions(on_cores(launch, 1))
        runs = {way: again(replace(launch, layers=layers)) for way, (_, layers) in REACHES.items()}
        interleaved(1, runs)  # compiles
        for way, times in interleaved(rounds, runs).items():
            spent[way] += min(times)

    each_launch(example(name), arguments, where, visit)
    return {way: executed / time_spent for way, time_spent in spent.items()}


def matrix_product(options: argparse.Namespace) -> list[Row]:
    n = 64 if options.quick else 512
    found = rates("matmul", [str(n)], options.target, 3)
    return [_rate(f"matrix product, n = {n}", way, found[way], None if options.quick else REACHES[way][0], processor()) for way in REACHES]


def sparse_product(options: argparse.Namespace) -> list[Row]:
    n = 128 if options.quick else 65536
    found = rates("spmv", [str(n)], options.target, 3, "csr_scalar")
    note = "a thread for each row, whose lengths differ: every lane goes its own way to its end"
    return [_rate(f"sparse matrix times vector, {n} rows", way, found[way], None, note) for way in REACHES]


def all_examples(options: argparse.Namespace) -> list[Row]:
    found = {name: rates(name, example_arguments(name, options.quick), options.target, 3) for name in EXAMPLES}
    rows = []
    for way, (reach, _) in REACHES.items():
        each = {name: float(round(rate[way])) for name, rate in found.items()}
        row = _rate("median of the examples", way, statistics.median(each.values()), None if options.quick else reach / 3)
        rows.append(replace(row, peer=each))
    return rows


def _rate(case: str, way: str, value: float, reach: float | None, note: str = "") -> Row:
    return Row(case, f"thread-instructions, {way}", round(value), "1/s", reach, "higher", note=note)


def processor() -> str:
    """Return the processor of this machine, as far as it tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    vectors = next((name for name in ("avx512f", "avx2", "asimd") if name in facts.get("flags", facts.get("Features", "")).split()), "")
    return ", ".join(filter(None, [facts.get("model name", platform.machine()), vectors, "one core"]))


def two_cores(options: argparse.Namespace) -> list[Row]:
    n = 64 if options.quick else 512
    times: dict[str, list[float]] = {}

    def visit(number: int, launch: Launch) -> None:
        def run(cores: int) -> Callable[[], float]:
            return lambda: again(on_cores(launch, cores))()

        runs = {"one": run(1), "two": run(2)}
        interleaved(1, runs)
        times.update(interleaved(3 if options.quick else 9, runs))

    case, metric = f"matrix product, n = {n}, function only", "rate on two cores over rate on one"
    if (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) < 2:
        return [Row(case, metric, None, "", better="higher", note="this process has one core")]
    each_launch(example("matmul"), [str(n)], options.target, visit)
    value = min(times["one"]) / min(times["two"])
    return [Row(case, metric, round(value, 3), "", None if options.quick else 1.8, "higher", note="the best of some rounds each, in turn")]


def peers(options: argparse.Namespace) -> list[Row]:
    """Compare each peer with the emulator at the same size."""
    rows = []
    for name, (small, whole) in PEERS.items():
        n = small if options.quick else whole
        ours: dict[str, float] = {}

        def visit(number: int, launch: Launch, ours: dict[str, float] = ours) -> None:
            ours["executed"] = thread_instructions(on_cores(launch, 1))
            again(launch)()
            ours["seconds"] = min(again(launch)() for _ in range(3))

        each_launch(example("matmul"), [str(n)], options.target, visit)
        theirs, problem = seconds_of(name, n, 1 if options.quick else 3)
        case, metric = f"matrix product, n = {n}", f"thread-instructions of the PTX over the time of {name}"
        if theirs is None:
            rows.append(Row(case, metric, None, "1/s", better="higher", note=problem))
            continue
        peer = {"seconds": theirs, "seconds of the emulator": ours["seconds"], "the emulator is faster by": theirs / ours["seconds"]}
        rows.append(Row(case, metric, round(ours["executed"] / theirs), "1/s", None, "higher", peer=peer))
    return rows


# -- compiling, memory and parsing ---------------------------------------------------------------------------------------------


def compiling(options: argparse.Namespace) -> list[Row]:
    """Time first launches in new processes, alternately with an empty cache of machine code and with one that the previous run filled."""
    rows = []
    for wanted in [300] if options.quick else FIRST_LAUNCHES:
        found: list[dict[str, dict[str, float]]] = []
        for _ in range(1 if options.quick else 3):
            with tempfile.TemporaryDirectory() as folder:
                found.append({state: first_launch(wanted, options.target, folder) for state in ("compiled", "from the store")})
        for state, reach in zip(("compiled", "from the store"), FIRST_LAUNCHES[wanted], strict=True):
            times = [pair[state]["first"] for pair in found]
            peer = {"second launch, s": round(min(pair[state]["second"] for pair in found), 4), "longest, s": round(max(times), 3)}
            case = f"kernel of {found[0][state]['instructions']:.0f} instructions"
            limit = None if options.quick else reach
            rows.append(Row(case, f"first launch, {state}", round(statistics.median(times), 4), "s", limit, peer=peer))
    return rows


def first_launch(instructions: int, where: str, folder: str) -> dict[str, float]:
    """Return the output of `first_launch.py`, run in a process that caches machine code in `folder`."""
    command = [sys.executable, str(ROOT / "benchmarks" / "first_launch.py"), str(instructions), where]
    environment = {**os.environ, "MEMLANE_CACHE_DIR": folder, "MEMLANE_CACHE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def memory(options: argparse.Namespace) -> list[Row]:
    few, many = (1 << 10, 1 << 14) if options.quick else (1 << 20, 1 << 26)
    runs = {str(threads): lambda threads=threads: peak_bytes(threads, options.target) for threads in (few, many)}  # type: ignore[misc]
    runs[str(few)]()  # fills the store of machine code: what a compiler needs is no state of a launch
    peaks = {name: statistics.median(values) for name, values in interleaved(1 if options.quick else 3, runs).items()}
    case, metric = f"launches of {few:,} and of {many:,} threads", "more memory at most for the larger one"
    if not all(peaks.values()):
        return [Row(case, metric, None, "MB", note="this system does not tell how much memory a process needed")]
    few_mb, many_mb = (value / 1e6 for value in peaks.values())
    peer = {"the smaller, MB": round(few_mb, 1), "the larger, MB": round(many_mb, 1)}
    return [Row(case, metric, round(many_mb - few_mb, 2), "MB", None if options.quick else 4.0, peer=peer)]


def peak_bytes(threads: int, where: str) -> float:
    """Return the peak memory that `resident.py` prints; 0 if it prints none."""
    command = [sys.executable, str(ROOT / "benchmarks" / "resident.py"), str(threads), where]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout or 0)


def parsing(options: argparse.Namespace) -> list[Row]:
    wanted = 2_000 if options.quick else 20_000
    kernels: list[str] = []
    while sum(kernel.count("\n") for kernel in kernels) < wanted:
        kernels.append(synthetic(400, f"kernel_{len(kernels)}", 1000 * len(kernels)))
    text = module_text(*kernels)
    lines = text.count("\n") + 1
    spent = best(1 if options.quick else 3, lambda: parse(text, "synthetic.ptx"))
    return [Row(f"PTX module of {lines} lines", "parse", round(spent, 3), "s", None if options.quick else 2.0)]


# -- commands ------------------------------------------------------------------------------------------------------------------


def importing(options: argparse.Namespace) -> list[Row]:
    runs = [
        float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout)
        for _ in range(1 if options.quick else 5)
    ]
    note = "in a fresh process, median of several"
    return [Row("import memlane", "import", round(statistics.median(runs), 4), "s", None if options.quick else 0.3, note=note)]


def tracing(options: argparse.Namespace) -> list[Row]:
    n = 64 if options.quick else 1024
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "transpose.parquet"
        command = [
            sys.executable,
            "-m",
            "memlane",
            "trace",
            "examples/transpose.py",
            "--target",
            options.target,
            "-o",
            str(output),
            "--",
            str(n),
        ]
        spent = best(1, lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True))
        size = output.stat().st_size
    note = "whole command, compilation of the kernels included"
    peer = {"record file, MB": round(size / 1e6, 2)}
    return [
        Row(
            f"memlane trace examples/transpose.py, n = {n}",
            "wall time",
            round(spent, 2),
            "s",
            None if options.quick else 20.0,
            peer=peer,
            note=note,
        )
    ]


CASES: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "matrix product": matrix_product,
    "examples": all_examples,
    "sparse product": sparse_product,
    "two cores": two_cores,
    "peers": peers,
    "compiling": compiling,
    "memory": memory,
    "parsing": parsing,
    "importing": importing,
    "tracing": tracing,
}


def main() -> None:
    options = parser(__doc__, "emulator:h200").parse_args()
    measure("emulator", list(CASES), lambda name, options: CASES[name](options), options)


if __name__ == "__main__":
    main()

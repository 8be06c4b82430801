"""How fast are the emulator, the parser and the commands, on one core of this machine?

A *thread-instruction* is one PTX instruction executed by one active lane whose guard is true; the counting layer counts them, and a
launch without it does the same work, so its rate is theirs over its own wall time. Compile times are left out of the rates and measured
alone, on kernels of straight-line code with branches and memory accesses mixed in. Every timing is the best of a few runs: others on the
machine can only slow it down.

Prediction: 300 million thread-instructions a second on the tiled matrix product of 512 x 512 without counts and 100 million with, the
median over all examples at least a third of that; about 5 ms of compile time an instruction (1.5 s at 300, 25 s at 5,000); a PTX module
of 20,000 lines parsed in under 2 s; `import memlane` in under 0.3 s; `memlane trace examples/transpose.py` at 1024 x 1024 in under 20 s.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness import ROOT, Row
from replay import each_launch
from running import EXAMPLES, example, example_arguments, measure, parser

from memlane.launch import Launch, Layers, Observation
from memlane.ptx import parse
from memlane.targets import target

SOURCES = ["src/memlane", "examples", "benchmarks/emulator.py", "benchmarks/replay.py"]

REACHES = {"without counts": (300e6, Layers()), "with counts": (100e6, Layers(counts=True))}
IMPORT = "import time; t = time.perf_counter(); import memlane; print(time.perf_counter() - t)"


def best(repeats: int, action: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


# -- rates ---------------------------------------------------------------------------------------------------------------------


def thread_instructions(launch: Launch) -> int:
    """Of one launch."""
    seen: list[Observation] = []
    launch.kernel.target.launch(replace(launch, layers=Layers(counts=True, report=seen.append)))
    count = seen[0].thread_instructions
    if count is None:
        raise RuntimeError("the emulator did not say how many instructions it executed")
    return count


def rates(name: str, arguments: list[str], where: str, repeats: int) -> dict[str, float]:
    """Thread-instructions a second over all launches of an example, without and with counts."""
    seconds = dict.fromkeys(REACHES, 0.0)
    executed = 0

    def visit(number: int, launch: Launch) -> None:
        nonlocal executed
        executed += thread_instructions(launch)
        for way, (_, layers) in REACHES.items():
            again = replace(launch, layers=layers)
            launch.kernel.target.launch(again)
            seconds[way] += best(repeats, lambda again=again: launch.kernel.target.launch(again))  # type: ignore[misc]

    each_launch(example(name), arguments, where, visit)
    return {way: executed / spent for way, spent in seconds.items()}


def matrix_product(options: argparse.Namespace) -> list[Row]:
    n = 64 if options.quick else 512
    found = rates("matmul", [str(n)], options.target, 2)
    rows = []
    for way, (reach, _) in REACHES.items():
        metric = f"thread-instructions, {way}"
        rows.append(
            Row(f"matrix product, n = {n}", metric, round(found[way]), "1/s", None if options.quick else reach, "higher", note=processor())
        )
    return rows


def processor() -> str:
    """The processor of this machine, as far as it tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    vectors = next((name for name in ("avx512f", "avx2", "asimd") if name in facts.get("flags", facts.get("Features", "")).split()), "")
    return ", ".join(filter(None, [facts.get("model name", platform.machine()), vectors, "one core"]))


def all_examples(options: argparse.Namespace) -> list[Row]:
    found = {name: rates(name, example_arguments(name, options.quick), options.target, 2) for name in EXAMPLES}
    rows = []
    for way, (reach, _) in REACHES.items():
        each = {name: float(round(rate[way])) for name, rate in found.items()}
        middle = statistics.median(each.values())
        rows.append(
            Row(
                "median of the examples",
                f"thread-instructions, {way}",
                middle,
                "1/s",
                None if options.quick else reach / 3,
                "higher",
                peer=each,
            )
        )
    return rows


# -- compiling and parsing -----------------------------------------------------------------------------------------------------


def synthetic(instructions: int, name: str = "synthetic", first: int = 0) -> str:
    """A kernel of about so many instructions: groups of a load, arithmetic, a branch over part of it, and a store.

    Every result has a register of its own, as compilers number them, from `first` on: no two lines of two kernels are alike if their
    numbers are not, and the speed of a parser that remembers lines is not flattered.
    """
    body: list[str] = []
    before = "%r0"
    for group in range(max(1, instructions // 12)):
        a, b, c, d, e = (f"%r{first + 5 * group + number}" for number in range(1, 6))
        f, g, p, place = f"%f{first + 2 * group}", f"%f{first + 2 * group + 1}", f"%p{first + group}", f"[%rd2+{4 * group}]"
        body += [
            f"ld.global.u32 {a}, {place};",
            f"add.s32 {b}, {a}, {before};",
            f"mad.lo.s32 {c}, {b}, {group + 3}, {a};",
            f"cvt.rn.f32.u32 {f}, {c};",
            f"fma.rn.f32 {g}, {f}, 0f3F000000, 0f3F800000;",
            f"xor.b32 {d}, {c}, {b};",
            f"cvt.rzi.u32.f32 {e}, {g};",
            f"setp.gt.s32 {p}, {d}, {e};",
            f"@{p} bra $L{name}_{group};",
            f"shl.b32 {e}, {d}, 1;",
            f"$L{name}_{group}:",
            f"min.s32 {d}, {e}, {c};",
            f"st.global.u32 {place}, {d};",
        ]
        before = d
    last = first + instructions
    lines = "\n    ".join(body)
    return f"""\
.visible .entry {name}(.param .u64 {name}_param_0)
{{
    .reg .pred %p<{last}>;
    .reg .b32 %r<{last}>;
    .reg .f32 %f<{last}>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [{name}_param_0];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd3, %r0, 4;
    add.s64 %rd2, %rd1, %rd3;
    {lines}
    ret;
}}
"""


def module_text(*kernels: str) -> str:
    return "\n".join([".version 9.0", ".target sm_90", ".address_size 64", *kernels])


def compiling(options: argparse.Namespace) -> list[Row]:
    where = target(options.target)
    rows = []
    for wanted in (300,) if options.quick else (300, 5000):
        module = parse(module_text(synthetic(wanted)), "synthetic.ptx")
        function = module.kernels["synthetic"]
        assert function.body is not None
        count = sum(1 for _ in function.body.instructions())
        data = where.zeros(32 + wanted, "u4")
        kernel = where.load(module)["synthetic"]
        first = best(1, lambda kernel=kernel, data=data: kernel[1, 32](data))  # type: ignore[misc]
        second = best(3, lambda kernel=kernel, data=data: kernel[1, 32](data))  # type: ignore[misc]
        peer = {"second launch, s": round(second, 4), "ms an instruction": round(1e3 * first / count, 2)}
        rows.append(Row(f"kernel of {count} instructions", "first launch", round(first, 3), "s", peer=peer))
    return rows


def parsing(options: argparse.Namespace) -> list[Row]:
    wanted = 2_000 if options.quick else 20_000
    kernels: list[str] = []
    while sum(kernel.count("\n") for kernel in kernels) < wanted:
        kernels.append(synthetic(400, f"kernel_{len(kernels)}", 1000 * len(kernels)))
    text = module_text(*kernels)
    lines = text.count("\n") + 1
    seconds = best(1 if options.quick else 3, lambda: parse(text, "synthetic.ptx"))
    return [Row(f"PTX module of {lines} lines", "parse", round(seconds, 3), "s", None if options.quick else 2.0)]


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
        seconds = best(1, lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True))
        size = output.stat().st_size
    note = "whole command, compilation of the kernels included"
    peer = {"record file, MB": round(size / 1e6, 2)}
    return [
        Row(
            f"memlane trace examples/transpose.py, n = {n}",
            "wall time",
            round(seconds, 2),
            "s",
            None if options.quick else 20.0,
            peer=peer,
            note=note,
        )
    ]


CASES: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "matrix product": matrix_product,
    "examples": all_examples,
    "compiling": compiling,
    "parsing": parsing,
    "importing": importing,
    "tracing": tracing,
}


def main() -> None:
    options = parser(__doc__, "emulator:h200").parse_args()
    measure("emulator", list(CASES), lambda name, options: CASES[name](options), options)


if __name__ == "__main__":
    main()

"""How the time of each stage of the commands grows with the size of a kernel: per instruction, on a CPU.

Prediction, written before the first run. Every stage takes a time that grows as the kernel does: per instruction, at the largest size, at
most twice what it takes at the smallest, for each family of kernels. LLVM and the assembler are measured and have no reach: they are not
memlane's, and a kernel is one function for both.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --case "one loop"
    python benchmarks/scaling.py --largest 30000

Times are those of the processor, without those of other programs. The instructions of a family are those that are asked for, not those
that calls lead to.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import Row
from running import measure, parser
from scaling_kernels import FAMILIES

from memlane.chip import load
from memlane.compile import assemble, assembler
from memlane.emulate.code import jit
from memlane.emulate.layers import layers_for
from memlane.emulate.lower import kernel as lowering
from memlane.instrument import TraceOptions, count, exactness, prove, site_table, trace
from memlane.launch import Layers
from memlane.ptx import Module, build, parse, print_module, verify
from memlane.sass import disassemble, nvdisasm, registers
from memlane.sass.listing import parse_listing
from memlane.sass.nvdisasm import run_nvdisasm

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/sass",
    "src/memlane/instrument",
    "src/memlane/emulate/lower",
    "src/memlane/walks.py",
    "benchmarks/scaling.py",
    "benchmarks/scaling_kernels.py",
]

QUICK_SIZES = (200, 400)
SIZES = (1_000, 4_000)
"""For all stages: those of probes and of the emulator make ten to a hundred lines of each."""
ASSEMBLED = (10_000,)
"""Larger ones for what every command does, and the comparison with the assembled code."""
PROVED = (250, 1_000)
"""For the proof that times are complete, of which the assembler has to make the code first."""
LARGEST = (30_000, 100_000)
"""The same without the assembler, which takes minutes for them."""
REACH = 2.0
ROUNDS = 3
SMALL = 1_000
"""Kernels of so many instructions at most are measured in several rounds."""
LAYERS = {
    "lowering, function only": Layers(),
    "lowering, with counts": Layers(counts=True),
    "lowering, with clock": Layers(counts=True, accesses=True, clock=True),
    "lowering, with checker": Layers(check=True),
}
NOT_OURS = frozenset({"LLVM, function only", "assembler"})
Seconds = dict[str, float]


class Clock:
    """The processor time of stages, and what they gave."""

    def __init__(self) -> None:
        self.seconds: Seconds = {}

    def __call__(self, stage: str, run: Callable[[], Any]) -> Any:
        gc.collect()
        began = time.process_time()
        result = run()
        self.seconds[stage] = time.process_time() - began
        return result


def lowered(module: Module, layers: Layers) -> tuple[str, bool]:
    """The LLVM text of a kernel, and whether it is to be translated quickly."""
    function = module.kernels["k"]
    compiled = layers_for(layers, module, function)
    return str(lowering.lowered(module, function, compiled, load("h200")).program), compiled.quick


def read(clock: Clock, text: str) -> Module:
    """What every command does with a kernel."""
    module: Module = clock("parse", lambda: parse(text))
    clock("verify", lambda: verify(module))
    clock("print", lambda: print_module(module))
    clock("sites", lambda: site_table(module))
    return module


def compare(clock: Clock, module: Module) -> None:
    """What says whether counts are those of the assembled code."""
    cubin = clock("assembler", lambda: assemble(module)).data
    listing = run_nvdisasm(cubin, ("-c", "-hex", "-gi", "-gp", "-ndf"))
    program = clock("listing", lambda: parse_listing(listing))
    clock("verdicts", lambda: exactness(module, program))


def prove_times(clock: Clock, module: Module) -> None:
    """What shows on the assembled code of a traced kernel that its times are complete. A traced kernel is up to forty times as long."""
    for scheme in ("dependent", "exposed"):
        traced = trace(module, TraceOptions(scheme=scheme))
        program = disassemble(assemble(traced.module).data)
        registers.effects.cache_clear()
        clock(f"prove, {scheme}", partial(prove, traced, program))


def forget() -> None:
    """Empty what remembers texts and instructions from one kernel to the next: else a kernel that is measured again costs nothing."""
    for remembering in (build.statements, assembler._assemble, nvdisasm._disassemble, registers.effects):
        remembering.cache_clear()


def run_stages(text: str, size: int) -> Seconds:
    """The seconds of each stage for one kernel: of those that are measured at its size."""
    forget()
    clock = Clock()
    if size in (*QUICK_SIZES, *PROVED):
        prove_times(clock, parse(text))
        forget()
    if size == PROVED[0]:
        return clock.seconds
    module = read(clock, text)
    if size in (*QUICK_SIZES, *SIZES, *ASSEMBLED):
        compare(clock, module)
    if size in (*QUICK_SIZES, *SIZES):
        for scheme in ("dependent", "exposed"):
            clock(f"trace, {scheme}", partial(trace, module, TraceOptions(scheme=scheme)))
        clock("count", lambda: count(module, load("h200")))
        texts = {name: clock(name, partial(lowered, module, layers)) for name, layers in LAYERS.items()}
        clock("LLVM, function only", lambda: jit.translated(*texts["lowering, function only"]))
    return clock.seconds


def measured(family: str, size: int) -> Seconds:
    """The least of several rounds for a small kernel, the one round of a large one."""
    text = FAMILIES[family](size)
    rounds = [run_stages(text, size) for _ in range(ROUNDS if size <= SMALL else 1)]
    return {name: min(one[name] for one in rounds) for name in rounds[0]}


def run_case(family: str, options: argparse.Namespace) -> list[Row]:
    """A row for each stage: by how much its time per instruction is larger at the largest size than at the smallest."""
    sizes = QUICK_SIZES if options.quick else sorted({*SIZES, *PROVED, *ASSEMBLED, *LARGEST})
    run_stages(FAMILIES[family](QUICK_SIZES[0]), QUICK_SIZES[0])  # What is read or compiled once is not what is measured.
    seconds = {size: measured(family, size) for size in sizes if size <= options.largest}
    stages = dict.fromkeys(stage for found in seconds.values() for stage in found)
    return [row_of(family, stage, {size: found[stage] for size, found in seconds.items() if stage in found}) for stage in stages]


def row_of(family: str, stage: str, seconds: dict[int, float]) -> Row:
    """By how much a stage takes longer per instruction at the largest size."""
    each = {size: found / size * 1e6 for size, found in seconds.items()}
    smallest, largest = min(each), max(each)
    ratio = round(each[largest] / max(each[smallest], 1e-3), 2)
    peer = {f"{size:,} instructions, us each": round(found, 1) for size, found in each.items()}
    reach = None if stage in NOT_OURS else REACH
    note = "" if reach is None or ratio <= reach else f"{seconds[largest]:.2f} s at {largest:,} instructions"
    return Row(family, f"{stage}, growth per instruction", ratio, "", reach, peer=peer, note=note)


def main() -> None:
    sys.setrecursionlimit(10_000)
    arguments = parser(__doc__, "emulator:h200")
    arguments.add_argument("--largest", type=int, default=max(LARGEST), help="leave out kernels of more instructions")
    measure("scaling", tuple(FAMILIES), run_case, arguments.parse_args())


if __name__ == "__main__":
    main()

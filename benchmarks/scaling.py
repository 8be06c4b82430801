"""Measure how the time of each stage of the commands grows with the size of a kernel: per instruction, on a CPU.

Prediction, written before the first run. Every stage takes a time that grows as the kernel does: per instruction, at the largest size, at
most twice what it takes at the smallest, for each family of kernels. LLVM and the assembler are measured and have no reach: they are not
memlane's, and a kernel is one function for both.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --case "one loop"
    python benchmarks/scaling.py --largest 30000

Times are those of the processor, without those of other programs, which may have run beside: they share its caches. A stage is left out
at a size where, by its time at the size before, it would take longer than `--stage-limit`; the note of its row says so. The instructions
of a family are those that are asked for, not those that calls lead to.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from harness import Row
from running import measure, parser
from scaling_kernels import FAMILIES

from memlane.audit import exactness, prove
from memlane.chip import load
from memlane.compile import assemble, assembler
from memlane.emulate.code import jit
from memlane.emulate.layers import layers_for
from memlane.emulate.lower import kernel as lowering
from memlane.instrument import TraceOptions, count, site_table, trace
from memlane.launch import Layers
from memlane.ptx import Module, build, parse, print_module, verify
from memlane.sass import disassemble, nvdisasm, registers
from memlane.sass.listing import parse_listing
from memlane.sass.nvdisasm import run_nvdisasm

SOURCES = [
    "src/memlane/ptx",
    "src/memlane/sass",
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/emulate/lower",
    "src/memlane/walks.py",
    "benchmarks/scaling.py",
    "benchmarks/scaling_kernels.py",
]

QUICK_SIZES = (200, 400)
SIZES = (1_000, 4_000)
"""Sizes for all stages."""
ASSEMBLED = (1_000, 4_000, 10_000)
"""Sizes for the comparison with the assembled code, because the assembler takes minutes for larger kernels."""
PROBED = (1_000, 4_000, 10_000, 30_000)
"""Sizes for the probes and the emulator, which make ten to a hundred lines of each instruction."""
PROVED = (250, 1_000)
"""Sizes for the proof that times are complete, because the assembler has to make its code first."""
LARGEST = (1_000, 4_000, 10_000, 30_000, 100_000)
"""Sizes for the work that every command does with a kernel."""
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
    """The processor time of stages, and what they gave; None of one that would take too long."""

    def __init__(self, size: int = 0, before: Mapping[int, Seconds] | None = None, limit: float = math.inf) -> None:
        """Prepare the stages of a kernel. `before`: seconds of stages at other sizes."""
        self.seconds: Seconds = {}
        self.left_out: set[str] = set()
        self._size, self._before, self._limit = size, before or {}, limit

    def _expected(self, stage: str) -> float:
        """Return the expected seconds of a stage, scaled from the largest smaller kernel for which it was measured."""
        sizes = [size for size, found in self._before.items() if stage in found and size < self._size]
        return self._before[max(sizes)][stage] * self._size / max(sizes) if sizes else 0.0

    def __call__(self, stage: str, run: Callable[[], Any]) -> Any:
        if self._expected(stage) > self._limit:
            self.left_out.add(stage)
            return None
        gc.collect()
        began = time.process_time()
        result = run()
        self.seconds[stage] = time.process_time() - began
        return result


def lowered(module: Module, layers: Layers) -> tuple[str, bool]:
    """Return the LLVM text of a kernel, and whether it is to be translated quickly."""
    function = module.kernels["k"]
    compiled = layers_for(layers, module, function)
    return str(lowering.lowered(module, function, compiled, load("h200")).program), compiled.quick


def read(clock: Clock, text: str) -> Module:
    """Do the work that every command does with a kernel."""
    module: Module = clock("parse", lambda: parse(text))
    clock("verify", lambda: verify(module))
    clock("print", lambda: print_module(module))
    clock("sites", lambda: site_table(module))
    return module


def compare(clock: Clock, module: Module) -> None:
    """Run the check that compares counts with the assembled code."""
    assembled = clock("assembler", lambda: assemble(module))
    if assembled is None:
        return
    listing = run_nvdisasm(assembled.data, ("-c", "-hex", "-gi", "-gp", "-ndf"))
    program = clock("listing", lambda: parse_listing(listing))
    clock("verdicts", lambda: exactness(module, program))


def prove_times(clock: Clock, module: Module) -> None:
    """Prove on the assembled code of a traced kernel that its times are complete. A traced kernel is up to forty times as long."""
    for scheme in ("dependent", "exposed"):
        traced = trace(module, TraceOptions(scheme=scheme))
        program = disassemble(assemble(traced.module).data)
        registers.effects.cache_clear()
        clock(f"prove, {scheme}", partial(prove, traced, program))


def forget() -> None:
    """Clear the caches of texts and instructions; otherwise a kernel that is measured again costs nothing."""
    for remembering in (build.statements, assembler._assemble, nvdisasm._disassemble, registers.effects):
        remembering.cache_clear()


def run_stages(text: str, size: int, clock: Clock, with_proof: bool = True) -> Seconds:
    """Return the seconds of each stage that is measured at the kernel's size."""
    forget()
    quick = size in QUICK_SIZES
    if quick or (size in PROVED and with_proof):
        prove_times(clock, parse(text))
        forget()
    if quick or size in LARGEST:
        module = read(clock, text)
        if quick or size in ASSEMBLED:
            compare(clock, module)
        if quick or size in PROBED:
            probe(clock, module, with_llvm=quick or size in SIZES)
    return clock.seconds


def probe(clock: Clock, module: Module, with_llvm: bool) -> None:
    """Instrument a kernel, and compile it for the emulator."""
    for scheme in ("dependent", "exposed"):
        clock(f"trace, {scheme}", partial(trace, module, TraceOptions(scheme=scheme)))
    clock("count", lambda: count(module, load("h200")))
    texts = {name: clock(name, partial(lowered, module, layers)) for name, layers in LAYERS.items()}
    text = texts["lowering, function only"]
    if with_llvm and text is not None:
        clock("LLVM, function only", lambda: jit.compile_text(*text))


def run_case(family: str, options: argparse.Namespace) -> list[Row]:
    """Return a row for each stage: by how much its time per instruction is larger at the largest size than at the smallest."""
    sizes = QUICK_SIZES if options.quick else sorted({*PROVED, *LARGEST})
    run_stages(FAMILIES[family](QUICK_SIZES[0]), QUICK_SIZES[0], Clock())  # What is read or compiled once is not what is measured.
    seconds: dict[int, Seconds] = {}
    left_out: dict[str, list[int]] = defaultdict(list)
    for size in sizes:
        if size <= options.largest:
            text = FAMILIES[family](size)
            clocks = [Clock(size, seconds, options.stage_limit) for _ in range(options.rounds if size <= SMALL else 1)]
            # The least of several rounds for a small kernel, the one round of a large one.
            rounds = [run_stages(text, size, clock, not options.without_proof) for clock in clocks]
            seconds[size] = {name: min(one[name] for one in rounds) for name in rounds[0]}
            for stage in clocks[0].left_out:
                left_out[stage].append(size)
    stages = dict.fromkeys(stage for found in seconds.values() for stage in found)
    return [row_of(family, stage, {size: one[stage] for size, one in seconds.items() if stage in one}, left_out[stage]) for stage in stages]


def row_of(family: str, stage: str, seconds: dict[int, float], left_out: Sequence[int] = ()) -> Row:
    """Return how much longer a stage takes per instruction at the largest size."""
    each = {size: found / size * 1e6 for size, found in seconds.items()}
    smallest, largest = min(each), max(each)
    ratio = round(each[largest] / max(each[smallest], 1e-3), 2)
    peer = {f"{size:,} instructions, us each": round(found, 1) for size, found in each.items()}
    reach = None if stage in NOT_OURS else REACH
    notes = [] if reach is None or ratio <= reach else [f"{seconds[largest]:.2f} s at {largest:,} instructions"]
    notes += [f"not measured at {size:,} instructions: expected to take too long" for size in left_out]
    grew = ratio if len(each) > 1 else None  # one size says nothing of growth
    return Row(family, f"{stage}, growth per instruction", grew, "", reach, peer=peer, note="; ".join(notes))


def main() -> None:
    arguments = parser(__doc__, "emulator:h200")
    arguments.add_argument("--largest", type=int, default=max(LARGEST), help="leave out kernels of more instructions")
    arguments.add_argument(
        "--stage-limit", type=float, default=60.0, help="leave out a stage that should take more seconds of the processor"
    )
    arguments.add_argument("--rounds", type=int, default=ROUNDS, help="of small kernels")
    arguments.add_argument(
        "--without-proof", action="store_true", help="leave out the proof of times, for which traced kernels are assembled"
    )
    measure("scaling", tuple(FAMILIES), run_case, arguments.parse_args())


if __name__ == "__main__":
    main()

"""What do products of a warpgroup, masked copies and bulk copies cost in shared memory, and is that what memlane counts?

Kernels that issue one form of `wgmma.mma_async`, `cp.async` or a bulk copy (`wgmma_kernels.py`) run under Nsight Compute, each form of
product on a clock too. Copies of lanes run with many patterns of addresses (`copy_patterns.py`). Then two kernels of Triton, a product
of matrices and an attention (`kernels/matmul.ptx`, `kernels/attention.ptx`), are counted by memlane on the GPU and on the emulator, and
compared with the profiler site by site and in their totals, as in `counts.py`.

Prediction, written after a first run of the products and of fewer copies, which gave the rule. A product reads its operands in shared
memory in rows of 128 bytes: N/4 wavefronts, and 16 more unless A is in registers, whatever the types, the major order, the swizzle and
the offsets in the descriptor. With A in shared memory it takes that many cycles behind others, or N/2 if that is more. A bulk copy has no
wavefronts at its instruction. All sites of the two kernels of Triton that are exact are equal, all products are exact, and the totals of
shared memory differ by what differs at masked copies alone. Of `cp.async`: a wavefront writes what came from one line of global memory,
so a request takes at least as many as there are lines in each pass; of masked copies the profiler's count at the instruction and the
counter of the hardware disagree, as they did in the first run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from copy_patterns import CopyPattern, masked, plain
from counts import (
    BY_LAUNCH,
    OnDevice,
    code_of,
    compare,
    compare_roads,
    compare_sites,
    instructions,
    of_memlane,
    of_profiler,
    of_sites,
)
from harness import Row, show, store
from ncu import LABELS, Counted, Disassembled, Profiled, report
from running import failed, machine, parser
from sitewise import Code
from wgmma_kernels import PRODUCTS, LaneCopy, Product, bulk_copies, bulk_text, lane_copies, products, products_text

from memlane.audit import exactness
from memlane.instrument import site_table
from memlane.lab.profiler import find
from memlane.launch import LoadedModule, Observer, Target, observing
from memlane.measure import Counter
from memlane.ptx import Module, parse
from memlane.record import EXACT
from memlane.targets import target as named_target

SOURCES = [
    "src/memlane/audit",
    "src/memlane/instrument",
    "src/memlane/record/site.py",
    "src/memlane/record/counts.py",
    "src/memlane/sass",
    "src/memlane/emulate/count",
    "src/memlane/lab/profiler.py",
    "benchmarks/copy_patterns.py",
    "benchmarks/counts.py",
    "benchmarks/kernels/attention.ptx",
    "benchmarks/kernels/matmul.ptx",
    "benchmarks/ncu.py",
    "benchmarks/sitewise.py",
    "benchmarks/wgmma.py",
    "benchmarks/wgmma_kernels.py",
]

KERNELS = Path(__file__).parent / "kernels"
ONE, COPIES, BULK = "wavefronts of one product", "wavefronts by pattern", "wavefronts of the instruction"
WAVEFRONTS, IDEAL, SECTORS = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "memory_l2_theoretical_sectors_global"
HARDWARE = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
READS, WRITES = "l1tex__data_bank_reads.sum", "l1tex__data_bank_writes.sum"
TURNS = (2, 18)
FAR_BYTES = 1 << 18


# -- launches ------------------------------------------------------------------------------------------------------------------


def triton_module(name: str) -> Module:
    """Return a kernel of Triton, as PTX."""
    path = KERNELS / f"{name}.ptx"
    return parse(path.read_text(), path.name)


def matmul(target: Target) -> None:
    """Run a product of 128 x 128 x 128 in four blocks."""
    random = np.random.default_rng(1)
    a, b = (random.integers(-4, 5, (128, 128)).astype(np.float16) for _ in range(2))
    c = target.zeros((128, 128), np.float32)
    kernel = target.load(triton_module("matmul"))["matmul"]
    size = np.int32(128)
    kernel[(2, 2), 128, target.default_stream, 49152](c, target.array(a), target.array(b), size, size, size, np.uint64(0), np.uint64(0))
    assert np.array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32))


def attention(target: Target) -> None:
    """Run attention of 256 queries and keys of 64 numbers in four blocks."""
    q, k, v = np.random.default_rng(2).normal(size=(3, 256, 64)).astype(np.float16)
    scores = q.astype(np.float64) @ k.T.astype(np.float64) / 8
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    out = target.zeros((256, 64), np.float32)
    kernel = target.load(triton_module("attention"))["attention"]
    arrays = [target.array(one) for one in (q, k, v)]
    kernel[4, 128, target.default_stream, 57344](out, *arrays, np.int32(256), np.float32(0.125), np.uint64(0), np.uint64(0))
    assert np.allclose(out.numpy(), powers @ v.astype(np.float64) / powers.sum(axis=1, keepdims=True), rtol=1e-2, atol=1e-3)


TRITON: dict[str, Callable[[Target], None]] = {"matmul": matmul, "attention": attention}


class Bench:
    """The probe kernels on a target."""

    def __init__(self, target: Target, quick: bool) -> None:
        self.target, self.step = target, 8 if quick else 1
        self.probes: LoadedModule = target.load(parse(products_text(), "wgmma.ptx"))
        self.where = target.zeros(FAR_BYTES, np.uint8)

    def products(self) -> list[Product]:
        return list(products())[:: self.step]

    def copies(self) -> list[tuple[LaneCopy, CopyPattern]]:
        return [(copy, pattern) for copy in lane_copies() for pattern in (list(masked() if copy.masked else plain()))[:: self.step]]

    def product(self, one: Product, turns: int) -> None:
        self.probes[one.name][1, 128](self.where, np.uint32(turns))

    def copy(self, copy: LaneCopy, pattern: CopyPattern) -> None:
        self.probes[copy.name][1, 32](self.where, self.target.array(pattern.table(copy.nbytes)), np.uint32(pattern.mask))

    def cycles(self, one: Product) -> float:
        """Return the cycles of one product in a sequence of products."""
        best = []
        for turns in TURNS:
            took = []
            for _ in range(3):
                self.product(one, turns)
                took.append(int(self.where.numpy()[:64].view(np.uint64)[::2].max()))
            best.append(min(took))
        return (best[1] - best[0]) / (TURNS[1] - TURNS[0]) / PRODUCTS


def launch_plainly(target: Target, options: argparse.Namespace) -> None:
    """Launch the kernels for the profiler."""
    if options.plain == "bulk":
        loaded, matrix, where = (
            target.load(parse(bulk_text(), "bulk.ptx")),
            target.zeros((256, 256), np.float32),
            target.zeros(4096, np.uint8),
        )
        for one in bulk_copies():
            loaded[one.name][1, 32](target.tensor_map(matrix, one.box if one.box[0] else (8, 8), swizzle=one.swizzle), where)
            target.sync()
        return
    bench = Bench(target, options.quick)
    for product in bench.products():
        bench.product(product, 1)
    for copy, pattern in bench.copies():
        bench.copy(copy, pattern)
    for launch in TRITON.values():
        launch(target)
    target.sync()


# -- what the profiler saw -----------------------------------------------------------------------------------------------------

Seen = list[tuple[Profiled, Disassembled]]


def profiled(program: str, options: argparse.Namespace, part: str, limit: float) -> Seen:
    """Return the launches of `launch_plainly`, in order. RuntimeError if the profiler did not come to its end."""
    script = [sys.executable, sys.argv[0], "--target", options.target, "--plain", part, *(["--quick"] if options.quick else [])]
    lines = (HARDWARE, READS, WRITES) if part == "bulk" else (HARDWARE, *BY_LAUNCH)
    found = report(program, [*LABELS, *lines], script, dict(os.environ), limit)
    return list(zip(found.launches, found.disassembled, strict=True))


def kept(path: Path, seen: dict[str, Seen]) -> None:
    """Keep everything that was seen as JSON: what `read` reads."""
    path.write_text(json.dumps({part: [[asdict(one) for one in pair] for pair in pairs] for part, pairs in seen.items()}))


def read(path: Path) -> dict[str, Seen]:
    """Return the data that `kept` wrote."""

    def pair(stored: list[dict[str, object]]) -> tuple[Profiled, Disassembled]:
        first, second = stored
        instructions = second["instructions"]
        assert isinstance(instructions, list)
        return Profiled(**first), Disassembled(str(second["kernel"]), tuple(Counted(**one) for one in instructions))  # type: ignore[arg-type]

    return {part: [pair(one) for one in pairs] for part, pairs in json.loads(path.read_text()).items()}


# -- rows ----------------------------------------------------------------------------------------------------------------------


def product_rows(bench: Bench, seen: Seen) -> Iterator[Row]:
    """Compare memlane's counts of each form of product with the profiler's, and return its cycles."""
    module = bench.probes.module
    verdicts = {one.site: one for one in exactness(module, code_of(bench.probes))}
    sites = {site.kernel: site for site in site_table(module).sites if site.kind == "product"}
    timed = not bench.target.modelled
    for number, one in enumerate(bench.products()):
        site = sites[one.name]
        ours = float(site.product_wavefronts(4))
        peer = {"memlane": ours} | ({"cycles": round(bench.cycles(one), 2)} if timed else {})
        if seen:
            made = [
                i for i in seen[number][1].instructions if i.opcode.partition(".")[0].endswith("GMMA") and i.metrics.get("inst_executed")
            ]
            amount = sum(i.metrics["inst_executed"] for i in made) / 4
            theirs = sum(i.metrics[WAVEFRONTS] for i in made) / amount
            ideal = sum(i.metrics[IDEAL] for i in made) / amount
            peer |= {"Nsight Compute": theirs, "its ideal": ideal, "hardware, whole launch": seen[number][0].metrics.get(HARDWARE, 0.0)}
        exact = verdicts[site.id].verdict == EXACT
        value = abs(peer["Nsight Compute"] - ours) if exact and seen else None
        yield Row(one.name, ONE, value, "wavefronts off", 0.0 if seen else None, peer=peer, note="" if exact else verdicts[site.id].reason)


def copy_rows(bench: Bench, seen: Seen) -> Iterator[Row]:
    """Return for each form of `cp.async` the profiler's wavefronts and sectors by pattern, and the hardware's wavefronts of the launch."""
    copies = bench.copies()
    for form in dict.fromkeys(copy for copy, _ in copies):
        peer: dict[str, float] = {}
        for (copy, pattern), (whole, by_instruction) in zip(copies, seen, strict=True):
            if copy == form:
                (made,) = (i for i in by_instruction.instructions if i.opcode.startswith("LDGSTS"))
                peer[pattern.name] = made.metrics[WAVEFRONTS]
                peer[f"{pattern.name}: ideal"] = made.metrics[IDEAL]
                peer[f"{pattern.name}: sectors"] = made.metrics[SECTORS]
                peer[f"{pattern.name}: hardware"] = whole.metrics.get(HARDWARE, 0.0)
                opcode = made.opcode
        yield Row(form.name, COPIES, float(len(peer) // 4), "patterns", peer=peer, note=opcode)


def bulk_rows(seen: Seen) -> Iterator[Row]:
    """Return for each form of bulk copy the profiler's wavefronts at its instruction, and the words that the banks moved."""
    for one, (whole, by_instruction) in zip(bulk_copies(), seen, strict=True):
        wavefronts = sum(i.metrics.get(WAVEFRONTS, 0.0) for i in by_instruction.instructions)
        peer = {"bytes": float(one.nbytes), "words read": whole.metrics.get(READS, 0.0), "words written": whole.metrics.get(WRITES, 0.0)}
        peer["hardware, whole launch"] = whole.metrics.get(HARDWARE, 0.0)
        yield Row(one.name, BULK, wavefronts, "wavefronts", 0.0, peer=peer)


def triton_rows(name: str, options: argparse.Namespace, seen: tuple[Profiled, Disassembled] | None) -> Iterator[Row]:
    """Compare memlane on the target and on the emulator with the profiler, for one Triton kernel."""
    device, emulator = OnDevice(), Counter()
    for observer, where in ((device, options.target), (emulator, "emulator:h200")):
        _watched(TRITON[name], named_target(where), observer)
    ((launch,), (counts,), (emulated,)) = device.launches, device.finish(), emulator.finish()
    code = Code.of(launch.kernel.module, code_of(launch.kernel.loaded))
    yield compare_roads(name, counts, emulated, code)
    if seen is not None:
        whole, by_instruction = seen
        by_site = code.compared(launch.kernel.name, counts.sites, by_instruction)
        yield compare_sites(name, by_site)
        yield from compare(name, of_memlane(counts), of_profiler(whole.metrics), of_sites(by_site), *instructions(launch))


def _watched(launch: Callable[[Target], None], target: Target, observer: Observer) -> None:
    with observing(observer):
        launch(target)


def rows(target: Target, options: argparse.Namespace, seen: dict[str, Seen]) -> Iterator[Sequence[Row]]:
    """Yield the rows of each part in turn; a part that fails is a row that says why."""
    bench = Bench(target, options.quick)
    first, copies = len(bench.products()), len(bench.copies())
    main = seen.get("main", [])
    yield list(product_rows(bench, main[:first]))
    if main:
        yield list(copy_rows(bench, main[first : first + copies]))
    if seen.get("bulk"):
        yield list(bulk_rows(seen["bulk"]))
    for number, name in enumerate(TRITON):
        try:
            yield list(triton_rows(name, options, main[first + copies + number] if main else None))
        except Exception as error:
            yield [failed(name, f"{type(error).__name__}: {error}")]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--keep", type=Path, help="file in which to keep what the profiler saw of each instruction, as JSON")
    arguments.add_argument("--plain", help=argparse.SUPPRESS)
    arguments.add_argument("--profile", type=Path, help="a file that was kept, in place of a run of the profiler")
    options = arguments.parse_args()
    if options.plain is not None:
        launch_plainly(named_target(options.target), options)
        return
    seen: dict[str, Seen] = {} if options.profile is None else read(options.profile)
    program = find() if options.target.startswith("cuda") and options.profile is None else None
    found: list[Row] = []
    with TemporaryDirectory() as folder:
        keep = options.keep or Path(folder) / "seen.json"
        for part, limit in (("main", 100.0), ("bulk", 25.0)) if program else ():
            try:
                seen[part] = profiled(str(program), options, part, limit)
                kept(keep, seen)
                print(f"{part}: {len(seen[part])} launches profiled", flush=True)
            except Exception as error:
                found.append(failed(f"Nsight Compute, {part}", f"{type(error).__name__}: {error}"))
                print(found[-1].note, flush=True)
    head = machine(options)
    for part_rows in rows(named_target(options.target), options, seen):
        found += part_rows
        show(part_rows)
        store("wgmma", found, **head)


if __name__ == "__main__":
    main()

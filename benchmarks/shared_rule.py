"""How many cycles do loads, stores and atomics of shared memory take, by the addresses of their lanes?

Eight warps of one block, each in a region of its own, issue the same access over and over; the cycles of one warp-level access are the
difference of two such runs of different lengths, divided by the accesses that one has more. So whatever a run costs once drops out. A
hundred patterns of addresses, for each operation and width. Where Nsight Compute is installed it counts the wavefronts of each pattern
beside, in a kernel with one instruction for each.

Prediction (written before the first run). Loads take `wavefronts` of `memlane.chip.access`, plus a few per cent. Stores follow the same
rule in all widths, but for 8 and 16 bytes without the merging of neighbours, since data has to be moved for each lane; lanes that store
to one word do not conflict. An addition of a constant one without a result (`ATOMS.POPC.INC`) follows the rule of loads. The other atomics
handle each lane that shares a bank by itself, also those at one address: as many passes as the fullest bank has lanes, at one or two
cycles a pass; 8-byte ones twice. Additions of floats and of 64 bits are loops of compare and swap: as many turns as lanes share an
address, no prediction for their time.

What the first run said: all of that, with two corrections. An access of 8 or 16 bytes takes the wavefronts of its passes or the number of
passes, whichever is more: a pass without an active lane is not paid for where the others have conflicts enough. And compare and swap takes
twice the wavefronts of the other atomics, whatever its width. The profiler counts the same wavefronts without that least number.

Those rules are data of the chip now: `bank_cycles` is held against the time, `wavefronts` against the profiler.

Prediction for the patterns added then, loads of 16 bytes whose neighbours agree in one half of the warp: the profiler joins the passes of
each half in which every lane agrees with lane^1, those of agreement with lane^2 only where all lanes of the warp agree; the time is less
only where the passes of both halves are joined.

What the second run said: the time is as predicted. The profiler joins the passes of a half only where the joined pass has no conflict, and
counts them singly else, though they take the time of one. With that, prediction for the third run: no pattern is off, in time or in count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from harness import Row, store
from ncu import report
from patterns import Pattern, patterns
from running import failed, machine, parser

from memlane.chip import AccessKind, Chip, access
from memlane.compile import cuda
from memlane.lab.profiler import find
from memlane.launch import DeviceArray, LoadedModule
from memlane.targets import target as named_target

SOURCES = [
    "src/memlane/chip/access.py",
    "src/memlane/chip/lanes.py",
    "src/memlane/lab/profiler.py",
    "benchmarks/shared_rule.py",
    "benchmarks/patterns.py",
    "benchmarks/kernels/shared_rule.cu",
    "benchmarks/ncu.py",
]

SOURCE = Path(__file__).parent / "kernels" / "shared_rule.cu"
WARPS = 8
VALUE = 3
TIME, COUNT = "patterns that take other than the rule's time", "patterns that the profiler counts otherwise"
WAVEFRONTS, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"


@dataclass(frozen=True)
class Operation:
    """A pair of kernels of `SOURCE`."""

    name: str
    nbytes: int
    kind: AccessKind | None = None
    """Kind of access whose rule is compared with the measurement; None where there is no rule."""


OPERATIONS = (
    *(Operation(f"ld_{nbytes}", nbytes, "load") for nbytes in (1, 2, 4, 8, 16)),
    *(Operation(f"st_{nbytes}", nbytes, "store") for nbytes in (1, 2, 4, 8, 16)),
    Operation("red_add_one", 4, "increment"),
    *(Operation(name, 4, "atomic") for name in ("red_add_u32", "red_max_u32")),
    *(Operation(name, 4, "atomic") for name in ("atom_add_u32", "atom_max_u32", "atom_and_b32", "atom_inc_u32", "atom_exch_b32")),
    Operation("atom_exch_b64", 8, "atomic"),
    Operation("atom_cas_b32", 4, "compare_swap"),
    Operation("atom_cas_b64", 8, "compare_swap"),
    Operation("red_add_f32", 4),
    Operation("atom_add_f32", 4),
    Operation("red_add_u64", 8),
    Operation("atom_add_u64", 8),
)

QUICK = ("ld_4", "ld_16", "st_8", "red_add_one", "atom_add_u32")
"""Operations that `--quick` runs, on few patterns."""


@dataclass(frozen=True)
class Setting:
    """The amount of work of a run."""

    operations: tuple[Operation, ...]
    patterns: tuple[Pattern, ...]
    unroll: int
    repeats: tuple[int, int]
    rounds: int

    @property
    def region(self) -> int:
        """Return the bytes for each warp: the span of the widest pattern, in whole rows of banks."""
        most = max(int(pattern.offsets(op.nbytes).max()) + op.nbytes for pattern in self.patterns for op in self.operations)
        return -(-most // 128) * 128


def setting(options: argparse.Namespace) -> Setting:
    operations = tuple(op for op in OPERATIONS if not options.quick or op.name in QUICK)
    if options.case:
        operations = tuple(op for op in OPERATIONS if op.name == options.case)
        if not operations:
            raise SystemExit(f"there is no case {options.case!r}; choose among: {'; '.join(op.name for op in OPERATIONS)}")
    if options.quick:
        return Setting(operations, patterns()[::12], 4, (1, 3), 1)
    return Setting(operations, patterns(), 64, (2, 6), 7)


# -- measuring -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """Addresses of one width, on the target."""

    offsets: DeviceArray
    masks: DeviceArray
    sink: DeviceArray


class Bench:
    """The kernels on a target."""

    def __init__(self, name: str, chosen: Setting) -> None:
        self.target = named_target(name)
        self.chosen = chosen
        major, minor = self.target.chip.compute_capability
        define = [f"UNROLL={chosen.unroll}", f"PATTERNS={len(chosen.patterns)}"]
        self.loaded: LoadedModule = self.target.load(cuda(SOURCE, arch=f"sm_{major}{minor}", define=define))
        self._tables: dict[int, Tables] = {}

    def tables(self, nbytes: int) -> Tables:
        if nbytes not in self._tables:
            offsets = np.stack([pattern.offsets(nbytes) for pattern in self.chosen.patterns])
            masks = np.array([pattern.mask for pattern in self.chosen.patterns], np.uint32)
            self._tables[nbytes] = Tables(self.target.array(offsets), self.target.array(masks), self.target.empty(1, "u4"))
        return self._tables[nbytes]

    def elapsed(self, op: Operation, repeats: int) -> np.ndarray:
        """Return float64[patterns]: cycles from the first warp's start to the last one's end."""
        chosen, tables = self.chosen, self.tables(op.nbytes)
        blocks = len(chosen.patterns)
        times = self.target.zeros((blocks, WARPS, 2), "u8")
        call = self.loaded[f"timed_{op.name}"][blocks, WARPS * 32, None, WARPS * chosen.region]
        call(times, tables.offsets, tables.masks, chosen.region, repeats, VALUE, tables.sink)
        read = times.numpy().astype(np.float64)
        return np.asarray(read[..., 1].max(axis=1) - read[..., 0].min(axis=1))

    def cycles(self, op: Operation) -> list[float]:
        """Return for each pattern the cycles of one access, the median over the rounds."""
        few, many = self.chosen.repeats
        self.elapsed(op, few)  # fetches the code
        accesses = (many - few) * self.chosen.unroll * WARPS
        rounds = [(self.elapsed(op, many) - self.elapsed(op, few)) / accesses for _ in range(self.chosen.rounds)]
        return [statistics.median(values) for values in zip(*rounds, strict=True)]

    def once(self, op: Operation) -> None:
        """Run each pattern by one warp, in a separate instruction."""
        tables = self.tables(op.nbytes)
        self.loaded[f"once_{op.name}"][1, 32, None, self.chosen.region](tables.offsets, tables.masks, VALUE, tables.sink)


Profile = dict[str, dict[str, list[dict[str, float]]]]
"""Metrics of each pattern in turn, by operation and SASS opcode."""


def profiled(program: str, script_file: Path, options: argparse.Namespace) -> Profile:
    """Return Nsight Compute's counts of a run of the script with `--once`."""
    script = [sys.executable, str(script_file), "--target", options.target, "--once", *(["--quick"] if options.quick else [])]
    found: Profile = {}
    for launch in report(program, [WAVEFRONTS, IDEAL], script, dict(os.environ), options.limit).disassembled:
        by_opcode = found.setdefault(launch.kernel.removeprefix("once_"), {})
        for instruction in launch.instructions:
            if instruction.metrics.get(WAVEFRONTS):
                by_opcode.setdefault(instruction.opcode, []).append(instruction.metrics)
    return found


# -- comparing -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """The cycles and wavefronts by the rule of the operation's kind."""

    cycles: int
    wavefronts: int


@dataclass(frozen=True)
class Measured:
    """One operation under one pattern."""

    pattern: Pattern
    cycles: float
    expected: Expected | None
    profiler: Mapping[str, float] = field(default_factory=dict)
    """Wavefronts by SASS opcode."""


def expected(chip: Chip, op: Operation, pattern: Pattern) -> Expected | None:
    """Return memlane's cycles and wavefronts; None if it makes no claim."""
    if op.kind is None:
        return None
    access_of = (chip, pattern.offsets(op.nbytes).astype(np.uint64), pattern.mask, op.nbytes, op.kind)
    return Expected(access.bank_cycles(*access_of), access.wavefronts(*access_of))


def agrees(cycles: float, wanted: float) -> bool:
    """Return whether cycles agree within the loop overhead: 5 %, or a tenth of a cycle."""
    return abs(cycles - wanted) <= max(0.05 * wanted, 0.1)


def rows(op: Operation, measured: list[Measured], modelled: bool) -> Iterator[Row]:
    """Yield the number of patterns that differ from the expected time, with the cycles of each, and the number that differ in the
    profiler's counts, with these counts."""
    cycles = {one.pattern.name: round(one.cycles, 2) for one in measured}
    known = [(one, one.expected) for one in measured if one.expected is not None]
    if not known:
        yield Row(op.name, TIME, None, "", peer=cycles, note="a loop of compare and swap: no rule is claimed")
        return
    reach = None if modelled else 0.0
    off = [f"{one.pattern.name}: {one.cycles:.2f}, not {wanted.cycles}" for one, wanted in known if not agrees(one.cycles, wanted.cycles)]
    yield Row(op.name, TIME, float(len(off)), "patterns", reach, peer=cycles, note="; ".join([f"rule: {op.kind}", *off]))
    if any(one.profiler for one in measured):
        other = [(one.pattern.name, sum(one.profiler.values()), wanted.wavefronts) for one, wanted in known]
        other = [(name, seen, wanted) for name, seen, wanted in other if seen != wanted]
        note = "; ".join([f"rule: {op.kind}", *(f"{name}: {seen:g}, not {wanted}" for name, seen, wanted in other)])
        yield Row(op.name, COUNT, float(len(other)), "patterns", reach, peer={name: seen for name, seen, _ in other}, note=note)


def table(op: Operation, measured: list[Measured]) -> Iterator[str]:
    opcodes = sorted({opcode for one in measured for opcode in one.profiler})
    yield f"\n{op.name}: {'pattern':70} {'cycles':>8} {'rule':>5} {'wavefronts':>11}  {'  '.join(opcodes)}"
    for one in measured:
        counted = "  ".join(f"{one.profiler[opcode]:{len(opcode)}g}" for opcode in opcodes if opcode in one.profiler)
        rule = f"{one.expected.cycles:5} {one.expected.wavefronts:11}" if one.expected else f"{'-':>5} {'-':>11}"
        yield f"{op.name}: {one.pattern.name:70} {one.cycles:8.2f} {rule}  {counted}"


def compared(script: Path, chosen: Setting, options: argparse.Namespace) -> list[Row]:
    """Compare rule, clock and profiler for every operation and pattern, and print the rows.

    With `--once`, which the profiler uses, run each pattern once and return no rows.
    """
    bench = Bench(options.target, chosen)
    if options.once:
        for op in chosen.operations:
            bench.once(op)
        bench.target.sync()
        return []
    cycles = {op.name: bench.cycles(op) for op in chosen.operations}
    program = find() if options.target.startswith("cuda") else None
    counted: Profile = {}
    found = []
    if program:
        try:
            counted = profiled(program, script, options)
        except Exception as error:
            found.append(failed("Nsight Compute", f"{type(error).__name__}: {error}"))
    for op in chosen.operations:
        of_opcodes = {opcode: values for opcode, values in counted.get(op.name, {}).items() if len(values) == len(chosen.patterns)}
        measured = []
        for number, pattern in enumerate(chosen.patterns):
            seen = {opcode: values[number][WAVEFRONTS] for opcode, values in of_opcodes.items()}
            measured.append(Measured(pattern, cycles[op.name][number], expected(bench.target.chip, op, pattern), seen))
        print("\n".join(table(op, measured)))
        found += rows(op, measured, bench.target.modelled)
    return found


def arguments(text: str | None) -> argparse.ArgumentParser:
    """Return the argument parser of a script that calls `compared`."""
    made = parser(text)
    made.set_defaults(limit=90.0)
    made.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    return made


def main() -> None:
    options = arguments(__doc__).parse_args()
    found = compared(Path(__file__), setting(options), options)
    if not options.once:
        store("shared_rule", found, **machine(options))


if __name__ == "__main__":
    main()

"""How many sectors and wavefronts move in a clock: between L2 and one, some and all multiprocessors, to and from DRAM, in the load-store
unit?

Each stream consists of accesses of one kind with one pattern of addresses, in blocks of 1024 threads that stay from begin to end, with
eight accesses of each thread under way. For L2 the addresses stay within 16 MiB; for DRAM they go once through 4 GiB. A rate is what all
blocks moved over the cycles of the slowest block, so that what a launch costs drops out. The numbers are those of `[bandwidth]` in the
files of chips.

The patterns: `lines` are 32 lanes side by side, 4 whole sectors of one line; `whole sectors` 4 of them in 4 lines; `parts of sectors` 32
sectors in 8 lines, of which each lane has 4 bytes; `columns` the same in 32 lines that lie 16 KiB apart, as in the column of a matrix of
4096 x 4096 floats: 8 requests, mostly those of 8 warps of a block, share each sector.

Prediction (written before the first run), for an H200. L2 reads: 140 sectors a clock for all multiprocessors, of the 160 that are
published for this generation; one multiprocessor 2 a clock (64 bytes). L2 writes of lines: 80 to 130 a clock, one multiprocessor 1 to 2.
Parts of sectors: the transposition that writes columns of 4096 x 4096 floats takes 256 us, in which 16.8 million parts of sectors are
written: 33 a clock if nothing but that limits it, one quarter of a sector a clock and multiprocessor. So 30 to 40 a clock for `columns`;
the same for `parts of sectors` if L2 is what limits, 60 and more if the number of lines is. Whether the limit is that of each
multiprocessor shows with 33 of them. Atomics: as parts of sectors, or half of that. DRAM: 4.4 TB/s read, 3.9 written, 4.2 copied; half of
it where one sector of two is read, if DRAM gives 64 bytes at once, all of it if 32. Wavefronts: one a clock for shared memory and for
lines in L1; 32 lines in L1 take 8 to 16 clocks.

What the first run said, of an H200: L2 reads as predicted, 141 sectors a clock, and 81 where each is in a line of its own. L2 writes 74
in lines, 62 in parts: that a sector is written in part costs little. What costs is a line: 52 lines a clock of which whole sectors are
written, 34 of which parts are (`columns`); so the transposition takes what it writes, in lines. One multiprocessor: 1 sector a clock
written, half a line in parts. Atomics: 36 to 38 sectors a clock whatever the pattern, and 45 clocks for 32 lanes at one word, on the
whole chip. A load of 32 lines that L1 has takes 32 clocks and one of 8 lines 8: as many as words meet in a bank, if the memory of L1 has
those of shared memory. DRAM gives 64 bytes at once.

Prediction for what was added then: with 16 bytes a lane one multiprocessor reads 2 sectors a clock, and writes 1 as before. Atomics of
all warps in one sector, and in one line, take 1.4 clocks for each lane, as at one word: a histogram with 31 % of its additions in one
line takes so long that they do. If not, eight lines of all are eight times as fast as one. 32 lines in 32 banks of L1 take 8 clocks.
Lines written in part that are neighbours, or 33 lines apart, are written as fast as those 16 KiB apart, 34 a clock, if what limits is the
way there and not where in L2 they meet.

What that run said: neighbouring lines and those 33 apart are written as fast as columns, 34 a clock. With 16 bytes a lane 136 sectors a
clock are written in all, nearly twice as many as with 4, and 2.6 read by one multiprocessor. Lanes that meet in a line are not as slow as
at one word: 0.85 sectors a clock in one line, 0.21 in one sector, 0.02 in one word. So the floor of one line counts sectors of requests,
and the histogram in global memory takes 3.3 times as long as its floor. 32 lines of L1 in 32 banks take 9 clocks.

    python benchmarks/bandwidth.py
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Row
from running import measure, parser

from memlane.compile import cuda
from memlane.launch import DeviceArray, KernelCall, LoadedModule, Target
from memlane.targets import target as named_target

SOURCES = ["benchmarks/bandwidth.py", "benchmarks/kernels/bandwidth.cu"]

SOURCE = Path(__file__).parent / "kernels" / "bandwidth.cu"
THREADS, WARPS = 1024, 32
UNROLL = 8
"""Consecutive accesses of a thread in the kernels; the number of requests of a warp is a multiple of it."""


@dataclass(frozen=True)
class Pattern:
    """The addresses of the lanes of a request, and the number of requests: the parameters of `stream` in the kernels."""

    group: int
    apart: int
    footprint: int
    period: int = 0
    step: int = 0
    sectors: int = 4
    """Sectors that a request touches."""


LINES = Pattern(group=32, apart=32, footprint=32)
WHOLE = Pattern(group=8, apart=32, footprint=128, period=2, step=8)
PARTS = Pattern(group=1, apart=8, footprint=256, period=3, step=1, sectors=32)
COLUMNS = Pattern(group=1, apart=4096, footprint=32 * 4096, period=12, step=1, sectors=32)
ONE_OF_TWO = Pattern(group=8, apart=16, footprint=64)
ONE_OF_FOUR = Pattern(group=8, apart=32, footprint=128)
WIDE = Pattern(group=1, apart=4, footprint=128, sectors=16)
ONE_WORD = Pattern(group=1, apart=0, footprint=0, sectors=1)
ONE_SECTOR = Pattern(group=8, apart=0, footprint=0, sectors=1)
ONE_LINE = Pattern(group=32, apart=0, footprint=0, sectors=4)
EIGHT_LINES = Pattern(group=1, apart=8, footprint=0, sectors=32)
APART = Pattern(group=1, apart=32, footprint=1024, period=5, step=1, sectors=32)
ODD = Pattern(group=1, apart=32 * 33, footprint=32 * 32 * 33, period=10, step=1, sectors=32)
PATTERNS = {
    "lines": LINES,
    "whole sectors": WHOLE,
    "parts of sectors": PARTS,
    "columns": COLUMNS,
    "neighbouring lines": APART,
    "lines 33 apart": ODD,
}

HOT = {"one word of all": ONE_WORD, "one sector of all": ONE_SECTOR, "one line of all": ONE_LINE, "eight lines of all": EIGHT_LINES}

KINDS = {"L2 reads": "stream<Read>", "L2 writes": "stream<Write>", "L2 atomics": "stream<Add>"}
DRAM = {
    "read": ("stream<Read>", LINES),
    "written": ("stream<Write>", LINES),
    "copied, read and written": ("stream<Copy>", LINES),
    "read, one sector of two": ("stream<Read>", ONE_OF_TWO),
    "read, one sector of four": ("stream<Read>", ONE_OF_FOUR),
    "written, one sector of two": ("stream<Write>", ONE_OF_TWO),
    "written, parts of sectors": ("stream<Write>", Pattern(group=1, apart=8, footprint=256, sectors=32)),
}


@dataclass(frozen=True)
class Taken:
    """The measured cycles and time of a stream."""

    cycles: float
    us: float


class Bench:
    """The kernels on a target."""

    def __init__(self, name: str, quick: bool) -> None:
        self.target: Target = named_target(name)
        self.quick = quick
        self.sms = 2 if quick else self.target.chip.sm_count
        major, minor = self.target.chip.compute_capability
        self.loaded: LoadedModule = self.target.load(cuda(SOURCE, arch=f"sm_{major}{minor}"))
        self.cycles = self.target.zeros(2 * self.target.chip.sm_count, np.int64)
        self.sink = self.target.zeros(1, np.uint32)

    def grids(self) -> list[tuple[int, int]]:
        """Return pairs of multiprocessors and blocks. If all multiprocessors take part, each has two blocks, otherwise one."""
        some = [1, 2] if self.quick else [1, 2, 8, 33, self.sms // 2]
        return [*((sms, sms) for sms in some), (self.sms, 2 * self.sms)]

    def taken(self, call: KernelCall, blocks: int, *arguments: object) -> Taken:
        """Return the medians of some launches."""
        launch = call.bind(*arguments)
        found = []
        for turn in range(1 if self.quick else 7):
            (line,) = self.target.time_launches([launch])
            if self.quick or turn > 1:
                found.append((float(self.cycles.numpy()[:blocks].max()), line.elapsed_ns / 1e3))
        return Taken(*(statistics.median(column) for column in zip(*found, strict=True)))

    def stream(self, kernel: str, data: DeviceArray, words: int, pattern: Pattern, blocks: int, requests: int) -> Taken:
        numbers = (words - 1, pattern.period, pattern.step, pattern.footprint, pattern.group, pattern.apart)
        return self.taken(self.loaded[kernel][blocks, THREADS], blocks, data, self.cycles, self.sink, *numbers, requests)


def of_l2(bench: Bench, kind: str) -> Iterator[Row]:
    words = 1 << (14 if bench.quick else 22)
    data = bench.target.zeros(words, np.uint32)
    last = {**HOT} if kind == "L2 atomics" else {"16 bytes a lane": WIDE}
    for name, pattern in {**PATTERNS, **last}.items():
        for sms, blocks in bench.grids():
            requests = UNROLL if bench.quick else 16 if name in HOT else 128 if pattern.sectors > 4 else 512
            kernel = KINDS[kind].replace(">", "Wide>") if pattern is WIDE else KINDS[kind]
            taken = bench.stream(kernel, data, words, pattern, blocks, requests)
            yield _rate(f"{kind}, {name}, {sms} SMs", "sectors a clock", blocks * WARPS * requests * pattern.sectors, taken)


def _rate(case: str, unit: str, amount: int, taken: Taken) -> Row:
    nbytes = {"GB/s": amount * 32 / taken.us / 1e3} if unit.startswith("sectors") else {}
    peer = {"amount": float(amount), "cycles": taken.cycles, "us": taken.us, **nbytes, "MHz": taken.cycles / taken.us}
    return Row(case, "rate", round(amount / taken.cycles, 3), unit, better="higher", peer=peer)


def of_dram(bench: Bench, kind: str) -> Iterator[Row]:
    words = 1 << (18 if bench.quick else 30)
    data = bench.target.empty(words, np.uint32)
    blocks = 2 * bench.sms
    for name, (kernel, pattern) in DRAM.items():
        span = words // 2 if kernel == "stream<Copy>" else words
        requests = -(-span // pattern.footprint // (blocks * WARPS) // UNROLL) * UNROLL
        taken = bench.stream(kernel, data, span, pattern, blocks, requests)
        moved = blocks * WARPS * requests * pattern.sectors * 32 * (2 if kernel == "stream<Copy>" else 1)
        peer = {"bytes": float(moved), "us": taken.us, "GB/s by cycles": moved / taken.cycles * bench.target.chip.clock_mhz / 1e3}
        yield Row(f"DRAM, {name}", "rate", round(moved / taken.us / 1e3, 1), "GB/s", better="higher", peer=peer)


def of_lsu(bench: Bench, kind: str) -> Iterator[Row]:
    words, requests = (1024, UNROLL) if bench.quick else (4096, 512)
    blocks = bench.sms
    data = bench.target.zeros(words * blocks, np.uint32)
    for name, group, apart in (("lines", 32, 32), ("8 lines", 1, 8), ("32 lines", 1, 32), ("32 lines in 32 banks", 1, 33)):
        kernel = bench.loaded["resident<ReadNear>"][blocks, THREADS]
        taken = bench.taken(kernel, blocks, data, bench.cycles, bench.sink, words, group, apart, requests)
        yield _requests(f"loads that L1 has, {name}", requests, taken)
    for apart in (1, 2, 32):
        taken = bench.taken(bench.loaded["banks"][blocks, THREADS], blocks, bench.cycles, bench.sink, apart, requests)
        yield _requests(f"shared memory, {apart} lanes in a bank", requests, taken)


def _requests(case: str, requests: int, taken: Taken) -> Row:
    """Return the row of cycles per request of one multiprocessor, which has one block."""
    return Row(
        case, "cycles a request", round(taken.cycles / (requests * WARPS), 3), "cycles", peer={"cycles": taken.cycles, "us": taken.us}
    )


CASES = {**dict.fromkeys(KINDS, of_l2), "DRAM": of_dram, "load-store unit": of_lsu}


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    return list(CASES[name](Bench(options.target, options.quick), name))


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("bandwidth", list(CASES), run_case, options)


if __name__ == "__main__":
    main()

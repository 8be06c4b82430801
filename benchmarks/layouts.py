"""Count what patterns of accesses cost under layouts of a 32x32 tile of shared memory, and what the search finds: by the H200's rules, on a
CPU.

Prediction, written before the first run. Padding and the XOR of row and column each have a diagonal of 32 wavefronts. RAS takes 3.53 in the
mean for columns and diagonals, the mean of the fullest of 32 banks that 32 lanes choose, and 3.44 for random elements, among which equal
ones are served together; these are the two numbers that its authors published. RAP takes 1 for rows and columns and between 3.5 and 3.7
for diagonals (3.61 by a simulation that is not ours). The search finds a layout with 1 for rows, columns and blocks and 2 for both
diagonals in less than 5 s, with less than half of the operations of the linear layout that is known to do so.

    python benchmarks/layouts.py
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from harness import Row, write

from memlane.chip import load
from memlane.layout import BitLinear, Layout, RowMajor, Wavefronts, count, count_drawn, pattern, read_spec
from memlane.optimize import search_layout

SOURCES = ["src/memlane/layout", "src/memlane/optimize", "src/memlane/chip/batch.py", "benchmarks/layouts.py"]

SIDE = 32
PATTERNS = ("row", "column", "diagonal", "antidiagonal", "xordiagonal", "block4x8", "block8x4", "block16x2", "random")
LAYOUTS = ("row-major", "pad(1)", "xor", "ras", "rap", "linear(19, 10, 13, 23, 8)")
DRAWS = 20_000
SEARCHED = ("row", "column", "diagonal", "antidiagonal", "block8x4")
KNOWN = BitLinear.of_rows(SIDE, SIDE, [19, 10, 13, 23, 8])
"""A linear layout with 1 for rows, columns and blocks, and 2 for diagonals."""
PUBLISHED = {
    ("ras", "column"): 3.53,
    ("ras", "diagonal"): 3.53,
    ("ras", "random"): 3.436,
    ("rap", "row"): 1.0,
    ("rap", "column"): 1.0,
    ("rap", "diagonal"): 3.61,
}
WITHIN = 0.02
"""Largest acceptable difference from a published mean: two or three of its standard errors, plus its last digit."""

Counted = dict[tuple[str, str], Wavefronts]


def counted(draws: int) -> Counted:
    """Return the mean and worst counts by layout and pattern."""
    chip, found = load("h200"), {}
    for name in LAYOUTS:
        spec = read_spec(name)
        made: list[Layout] = [spec.of(SIDE, SIDE, seed) for seed in range(draws if spec.random else 1)]
        for word in PATTERNS:
            one = pattern(word, SIDE, SIDE)
            found[name, word] = count_drawn(made, name, one, chip, 4) if spec.random else count(made[0], one, chip, 4)
    return found


def rows(draws: int) -> Iterator[Row]:
    found = counted(draws)
    start = time.perf_counter()
    best = search_layout(SEARCHED, width=4)
    seconds = time.perf_counter() - start
    for word in PATTERNS:
        entries = {name: found[name, word] for name in LAYOUTS}
        ours = count(best.layout, pattern(word, SIDE, SIDE), load("h200"), 4)
        peer = {f"{name}, {which}": value for name, one in entries.items() for which, value in (("mean", one.mean), ("worst", one.worst))}
        yield Row(
            word, "wavefronts of the searched layout, worst", float(ours.worst), "wavefronts", peer={**peer, "searched, mean": ours.mean}
        )
    for (name, word), published in PUBLISHED.items():
        mean = found[name, word].mean
        peer = {"published": published, "ours": mean}
        yield Row(f"{name}, {word}", "distance from the published mean", abs(mean - published), "wavefronts", WITHIN, peer=peer)
    for entry in best.entries:
        known = count(KNOWN, pattern(entry.pattern, SIDE, SIDE), load("h200"), 4)
        yield Row(f"search, {entry.pattern}", "worst over all offsets", float(entry.worst), "wavefronts", float(known.worst))
    base = RowMajor(SIDE, SIDE).cost.operations
    limit = (KNOWN.cost.operations - base) / 2
    yield Row("search", "operations beyond row-major", float(best.extra.operations), "operations", limit, note=str(best.layout))
    yield Row("search", "time", seconds, "s", 5.0, note=f"{best.examined:,} layouts looked at")


def main() -> int:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--draws", type=int, default=DRAWS, help="random layouts that a mean is taken over")
    arguments.add_argument("--out", type=Path, help="another folder for the result")
    chosen = arguments.parse_args()
    write("layouts", list(rows(chosen.draws)), chip="cpu", directory=chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

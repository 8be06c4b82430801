"""Measure kernels with another layout of an array in shared memory, without their source: the same bytes, wavefronts, registers and time.

Each array in shared memory of the examples is taken in turn, with a padding, the XOR of row and column, RAS, RAP and the layout that the
search finds for rows and columns. Original and layouts run in turn in each round; what is told is the median of the rounds' ratios.

Prediction, written before the first run. No byte of any output differs. The tiled transpose of 4096 x 4096 needs 33 wavefronts for each
pair of a store and a load, which at one a cycle take some 75 us on 132 multiprocessors; padding, XOR and the searched layout need 2, and
leave what the memory takes, 40 us or so: 1.5 to 2 times as fast. RAS takes 4.5 and RAP 2 with tables of 32 numbers, put together by a
dozen instructions: 1.3 to 1.7 times as fast. The matrix product has no conflicts, so every layout costs what its address costs: 0.6 to
0.95. In the textbook reduction two thirds of the wavefronts are conflicts, but each of its steps waits for the one before: 0.9 to 1.1.
The histogram's accesses are as random as its data: no layout changes its wavefronts by a tenth, and it is no quicker.

    python benchmarks/relayout.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from harness import Row
from replay import each_launch
from running import QUICK_SIZES, example, measure, parser

from memlane.launch import Launch, plain_name
from memlane.layout import Layout, Padded, RandomPermuteShift, RandomShift, XorSwizzle
from memlane.optimize import Measured, fix_launch, search_layout
from memlane.rewrite import SharedArray, shared_arrays

SOURCES = ["src/memlane/rewrite", "src/memlane/layout", "src/memlane/optimize", "examples", "benchmarks/relayout.py"]

SIZES = {"transpose": 4096, "matmul": 512, "reduction": 1 << 22, "histogram": 1 << 22, "chase": 200}
"""Arguments of the example scripts."""
COLUMNS = {"tile_a": 16, "tile_b": 16}
"""Elements in a row, for arrays that do not have 32."""
QUICKER = 1.5
"""Speed-up that the tiled transpose should reach with a layout without conflicts."""


def layouts(rows: int, columns: int) -> Iterator[tuple[str, Layout]]:
    """Yield the layouts with their names in the table."""
    yield "pad", Padded(rows, columns, 1)
    yield "XOR", XorSwizzle(rows, columns)
    yield "RAS", RandomShift(rows, columns, 1)
    yield "RAP", RandomPermuteShift(rows, columns, 1)
    yield "searched", search_layout(("row", "column", "diagonal", "antidiagonal"), rows=rows, columns=columns).layout


def tried(launch: Launch, array: SharedArray) -> list[Row]:
    """Return the rows of one array of one launch with all layouts."""
    name, kernel = array.title.rpartition("::")[2], plain_name(launch.kernel.title)
    columns = COLUMNS.get(name, 32)
    nbytes = array.nbytes or launch.shared_bytes
    rows = nbytes // 4 // columns
    named = {layout: word for word, layout in layouts(rows, columns) if layout.size * 4 <= nbytes or not array.is_dynamic}
    shared = f"dynamic[0:{rows * columns * 4}]" if array.is_dynamic else array.names[0]
    (found,) = fix_launch(launch, shared=shared, layouts=list(named))
    made = [_row(f"{kernel}, {name}, {named[one.layout]}", found.original, one) for one in found.tried if one.layout is not None]
    differing = [named[one.layout] for one in found.tried if one.layout is not None and not one.same]
    note = f"{len(found.tried)} layouts" + (f"; differ: {', '.join(differing)}" if differing else "")
    missing = [f"{layout}: {reason}" for layout, reason in found.refused]
    made.append(Row(f"{kernel}, {name}", "layouts whose output differs", float(len(differing)), "layouts", 0.0, note=note))
    made += [Row(f"{kernel}, {name}", "not measured", None, "", reach=0.0, note=reason[:300]) for reason in missing]
    return made


def _row(case: str, before: Measured, after: Measured) -> Row:
    peer = {
        "wavefronts, before": float(before.wavefronts),
        "wavefronts, after": float(after.wavefronts),
        "ideal": float(before.ideal_wavefronts),
        "us, before": before.time_ns / 1e3,
        "us, after": after.time_ns / 1e3,
        "shared bytes, before": float(before.needs.shared_bytes),
        "shared bytes, after": float(after.needs.shared_bytes),
    }
    for what in ("registers", "blocks"):
        for when, one in (("before", before), ("after", after)):
            value = getattr(one.needs, what)
            peer |= {} if value is None else {f"{what}, {when}": float(value)}
    reach = QUICKER if case in ("tiled, tile, pad", "tiled, tile, XOR", "tiled, tile, searched") else None
    return Row(case, "times as fast", after.speedup, "", reach, "higher", peer)


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run the first launch of each kernel of an example that has arrays in shared memory."""
    found: list[Row] = []
    seen: set[str] = set()

    def visit(number: int, launch: Launch) -> None:
        title = launch.kernel.title
        if title not in seen and "float" not in title.partition("(")[0]:
            seen.add(title)
            for array in shared_arrays(launch.kernel.module, launch.kernel.function):
                if plain_name(title) != "padded":
                    found.extend(tried(launch, array))

    size = QUICK_SIZES[name] if options.quick else SIZES[name]
    each_launch(example(name), [str(size)], options.target, visit)
    return without_reach(found) if options.quick else found


def without_reach(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without reaches for speed-ups, because small launches on the emulator have no meaningful time."""
    return [
        Row(one.case, one.metric, one.value, one.unit, None, one.better, one.peer, one.note) if one.better == "higher" else one
        for one in rows
    ]


def main() -> int:
    options = parser(__doc__).parse_args()
    measure("relayout", tuple(SIZES), run_case, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

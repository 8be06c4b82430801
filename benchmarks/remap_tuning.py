"""Find the fastest tile of the transposition: units along rows and columns, the order of blocks, hints to the caches.

    python benchmarks/remap_tuning.py --target cuda:0 --out DIRECTORY      (about 60 s)

Variants of one step alternate within each round; the best of a step goes on to the next. It chooses `memlane.remap.kernels.TILES` and
states nothing itself: `benchmarks/transfers.py` does.

Prediction for an H200: 16 x 16 units for 4 bytes, 8 x 16 for 2, 8 x 8 or 16 x 8 for 1; orders in groups of 8 to 32 tiles are alike and
5 % better than rows of tiles; hints change less than 2 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from transfers import Bench, moving, random_bytes

from memlane.errors import MemlaneError
from memlane.layout import column_major
from memlane.remap.kernels import Share, Tile

UNITS = ((8, 8), (8, 16), (16, 8), (16, 16), (8, 32), (32, 8), (16, 32), (32, 16), (32, 32))
GROUPS = (0, 1, 4, 8, 16, 32, 64)
HINTS = (("load_once", "store_plain"), ("load_plain", "store_plain"), ("load_once", "store_once"), ("load_plain", "store_once"))


class Tuning:
    def __init__(self, bench: Bench, element: int, side: int) -> None:
        self.bench, self.element, self.side = bench, element, side
        nbytes = side * side * element
        self.given, self.stored = random_bytes(bench.target, nbytes), bench.target.empty(nbytes, "u1")
        self.copy = bench.copying(self.stored, self.given)
        self.found: dict[str, float] = {}

    def starter(self, tile: Tile) -> Callable[[], object] | None:
        try:
            work = moving(column_major((self.side, self.side)), self.element, tile=tile)
            return self.bench.starter(work, {"given": self.given, "stored": self.stored})
        except MemlaneError as error:
            print(f"{self.element} bytes {tile}: {str(error)[:100]}")
            return None

    def best(self, tiles: Iterable[Tile]) -> Tile:
        """Return the fastest of some tiles, and print the share of the copy's rate of each."""
        named = {str(tile): tile for tile in tiles}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda tile: moving(column_major((self.side, self.side)), self.element, tile=tile), named.values()))
        runs = {name: run for name, tile in named.items() if (run := self.starter(tile)) is not None}
        times = self.bench.compared({"copy": self.copy, **runs}, 2)
        for name in runs:
            share = statistics.median(a / b for a, b in zip(times["copy"], times[name], strict=True))
            self.found[name] = share
            print(f"{self.element} bytes  {share:.4f}  {name}", flush=True)
        return named[max(runs, key=lambda name: self.found[name])]


SHARES = tuple(Share(room, load, store) for room in (1 << 15, 1 << 14, 1 << 13) for load, store in HINTS)


def structures(bench: Bench, fields: int, count: int) -> dict[str, float]:
    """Return shares of the copy's rate for structures of `fields` floats, in both directions."""
    nbytes = 4 * count * fields
    given, stored = random_bytes(bench.target, nbytes), bench.target.empty(nbytes, "u1")
    found = {}
    for back in (False, True):
        works = {str(share): moving(column_major((count, fields)), 4, back=back, share=share) for share in SHARES}
        runs = {name: bench.starter(work, {"given": given, "stored": stored}) for name, work in works.items()}
        times = bench.compared({"copy": bench.copying(stored, given), **runs}, 2)
        for name in runs:
            share = statistics.median(a / b for a, b in zip(times["copy"], times[name], strict=True))
            found[f"{name}, {'join' if back else 'split'}"] = share
            print(f"{fields} fields {'join ' if back else 'split'} {share:.4f}  {name}", flush=True)
    return found


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--target", default="cuda:0")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--only", choices=("tiles", "structures"))
    given = options.parse_args()
    bench = Bench(given.target, given.quick)
    bench.rounds = 1 if given.quick else 5
    results: dict[object, object] = {}
    for fields in () if given.only == "tiles" else (3, 4, 7):
        count = 1024 if given.quick else (1 << 28) // fields // 1024 * 1024
        results[f"{4 * fields} bytes"] = structures(bench, fields, count)
        _kept(given.out, results)
    for element in () if given.only == "structures" else (4,) if given.quick else (4, 2, 1, 8, 16):
        side = 512 if given.quick else 16384 if element <= 4 else 8192
        tuning = Tuning(bench, element, side)
        start = Tile(16, 16, 16)
        units = UNITS[:2] if given.quick else UNITS
        tile = tuning.best(
            replace(start, row_units=rows, column_units=columns) for rows, columns in units if rows * columns * 256 // element <= 1 << 16
        )
        tile = tuning.best(replace(tile, group=group) for group in GROUPS)
        tile = tuning.best(replace(tile, load=load, store=store) for load, store in HINTS)
        print(f"== {element} bytes: {tile}", flush=True)
        results[element] = {"best": str(tile), "share of the copy": tuning.found}
        _kept(given.out, results)


def _kept(out: Path, results: object) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "remap_tuning.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

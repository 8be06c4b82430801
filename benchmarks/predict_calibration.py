"""Measure the kernels that calibrate the model of a launch's time, in addition to the tuned families of `predict_kernels`.

Each strains one part of a GPU: atomic operations at few places, loops that the assembler unrolls, loads under way, streams that L2 holds
or not, L1, textures, products of warpgroups, pipelines of copies. They are no families by which the model is judged. It needs a GPU: the
value is the median of the times between CUDA events with warm caches, as in `predict_measured`, and Nsight Compute's throughputs stand
beside. Of some of them, and of tuned kernels, it gives what each throughput is made of, too (`breakdown`: percent, by metric).

    python benchmarks/predict_calibration.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import wgmma_kernels
from harness import Row, show, store
from predict_families import TUNED
from predict_kernels import MI, VARIANTS, Shape, Variant, blocks, compiled, floats
from predict_measured import LAUNCHED, METRICS, joined_metrics, timed
from running import machine, parser

from memlane.lab.profiler import UNTOUCHED, find, parse
from memlane.launch import KernelCall, Launch, Target, plain_name
from memlane.ptx import Module
from memlane.ptx import parse as parse_ptx
from memlane.targets import target as named_target

SOURCES = ["benchmarks/predict_calibration.py", "benchmarks/kernels/calibration.cu", "benchmarks/wgmma_kernels.py"]

SOURCE = Path(__file__).parent / "kernels" / "calibration.cu"
SM, L1, L2, DRAM = METRICS_OF_UNITS = list(METRICS)[:4]
BREAKDOWN = [f"breakdown:{metric}" for metric in METRICS_OF_UNITS]
SHARE, LEAST = ".avg.pct_of_peak", 3.0
"""Word in the names of a breakdown's components, and the least percentage that is kept."""


def call(target: Target, kernel: str, grid: Shape, block: Shape) -> KernelCall:
    return target.load(compiled(SOURCE))[kernel][grid, block]


# -- atomic operations -----------------------------------------------------------------------------------------------------------------


def atomic_ladder() -> Iterator[Variant]:
    def of(lanes: int, apart: int, places: int, step: int, operation: str = "Add32", n: int = MI // 2) -> Variant:
        kind = {"AddFloat": "f4", "Add64": "u8"}.get(operation, "u4")

        def launch(target: Target) -> Launch:
            words = target.zeros(lanes * apart + places * step, kind)
            arguments = n, *map(np.uint32, (lanes, apart, places, step))
            return call(target, f"atomic_ladder<{operation}>", blocks(n), 256).bind(words, *arguments)

        name = f"{operation}, {lanes} words {apart} apart at {places} places {step} apart"
        return Variant("atomic ladder", name, launch)

    yield from (of(lanes, 1, 1, 1) for lanes in (1, 2, 4, 8, 16, 32))
    yield from (of(32, 1, places, 32) for places in (2, 4, 8, 16, 64))
    yield from (of(32, 1, places, 32, n=4 * MI) for places in (512, 4096))
    yield from (of(1, 1, places, step) for places, step in ((2, 1), (8, 1), (8, 8), (8, 32), (64, 32)))
    yield from (of(1, 1, places, 32, n=4 * MI) for places in (512, 16384))
    yield from (of(lanes, apart, 1, 1) for lanes, apart in ((2, 8), (4, 8), (8, 32), (32, 32)))
    yield from (of(4, 1, 64, 32), of(32, 32, 32, 1024), of(8, 32, 64, 256, n=2 * MI), of(32, 1, 64, 1024))
    for operation in ("AddAny", "AddFloat", "Add64", "Maximum", "Fetch", "Swap"):
        yield from (of(1, 1, 1, 1, operation), of(8, 1, 1, 1, operation), of(32, 1, 4096, 32, operation, 4 * MI))


# -- loops and loads under way ---------------------------------------------------------------------------------------------------------


def loops() -> Iterator[Variant]:
    def dots(unroll: int, grid: int, block: int, n: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, f"dot<{unroll}>", grid, block).bind(*(floats(target, size) for size in (grid * block, n, n)), n)

        return Variant("loops", f"dot, {unroll or 'free'} copies, {grid} blocks of {block}, {n}", launch)

    def greatest(rows: int, columns: int, block: int) -> Variant:
        def launch(target: Target) -> Launch:
            out, source = target.zeros(columns, np.int32), target.zeros((rows, columns), np.int32)
            return call(target, "greatest", columns // block, block).bind(out, source, rows, columns)

        return Variant("loops", f"greatest, {rows} rows of {columns}", launch)

    def filters(kernel: str, n: int, taps: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, kernel, blocks(n), 256).bind(floats(target, n), floats(target, n + 1024), floats(target, 256), taps)

        return Variant("loops", f"{kernel}, {taps} taps, {n}", launch)

    for unroll in (0, 1, 8):
        yield from (dots(unroll, grid, block, n) for grid, block, n in ((132, 128, 4 * MI), (528, 256, 4 * MI)))
    yield from (dots(0, 264, 256, 16 * MI), greatest(512, 16896, 128), greatest(1000, 4224, 64))
    yield from (filters("filter_shared", MI, 64), filters("filter_global", MI, 64))


def loads_under_way() -> Iterator[Variant]:
    def of(k: int, grid: int, block: int, n: int) -> Variant:
        def launch(target: Target) -> Launch:
            whole = n // (k * grid * block) * k * grid * block
            return call(target, f"independent<{k}>", grid, block).bind(floats(target, grid * block), floats(target, n), whole)

        return Variant("loads under way", f"{k} words, {grid} blocks of {block}, {n}", launch)

    yield from (of(k, 132, 256, 32 * MI) for k in (2, 4, 8))
    yield from (of(8, 132, 1024, 32 * MI), of(4, 132, 128, 4 * MI), of(8, 132, 256, 4 * MI))


# -- what L2 keeps ---------------------------------------------------------------------------------------------------------------------


def kept() -> Iterator[Variant]:
    """Yield passes over so much memory that L2 holds all of it, most of it, or little of it, which shows what it keeps from one launch to
    the next."""

    def of(kernel: str, megabytes: int, *arrays: int) -> Variant:
        n = megabytes * MI // sum(arrays)

        def launch(target: Target) -> Launch:
            return call(target, kernel, blocks(n), 256).bind(*(floats(target, max(4, n * each // 4)) for each in arrays), n)

        return Variant("what L2 keeps", f"{kernel}, {megabytes} MiB", launch)

    for megabytes in (16, 24, 28, 30, 32, 34, 36, 38, 40, 42, 44, 48, 52, 60):
        yield from (of("read4", megabytes, 0, 16), of("copy4", megabytes, 16, 16), of("scale", megabytes, 16))


# -- streams, L1, textures -------------------------------------------------------------------------------------------------------------


def streams() -> Iterator[Variant]:
    def of(kernel: str, megabytes: int, *arrays: int) -> Variant:
        """Return one variant; `arrays` holds the bytes of each array per element of 16 bytes."""
        n = megabytes * MI // sum(arrays)

        def launch(target: Target) -> Launch:
            return call(target, kernel, blocks(n), 256).bind(*(floats(target, max(4, n * each // 4)) for each in arrays), n)

        return Variant("streams", f"{kernel}, {megabytes} MiB", launch)

    yield from (of("triad", size, 16, 16, 16) for size in (24, 192))
    yield from (of("scale", size, 16) for size in (24, 48, 64, 128))
    yield from (of("copy4", size, 16, 16) for size in (24, 40, 48, 56, 64, 96))
    yield from (of("read4", size, 0, 16) for size in (24, 40, 48, 56, 64, 96, 256))
    yield of("split", 128, 4, 4, 8)


def near_reads() -> Iterator[Variant]:
    def of(kind: str, stride: int) -> Variant:
        def launch(target: Target) -> Launch:
            return call(target, f"near_reads<{kind}>", 264, 512).bind(floats(target, 512), floats(target, 4096), 256, stride)

        return Variant("reads from L1", f"{kind}, {stride} apart", launch)

    yield from (of("float", stride) for stride in (0, 1, 2, 8, 32, 33))
    yield from (of("float4", stride) for stride in (1, 8))


def fetches() -> Iterator[Variant]:
    def of(name: str, shape: tuple[int, int], block: tuple[int, int], matrix: tuple[float, ...], image: tuple[int, int]) -> Variant:
        def launch(target: Target) -> Launch:
            height, width = shape
            texture = target.texture(np.zeros(image, np.float32), filter="point", address="clamp")
            grid = width // block[0], height // block[1]
            return call(target, "sampled", grid, block).bind(floats(target, *shape), texture, width, *map(np.float32, matrix))

        return Variant("fetches from textures", f"{name}, {block[0]} x {block[1]}", launch)

    def anywhere(mask: int) -> Variant:
        def launch(target: Target) -> Launch:
            texture = target.texture(np.zeros((2048, 2048), np.float32), filter="point", address="clamp")
            return call(target, "sampled_anywhere", (64, 128), (32, 8)).bind(floats(target, 1024, 2048), texture, 2048, np.uint32(mask))

        return Variant("fetches from textures", f"anywhere in {mask + 1} x {mask + 1}", launch)

    shape, image = (1024, 2048), (2048, 2048)
    yield from (of("as they lie", shape, block, (1, 0, 0, 1), image) for block in ((32, 8), (8, 32), (256, 1)))
    yield from (of("turned", shape, block, (0, 1, 1, 0), image) for block in ((32, 8), (8, 32)))
    yield of("every fourth", (512, 1024), (32, 8), (4, 0, 0, 4), (2048, 4096))
    yield of("four times as large", shape, (32, 8), (0.25, 0, 0, 0.25), image)
    yield from map(anywhere, (15, 255))


# -- products of warpgroups, pipelines ---------------------------------------------------------------------------------------------------


def warpgroups() -> Iterator[Variant]:
    def of(product: wgmma_kernels.Product, grid: int, turns: int) -> Variant:
        def module() -> Module:
            return parse_ptx(wgmma_kernels.HEAD + product.text(), f"{product.name}.ptx")

        def launch(target: Target) -> Launch:
            return target.load(module())[product.name][grid, 128].bind(floats(target, 64), np.uint32(turns))

        return Variant("products of warpgroups", f"{product.name}, {grid} blocks", launch)

    wide = wgmma_kernels.packed(128)
    for columns, left, grid, turns in (
        (256, wide, 132, 40),
        (64, wide, 132, 100),
        (64, wide, 528, 40),
        (8, None, 132, 100),
        (128, None, 264, 40),
    ):
        yield of(wgmma_kernels.Product(columns, "f16", left, wide), grid, turns)


def pipelines() -> Iterator[Variant]:
    def of(kernel: str, grid: int, megabytes: int) -> Variant:
        tiles = megabytes * MI // 4096 // grid

        def launch(target: Target) -> Launch:
            return call(target, kernel, grid, 128).bind(floats(target, grid * 128), floats(target, megabytes * MI // 4), tiles)

        return Variant("pipelines of copies", f"{kernel}, {grid} blocks, {megabytes} MiB", launch)

    for kind in ("bulk", "copy"):
        yield from (of(f"{kind}_pipeline<{stages}>", grid, 24) for stages, grid in ((2, 132), (4, 132), (4, 528)))
    yield of("bulk_pipeline<4>", 1056, 128)


GENERATORS: dict[str, Callable[[], Iterator[Variant]]] = {
    "atomic ladder": atomic_ladder,
    "loops": loops,
    "loads under way": loads_under_way,
    "what L2 keeps": kept,
    "streams": streams,
    "reads from L1": near_reads,
    "fetches from textures": fetches,
    "products of warpgroups": warpgroups,
    "pipelines of copies": pipelines,
}
CALIBRATION = {family: tuple(generate()) for family, generate in GENERATORS.items()}
ALL = {variant.title: variant for family in CALIBRATION.values() for variant in family}
PROFILED = ("loops", "streams", "reads from L1", "fetches from textures")
WARM = tuple(variant.title for variant in CALIBRATION["what L2 keeps"])
WARM_LAUNCHES = 5
"""Launches of a kernel whose traffic is counted while L2 holds what earlier launches left; the last one counts."""
WARM_METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sector_hit_rate.pct")
"""Metrics that the profiler counts in one pass, because replays would change the contents of L2."""
EXPLAINED = (
    *(f"copies by vector width: {name}" for name in ("16777216 char", "16777216 float", "4194304 float4")),
    *(f"reduction ladder: step {name}" for name in ("1, 4194304", "2, 4194304", "4, 4194304", "10, 33554432")),
    *(f"stencils by block shape: {name} planes" for name in ("32 x 4 x 2, 64", "16 x 16 x 1, 64", "8 x 8 x 4, 64", "32 x 4 x 2, 256")),
    *(f"strided gathers: {name} words apart" for name in ("4194304, 8", "1048576, 32", "262144, 32")),
    *(f"bank conflicts: {name} apart" for name in ("float, 1", "float, 4")),
    *(f"arithmetic: {name}, 1 chains, 264 blocks of 512" for name in ("Shift", "Remainder", "Root")),
    *("barriers: 132 blocks of 1024", "barriers: 2112 blocks of 64"),
    *(f"stores: {name}" for name in ("8388608 float4", "8388608, 2 words apart", "1048576, 32 words apart")),
    "tensor products: 4 chains, 8 warps",
)
"""Kernels of tuned families whose throughputs are broken down."""
assert all(title.partition(": ")[0] in TUNED for title in EXPLAINED)


def launch_plainly(titles: Sequence[str], target: Target) -> None:
    """Launch each variant once, or until L2 is warm, and print its title and the name of its kernel for each launch."""
    for title in titles:
        launch = (ALL.get(title) or VARIANTS[title]).launch(target)
        for _ in range(WARM_LAUNCHES if title in WARM else 1):
            print(f"{LAUNCHED}{plain_name(launch.kernel.title)}\t{title}", flush=True)
            target.launch(launch)
            target.sync()


def profiled(titles: Sequence[str], metrics: Sequence[str], options: argparse.Namespace) -> tuple[dict[str, dict[str, float]], str]:
    """Return all that the profiler reports of some metrics, under their own names, by title; and the reason if there is nothing."""
    program = find()
    if program is None:
        return {}, "ncu was not found on PATH"
    table = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(metrics)]
    own = [sys.executable, sys.argv[0], "--target", options.target, "--plain", ";".join(titles)]
    try:
        done = subprocess.run(
            [program, *UNTOUCHED, *table, *own], capture_output=True, text=True, timeout=options.limit, env=dict(os.environ)
        )
    except subprocess.TimeoutExpired:
        return {}, f"ncu did not end within {options.limit:g} s"
    launches = [line.removeprefix(LAUNCHED).split("\t") for line in done.stdout.splitlines() if line.startswith(LAUNCHED)]
    found = dict(joined_metrics(launches, parse(done.stdout)))
    return found, "" if found else f"ncu counted nothing: {(done.stdout + done.stderr)[-300:]}"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--plain", help=argparse.SUPPRESS)
    arguments.add_argument("--families", help="only these, with ; between them")
    arguments.set_defaults(limit=75.0)
    options = arguments.parse_args()
    target = named_target(options.target)
    if options.plain is not None:
        launch_plainly(options.plain.split(";"), target)
        return
    head = machine(options)
    wanted = options.families.split(";") if options.families else list(CALIBRATION)
    rows = {variant.title: timed(variant, target) for family in wanted for variant in CALIBRATION[family]}
    store("predict_calibration", list(rows.values()), **head)
    titles = [title for title in rows if title.partition(": ")[0] in PROFILED]
    found, reason = profiled(titles, list(METRICS), options)
    warm, why_cold = profiled([title for title in rows if title in WARM], WARM_METRICS, options)
    found |= warm
    for title, counted in found.items():
        named = {METRICS[metric]: value for metric, value in counted.items() if metric in METRICS}
        rows[title] = replace(rows[title], peer={**rows[title].peer, **named})
    store("predict_calibration", list(rows.values()), **head)
    explained, why = profiled(EXPLAINED, [*BREAKDOWN, *METRICS], options)
    more = [
        Row(title, "breakdown", None, "", peer={one: value for one, value in sorted(counted.items()) if SHARE in one and value >= LEAST})
        for title, counted in explained.items()
    ]
    store("predict_calibration", [*rows.values(), *more], **head)
    show([*rows.values(), *more])
    print("\n".join(filter(None, (reason, why_cold, why))), file=sys.stderr)


if __name__ == "__main__":
    main()

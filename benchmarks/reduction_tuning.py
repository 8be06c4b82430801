"""Find the fastest shape of the final reduction at each size: threads, loads in flight, hints to the caches, and how blocks meet.

    python benchmarks/reduction_tuning.py --target cuda:0 --out DIRECTORY      (about 50 s)

Ten sums in a replayed graph, divided by ten (two of the largest), variants in turn within each round; PyTorch's and CuPy's sums of the same
array beside. It chooses what `memlane.lab.reduction` launches and states nothing itself: the lab does.

Prediction for an H200: 2^30 is decided by how many bytes are in flight, and every variant with 32 KiB or more of each SM reaches 4.5 TB/s;
2^20 takes 3.5 us with packed sums and 4.5 with tickets; 2^16 2.5 us in a cluster; hints change less than 3 %, but `evict_last` for a part
of 2^24 makes replayed sums quicker, for that part stays in the second cache.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver

import memlane as ml
from memlane.driver.parameters import Parameters
from memlane.lab.reduction.elements import Kind, first_lines
from memlane.launch import Kernel, LoadedModule, Target

SOURCE = Path(__file__).resolve().parents[1] / "src" / "memlane" / "lab" / "reduction"
TICKET, PACKED, CLUSTER = 0, 1, 2
SIDE = 16384


@dataclass(frozen=True)
class Variant:
    threads: int
    unroll: int
    grid: int
    finish: int = PACKED
    hint: int = 1
    bulk: tuple[int, int] = (0, 0)
    """Stages and bytes of each, where the copy engine brings the array."""

    @property
    def name(self) -> str:
        how = ("ticket", "packed", "cluster")[self.finish]
        bulk = f", {self.bulk[0]} x {self.bulk[1]} B" if self.bulk[0] else ""
        return f"{how}, {self.threads} threads x {self.unroll}, {self.grid} blocks, hint {self.hint}{bulk}"


def build(target: Target, kind: Kind, file: str, known: dict[Any, LoadedModule], **macros: int) -> LoadedModule:
    key = (kind, file, *macros.items())
    if key not in known:
        lines = first_lines([*kind.defines(), *(f"{name}={value}" for name, value in macros.items())])
        text = lines + (SOURCE / "values.cuh").read_text(encoding="utf-8") + (SOURCE / file).read_text(encoding="utf-8")
        known[key] = target.load(ml.cuda(text, name=file))
    return known[key]


def variants(n: int, sms: int) -> Iterator[Variant]:
    """Yield the variants to try at a size, by its number of 16-byte loads."""
    words = n // 4
    if n <= 1 << 18:
        for blocks in (8, 16) if n > 1 << 16 else (8,):
            unroll = max(1, min(8, words // (blocks * 1024)))
            yield Variant(1024, unroll, blocks, CLUSTER)
            yield Variant(512, min(8, 2 * unroll), blocks, CLUSTER)
    if n <= 1 << 22:
        for threads, unroll, finish in product((256, 512, 1024), (1, 2, 4, 8), (PACKED, TICKET)):
            grid = -(-words // (threads * unroll))
            if 16 <= grid <= 8 * sms and (finish == PACKED or threads == 512):
                yield Variant(threads, unroll, grid, finish)
        return
    for threads, unroll, each in (
        (256, 8, 8),
        (256, 16, 4),
        (512, 4, 4),
        (512, 8, 2),
        (512, 8, 3),
        (512, 8, 4),
        (1024, 4, 2),
        (1024, 8, 1),
    ):
        yield Variant(threads, unroll, each * sms)
    yield Variant(512, 8, 3 * sms, TICKET)
    for hint in (0, 2, 3, 4, 5):
        yield Variant(512, 8, 3 * sms, hint=hint)
    for threads, unroll in ((256, 8), (512, 4), (512, 8), (1024, 2)):
        grid = -(-words // (threads * unroll))
        if n == 1 << 24:
            yield Variant(threads, unroll, grid)
        else:
            yield Variant(threads, unroll, grid // 8)
    for threads, stages, size in ((256, 6, 32768), (512, 12, 16384), (256, 3, 16384)):
        each = 4 if stages == 3 else 1
        yield Variant(threads, 1, each * sms, bulk=(stages, size))


_KNOWN = dict[Any, LoadedModule]()


def runs_of(target: Target, array: Any, out: Any, n: int, repeats: int, tell: list[str]) -> dict[str, Callable[[], None]]:
    """Return a replay for each variant, after its sum was found right."""
    kind, known, runs = Kind("int32", "sum"), _KNOWN, {}
    expected = int(np.int64(array.sum().item()).astype(np.int32))
    for variant in variants(n, target.chip.sm_count):
        shared = variant.bulk[0] * variant.bulk[1]
        macros = {"THREADS": variant.threads, "UNROLL": variant.unroll, "FINISH": variant.finish, "HINT": variant.hint}
        extra = {"STAGES": variant.bulk[0], "STAGE_BYTES": variant.bulk[1]} if shared else {}
        if variant.finish == CLUSTER:
            extra = {"CLUSTER_BLOCKS": variant.grid}
        try:
            kernel = build(target, kind, "bulk.cu" if shared else "whole.cu", known, **macros, **extra)["reduce_whole"]
            if variant.finish == CLUSTER and variant.grid > 8:
                allow_large_clusters(kernel)
            room, ticket = target.zeros(16 * variant.grid, np.uint8), target.zeros(1, np.uint32)
            launch = kernel[variant.grid, variant.threads, None, shared].bind(out, array, n, room, ticket)
            graph = target.graph([launch] * repeats)
            graph.replay()
            got = int(out.numpy()[0])
        except (ml.MemlaneError, RuntimeError) as error:
            tell.append(f"{variant.name}: {str(error)[:160]}")
            continue
        if got != expected:
            tell.append(f"{variant.name}: gives {got}, not {expected}")
            continue
        runs[variant.name] = graph.replay
    return runs


def allow_large_clusters(kernel: Kernel) -> None:
    """Allow clusters of more than 8 blocks. Raises MemlaneError if the chip does not support them."""
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
    (code,) = driver.cuFuncSetAttribute(kernel.loaded.handle.kernels[kernel.name].function, attribute, 1)  # type: ignore[attr-defined]
    if code != driver.CUresult.CUDA_SUCCESS:
        raise ml.MemlaneError(f"clusters of more than 8 blocks: {code.name}")


def calls(target: Target, torch: Any, cupy: Any, found: dict[str, Any]) -> None:
    """Time one sum of 2^16 by each way to launch it from Python, between two events and on the clock of the host."""
    n, kind = 1 << 16, Kind("int32", "sum")
    array, out = torch.ones(n, dtype=torch.int32, device="cuda"), target.zeros(1, np.int32)
    kernel = build(target, kind, "whole.cu", _KNOWN, THREADS=1024, UNROLL=2, FINISH=CLUSTER, HINT=1, CLUSTER_BLOCKS=8)["reduce_whole"]
    launch = kernel[8, 1024].bind(out, array, n, out, out)
    graph = target.graph([launch])
    function, parameters = kernel.loaded.handle.kernels[kernel.name].function, Parameters([one.data for one in launch.arguments])
    address, stream = parameters.address, driver.CUstream(1)
    library = ctypes.CDLL("libcuda.so.1")
    raw = library.cuLaunchKernel
    raw.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    handle, executable = int(function), int(graph.built.graph.handle)
    start = library.cuGraphLaunch
    start.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    torch.zeros(1, device="cuda")
    runs: dict[str, Callable[[], Any]] = {
        "bindings": lambda: driver.cuLaunchKernel(function, 8, 1, 1, 1024, 1, 1, 0, stream, address, 0),
        "ctypes": lambda: raw(handle, 8, 1, 1, 1024, 1, 1, 0, 1, address, None),
        "ctypes, a graph": lambda: start(executable, 1),
        "bindings, who is current": lambda: driver.cuCtxGetCurrent(),
        "through memlane": lambda: target.launch(launch),
        "PyTorch": lambda: array.sum(dtype=torch.int32),
        "nothing": lambda: None,
    }
    if cupy is not None:
        same = cupy.asarray(array)
        runs["CuPy"] = lambda: same.sum(dtype=cupy.int32)
    print("== one call of 2^16: us between events, us on the host")
    for name, run in runs.items():
        between, host = [], []
        for _ in range(300):
            torch.cuda.synchronize()
            between.append(timed(torch, run, 1))
        torch.cuda.synchronize()
        for _ in range(300):
            began = time.perf_counter()
            run()
            host.append((time.perf_counter() - began) * 1e6)
        print(f"{statistics.median(between):10.2f} {statistics.median(host):10.2f}  {name}")
        found[f"call, {name}"] = {"between events": between, "host": host}


def timed(torch: Any, run: Callable[[], None], repeats: int) -> float:
    """Return the microseconds of one of `repeats` runs, by events."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / repeats


def captured(torch: Any, array: Any, repeats: int, **axis: int) -> Callable[[], None]:
    dtype = array.dtype
    for _ in range(3):
        array.sum(dtype=dtype, **axis)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [array.sum(dtype=dtype, **axis) for _ in range(repeats)]
    kept.clear()
    return lambda: graph.replay()


def report(name: str, times: dict[str, list[float]], nbytes: int, tell: list[str], found: dict[str, Any]) -> None:
    print(f"== {name}")
    ranked = sorted((statistics.median(values), what) for what, values in times.items())
    for median, what in ranked:
        print(f"{median:10.3f} us  {nbytes / median / 1e6:7.3f} TB/s  {what}")
    found[name] = dict(times)
    for line in tell:
        print("   ", line)
    tell.clear()
    sys.stdout.flush()


def whole(target: Target, torch: Any, cupy: Any, found: dict[str, Any], sizes: list[int], rounds: int) -> None:
    tell = list[str]()
    biggest = torch.randint(-(2**31), 2**31 - 1, (1 << max(sizes),), dtype=torch.int32, device="cuda")
    out = target.zeros(1, np.int32)
    for size in sizes:
        n = 1 << size
        array, repeats = biggest[:n], 10 if size < 28 else 2
        started = time.perf_counter()
        runs = runs_of(target, array, out, n, repeats, tell)
        runs["PyTorch"] = captured(torch, array, repeats)
        if cupy is not None:
            same = cupy.asarray(array)
            runs["CuPy, eager calls"] = lambda same=same, repeats=repeats: [same.sum(dtype=cupy.int32) for _ in range(repeats)] and None
        times: dict[str, list[float]] = {name: [] for name in runs}
        for name in runs:
            timed(torch, runs[name], repeats)
        for _ in range(rounds):
            for name, run in runs.items():
                times[name].append(timed(torch, run, repeats))
        tell.append(f"{time.perf_counter() - started:.1f} s")
        report(f"2^{size}", times, 4 * n, tell, found)


def axes(target: Target, torch: Any, cupy: Any, found: dict[str, Any], rounds: int) -> None:
    matrix = torch.rand((SIDE, SIDE), dtype=torch.float32, device="cuda")
    kind, known, tell = Kind("float32", "sum"), dict[Any, LoadedModule](), list[str]()
    out, sms = target.zeros(SIDE, np.float32), target.chip.sm_count
    for axis in (0, 1):
        expected, runs = matrix.sum(axis).cpu().numpy(), dict[str, Callable[[], None]]()
        if axis == 1:
            shapes = [
                (threads, unroll, grid)
                for threads, unroll in ((128, 8), (256, 4), (256, 8), (256, 16), (512, 4), (512, 8), (1024, 4))
                for grid in (SIDE, (2048 // threads) * sms)
            ]
        else:
            shapes = [
                (threads, unroll, splits)
                for threads, unroll in ((128, 8), (256, 4), (256, 8), (256, 16), (512, 4), (512, 8))
                for splits in (4, 8, 16, 32)
            ]
        for threads, unroll, third in shapes:
            loaded = build(target, kind, "axis.cu", known, THREADS=threads, UNROLL=unroll, WIDE=4, LANES=threads)
            if axis == 1:
                launch = loaded["reduce_rows"][third, threads].bind(out, matrix, SIDE, SIDE)
            else:
                tiles = SIDE // 128
                room, tickets = target.zeros(tiles * third * 128 * 4, np.uint8), target.zeros(tiles, np.uint32)
                launch = loaded["reduce_columns"][(tiles, third), threads].bind(out, matrix, SIDE, SIDE, room, tickets)
            graph, name = target.graph([launch] * 2), f"{threads} threads x {unroll}, {third}"
            graph.replay()
            if not np.allclose(out.numpy(), expected, rtol=1e-4):
                tell.append(f"{name}: wrong")
                continue
            runs[name] = graph.replay
        runs["PyTorch"] = captured(torch, matrix, 2, dim=axis)
        if cupy is not None:
            same = cupy.asarray(matrix)
            runs["CuPy, eager calls"] = lambda same=same, axis=axis: [same.sum(axis=axis) for _ in range(2)] and None
        times: dict[str, list[float]] = {name: [] for name in runs}
        for name in runs:
            timed(torch, runs[name], 2)
        for _ in range(rounds):
            for name, run in runs.items():
                times[name].append(timed(torch, run, 2))
        report(f"axis {axis}", times, 4 * SIDE * SIDE, tell, found)


def floors(target: Target, torch: Any, found: dict[str, Any], rounds: int) -> None:
    """Time a copy, a read and an empty kernel."""
    text = (SOURCE / "bandwidth.cu").read_text(encoding="utf-8")
    array, out = torch.ones(1 << 30, dtype=torch.int32, device="cuda"), torch.empty(1 << 30, dtype=torch.int32, device="cuda")
    runs, sms = dict[str, Callable[[], None]](), target.chip.sm_count
    for unroll, each in ((4, 4), (8, 2), (8, 4), (16, 2)):
        loaded = target.load(ml.cuda(first_lines([f"UNROLL={unroll}"]) + text, name="bandwidth.cu"))
        for name in ("read", "copy"):
            for grid in (each * sms, (1 << 28) // (512 * unroll)):
                launch = loaded[name][grid, 512].bind(out, array, 1 << 28)
                runs[f"{name}, 512 threads x {unroll}, {grid}"] = target.graph([launch] * 2).replay
        empty = target.graph([loaded["empty"][1, 32].bind()] * 10)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(timed(torch, run, 2))
    report("2^30 (bytes of one array)", times, 1 << 32, [], found)
    report("empty kernel", {"in a graph": [timed(torch, empty.replay, 10) for _ in range(30)]}, 1, [], found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--sizes", default="16,18,20,22,24,28,30")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    import torch

    try:
        import cupy
    except ImportError:
        cupy = None
        print("CuPy is not there")
    target, found = ml.target(options.target), dict[str, Any]()
    sizes = [int(word) for word in options.sizes.split(",")]
    parts: list[Callable[[], None]] = [
        lambda: whole(target, torch, cupy, found, sizes, options.rounds),
        lambda: axes(target, torch, cupy, found, options.rounds),
        lambda: floors(target, torch, found, options.rounds),
        lambda: calls(target, torch, cupy, found),
    ]
    for part in parts:
        try:
            part()
        except Exception:  # what the other parts find is kept
            traceback.print_exc()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "reduction_tuning.json").write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

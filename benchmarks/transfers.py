"""Measure remap kernels and transfers that change the layout of arrays, against plain copies, PyTorch and CuPy in the same process.

Kernels: transposition of 16384 x 16384 elements of 4, 2 and 1 bytes; structures of 12, 16 and 28 bytes to arrays and back, 1 GiB; rows of
64 bytes gathered by random index from 4 GiB. Each alternates with a copy of the same bytes and with the peers; the median of paired ratios.

Transfers of 1 GiB: pinned, with a transposition, over the plain copy in one piece; pageable, over PyTorch's copy; the time of a plan over
the predicted one, and the chosen number of chunks over the best of a sweep; a kernel on each chunk, over the plain copy. Times are those
between two events around a prepared graph, except for pageable memory, where a clock of the host counts everything.

Prediction (written before the first run), for an H200: transposition reaches 95 / 93 / 88 % of the copy; structures 95 %; the gather takes
0.95 of PyTorch's time, both bound by sectors that no one shares; uploads with a transposition 1.005 of the plain copy at 16 to 32 chunks;
pageable memory 0.55 of PyTorch's time; plans are predicted within 3 %.

    python benchmarks/transfers.py
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Row, interleaved, median_ratio
from running import measure, parser

import memlane as ml
from memlane.driver import Device
from memlane.launch import DeviceArray, Target
from memlane.layout import ArrayLayout, column_major
from memlane.plan import PlanBuilder, View
from memlane.remap.kernels import SHARE, Remap, Share, Tile, gather_of, remap_of
from memlane.remap.movement import movement_of
from memlane.remap.requests import CHUNK_COUNTS
from memlane.remap.staging import default_threads

SOURCES = ["src/memlane/remap", "src/memlane/transfer", "src/memlane/model", "benchmarks/transfers.py"]
ROUNDS = 11
DEFAULT = default_threads()
WORK = """
extern "C" __global__ void work(const float* part, float* out, long long n, int turns) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = part[i];
    for (int turn = 0; turn < turns; turn++) x = x * 1.0001f + 0.5f;
    if (x == 12345.678f) out[0] = x;
}
"""


class Bench:
    """A target, and how things are timed on it."""

    def __init__(self, name: str, quick: bool) -> None:
        self.target: Target = ml.target(name)
        self.quick = quick
        self.rounds = 1 if quick else ROUNDS

    def elapsed_us(self, run: Callable[[], object], times: int = 1) -> float:
        """Return the time of one call of `run`, from two events around several calls; on the emulator, a meaningless time of the host."""

        def several() -> None:
            for _ in range(times):
                run()

        if isinstance(self.target, Device):
            return self.target.elapsed_ns(several) / 1e3 / times
        begun = time.perf_counter_ns()
        several()
        return (time.perf_counter_ns() - begun) / 1e3 / times

    def compared(self, runs: dict[str, Callable[[], object]], times: int = 1) -> dict[str, list[float]]:
        for run in runs.values():
            run()
        self.target.sync()
        return interleaved(self.rounds, {name: lambda run=run: self.elapsed_us(run, times) for name, run in runs.items()})  # type: ignore[misc]

    def copying(self, destination: DeviceArray, source: DeviceArray) -> Callable[[], object]:
        """Return a copy on the device: PyTorch's, or that of the driver in a graph of one node."""
        if (torch := self.torch()) is not None:
            to_torch, of_torch = (torch.empty(source.nbytes // 4, device="cuda") for _ in range(2))
            of_torch.random_()
            return lambda: to_torch.copy_(of_torch)
        b = PlanBuilder()
        to, of = b.array("to", source.nbytes, "u1"), b.array("of", source.nbytes, "u1")
        b.copy(to, of)
        bound = ml.BoundPlan(b.plan(), {"to": destination, "of": source}, targets=[self.target])
        return bound.graph().replay if isinstance(self.target, Device) else bound.run

    def starter(self, work: Remap, memory: dict[str, DeviceArray]) -> Callable[[], object]:
        launch = work.launch
        call = self.target.load(work.module)[launch.kernel.name][launch.grid, launch.block, None, launch.shared_bytes]
        bound = call.bind(*(memory[one.buffer.name] if isinstance(one, View) else one for one in launch.arguments))
        return self.target.prepared(bound)

    def torch(self) -> Any:
        """Return PyTorch if it has a GPU, else None."""
        try:
            import torch
        except ImportError:
            return None
        return torch if isinstance(self.target, Device) and torch.cuda.is_available() else None

    def cupy(self) -> Any:
        try:
            import cupy
        except ImportError:
            return None
        return cupy if isinstance(self.target, Device) else None


def moving(layout: ArrayLayout, element: int, *, back: bool = False, tile: Tile | None = None, share: Share = SHARE) -> Remap:
    b = PlanBuilder()
    stored, given = b.array("stored", layout.size, f"V{element}"), b.array("given", layout.count, f"V{element}")
    movement = movement_of(layout, element)
    assert movement is not None
    return remap_of(movement.reversed(), given, stored, tile, share) if back else remap_of(movement, stored, given, tile, share)


def random_bytes(target: Target, nbytes: int) -> DeviceArray:
    words = np.random.default_rng(1).integers(0, 1 << 62, min(nbytes, 1 << 24) // 8, dtype=np.int64)
    array = target.empty(nbytes // 8, "i8")
    whole = np.resize(words, min(nbytes // 8, 1 << 25))
    for start in range(0, nbytes // 8, len(whole)):  # pieces, so that the host holds no array of several GiB
        part = whole[: nbytes // 8 - start]
        target.write(array.address + 8 * start, part)
    return array


def against_copy(
    bench: Bench, case: str, nbytes: int, runs: dict[str, Callable[[], object]], reach: float | None, reach_share: float | None
) -> list[Row]:
    """Return the rate of `ours`, and its share of the rate of `copy`; peers beside."""
    times = bench.compared(runs, 1 if bench.quick else 3)
    tera = {name: 2 * nbytes / statistics.median(found) / 1e6 for name, found in times.items()}
    share, low, high = median_ratio(times["copy"], times["ours"])
    peers = {f"{name} TB/s": round(value, 4) for name, value in tera.items() if name != "ours"}
    return [
        Row(case, "bytes read and written", round(tera["ours"], 4), "TB/s", reach, "higher", peer=peers),
        Row(
            case, "share of the copy's rate", round(share, 4), "", reach_share, "higher", peer={"p10": round(low, 4), "p90": round(high, 4)}
        ),
    ]


def transposition(bench: Bench) -> list[Row]:
    side = 128 if bench.quick else 16384
    rows: list[Row] = []
    for name, element, reach, share in (("fp32", 4, 4.0, 0.95), ("fp16", 2, 3.9, 0.95), ("uint8", 1, 3.6, 0.90)):
        layout = column_major((side, side))
        given, stored = random_bytes(bench.target, side * side * element), bench.target.empty(side * side * element, "u1")
        work = moving(layout, element)
        runs = {"copy": bench.copying(stored, given), "ours": bench.starter(work, {"given": given, "stored": stored})}
        runs |= transposing_peers(bench, side, element)
        rows += against_copy(bench, f"transposition {side} x {side}, {name}", side * side * element, runs, reach, share)
        runs["ours"]()
        kind = f"u{element}"
        part = stored.numpy().view(kind).reshape(side, side)[: min(side, 256)]
        right = np.array_equal(part, given.numpy().view(kind).reshape(side, side)[:, : len(part)].T)
        rows.append(Row(f"transposition {side} x {side}, {name}", "equal to NumPy", float(right), "", 1.0, "higher"))
    return rows


def transposing_peers(bench: Bench, side: int, element: int) -> dict[str, Callable[[], object]]:
    runs: dict[str, Callable[[], object]] = {}
    if torch := bench.torch():
        kind = {4: torch.float32, 2: torch.float16, 1: torch.uint8}[element]
        source, out = (torch.empty((side, side), dtype=kind, device="cuda") for _ in range(2))
        source.random_(0, 100)
        runs["PyTorch"] = lambda: out.copy_(source.t())
    if cupy := bench.cupy():
        data = cupy.random.randint(0, 100, (side, side), "i4").astype({4: "f4", 2: "f2", 1: "u1"}[element])
        runs["CuPy"] = lambda: cupy.ascontiguousarray(data.T)
    return runs


def structures(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for fields, share in ((3, 0.90), (4, 0.95), (7, 0.90)):
        count = (1 << 12 if bench.quick else (1 << 28) // fields) // 1024 * 1024
        nbytes = 4 * count * fields
        layout = column_major((count, fields))
        given, stored = random_bytes(bench.target, nbytes), bench.target.empty(nbytes, "u1")
        copy = bench.copying(stored, given)
        for back in (False, True):
            work = moving(layout, 4, back=back)
            runs = {"copy": copy, "ours": bench.starter(work, {"given": given, "stored": stored})}
            if torch := bench.torch():
                shape = (count, fields) if not back else (fields, count)
                source, out = torch.rand(shape, device="cuda"), torch.empty(shape[::-1], device="cuda")
                runs["PyTorch"] = lambda out=out, source=source: out.copy_(source.t())  # type: ignore[misc]
            if cupy := bench.cupy():
                data = cupy.random.rand(*((count, fields) if not back else (fields, count)), dtype="f4")
                runs["CuPy"] = lambda data=data: cupy.ascontiguousarray(data.T)  # type: ignore[misc]
            way = "arrays to structures" if back else "structures to arrays"
            rows += against_copy(bench, f"{way} of {4 * fields} bytes, {nbytes / 2**30:.3g} GiB", nbytes, runs, None, share)
            given, stored = (stored, given) if back else (given, stored)
    return rows


def gathering(bench: Bench) -> list[Row]:
    table_rows, places = (1 << 10, 1 << 10) if bench.quick else (1 << 26, 1 << 24)
    target = bench.target
    table, out = random_bytes(target, 64 * table_rows), target.empty((places, 16), "f4")
    host = np.random.default_rng(2).integers(0, table_rows, places, dtype=np.int32)
    indices, wrong = target.array(host), target.array(np.array([places], "u8"))
    b = PlanBuilder()
    views = (
        b.array("out", (places, 64), "u1"),
        b.array("in", (table_rows, 64), "u1"),
        b.array("indices", places, "i4"),
        b.array("wrong", 1, "u8"),
    )
    work = gather_of(*views, 0, table_rows, 64)
    runs = {"ours": bench.starter(work, {"out": out, "in": table, "indices": indices, "wrong": wrong})}
    if torch := bench.torch():
        source, index = torch.rand((table_rows, 16), device="cuda"), torch.from_numpy(host).cuda()
        into = torch.empty((places, 16), device="cuda")
        runs["PyTorch with out="] = lambda: torch.index_select(source, 0, index, out=into)
        runs["PyTorch"] = lambda: torch.index_select(source, 0, index)
    if cupy := bench.cupy():
        elements, where = cupy.random.rand(table_rows, 16, dtype="f4"), cupy.asarray(host)
        runs["CuPy"] = lambda: cupy.take(elements, where, axis=0)
    times = bench.compared(runs)
    tera = (2 * 64 + 4) * places / statistics.median(times["ours"]) / 1e6
    rows = [Row("gather of 2^24 rows of 64 bytes by int32 from 4 GiB", "bytes read and written", round(tera, 4), "TB/s", better="higher")]
    ratio = median_ratio(times["ours"], times["PyTorch"]) if "PyTorch" in times else None
    peer = {f"{name} us": round(statistics.median(found), 2) for name, found in times.items()}
    rows.append(Row(rows[0].case, "time over PyTorch's index_select", None if ratio is None else round(ratio[0], 4), "", 0.9, peer=peer))
    return rows


def matrix(bench: Bench, pinned: bool) -> np.ndarray:
    shape = (64, 64) if bench.quick else (16384, 16384)
    host = bench.target.pinned(shape, "f4") if pinned else np.empty(shape, "f4")
    host[...] = np.arange(shape[1], dtype="f4")
    host[:, 0] = np.arange(shape[0])
    return host


def replaying(bench: Bench, host: np.ndarray, **options: Any) -> tuple[Any, Callable[[], object]]:
    """Return an upload that is prepared, and what starts it once more."""
    array = ml.upload(bench.target, host, **options)
    array.transfer.run()
    return array, array.transfer.start


def uploading(bench: Bench) -> list[Row]:
    host = matrix(bench, True)
    arrays, runs = {}, {}
    arrays["copy"], runs["copy"] = replaying(bench, host, chunks=1)
    arrays["auto"], runs["auto"] = replaying(bench, host, layout="column-major")
    for chunks in CHUNK_COUNTS[:2] if bench.quick else CHUNK_COUNTS:
        arrays[str(chunks)], runs[str(chunks)] = replaying(bench, host, layout="column-major", chunks=chunks)
    if not bench.quick:
        arrays["16, no overlap"], runs["16, no overlap"] = replaying(bench, host, layout="column-major", chunks=16, overlap=False)
    if torch := bench.torch():
        source, into = torch.from_numpy(host), torch.empty(host.shape, device="cuda")
        runs["PyTorch: copy, then transpose"] = lambda: into.copy_(source, non_blocking=True).t().contiguous()
    bench.rounds = 1 if bench.quick else 7
    times = bench.compared(runs)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for array in arrays.values():
        array.wait()
    auto = arrays["auto"].transfer
    best = min(medians[str(chunks)] for chunks in CHUNK_COUNTS if str(chunks) in medians)
    case = "upload with a transposition, 1 GiB pinned"
    peer = {f"{name} us": round(value, 1) for name, value in medians.items()}
    rows = [
        Row(case, "over the plain copy", round(median_ratio(times["auto"], times["copy"])[0], 5), "", 1.01, peer=peer),
        Row(case, "exposed time", round(medians["auto"] - medians["copy"], 1), "us", note=f"{auto.chunks} chunks"),
        Row(case, "chosen chunks over the best of the sweep", round(medians["auto"] / best, 5), "", 1.03, note=f"{auto.chunks} chunks"),
    ]
    for name, array in arrays.items():
        if array.transfer.predicted is not None:
            off = array.transfer.predicted.elapsed_ns / 1e3 / medians[name]
            reach = 0.10 if name in ("auto", "copy", "16") else None
            rows.append(
                Row(f"{case}: {name}", "error of the prediction", round(abs(off - 1), 5), "", reach, peer={"over measured": round(off, 5)})
            )
    rows.append(Row(case, "equal to NumPy", float(np.array_equal(arrays["auto"].numpy(), host.T)), "", 1.0, "higher"))
    ml.upload(bench.target, host, layout="column-major")
    begun = time.perf_counter()
    ml.upload(bench.target, host, layout="column-major")
    rows.append(Row(case, "one call of ml.upload, by the host's clock", round(1e3 * (time.perf_counter() - begun), 3), "ms"))
    return rows


def pageable(bench: Bench) -> list[Row]:
    host = matrix(bench, False)
    torch = bench.torch()
    runs: dict[str, Callable[[], object]] = {}
    arrays = {}
    for name, options in (("row-major", {}), ("column-major", {"layout": "column-major"})):
        for threads in (DEFAULT, 4, 16) if name == "row-major" else (DEFAULT,):
            array = ml.upload(bench.target, host, threads=threads, **options)  # type: ignore[arg-type]
            arrays[f"{name}, {threads} threads"] = array
            runs[f"{name}, {threads} threads"] = array.transfer.run
    if torch:
        source, into = torch.from_numpy(host), torch.empty(host.shape, device="cuda")

        def peer() -> None:
            into.copy_(source)
            torch.cuda.synchronize()

        runs["PyTorch"] = peer

    def clocked(run: Callable[[], object]) -> float:
        begun = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - begun)

    for run in runs.values():
        run()
    times = interleaved(1 if bench.quick else 7, {name: lambda run=run: clocked(run) for name, run in runs.items()})  # type: ignore[misc]
    peers = {f"{name} ms": round(statistics.median(found), 2) for name, found in times.items()}
    rows = []
    for name, array in arrays.items():
        ratio = round(median_ratio(times[name], times["PyTorch"])[0], 4) if torch else None
        reach = 0.5 if name.endswith(f" {DEFAULT} threads") else None
        note = f"{array.transfer.chunks} chunks, ring warm"
        rows.append(Row(f"upload of pageable memory, 1 GiB, {name}", "over PyTorch's copy", ratio, "", reach, peer=peers, note=note))
        predicted = array.transfer.predicted
        if predicted is not None:
            off = predicted.elapsed_ns / 1e6 / statistics.median(times[name])
            reach = 0.10 if name.endswith(f" {DEFAULT} threads") else None
            case = f"upload of pageable memory, 1 GiB, {name}"
            rows.append(Row(case, "error of the prediction", round(abs(off - 1), 4), "", reach, peer={"over measured": round(off, 4)}))
    equal = np.array_equal(arrays[f"column-major, {DEFAULT} threads"].numpy(), host.T)
    rows.append(Row("upload of pageable memory, 1 GiB", "equal to NumPy", float(equal), "", 1.0, "higher"))
    return rows


def consuming(bench: Bench) -> list[Row]:
    host = matrix(bench, True).reshape(-1)
    work = bench.target.load(ml.cuda(WORK))["work"]
    out = bench.target.zeros(1)

    def then(chunk: Any) -> tuple[Any, ...]:
        return work[-(-chunk.count // 256), 256], chunk.data, out, chunk.count, 1 if bench.quick else 64

    runs = {}
    _, runs["copy"] = replaying(bench, host, chunks=1)
    array, runs["then"] = replaying(bench, host, chunks=16, then=then)
    _, runs["behind"] = replaying(bench, host, chunks=16, then=then, reads="all")
    times = bench.compared(runs)
    array.wait()
    peer = {f"{name} us": round(statistics.median(found), 1) for name, found in times.items()}
    case = "upload of 1 GiB pinned with a kernel on each of 16 chunks"
    return [
        Row(case, "last result over the plain copy", round(median_ratio(times["then"], times["copy"])[0], 5), "", 1.05, peer=peer),
        Row("the same kernel behind the last chunk", "over the plain copy", round(median_ratio(times["behind"], times["copy"])[0], 5), ""),
    ]


CASES = {
    "transposition": transposition,
    "structures": structures,
    "gather": gathering,
    "upload": uploading,
    "pageable": pageable,
    "then": consuming,
}


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    return CASES[name](Bench(options.target, options.quick))


def main() -> None:
    options = parser(__doc__).parse_args()
    measure("transfers", list(CASES), run_case, options)


if __name__ == "__main__":
    main()

"""Ten million records: how long do they take from the trace buffer to files, and how much memory?

A buffer is made up as the probes of the matrix product would leave it on a GPU: 20,000 warps on 132 SMs with 500 records each, in waves,
the clock of every SM from an origin of its own, the global timer in steps of 32 ns. The steps are those of `memlane trace` and of
`memlane export`, each in a process of its own that is bound to two cores: *collect* reads the buffer as it comes from the device, decodes
it, assembles the trace and writes the record file; every export loads that file and writes another. Seconds leave out the start of
Python; memory is the largest resident set of the process, all counted. A chain is collect and one export. OTF2 goes through its library
event by event, and is measured with a hundredth of the records.

Prediction: collect 15 s and 3 GB; loading 2 s; CSV 12 s, CLOG-2 15 s, Perfetto 30 s, each under 3 GB; so every chain ends within 60 s.
OTF2: 30 us an access.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from harness import ROOT, Row
from running import measure, parser

from memlane.export import export, exporters
from memlane.instrument import (
    HEADER_BYTES,
    RECORD_DTYPE,
    SLICE_DTYPE,
    TraceOptions,
    buffer_layout,
    decode,
    initial_header,
)
from memlane.launch import Launch, Observation
from memlane.measure.assemble import assemble_trace
from memlane.measure.instrumented_module import probe
from memlane.measure.runs import LaunchRecord
from memlane.ptx import parse
from memlane.record import load
from memlane.targets import target

SOURCES = [
    "src/memlane/instrument/decode.py",
    "src/memlane/measure",
    "src/memlane/record",
    "src/memlane/export",
    "benchmarks/size.py",
]
FORMATS = ("csv", "clog2", "perfetto")
CHAIN = "chain"
CORES = 2
REACH_S, REACH_GB = 60.0, 4.0
RECORDS_PER_WARP = 500
WARPS_PER_BLOCK = 8
SMS, BLOCKS_PER_SM = 132, 8
GHZ, STEP_NS = 1.755, 32
GAP_CYCLES = 400


# -- what is collected ---------------------------------------------------------------------------------------------------------


def made_up(records: int, sites: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return a trace buffer with so many records, in whole blocks, at the sites of those numbers."""
    blocks = max(1, records // (RECORDS_PER_WARP * WARPS_PER_BLOCK))
    warps = blocks * WARPS_PER_BLOCK
    layout = buffer_layout(warps, RECORDS_PER_WARP, 0)
    buffer = np.zeros(layout.nbytes, np.uint8)
    buffer[:HEADER_BYTES] = initial_header(layout, warps)
    slices = buffer[HEADER_BYTES:].reshape(warps + 1, layout.slice_bytes)[1:]
    random = np.random.default_rng(4)
    block, warp = np.divmod(np.arange(warps), WARPS_PER_BLOCK)
    sm = block % SMS
    long = GAP_CYCLES * (RECORDS_PER_WARP + 10)
    began = block // SMS // BLOCKS_PER_SM * long + random.integers(0, 100, warps)
    origin = random.integers(1 << 40, 1 << 41, SMS)[sm]
    heads = np.zeros(warps, SLICE_DTYPE)
    heads["tag"] = 1
    heads["gridid"], heads["block"], heads["warp"], heads["sm"] = 1, block, warp, sm
    heads["lanes"], heads["room"], heads["attempted"] = 0xFFFFFFFF, RECORDS_PER_WARP, RECORDS_PER_WARP
    for name, cycles in (("begin", began), ("end", began + long - 100)):
        heads[f"{name}_cycles"] = origin + cycles
        heads[f"{name}_ns"] = (1 << 60) + (cycles / GHZ).astype(np.int64) // STEP_NS * STEP_NS
    slices[:, : SLICE_DTYPE.itemsize] = heads.view(np.uint8).reshape(warps, -1)
    places: npt.NDArray[Any] = np.ndarray(
        (warps, RECORDS_PER_WARP), RECORD_DTYPE, slices, SLICE_DTYPE.itemsize, (layout.slice_bytes, RECORD_DTYPE.itemsize)
    )
    turn = np.arange(RECORDS_PER_WARP)
    early, long_each = random.integers(0, GAP_CYCLES // 4, places.shape), random.integers(20, GAP_CYCLES // 2, places.shape)
    start = (origin + began)[:, None] + 100 + turn * GAP_CYCLES + early
    places["start_low"], places["start_high"] = start & 0xFFFFFFFF, start >> 32
    places["end_low"] = start + long_each & 0xFFFFFFFF
    places["site"] = sites[turn % len(sites)]
    places["packed_mask"] = 0xFFFFFFFF
    return buffer


class Traced:
    """The launch that is said to have left the buffer: the matrix product, with probes, that was never sent out."""

    def __init__(self, records: int) -> None:
        self.target = target("emulator:h200")
        loaded = self.target.load(parse((ROOT / "examples" / "ptx" / "matmul.ptx").read_text(), "matmul.ptx"))
        self.probed = probe(loaded, TraceOptions("dependent"))
        (name,) = self.probed.traced.kernels
        self.sites = np.array(sorted(self.probed.traced.positions[name]), np.int64)
        blocks = max(1, records // (RECORDS_PER_WARP * WARPS_PER_BLOCK))
        one = self.target.zeros(16)
        self.launch: Launch = loaded[name][blocks, (16, 16)].bind(one, one, one, 4)


# -- the steps, each in a process of its own -----------------------------------------------------------------------------------


def collect(records: int, folder: Path) -> dict[str, float]:
    """Write the records in the buffer to a record file, and return the seconds of each part."""
    traced = Traced(records)
    buffer = np.fromfile(folder / "buffer", np.uint8)
    marks = [time.perf_counter()]
    decoded = decode(buffer)
    del buffer
    marks.append(time.perf_counter())
    record = LaunchRecord(traced.launch, traced.probed, tag=1, observations={1: Observation(traced.launch, {})})
    trace = assemble_trace(traced.target, "dependent", [record], {traced.probed: [decoded]})
    del decoded
    marks.append(time.perf_counter())
    trace.save(folder / "trace.parquet", force=True)
    marks.append(time.perf_counter())
    return {name: float(later - before) for name, before, later in zip(("decode", "assemble", "save"), marks, marks[1:], strict=False)}


def exported(name: str, folder: Path) -> dict[str, float]:
    """Export the record file to another format, and return the seconds of each part."""
    began = time.perf_counter()
    trace = load(folder / "trace.parquet")
    loaded = time.perf_counter()
    export(trace, name, folder / f"trace{exporters[name].suffix}", force=True)
    return {"load": loaded - began, "export": time.perf_counter() - loaded}


def step(name: str, records: int, folder: Path) -> dict[str, float]:
    """Run one step; return the seconds of its parts, its peak memory in GB and the size of its file in MB."""
    seconds = collect(records, folder) if name == "collect" else exported(name, folder)
    written = folder / ("trace.parquet" if name == "collect" else f"trace{exporters[name].suffix}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**seconds, "GB": peak / 1e9, "file, MB": size_of(written) / 1e6}


def size_of(written: Path) -> int:
    """Return the bytes of a file, or of all files of a directory."""
    return written.stat().st_size if written.is_file() else sum(one.stat().st_size for one in written.rglob("*") if one.is_file())


def in_own_process(name: str, records: int, folder: Path) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--step", name, "--records", str(records), "--folder", str(folder)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


# -- rows ----------------------------------------------------------------------------------------------------------------------


def run_case(name: str, options: argparse.Namespace) -> list[Row]:
    """Run all steps in sequence."""
    records = 40_000 if options.quick else 10_000_000
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        in_own_process("buffer", records, folder)
        first = in_own_process("collect", records, folder)
        rows += rows_of("collect", first, ("decode", "assemble", "save"))
        for chosen in FORMATS:
            found = in_own_process(chosen, records, folder)
            rows += rows_of(chosen, found, ("load", "export"))
            total = sum(first[part] for part in ("decode", "assemble", "save")) + found["load"] + found["export"]
            rows.append(Row(f"{records:,} records, to {chosen}", "seconds of the chain", round(total, 1), "s", REACH_S, note=missed(total)))
            (folder / f"trace{exporters[chosen].suffix}").unlink()
        rows += [] if options.quick else otf2_rows(records // 100, folder)
    return rows


def otf2_rows(records: int, folder: Path) -> list[Row]:
    """Return the time per record of an export to OTF2; nothing if its package is not installed."""
    if find_spec("otf2") is None:
        return []
    for name in ("buffer", "collect"):
        in_own_process(name, records, folder)
    found = in_own_process("otf2", records, folder)
    kept = max(1, records // (RECORDS_PER_WARP * WARPS_PER_BLOCK)) * RECORDS_PER_WARP * WARPS_PER_BLOCK
    return [Row(f"{kept:,} records, to otf2", "time per record", round(found["export"] / kept * 1e6, 1), "us")]


def rows_of(name: str, found: dict[str, float], parts: tuple[str, ...]) -> list[Row]:
    peer = {f"{part}, s": round(found[part], 2) for part in parts} | {"file, MB": round(found["file, MB"], 1)}
    return [
        Row(name, "seconds", round(sum(found[part] for part in parts), 2), "s", peer=peer),
        Row(
            name,
            "largest resident set",
            round(found["GB"], 2),
            "GB",
            REACH_GB,
            note="" if found["GB"] <= REACH_GB else "too much at a time",
        ),
    ]


def missed(seconds: float) -> str:
    return "" if seconds <= REACH_S else "too slow on this machine"


def main() -> None:
    options = parser(__doc__, "emulator:h200")
    for hidden in ("--step", "--folder"):
        options.add_argument(hidden, help=argparse.SUPPRESS)
    options.add_argument("--records", type=int, default=0, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.step is None:
        measure("size", (CHAIN,), run_case, chosen)
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    folder = Path(chosen.folder)
    if chosen.step == "buffer":
        made_up(chosen.records, Traced(chosen.records).sites).tofile(folder / "buffer")
        print("{}")
        return
    print(json.dumps(step(chosen.step, chosen.records, folder)))


if __name__ == "__main__":
    main()

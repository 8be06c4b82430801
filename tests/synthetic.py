"""Small traces and counts made by hand, for tests of what reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memlane.record import (
    ACCESS_SCHEMA,
    COMPLETE,
    ISSUE_ONLY,
    WARP_DTYPE,
    BranchCounts,
    Counts,
    LaunchInfo,
    Site,
    SiteCounts,
    Trace,
    build_trace,
)

NAIVE = "naive(float*, float const*, int)"
TILED = "tiled(float*, float const*, int)"
PADDED = "padded(float*, float const*, int)"

SOURCE = """\
__global__ void naive(float* out, const float* in, int n) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}
__global__ void tiled(float* out, const float* in, int n) {
    __shared__ float tile[TILE][TILE];
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
"""


def site(number: int, op: str, line: int, kernel: str = NAIVE, **changes: Any) -> Site:
    """A site in transpose.cu; kind, space and completeness follow from `op`."""
    parts = op.split(".")
    kind = {"ld": "load", "st": "store", "atom": "atomic", "red": "reduction"}[parts[0]]
    ends = COMPLETE if kind in ("load", "atomic") else ISSUE_ONLY
    reason = "" if ends == COMPLETE else "a store returns no value to wait for"
    nbytes = int(parts[-1][1:]) // 8
    return replace(
        Site(number, kernel, number, "transpose.cu", line, 5, op, kind, parts[1], nbytes, "dependent", completeness=ends, reason=reason),
        **changes,
    )


def counted(where: Site, requests: int, **per_request: float) -> SiteCounts:
    """Counts of full warps, given by request: `sectors=32, ideal_sectors=4`."""
    totals: dict[str, Any] = {name: round(value * requests) for name, value in per_request.items()}
    return SiteCounts(where, requests, 32 * requests, 32 * requests * where.nbytes, **totals)


def counts(*entries: SiteCounts, **changes: Any) -> Counts:
    """The counts of one launch."""
    return replace(Counts("NVIDIA H200", "emulator:h200", entries[0].site.kernel, (32, 32, 1), (32, 32, 1), entries), **changes)


def launch(number: int, kernel: str, **changes: Any) -> LaunchInfo:
    return replace(LaunchInfo(number, kernel, (2, 1, 1), (64, 1, 1), 0, 0, ("f4[64, 64]", "f4[64, 64]", "64"), "dependent"), **changes)


def transpose(**changes: Any) -> Trace:
    """Two launches, naive and tiled, of two blocks with two warps; each warp passes each site 5 times, 1000 cycles apart.

    The n-th access of a warp at site s takes 100 (s + 1) + n cycles. Two records of the second launch were lost.
    """
    sites = (
        site(0, "ld.global.f32", 4),
        site(1, "st.global.f32", 4),
        site(2, "ld.global.f32", 8, TILED),
        site(3, "st.shared.f32", 8, TILED),
        site(4, "ld.shared.f32", 10, TILED),
        site(5, "st.global.f32", 10, TILED),
    )
    per_request: tuple[dict[str, float], ...] = (
        {"sectors": 4, "ideal_sectors": 4},
        {"sectors": 32, "ideal_sectors": 4},
        {"sectors": 4, "ideal_sectors": 4},
        {"wavefronts": 1, "ideal_wavefronts": 1},
        {"wavefronts": 32, "ideal_wavefronts": 1},
        {"sectors": 4, "ideal_sectors": 4},
    )
    totals = [counted(where, 20, **numbers) for where, numbers in zip(sites, per_request, strict=True)]
    branch = BranchCounts(NAIVE, "transpose.cu", 4, executions=4, divergent=1)
    launches = (
        launch(0, NAIVE, counts=tuple(totals[:2]), branches=(branch,)),
        launch(1, TILED, counts=tuple(totals[2:]), lost=2, scheme="paper"),
    )
    columns = _rows([(0, 0), (0, 1), (1, 2), (1, 3), (1, 4), (1, 5)])
    columns["sectors"] = np.array([entry.get("sectors", -1) for entry in per_request], np.int64)[columns["site"]]
    columns["wavefronts"] = np.array([entry.get("wavefronts", -1) for entry in per_request], np.int64)[columns["site"]]
    made = build_trace(
        columns,
        sites=sites,
        launches=launches,
        warps=_warps(),
        chip="NVIDIA H200",
        target="emulator:h200",
        modelled=True,
        clock_mhz=1980,
        sources={"transpose.cu": SOURCE},
        windows={"dependent": 6.0},
    )
    return replace(made, **{"version": "0.1.0", **changes})


def stalls() -> Trace:
    """The same; of the loads at line 8 the consumers waited for half of the time, rounded down."""
    trace = transpose()
    rows = trace.table.to_pylist()
    exposed = [(row["end"] - row["start"]) // 2 if row["site"] == 2 else None for row in rows]
    place = ACCESS_SCHEMA.get_field_index("exposed")
    table = trace.table.set_column(place, ACCESS_SCHEMA.field("exposed"), pa.array(exposed, pa.uint32()))
    sites = tuple(replace(one, scheme="exposed") if one.id == 2 else one for one in trace.sites)
    return replace(trace, table=table, sites=sites)


def one_warp(starts: npt.ArrayLike, ends: npt.ArrayLike, life_cycles: int) -> Trace:
    """The accesses of one warp at one site; the clock has about 2 GHz."""
    times = {"start": np.asarray(starts, np.int64), "end": np.asarray(ends, np.int64)}
    count = len(times["start"])
    columns = {name: np.zeros(count, np.int64) for name in ("launch", "site", "block", "warp", "sm")}
    warps = np.zeros(1, WARP_DTYPE)
    warps["end_cycles"], warps["end_ns"] = life_cycles, round(life_cycles / 1.98)
    return build_trace(
        {**columns, **times, "mask": np.full(count, 1)},
        sites=[site(0, "ld.global.f32", 4)],
        launches=[launch(0, "k")],
        warps=warps,
        chip="NVIDIA H200",
        target="cuda:0",
        modelled=False,
        clock_mhz=1980,
    )


def overlapping() -> Trace:
    """Accesses of one warp at one site, some within others."""
    return one_warp([0, 100, 200, 600], [1000, 500, 300, 700], 2000)


def _rows(site_of_launch: list[tuple[int, int]]) -> dict[str, npt.NDArray[Any]]:
    rows = [
        (number, where, block, warp, block, 0xFFFFFFFF, 1000 * turn + where, 1000 * turn + where + 100 * (where + 1) + turn)
        for turn in reversed(range(5))
        for number, where in site_of_launch
        for block in (0, 1)
        for warp in (0, 1)
    ]
    names = ("launch", "site", "block", "warp", "sm", "mask", "start", "end")
    return {name: np.array(column, np.int64) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _warps() -> npt.NDArray[Any]:
    warps = np.zeros(8, WARP_DTYPE)
    warps["launch"] = np.repeat([0, 1], 4)
    warps["block"] = np.tile([0, 0, 1, 1], 2)
    warps["warp"] = np.tile([0, 1], 4)
    warps["sm"] = warps["block"]
    warps["begin_cycles"] = -10
    warps["end_cycles"] = 9_990
    warps["end_ns"] = 5_000
    warps["kept"] = np.repeat([10, 20], 4)
    warps["lost"] = [0, 0, 0, 0, 2, 0, 0, 0]
    return warps

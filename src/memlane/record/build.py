"""Build a trace from columns of decoded records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memlane.number_format import plural
from memlane.record.example import AccessExample
from memlane.record.schema import ACCESS_SCHEMA, BARRIER_DTYPE, WARP_DTYPE, CopyInfo, LaunchInfo
from memlane.record.site import Site, Skipped
from memlane.record.trace import Trace

Columns = Mapping[str, npt.NDArray[Any]]

_REQUIRED = ("launch", "site", "block", "warp", "sm", "mask", "start", "end")
_OPTIONAL = ("sectors", "wavefronts", "execution", "exposed")


def build_trace(
    columns: Columns,
    *,
    sites: Sequence[Site],
    launches: Sequence[LaunchInfo],
    warps: npt.NDArray[Any] | None = None,
    chip: str,
    target: str,
    modelled: bool,
    sources: Mapping[str, str] | None = None,
    windows: Mapping[str, float] | None = None,
    skipped: Sequence[Skipped] = (),
    examples: Sequence[AccessExample] = (),
    clock_mhz: float = 0.0,
    driver: str = "",
    copies: Sequence[CopyInfo] = (),
    barriers: npt.NDArray[Any] | None = None,
) -> Trace:
    """Return the trace of the records in `columns`, which may be in any order.

    `columns` maps `launch`, `site`, `block`, `warp`, `sm`, `mask`, `start`, `end` and, where known, `sectors`, `wavefronts`,
    `execution` and `exposed` to integer arrays of equal length, one element per access. `site` and `launch` are indices into `sites` and
    `launches`. A negative number of sectors, wavefronts or exposed cycles means unknown. The rows are sorted by launch, block, warp and
    start, with `execution` counted in that order unless it is given. A launch without a device ran on `target`.
    Raises ValueError if columns and tables are inconsistent.
    """
    _check(columns, sites, launches)
    launches = [replace(launch, device=launch.device or target) for launch in launches]
    order = _order(columns)
    rows = {name: np.asarray(column)[order] for name, column in columns.items()}
    return Trace(
        table=_table(rows, sites, launches),
        sites=tuple(sites),
        launches=tuple(launches),
        warps=np.zeros(0, WARP_DTYPE) if warps is None else warps.astype(WARP_DTYPE, copy=False),
        chip=chip,
        target=target,
        modelled=modelled,
        sources=dict(sources or {}),
        windows=dict(windows or {}),
        skipped=tuple(skipped),
        examples=tuple(examples),
        clock_mhz=float(clock_mhz),
        driver=driver,
        copies=tuple(copies),
        barriers=np.zeros(0, BARRIER_DTYPE) if barriers is None else barriers.astype(BARRIER_DTYPE, copy=False),
        version=_version(),
    )


def _check(columns: Columns, sites: Sequence[Site], launches: Sequence[LaunchInfo]) -> None:
    """Raise ValueError if columns and tables are inconsistent."""
    missing = [name for name in _REQUIRED if name not in columns]
    unknown = sorted(set(columns) - {*_REQUIRED, *_OPTIONAL})
    if missing or unknown:
        raise ValueError(f"missing columns: {missing}, unknown columns: {unknown}")
    if len({len(column) for column in columns.values()}) != 1:
        raise ValueError(f"columns of different lengths: { {name: len(column) for name, column in columns.items()} }")
    for label, entries in (("site", sites), ("launch", launches)):
        if [entry.id for entry in entries] != list(range(len(entries))):
            raise ValueError(f"the ids of {label} entries must be 0, 1, 2, ... in order")
        used = columns[label]
        if len(used) and not 0 <= int(used.min()) <= int(used.max()) < len(entries):
            raise ValueError(f"{label} numbers from {used.min()} to {used.max()}, but there are {plural(len(entries), 'entry')}")


def _table(rows: Columns, sites: Sequence[Site], launches: Sequence[LaunchInfo]) -> pa.Table:
    """Return the rows in `ACCESS_SCHEMA`; columns that depend only on the site or the launch are filled from these."""
    site = np.asarray(rows["site"], np.intp)
    made: dict[str, Any] = {
        "kernel": _names([s.kernel for s in sites], site),
        "file": _names([s.file for s in sites], site),
        "op": _names([s.op for s in sites], site),
        "space": _names([s.space for s in sites], site),
        "completeness": _names([s.completeness for s in sites], site),
        "line": np.array([s.line for s in sites], np.uint32)[site],
        "bytes": np.array([s.nbytes for s in sites], np.uint16)[site],
        "device": _names([launch.device for launch in launches], np.asarray(rows["launch"], np.intp)),
        "active_mask": rows["mask"],
        "execution": rows["execution"] if "execution" in rows else _executions(rows),
        "sectors": _known(rows.get("sectors"), len(site), pa.uint16()),
        "wavefronts": _known(rows.get("wavefronts"), len(site), pa.uint16()),
        "exposed": _known(rows.get("exposed"), len(site), pa.uint32()),
    }
    arrays = []
    for field in ACCESS_SCHEMA:
        values = made.get(field.name, rows.get(field.name))
        if isinstance(values, np.ndarray):
            values = pa.array(np.ascontiguousarray(values, field.type.to_pandas_dtype()), field.type)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=ACCESS_SCHEMA)


def _names(names: list[str], site: npt.NDArray[np.intp]) -> pa.DictionaryArray:
    """Return a dictionary-coded column with the name of each row's site."""
    distinct = list(dict.fromkeys(names))
    code_of = {name: code for code, name in enumerate(distinct)}
    codes = np.array([code_of[name] for name in names], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes[site]), pa.array(distinct, pa.string()))


def _known(numbers: npt.NDArray[Any] | None, rows: int, kind: pa.DataType) -> pa.Array:
    """Return a column with null for negative numbers."""
    if numbers is None:
        return pa.nulls(rows, kind)
    return pa.array(numbers.astype(kind.to_pandas_dtype()), kind, mask=numbers < 0)


def _order(columns: Columns) -> npt.NDArray[np.intp] | slice:
    """Return the order of the rows by launch, block, warp and start.

    Rows that are grouped by warp and sorted by start within each, as decoded, only need a sort of the warps, which are long runs of equal
    keys.
    """
    if len(columns["start"]) == 0:
        return slice(None)
    warp = _warp_key(columns)
    starts = np.asarray(columns["start"])
    if warp is None:
        return np.lexsort(tuple(columns[name] for name in ("start", "warp", "block", "launch")))
    order: npt.NDArray[np.intp] | slice = slice(None)
    if (warp[1:] < warp[:-1]).any():
        order = np.argsort(warp, kind="stable")
        warp, starts = warp[order], starts[order]
    if ((starts[1:] < starts[:-1]) & (warp[1:] == warp[:-1])).any():
        return np.lexsort(tuple(columns[name] for name in ("start", "warp", "block", "launch")))
    return order


def _warp_key(columns: Columns) -> npt.NDArray[np.int64] | None:
    """Return one number for launch, block and warp that sorts like them; None if it does not fit into 63 bits."""
    blocks, warps = (int(columns[name].max()) + 1 for name in ("block", "warp"))
    if (int(columns["launch"].max()) + 1) * blocks * warps >= 1 << 63:
        return None
    key = columns["launch"].astype(np.int64)
    for name, count in (("block", blocks), ("warp", warps)):
        key *= count
        key += columns[name].astype(np.int64)
    return key


def _executions(rows: Columns) -> npt.NDArray[np.uint32]:
    """Return for each row the number of earlier rows of its warp at its site; `rows` are sorted by warp and start."""
    count = len(rows["site"])
    executions = np.zeros(count, np.uint32)
    if count == 0:
        return executions
    changes = np.logical_or.reduce([rows[name][1:] != rows[name][:-1] for name in ("launch", "block", "warp")])
    warp = np.concatenate(([0], np.cumsum(changes, dtype=np.uint32)))
    site = rows["site"]
    # NumPy sorts 16-bit numbers in linear time.
    order = np.argsort(site.astype(np.uint16) if int(site.max()) < 1 << 16 else site, kind="stable")
    by_site, by_warp = site[order], warp[order]
    firsts = np.flatnonzero(np.concatenate(([True], (by_site[1:] != by_site[:-1]) | (by_warp[1:] != by_warp[:-1]))))
    executions[order] = np.arange(count) - np.repeat(firsts, np.diff(np.append(firsts, count)))
    return executions


def _version() -> str:
    try:
        return metadata.version("memlane")
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"

"""Encode and decode the contents of a record file besides its rows, as text for the file's key-value metadata."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.chip import ACCESS_KINDS, LANES
from memlane.errors import RecordError
from memlane.number_format import plural
from memlane.record.contents import TraceContents
from memlane.record.example import AccessExample
from memlane.record.plain_data import from_plain
from memlane.record.schema import BARRIER_DTYPE, WARP_DTYPE, CopyInfo, LaunchInfo
from memlane.record.site import Site, Skipped

FORMAT = 3
"""Format of record files; increased when an older memlane would misread a new file."""
FORMAT_KEY = "memlane_format"
HEADER_KEY = "memlane_header"
WARPS_KEY = "memlane_warps"
BARRIERS_KEY = "memlane_barriers"

HEADER_LIMIT_BYTES = 1 << 28
"""Maximum length of the unpacked header; no program has that much source text or that many sites."""
WARPS_LIMIT_BYTES = 1 << 30
"""Maximum length of the unpacked warp columns: more than 20 million traced warps."""

_LEVEL = 3  # zlib: twice as fast as the default for a few per cent more bytes

_LATEST = 1 << 62
"""Maximum magnitude of cycles or ns, so that differences fit into 64 bits. In ns since 1970 it is the year 2116."""


def encode(trace: TraceContents) -> dict[str, str]:
    """Return the metadata of the file of `trace`, by key. Raises RecordError if it exceeds the limits.

    Invalid UTF-8 bytes in source text become question marks.
    """
    header = {
        "version": trace.version,
        "chip": trace.chip,
        "target": trace.target,
        "modelled": trace.modelled,
        "clock_mhz": trace.clock_mhz,
        "driver": trace.driver,
        "failed": trace.failed,
        "sites": [asdict(site) for site in trace.sites],
        "launches": [asdict(launch) for launch in trace.launches],
        "sources": dict(trace.sources),
        "windows": dict(trace.windows),
        "skipped": [asdict(one) for one in trace.skipped],
        "examples": [asdict(one) for one in trace.examples],
        "copies": [asdict(one) for one in trace.copies],
        "warps": {"rows": len(trace.warps), "fields": _described(WARP_DTYPE)},
    }
    more: dict[str, str] = {}
    if len(trace.barriers):
        header["barriers"] = {"rows": len(trace.barriers), "fields": _described(BARRIER_DTYPE)}
        more[BARRIERS_KEY] = _pack(_column_bytes(trace.barriers, BARRIER_DTYPE), WARPS_LIMIT_BYTES)
    return {
        FORMAT_KEY: str(FORMAT),
        HEADER_KEY: _pack(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"), HEADER_LIMIT_BYTES),
        WARPS_KEY: _pack(_column_bytes(trace.warps, WARP_DTYPE), WARPS_LIMIT_BYTES),
    } | more


def decode(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of the `Trace` other than its table, each of the type that `Trace` declares.

    Raises KeyError, ValueError, RecursionError or zlib.error if they are not the output of `encode`.
    """
    header = from_plain(_Header, json.loads(_unpack(metadata[HEADER_KEY], HEADER_LIMIT_BYTES)), "header")
    for name, entries in (("sites", header.sites), ("launches", header.launches)):
        if [entry.id for entry in entries] != list(range(len(entries))):
            raise ValueError(f"the ids in header.{name} are not 0, 1, 2, ... in order")
    warps = _rows(header.warps, _unpack(metadata[WARPS_KEY], WARPS_LIMIT_BYTES), WARP_DTYPE, "warp")
    _check_rows(warps, header, ("begin_cycles", "end_cycles", "begin_ns", "end_ns"), "a warp")
    barriers = np.zeros(0, BARRIER_DTYPE)
    if header.barriers is not None:
        barriers = _rows(header.barriers, _unpack(metadata[BARRIERS_KEY], WARPS_LIMIT_BYTES), BARRIER_DTYPE, "barrier")
        _check_rows(barriers, header, ("arrived", "opened"), "a wait at a barrier")
    _check_examples(header)
    launches = tuple(replace(one, device=one.device or header.target) for one in header.launches)
    found = {entry.name: getattr(header, entry.name) for entry in fields(_Header)}
    return found | {"warps": warps, "barriers": barriers, "launches": launches}


def failure(metadata: Mapping[str, str]) -> str:
    """Return only `Trace.failed`. Raises the same errors as `decode`."""
    header = json.loads(_unpack(metadata[HEADER_KEY], HEADER_LIMIT_BYTES))
    return str(header.get("failed", "")) if isinstance(header, dict) else ""


@dataclass(frozen=True)
class _RowLayout:
    """Number of rows, and order and types of their concatenated columns."""

    rows: int
    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Header:
    """The header as stored in JSON."""

    version: str
    chip: str
    target: str
    modelled: bool
    sites: tuple[Site, ...]
    launches: tuple[LaunchInfo, ...]
    sources: Mapping[str, str]
    windows: Mapping[str, float]
    warps: _RowLayout
    skipped: tuple[Skipped, ...] = ()
    examples: tuple[AccessExample, ...] = ()
    clock_mhz: float = 0.0
    driver: str = ""
    failed: str = ""
    copies: tuple[CopyInfo, ...] = ()
    barriers: _RowLayout | None = None
    """None if there are none, and in files of versions that did not keep waits at barriers."""


def _check_rows(rows: npt.NDArray[Any], header: _Header, times: tuple[str, ...], label: str) -> None:
    """Raise ValueError for rows of warps that name an unknown launch, or whose `times` are out of range."""
    if len(rows) and int(rows["launch"].max()) >= len(header.launches):
        raise ValueError(f"{label} names launch {rows['launch'].max()}, but there are only {len(header.launches)}")
    for name in times:
        if len(rows) and (rows[name].max() > _LATEST or rows[name].min() < -_LATEST):
            raise ValueError(f"the {name} of {label} is out of range: {rows[name].min()} to {rows[name].max()}")


def _check_examples(header: _Header) -> None:
    """Raise ValueError for an example that refers to an unknown site or launch, or is not an access of a warp."""
    for number, one in enumerate(header.examples):
        if one.site >= len(header.sites) or one.launch >= len(header.launches):
            raise ValueError(f"header.examples[{number}] names site {one.site} of launch {one.launch}, which does not exist")
        if len(one.addresses) != LANES or not 0 < one.active_mask < 1 << LANES or one.nbytes not in (1, 2, 4, 8, 16):
            raise ValueError(f"header.examples[{number}] is not an access of a warp")
        if one.space not in ("global", "local", "shared") or one.access not in ACCESS_KINDS:
            raise ValueError(f"header.examples[{number}] is of an unknown kind: {one.access} of {one.space} memory")


def _rows(layout: _RowLayout, data: bytes, dtype: np.dtype[Any], label: str) -> npt.NDArray[Any]:
    """Return rows of a structured dtype from the bytes of their columns."""
    if layout.fields != _described(dtype) or layout.rows * dtype.itemsize != len(data):
        raise ValueError(f"the {label} columns do not match their description")
    rows = np.empty(layout.rows, dtype)
    position = 0
    for name, code in layout.fields:
        column = np.frombuffer(data, np.dtype(code), layout.rows, position)
        rows[name] = column
        position += column.nbytes
    return rows


def _column_bytes(rows: npt.NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    """Return the columns of rows of a structured dtype, one after the other."""
    return b"".join(np.ascontiguousarray(rows[name], kind).tobytes() for name, kind in _fields(dtype))


def _fields(dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any]]]:
    """Return names and little-endian dtypes of the fields of a structured dtype."""
    return [(name, field[0].newbyteorder("<")) for name, field in (dtype.fields or {}).items()]


def _described(dtype: np.dtype[Any]) -> tuple[tuple[str, str], ...]:
    """Return names and types of the fields of a structured dtype, as stored."""
    return tuple((name, kind.str) for name, kind in _fields(dtype))


def _pack(data: bytes, limit: int) -> str:
    """Return bytes as compressed text. Raises RecordError if they exceed the limit."""
    if len(data) > limit:
        raise RecordError(
            f"the trace is too large for one record file: {plural(len(data), 'byte')}, but at most {limit:,} are allowed; trace "
            "fewer launches"
        )
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def _unpack(text: str, limit: int) -> bytes:
    """Return the bytes that `_pack` packed, at most `limit`: a few compressed bytes may expand a thousandfold."""
    stream = zlib.decompressobj()
    data = stream.decompress(base64.b64decode(text, validate=True), limit + 1)
    if not stream.eof or len(data) > limit:
        raise ValueError(f"it is cut short, or more than {plural(limit, 'byte')}")
    return data

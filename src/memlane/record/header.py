"""What a record file holds besides its rows, as text for the file's key-value metadata."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memlane.record.counts import BranchCounts, SiteCounts
from memlane.record.schema import WARP_DTYPE, LaunchInfo
from memlane.record.site import Site

if TYPE_CHECKING:
    from memlane.record.trace import Trace

FORMAT = 1
"""Raised when a file of the new kind would be misread by an older memlane."""
FORMAT_KEY = "memlane_format"
HEADER_KEY = "memlane_header"
WARPS_KEY = "memlane_warps"

_LEVEL = 3  # of zlib: twice as fast as the default for a few per cent more bytes


def encode(trace: Trace) -> dict[str, str]:
    """The metadata of the file of `trace`, by key."""
    header = {
        "version": trace.version,
        "chip": trace.chip,
        "target": trace.target,
        "modelled": trace.modelled,
        "sites": [asdict(site) for site in trace.sites],
        "launches": [asdict(launch) for launch in trace.launches],
        "sources": dict(trace.sources),
        "windows": dict(trace.windows),
        "warps": {"rows": len(trace.warps), "fields": [[name, dtype.str] for name, dtype in _fields(WARP_DTYPE)]},
    }
    columns = b"".join(np.ascontiguousarray(trace.warps[name], dtype).tobytes() for name, dtype in _fields(WARP_DTYPE))
    return {
        FORMAT_KEY: str(FORMAT),
        HEADER_KEY: _pack(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()),
        WARPS_KEY: _pack(columns),
    }


def decode(metadata: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the `Trace` other than its table. KeyError, TypeError, ValueError or zlib.error if they are not what `encode` wrote."""
    header = json.loads(_unpack(metadata[HEADER_KEY]))
    return {
        "sites": tuple(Site(**site) for site in header["sites"]),
        "launches": tuple(_launch(launch) for launch in header["launches"]),
        "warps": _warps(header["warps"], _unpack(metadata[WARPS_KEY])),
        "chip": header["chip"],
        "target": header["target"],
        "modelled": header["modelled"],
        "sources": header["sources"],
        "windows": header["windows"],
        "version": header["version"],
    }


def _launch(fields: dict[str, Any]) -> LaunchInfo:
    for name in ("grid", "block", "arguments"):
        fields[name] = tuple(fields[name])
    fields["branches"] = tuple(BranchCounts(**branch) for branch in fields["branches"])
    fields["counts"] = tuple(SiteCounts(**{**counts, "site": Site(**counts["site"])}) for counts in fields["counts"])
    return LaunchInfo(**fields)


def _warps(layout: dict[str, Any], data: bytes) -> npt.NDArray[Any]:
    warps = np.empty(layout["rows"], WARP_DTYPE)
    position = 0
    for name, code in layout["fields"]:
        column = np.frombuffer(data, np.dtype(code), layout["rows"], position)
        warps[name] = column
        position += column.nbytes
    if position != len(data) or [name for name, _ in layout["fields"]] != list(WARP_DTYPE.names or ()):
        raise ValueError("the warp columns do not fit their description")
    return warps


def _fields(dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any]]]:
    """Names and little-endian dtypes of the fields of a structured dtype."""
    return [(name, field[0].newbyteorder("<")) for name, field in (dtype.fields or {}).items()]


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))

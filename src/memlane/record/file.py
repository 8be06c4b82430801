"""Read and write the record file: a trace as Parquet.

The rows are an ordinary Parquet table in `ACCESS_SCHEMA` (names dictionary-coded, zstd, checksummed pages), which pandas, Polars and
DuckDB open without memlane. Everything else is in the key-value metadata of the file, each value plain ASCII, because several readers
treat metadata as text:

    memlane_format   the format as a decimal number, now 3; files of format 2 lack the column `device`,
                     and those of format 1 the column `exposed` too
    memlane_header   base64 of zlib of UTF-8 JSON: {version, chip, target, driver, failed, modelled, clock_mhz, sites, launches,
                     sources, windows, skipped, examples, copies, warps};
                     `sites`, `launches`, `skipped`, `examples` and `copies` are lists of objects with the fields of `Site`,
                     `LaunchInfo`, `Skipped`, `AccessExample` and `CopyInfo`, `warps` is {rows, fields: [[name, dtype]]}
    memlane_warps    base64 of zlib of the warp columns one after another, `rows` little-endian numbers each, in the order and with the
                     NumPy dtypes of `warps.fields`

Readers ignore unknown fields. Neither of the two, unpacked, is longer than the limits in `header` (`*_LIMIT_BYTES`).

To read the header without memlane:

    meta = pyarrow.parquet.read_metadata(path).metadata
    header = json.loads(zlib.decompress(base64.b64decode(meta[b"memlane_header"])))
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memlane.errors import RecordError
from memlane.record.contents import TraceContents
from memlane.record.header import FORMAT, FORMAT_KEY, decode, encode, failure
from memlane.record.output import replacing
from memlane.record.schema import ACCESS_SCHEMA, LATER_COLUMNS

_CLOCKS = ("start", "end")
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    # Clock values hardly repeat, so a dictionary of them only costs; consecutive ones of a warp differ little.
    "use_dictionary": [name for name in ACCESS_SCHEMA.names if name not in _CLOCKS],
    "column_encoding": dict.fromkeys(_CLOCKS, "DELTA_BINARY_PACKED"),
    "write_page_checksum": True,
}
_MAGIC = b"PAR1"
_MOST = (1 << 63) - 1
"""Largest signed 64-bit number: a number in a header may be larger, one in a column may not."""
_OF_SITE = ("kernel", "file", "line", "op", "space", "completeness")
"""Columns of the rows that repeat fields of their site, for readers without memlane."""


def is_record(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like a record file. Raises OSError if it cannot be read."""
    with open(path, "rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def is_broken_off(path: str | os.PathLike[str]) -> bool:
    """Return whether a file holds the records of a program that broke off. False for a missing, foreign or damaged file."""
    try:
        with open(path, "rb") as stream, pq.ParquetFile(stream) as parquet:
            metadata = {key.decode(): value.decode() for key, value in (parquet.metadata.metadata or {}).items()}
        return bool(failure(metadata))
    except (pa.ArrowException, KeyError, OSError, OverflowError, RecursionError, TypeError, ValueError, zlib.error):
        return False


def save(trace: TraceContents, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write `trace` to `path`, completely or not at all. Raises RecordError if the file exists without `force`, or if it cannot be
    written."""
    metadata = encode(trace)
    with replacing(path, force) as stream, pq.ParquetWriter(stream, ACCESS_SCHEMA, **_OPTIONS) as writer:
        writer.write_table(trace.table)
        writer.add_key_value_metadata(metadata)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the trace in the record file `path`. Raises RecordError if it is missing, foreign, damaged or of a newer
    format."""
    try:
        # Opened here, because Arrow rejects names that are not Unicode.
        with open(path, "rb") as stream, pq.ParquetFile(stream, page_checksum_verification=True) as parquet:
            metadata = {key.decode(): value.decode() for key, value in (parquet.metadata.metadata or {}).items()}
            _check_format(path, metadata)
            if not parquet.schema_arrow.equals(_schema_of(int(metadata[FORMAT_KEY]))):
                raise _damaged(path, "its columns are not those of a memlane record")
            fields = decode(metadata)
            table = _completed(parquet.read().unify_dictionaries().combine_chunks().replace_schema_metadata(None), fields["target"])
    except FileNotFoundError:
        raise RecordError(f"{path}: there is no such file") from None
    except (pa.ArrowMemoryError, MemoryError) as error:
        raise RecordError(f"{path} cannot be read: there is not enough memory") from error
    except (pa.ArrowException, OSError) as error:
        raise RecordError(_what_is_wrong(Path(path), error)) from error
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError, zlib.error) as error:
        raise _damaged(path, f"its memlane header cannot be read ({_said(error)})") from error
    _check_references(path, table, fields)
    return {"table": table, **fields}


def _schema_of(number: int) -> pa.Schema:
    """Return the columns of a record file of that format."""
    later = {name for since, names in LATER_COLUMNS.items() if since > number for name in names}
    return pa.schema([field for field in ACCESS_SCHEMA if field.name not in later])


def _completed(table: pa.Table, target: str) -> pa.Table:
    """Return the rows with the columns of later formats added: all null, except the device, of which there was only one."""
    for place, field in enumerate(ACCESS_SCHEMA):
        if field.name not in table.column_names:
            one = pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, np.int32), pa.array([target]))
            table = table.add_column(place, field, one if field.name == "device" else pa.nulls(table.num_rows, field.type))
    return table


def _check_format(path: str | os.PathLike[str], metadata: dict[str, str]) -> None:
    """Raise RecordError if the metadata is not of a record, or is of a newer format."""
    code = metadata.get(FORMAT_KEY)
    if code is None:
        raise RecordError(f"{path} is a Parquet file, but not a memlane record: it has no {FORMAT_KEY}; `memlane trace` writes records")
    if not code.isdecimal():
        raise _damaged(path, f"its {FORMAT_KEY} is {code!r}")
    if int(code) > FORMAT:
        raise RecordError(f"{path} has record format {code}, but this memlane reads only up to {FORMAT}; install a newer memlane")


def _check_references(path: str | os.PathLike[str], table: pa.Table, fields: dict[str, Any]) -> None:
    """Raise RecordError if a row refers to an unknown site or launch, or contradicts it: the error would otherwise surface far from
    here."""
    for column, known in (("site", len(fields["sites"])), ("launch", len(fields["launches"]))):
        highest = pc.max(table[column]).as_py()
        if highest is not None and highest >= known:
            raise _damaged(path, f"a row names {column} {highest}, but the header has only {known}")
    for column in table.column_names:
        if pa.types.is_dictionary(table[column].type):
            try:
                table[column].validate(full=True)
            except pa.ArrowInvalid as error:
                raise _damaged(path, f"its column {column} cannot be read ({_said(error)})") from error
    for name in _OF_SITE:
        _check_repeated(path, table, name, "site", [getattr(site, name) for site in fields["sites"]])
    _check_repeated(path, table, "device", "launch", [launch.device for launch in fields["launches"]])


def _check_repeated(path: str | os.PathLike[str], table: pa.Table, name: str, of: str, of_site: list[Any]) -> None:
    """Raise RecordError if a column of the rows contradicts the field of their site or launch, because tables of both would disagree."""
    if not table.num_rows:
        return
    column = table[name].combine_chunks()
    if pa.types.is_dictionary(column.type):
        codes = {text: code for code, text in enumerate(column.dictionary.to_pylist())}
        said, wanted = column.indices.to_numpy(), np.array([codes.get(text, -1) for text in of_site], np.int64)
    else:
        said, wanted = column.to_numpy(), np.array([min(number, _MOST) for number in of_site], np.int64)
    sites = table[of].to_numpy()
    differs = said != wanted[sites]
    if differs.any():
        row = int(np.argmax(differs))
        told, site = table[name][row].as_py(), int(sites[row])
        raise _damaged(path, f"row {row:,} has {name} {told}, but its {of} {site} has {of_site[site]}")


def _damaged(path: str | os.PathLike[str], what: str) -> RecordError:
    """Return the error for a damaged file."""
    return RecordError(f"{path} is damaged: {what}; record it again, or take another copy of it")


def _said(error: Exception) -> str:
    """Return the first line of an error's message."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error).partition("\n")[0][:200]


def _what_is_wrong(path: Path, error: Exception) -> str:
    """Return a message for a file that Arrow cannot read."""
    if path.is_dir():
        return f"{path} is a directory; name a record file"
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_MAGIC))
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(len(head), size - len(_MAGIC)))
            tail = stream.read()
    except OSError as refused:
        return f"{path} cannot be read: {refused.strerror or refused}"
    if not head:
        return f"{path} is empty"
    if head != _MAGIC:
        return f"{path} is not a Parquet file, so it is not a memlane record; `memlane trace` writes records"
    if tail != _MAGIC:
        return f"{path} is truncated: the end of the Parquet file is missing; record it again"
    # Arrow's message gives the position at which its reader stopped, which helps only to investigate the damage.
    return str(_damaged(path, f"its content was changed and cannot be read ({_said(error)})"))

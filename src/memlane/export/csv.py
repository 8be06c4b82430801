"""CSV: one line per access, all columns of the record.

The first line names the columns: those of `ACCESS_SCHEMA`, with the unit in the name where there is one (`bytes_per_lane`,
`start_cycles`, `end_cycles`). RFC 4180 with line feeds, UTF-8, plain digits whatever the locale; an unknown number is an empty field;
`active_mask` is a decimal number, its lowest bit lane 0.
"""

from __future__ import annotations

from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv

from memlane.export.format import Exporter
from memlane.record import ACCESS_SCHEMA, Trace

UNITS = {"bytes": "bytes_per_lane", "start": "start_cycles", "end": "end_cycles"}
"""Columns whose name in the CSV says more than in the record."""

_ROWS_AT_ONCE = 1 << 16


def write(trace: Trace, stream: BinaryIO) -> None:
    """Write the rows of `trace` as CSV to `stream`."""
    schema = pa.schema([field.with_name(UNITS.get(field.name, field.name)) for field in ACCESS_SCHEMA])
    with pyarrow.csv.CSVWriter(stream, schema) as writer:
        for batch in trace.table.to_batches(_ROWS_AT_ONCE):
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


EXPORTER = Exporter("csv", ".csv", "one line per access, for spreadsheets and scripts", write)

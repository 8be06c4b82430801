"""Write CSV: one line per access, all columns of the record, and its times in ns.

The first line names the columns: those of `ACCESS_SCHEMA`, with the unit in the name where there is one (`bytes_per_lane`, `start_cycles`,
`end_cycles`, `exposed_cycles`). RFC 4180 with line feeds, UTF-8, plain digits whatever the locale; an unknown number is an empty field;
`active_mask` is a decimal number, its lowest bit lane 0. The last two columns, `start_ns` and `end_ns`, count from the first moment in the
trace and are comparable between SMs (`memlane.record.axis` gives the accuracy); they are empty if the trace has no common time axis.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from memlane.export.format import Exporter
from memlane.record import ACCESS_SCHEMA, TimeAxis, Trace, time_axis

UNITS = {"bytes": "bytes_per_lane", "start": "start_cycles", "end": "end_cycles", "exposed": "exposed_cycles"}
"""Columns whose name in the CSV includes the unit."""

_ROWS_AT_ONCE = 1 << 16


def write(trace: Trace, stream: BinaryIO) -> None:
    """Write the rows of `trace` as CSV to `stream`."""
    named = [field.with_name(UNITS.get(field.name, field.name)) for field in ACCESS_SCHEMA]
    schema = pa.schema([*named, pa.field("start_ns", pa.float64()), pa.field("end_ns", pa.float64())])
    axis = time_axis(trace)
    with pyarrow.csv.CSVWriter(stream, schema) as writer:
        for batch in trace.table.to_batches(_ROWS_AT_ONCE):
            writer.write_batch(pa.RecordBatch.from_arrays([*batch.columns, *_nanoseconds(axis, batch)], schema=schema))


def _nanoseconds(axis: TimeAxis, batch: pa.RecordBatch) -> list[pa.Array]:
    """Return start and end to a tenth of a nanosecond, null outside the range of the axis."""
    launch, sm = batch["launch"].to_numpy(), batch["sm"].to_numpy()
    times = [np.round(axis.ns(launch, sm, batch[name].to_numpy()), 1) for name in ("start", "end")]
    return [pa.array(column, from_pandas=True) for column in times]


EXPORTER = Exporter("csv", ".csv", "one line per access, for spreadsheets and scripts", write)

"""The passes that make a kernel record or count its accesses.

sites           which instructions access memory
registers       the registers of a function, and names that are free in it
insert          editing the body of a function
schemes         how the clock is read around an access, one scheme a file
warp            the PTX of a traced warp besides its probes
tracing         the pass that puts it together: `trace`
buffer, decode  the trace buffer: its layout in bytes, and back to rows
transactions    the PTX that counts what an access costs
counting        the pass that puts it in, and its counters back to counts: `count`, `read_counters`
"""

from memlane.instrument.buffer import (
    HEADER_BYTES,
    HEADER_DTYPE,
    RECORD_DTYPE,
    SLICE_DTYPE,
    BufferLayout,
    buffer_layout,
    initial_header,
)
from memlane.instrument.counting import Branch, Counted, count, read_counters
from memlane.instrument.decode import Decoded, decode
from memlane.instrument.options import CountOptions, Selection, TraceOptions
from memlane.instrument.schemes import SCHEMES, check_consume, fits_consume
from memlane.instrument.sites import SiteTable, Skipped, place_of, site_table
from memlane.instrument.tracing import Traced, trace
from memlane.instrument.variables import COUNTERS, POINTER

__all__ = [
    "COUNTERS",
    "HEADER_BYTES",
    "HEADER_DTYPE",
    "POINTER",
    "RECORD_DTYPE",
    "SCHEMES",
    "SLICE_DTYPE",
    "Branch",
    "BufferLayout",
    "CountOptions",
    "Counted",
    "Decoded",
    "Selection",
    "SiteTable",
    "Skipped",
    "TraceOptions",
    "Traced",
    "buffer_layout",
    "check_consume",
    "count",
    "decode",
    "fits_consume",
    "initial_header",
    "place_of",
    "read_counters",
    "site_table",
    "trace",
]

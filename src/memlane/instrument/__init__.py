"""Instrument PTX: passes that make kernels record or count their memory accesses, and readers of what the kernels wrote.

sites               finds the instructions that access memory and numbers them
registers           lists the registers that an instruction reads, and copies them into 32-bit words
probe               the probes of a kernel as data
printing            prints probes as PTX and returns the instruction index of each of their parts
sampling            chooses which warps and which executions of a site are traced
staging             PTX that buffers records in shared memory before they go to global memory
schemes             ways to read the clock around an access, one scheme per file
warp                PTX that a traced warp runs besides its probes
batch_reservations  pass that merges the slot reservations of adjacent probes in straight-line code
kernel_versions     pass that combines the instrumented and the original body, of which each warp runs one
tracing             the tracing pipeline: `trace`
buffer, decode      the trace buffer: its byte layout, and its conversion to rows
transactions        PTX that counts the transactions of an access
rebind              pass that makes an instrumented copy of a module use the variables of the original
merged_loads        pass that adds the wide loads that ptxas forms from adjacent narrow ones: `add_merged_loads`
counting            the counting pass and the reader of its counters: `count`, `read_counters`
"""

from memlane.instrument.buffer import (
    HEADER_BYTES,
    HEADER_DTYPE,
    LAUNCH_DTYPE,
    NO_ENTRY,
    RECORD_DTYPE,
    SLICE_DTYPE,
    BufferLayout,
    buffer_layout,
    entry,
    initial_header,
    taken_slices,
    warps_without_slice,
)
from memlane.instrument.counting import Branch, Counted, count, read_counters
from memlane.instrument.decode import Decoded, decode, records_written
from memlane.instrument.merged_loads import MergedLoads, add_merged_loads
from memlane.instrument.options import STAGINGS, CountOptions, Selection, TraceOptions
from memlane.instrument.rebind import Rebound, copied_variables, rebind, shared_variables
from memlane.instrument.sampling import Chosen, Ranges, Sampling
from memlane.instrument.schemes import SCHEMES
from memlane.instrument.sites import SiteTable, place_of, site_table, uncounted
from memlane.instrument.staging import STAGE_RECORDS, stage_bytes, unstaged_bytes
from memlane.instrument.tracing import Traced, trace
from memlane.instrument.variables import COUNTERS, POINTER, WINDOW

__all__ = [
    "COUNTERS",
    "HEADER_BYTES",
    "HEADER_DTYPE",
    "LAUNCH_DTYPE",
    "NO_ENTRY",
    "POINTER",
    "RECORD_DTYPE",
    "SCHEMES",
    "SLICE_DTYPE",
    "STAGE_RECORDS",
    "STAGINGS",
    "WINDOW",
    "Branch",
    "BufferLayout",
    "Chosen",
    "CountOptions",
    "Counted",
    "Decoded",
    "MergedLoads",
    "Ranges",
    "Rebound",
    "Sampling",
    "Selection",
    "SiteTable",
    "TraceOptions",
    "Traced",
    "add_merged_loads",
    "buffer_layout",
    "copied_variables",
    "count",
    "decode",
    "entry",
    "initial_header",
    "place_of",
    "read_counters",
    "rebind",
    "records_written",
    "shared_variables",
    "site_table",
    "stage_bytes",
    "taken_slices",
    "trace",
    "uncounted",
    "unstaged_bytes",
    "warps_without_slice",
]

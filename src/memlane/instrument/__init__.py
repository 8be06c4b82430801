"""The passes that make a kernel record or count its accesses.

sites           which instructions access memory
registers       the registers that an instruction reads, and their bits
probe           the probes of a kernel as data
printing        the printer of these, which says where their parts stand
sampling        which warps and executions are traced
staging         the PTX that keeps records in shared memory first
schemes         how the clock is read around an access, one scheme a file
warp            the PTX of a traced warp besides its probes
together        the pass that lets probes of a straight line reserve places together
halves          the two bodies of a kernel of which only some warps are traced
tracing         the pass that puts it together: `trace`
buffer, decode  the trace buffer: its layout in bytes, and back to rows
transactions    the PTX that counts what an access costs
rebind          the pass that lets a twin use the variables of its original
widen           the pass that puts the access that the assembler makes of several beside these: `widen`
counting        the pass that puts it in, and its counters back to counts: `count`, `read_counters`
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
    homeless_warps,
    initial_header,
    taken_slices,
)
from memlane.instrument.counting import Branch, Counted, count, read_counters
from memlane.instrument.decode import Decoded, decode, records_written
from memlane.instrument.options import STAGINGS, CountOptions, Selection, TraceOptions
from memlane.instrument.rebind import Rebound, copied_variables, rebind, shared_variables
from memlane.instrument.sampling import Chosen, Ranges, Sampling
from memlane.instrument.schemes import SCHEMES
from memlane.instrument.sites import SiteTable, place_of, site_table, uncounted
from memlane.instrument.staging import STAGE_RECORDS, stage_bytes, unstaged_bytes
from memlane.instrument.tracing import Traced, trace
from memlane.instrument.variables import COUNTERS, POINTER, WINDOW
from memlane.instrument.widen import Widened, widen

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
    "Ranges",
    "Rebound",
    "Sampling",
    "Selection",
    "SiteTable",
    "TraceOptions",
    "Traced",
    "Widened",
    "buffer_layout",
    "copied_variables",
    "count",
    "decode",
    "entry",
    "homeless_warps",
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
    "widen",
]

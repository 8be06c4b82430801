"""The passes that make a kernel record or count its accesses.

    sites       which instructions access memory
    schemes     how the clock is read around them, one scheme a file
    warp        the PTX of a traced warp besides its probes
    tracing     the pass that puts it together: `trace`
    buffer      the trace buffer, its layout in bytes
    decode      the trace buffer back to rows
"""

from memlane.instrument.buffer import POINTER, BufferLayout, buffer_layout, initial_header
from memlane.instrument.options import Selection, TraceOptions
from memlane.instrument.schemes import SCHEMES, check_consume, fits_consume
from memlane.instrument.sites import Skipped
from memlane.instrument.tracing import Traced, trace

__all__ = [
    "POINTER",
    "SCHEMES",
    "BufferLayout",
    "Selection",
    "Skipped",
    "TraceOptions",
    "Traced",
    "buffer_layout",
    "check_consume",
    "fits_consume",
    "initial_header",
    "trace",
]

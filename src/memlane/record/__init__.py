"""Hold access records and counts in memory, and read and write the record file.

Order inside: site <- counts, example, perturbation, sample, staging <- schema <- contents, plain <- axis, header <- file <- trace <- build,
summary. `output` writes a file completely or not at all.
"""

from memlane.record.accesses import access_groups, groups_of_array
from memlane.record.axis import SmClock, TimeAxis, time_axis
from memlane.record.build import build_trace
from memlane.record.counts import BranchCounts, Counts, Exactness, SiteCounts, Totals, source_line, total_by_place
from memlane.record.example import AccessExample
from memlane.record.file import is_broken_off, is_record, save
from memlane.record.output import check_output, check_output_directory, replacing, replacing_directory
from memlane.record.perturbation import Footprint, Perturbation
from memlane.record.sample import Sample, Span, span_text
from memlane.record.schema import (
    ACCESS_SCHEMA,
    BARRIER_DTYPE,
    WARP_DTYPE,
    ArrayArgument,
    Change,
    CopyInfo,
    LaunchInfo,
    PredictedPart,
    PredictedTime,
)
from memlane.record.site import (
    BLOCK_VISIBLE,
    BY_EMULATOR,
    COMPLETE,
    DEVICE_VISIBLE,
    EXACT,
    HINT,
    ISSUE_ONLY,
    MERGED,
    NOT_CHECKED,
    NOT_PROVED,
    PROVED,
    Call,
    Place,
    Site,
    Skipped,
)
from memlane.record.staging import Staging
from memlane.record.summary import LineSummary, summarise
from memlane.record.trace import Trace, load
from memlane.titles import kernel_label

__all__ = [
    "ACCESS_SCHEMA",
    "BARRIER_DTYPE",
    "BLOCK_VISIBLE",
    "BY_EMULATOR",
    "COMPLETE",
    "DEVICE_VISIBLE",
    "EXACT",
    "HINT",
    "ISSUE_ONLY",
    "MERGED",
    "NOT_CHECKED",
    "NOT_PROVED",
    "PROVED",
    "WARP_DTYPE",
    "AccessExample",
    "ArrayArgument",
    "BranchCounts",
    "Call",
    "Change",
    "CopyInfo",
    "Counts",
    "Exactness",
    "Footprint",
    "LaunchInfo",
    "LineSummary",
    "Perturbation",
    "Place",
    "PredictedPart",
    "PredictedTime",
    "Sample",
    "Site",
    "SiteCounts",
    "Skipped",
    "SmClock",
    "Span",
    "Staging",
    "TimeAxis",
    "Totals",
    "Trace",
    "access_groups",
    "build_trace",
    "check_output",
    "check_output_directory",
    "groups_of_array",
    "is_broken_off",
    "is_record",
    "kernel_label",
    "load",
    "replacing",
    "replacing_directory",
    "save",
    "source_line",
    "span_text",
    "summarise",
    "time_axis",
    "total_by_place",
]

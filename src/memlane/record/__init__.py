"""Access records, counts, and the file that holds them. Order inside: site <- counts <- trace <- file."""

from memlane.record.counts import BranchCounts, Counts, SiteCounts
from memlane.record.site import COMPLETE, ISSUE_ONLY, Site
from memlane.record.trace import ACCESS_SCHEMA, WARP_DTYPE, LaunchInfo, Trace

__all__ = ["ACCESS_SCHEMA", "COMPLETE", "ISSUE_ONLY", "WARP_DTYPE", "BranchCounts", "Counts", "LaunchInfo", "Site", "SiteCounts", "Trace"]

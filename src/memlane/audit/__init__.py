"""Compare the machine code that ptxas made of a module with the PTX.

    assembled_module  maps machine instructions to the PTX instructions that they came from
    windows           checks the code between two clock reads
    exposure          checks windows that close in front of a consumer
    clock_provenance  follows the value of a register back to clock reads and constants
    warp_aggregation  recognises atomics that one leader lane performs for its warp
    missing_accesses  explains why the machine code has no access for a site
    proof             gives the verdict for each timed site: `prove`, `proved_sites`
    exact_accesses    tells whether the hardware accesses memory as the PTX says: `exactness`
    grouping          tells whether the lanes of a warp reach an access in the same groups
    lane_groups       follows diverged lanes until they reconverge
    reconvergence     finds where lanes are converged in the machine code
    attribution       attributes machine instructions to PTX instructions, for the timing model
    site_changes      finds the accesses that tracing changed: `access_changes`

This package changes no module, and no pass of `memlane.instrument` uses its results.
"""

from memlane.audit.exact_accesses import SiteExactness, exactness
from memlane.audit.proof import SiteProof, prove, proved_sites
from memlane.audit.site_changes import SiteChange, access_changes

__all__ = ["SiteChange", "SiteExactness", "SiteProof", "access_changes", "exactness", "prove", "proved_sites"]

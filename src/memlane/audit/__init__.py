"""Compare the machine code that ptxas made of a module with the PTX.

    assembled        maps machine instructions to the PTX instructions that they came from
    windows          checks the code between two clock reads
    exposure         checks windows that close in front of a consumer
    carried          follows the value of a register back to clock reads and constants
    aggregated       recognises atomics that one leader lane performs for its warp
    absent           explains why the machine code has no access for a site
    proof            gives the verdict for each timed site: `prove`, `proved`
    matching         tells whether the hardware accesses memory as the PTX says: `exactness`
    grouping         tells whether the lanes of a warp reach an access in the same groups
    lane_groups      follows diverged lanes until they reconverge
    reconvergence    finds where lanes are converged in the machine code
    machine_code     attributes machine instructions to PTX instructions, for the timing model
    altered_accesses finds the accesses that tracing changed: `changes`

This package changes no module, and no pass of `memlane.instrument` uses its results.
"""

from memlane.audit.altered_accesses import SiteChange, changes
from memlane.audit.matching import SiteExactness, exactness
from memlane.audit.proof import SiteProof, prove, proved

__all__ = ["SiteChange", "SiteExactness", "SiteProof", "changes", "exactness", "prove", "proved"]

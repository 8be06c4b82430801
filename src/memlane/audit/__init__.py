"""What the assembler made of a module, held against what the PTX says.

assembled        which instructions of the assembled code came from which of the PTX
probes           where the probes of a traced module are
windows          what can be shown of the code between two clock reads
exposure         the same of windows that close in front of a consumer
carried          where the value of a register comes from: clock reads and constants
aggregated       atomics that one lane does for its warp
absent           why the assembled code has no access for a site
proof            the verdict for each timed site: `prove`, `proved`
matching         whether the hardware accesses memory as the PTX says: `exactness`
grouping         whether the lanes of a warp come to an access in the same groups
lane_groups      how far lanes that came apart go before they meet
reconvergence    where lanes are together in the assembled code
altered_accesses which accesses tracing changed: `changes`

Nothing here changes a module, and no pass of `memlane.instrument` knows what is found.
"""

from memlane.audit.altered_accesses import SiteChange, changes
from memlane.audit.matching import SiteExactness, exactness
from memlane.audit.proof import SiteProof, prove, proved

__all__ = ["SiteChange", "SiteExactness", "SiteProof", "changes", "exactness", "prove", "proved"]

"""Find better data layouts: of shared memory for a set of patterns (`search_layout`) or for the accesses of a launch (`fix`), and of arrays
in global memory.

`goals` prepares patterns for trying many layouts; `swizzles` enumerates candidates; `search` sifts them and certifies the best. `relayout`
returns a kernel with a changed array layout; `lane_addresses` records where accesses lie, `candidates` proposes layouts for them, `trials`
runs them in place of a launch, and `fix` chooses the best. `advise` does so for arrays in global memory.
"""

from memlane.optimize.advise import LayoutAdvice, advise_launch, advise_layout
from memlane.optimize.fix import Fix, fix, fix_launch
from memlane.optimize.relayout import relayout
from memlane.optimize.search import Certificate, search_layout
from memlane.optimize.trials import Measured, Needs

__all__ = [
    "Certificate",
    "Fix",
    "LayoutAdvice",
    "Measured",
    "Needs",
    "advise_launch",
    "advise_layout",
    "fix",
    "fix_launch",
    "relayout",
    "search_layout",
]

"""Finds what is better: a layout of shared memory for a set of patterns (`search_layout`), or for the accesses of a launch (`fix`).

`goals` are the patterns, prepared to try many layouts on; `swizzles` the candidates; `search` sifts them and certifies the best. `relayout`
loads a kernel with an array laid out otherwise; `lanes` sees where accesses lie, `candidates` are what that suggests, `trials` runs them in
place of a launch, and `fix` tells which is best. `advise` does so for arrays in global memory.
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

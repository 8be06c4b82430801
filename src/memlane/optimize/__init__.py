"""Finds what is better: a layout of shared memory for a set of patterns (`search_layout`), or for the accesses of a launch (`fix`).

`goals` are the patterns, prepared to try many layouts on; `swizzles` the candidates; `search` sifts them and certifies the best. `relayout`
loads a kernel with an array laid out otherwise; `candidates` are what accesses that were seen suggest, and `fix` tries them.
"""

from memlane.optimize.fix import Fix, Footprint, Measured, fix, fix_launch
from memlane.optimize.relayout import relayout
from memlane.optimize.search import Certificate, search_layout

__all__ = ["Certificate", "Fix", "Footprint", "Measured", "fix", "fix_launch", "relayout", "search_layout"]

"""Finds what is better: a layout of shared memory for a set of patterns (`search_layout`), and gives it to a kernel (`relayout`).

`goals` are the patterns, prepared to try many layouts on; `swizzles` the candidates; `search` sifts them and certifies the best. `relayout`
loads a kernel with an array laid out otherwise.
"""

from memlane.optimize.relayout import relayout
from memlane.optimize.search import Certificate, search_layout

__all__ = ["Certificate", "relayout", "search_layout"]

"""Finds what is better: a layout of shared memory for a set of patterns (`search_layout`).

`goals` are the patterns, prepared to try many layouts on; `swizzles` the candidates; `search` sifts them and certifies the best.
"""

from memlane.optimize.search import Certificate, search_layout

__all__ = ["Certificate", "search_layout"]

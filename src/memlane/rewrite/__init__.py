"""Change the addresses that kernels access: passes that take a valid module and return a valid one.

arrays                  the arrays in shared memory of a module, and how a name selects one
values <- arithmetic    abstract values of registers, and their transfer functions
provenance              which registers hold addresses of which array, instruction by instruction
placement, emit         a layout as a map of the byte offsets of an array: constant offsets and split accesses; the map as PTX
terms                   the offset of an address in its array as a sum of registers
writer <- relayout      rewrites a function with other addresses; the pass with its checks, tables and size limits
parameters              the pass for an array behind a pointer parameter
"""

from memlane.rewrite.arrays import SharedArray, find_array, shared_arrays
from memlane.rewrite.provenance import ArrayAccess, accesses_to_shared, cached_accesses_to_shared
from memlane.rewrite.relayout import RelayoutResult, relayout_module

__all__ = [
    "ArrayAccess",
    "RelayoutResult",
    "SharedArray",
    "accesses_to_shared",
    "cached_accesses_to_shared",
    "find_array",
    "relayout_module",
    "shared_arrays",
]

"""Passes that give kernels other addresses for what they compute anyway: valid module in, valid module out.

arrays                  the arrays in shared memory of a module, and which of them a name means
values <- arithmetic    what a register may hold, and what instructions make of that
provenance              which registers hold addresses of which array, instruction by instruction
placement, emit         a layout as a map of the bytes of an array: what it gives for constants and what it tears; the map as PTX
terms                   how far into its array an address leads, as a sum of registers
writer <- relayout      a function written anew with other addresses; what may be done, the tables, the room
parameters              the same for an array behind a pointer parameter
"""

from memlane.rewrite.arrays import SharedArray, find_array, shared_arrays
from memlane.rewrite.provenance import ArrayAccess, accesses_to_shared, followed
from memlane.rewrite.relayout import Relaid, relayout_module

__all__ = ["ArrayAccess", "Relaid", "SharedArray", "accesses_to_shared", "find_array", "followed", "relayout_module", "shared_arrays"]

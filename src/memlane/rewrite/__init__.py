"""Passes that give kernels other addresses for what they compute anyway: valid module in, valid module out.

arrays        the arrays in shared memory of a module, and which of them a name means
provenance    which registers hold addresses of which array, instruction by instruction
emit          the steps of an index map as PTX
placement     a layout as a map of byte offsets of one array: what it gives for constants, what it tears, what it costs
relayout      every access to one array through a layout
"""

from memlane.rewrite.arrays import SharedArray, find_array, shared_arrays
from memlane.rewrite.provenance import ArrayAccess, accesses_to_shared
from memlane.rewrite.relayout import Relaid, relayout_module

__all__ = ["ArrayAccess", "Relaid", "SharedArray", "accesses_to_shared", "find_array", "relayout_module", "shared_arrays"]

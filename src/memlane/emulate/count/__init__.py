"""The counting layer: sectors and wavefronts of a warp access, as generated code."""

from memlane.emulate.code.build import I32, I64, POINTER

ARGUMENTS = (POINTER, I64, I32, I32)
"""Of each counting function, as `counting` describes them: addresses, distance, mask, nbytes."""

__all__ = ["ARGUMENTS"]

"""Count sectors and wavefronts of a warp access in generated code."""

from memlane.emulate.code.build import I32, I64, POINTER

ARGUMENTS = (POINTER, I64, I32, I32)
"""Argument types of every counting function: addresses, distance, mask, nbytes (see `counting`)."""

__all__ = ["ARGUMENTS"]

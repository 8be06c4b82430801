"""Variants of a kernel by a model of the chip."""

from __future__ import annotations

from memlane.chip import Chip
from memlane.stencils.direct import Variant, preferred_vector
from memlane.stencils.geometry import Geometry
from memlane.stencils.problem import Problem
from memlane.stencils.rule import Rule


def default_variant(problem: Problem, rule: Rule, chip: Chip) -> tuple[Variant, str]:
    """Return the variant for launches of one step, and why."""
    nz, ny, _ = Geometry(problem, rule).extents
    block = (32, 8) if ny > 1 else (128, 1)
    return Variant(preferred_vector(problem, rule), block, min(8, nz)), "default"

"""Stencils: a Python function that updates one cell becomes kernels of CUDA C++, and plans that launch them.

    definition   the text of a function, with loops and helper functions written out
    language     that text -> a Rule; errors with carets
    expression   what a rule says, as a tree; `rule` what is known of it without a grid
    grid         shape, types, boundaries
    problem      rules on a grid, and what changes places after a step
    reference    what all that means: the function itself on shifted NumPy views
    cell         the update of one cell in CUDA C++, which every kernel of a rule calls
    access       text that kernels share: cells and rows with the boundary in them
    geometry     a problem with three axes, as kernels index it
    variant      how a kernel is cut into blocks, vectors and marches
    direct       kernels of one step; `rows` says what a thread holds of each field and how it is loaded
    fused        kernels of several steps; `schedule` says what they compute where
    choice       how kernels are cut, by a model of the chip
    code         the kernels of a problem as one text and as a module
    points       kernels for single cells: sources, probes, and the search for what is not finite
    stages       steps as plans
    exchange     steps on several devices as plans: `decomposition` says which cells each has, `turns` what it computes between exchanges,
                 `boxes` which cells a launch computes
    faces        how cells for neighbours are packed
    puts         the same where devices signal each other without the host; `borders` store into the halos of neighbours themselves
    persistent   kernels that stay on their devices for many steps; `persistent_stage` plans them
    resident     the same where the cells of a device stay on its multiprocessors, in `tiles`
    messages     the same where each subdomain belongs to a process of its own
    scaling      times on several devices, predicted; it is loaded on its own

Nothing here holds an address or calls a target; `timeloop` runs the plans.
"""

from __future__ import annotations

from memlane.stencils.code import Code
from memlane.stencils.decomposition import Decomposition, Subdomain, decomposed
from memlane.stencils.direct import DirectKernel
from memlane.stencils.exchange import SharedStage
from memlane.stencils.fused import FusedKernel
from memlane.stencils.grid import Face, Grid
from memlane.stencils.language import read_rule
from memlane.stencils.messages import RankStage
from memlane.stencils.persistent import PersistentKernel, cannot_stay
from memlane.stencils.persistent_stage import PersistentStage
from memlane.stencils.problem import Problem
from memlane.stencils.puts import PutStage
from memlane.stencils.resident import ResidentKernel
from memlane.stencils.rule import Footprint, Rule
from memlane.stencils.schedule import cannot_fuse
from memlane.stencils.stages import Point, Stage
from memlane.stencils.turns import Turn
from memlane.stencils.variant import Variant

__all__ = [
    "Code",
    "Decomposition",
    "DirectKernel",
    "Face",
    "Footprint",
    "FusedKernel",
    "Grid",
    "PersistentKernel",
    "PersistentStage",
    "Point",
    "Problem",
    "PutStage",
    "RankStage",
    "ResidentKernel",
    "Rule",
    "SharedStage",
    "Stage",
    "Subdomain",
    "Turn",
    "Variant",
    "cannot_fuse",
    "cannot_stay",
    "decomposed",
    "read_rule",
]

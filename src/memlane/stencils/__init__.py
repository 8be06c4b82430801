"""Turn a Python function that updates one cell of a grid into kernels of CUDA C++, and into plans that launch them.

    definition   the text of a function, with loops and helper functions written out
    language     that text -> a Rule; errors with carets
    expression   the update of a rule as a tree; `rule` derives properties that need no grid
    grid         shape, types, boundaries
    problem      rules on a grid, and the fields that swap after a step
    reference    reference semantics: the function itself on shifted NumPy views
    cell         the update of one cell in CUDA C++, which every kernel of a rule calls
    access       code that kernels share: accesses to cells and rows, with boundary conditions
    geometry     a problem with three axes, as kernels index it
    variant      how a kernel is cut into blocks, vectors and marches
    direct       kernels of one step; `rows` chooses the cells that a thread holds in registers, and loads them
    fused        kernels of several steps; `schedule` maps the steps to planes, rows and cells
    choice       variants of kernels, ranked by a model of the chip
    code         the kernels of a problem as one text and as a module
    points       kernels for single cells: sources, probes, and the search for values that are not finite
    stages       steps as plans
    exchange     steps on several devices as plans: `decomposition` assigns cells to devices, `turns` lays out the launches between
                 exchanges, `boxes` the cells that a launch computes
    faces        packing of cells for neighbours into messages
    puts         plans whose devices signal each other without the host; kernels of `borders` store into the halos of neighbours themselves
    persistent   kernels that run on their devices for many steps; `persistent_stage` plans them
    resident     persistent kernels that keep the cells of a device in shared memory, in `tiles`
    messages     plans for MPI ranks, each with its own subdomain
    scaling      predicted times on several devices; imported separately

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

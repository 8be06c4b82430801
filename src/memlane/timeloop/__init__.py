"""Run stencils: put a rule on a grid, prepare it with values, and make steps on a target.

rules      `stencil`, and a rule or several in sequence on a grid
run        a prepared run: steps, fields, reductions
engine     stages bound to memory and executed
shared     a run whose grid lies in subdomains on several devices
sharing    subdomains, exchanges and transport, given or chosen by the model; `residence` has the memory of persistent kernels
distributed  a run whose subdomains belong to the ranks of an MPI program; `mpi` sends their messages
memory     fields on a target: upload and gather; `parts` for several targets
variants   the kernels of a run: given, chosen by the model, or timed
points     sources and probes
snapshots the state of a run in a file
watching   progress and Ctrl-C between steps
"""

from __future__ import annotations

from memlane.timeloop.rules import Discretized, Stencil, stencil
from memlane.timeloop.run import Run

__all__ = ["Discretized", "Run", "Stencil", "stencil"]

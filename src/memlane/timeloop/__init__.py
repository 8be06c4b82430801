"""The time loop of stencils: what a user calls to put a rule on a grid and run it on a target.

rules      `stencil`, and a rule or several in sequence on a grid
run        a prepared run: steps, fields, reductions
engine     stages bound to memory and executed
shared     a run whose grid lies in subdomains on several devices
sharing    which part each has, and how cells travel: given, or by the model; `residence` is where kernels stay
distributed  the same where each subdomain belongs to a rank of an MPI program; `mpi` sends their messages
memory     fields on a target: values in and out; `parts` on several
variants   which kernels a run takes: given, by the model, or timed
points     sources and probes
snapshots the state of a run in a file
watching   what happens between steps: callbacks, progress, Ctrl-C, states that are not finite
"""

from __future__ import annotations

from memlane.timeloop.rules import Discretized, Stencil, stencil
from memlane.timeloop.run import Run

__all__ = ["Discretized", "Run", "Stencil", "stencil"]

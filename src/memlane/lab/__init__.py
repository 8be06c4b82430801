"""Run experiments on a machine, each repeatable with one command: `memlane lab NAME`.

Order inside: figures <- result <- interface <- probing <- a package for each lab.

To add a lab: a package with a `LAB`, entered below; a prediction in its docstring, written before anything is measured; the paths that it
measures in `SOURCES`; its cases measured by `interface.Cases`, so that one that fails, or Ctrl-C, loses no other; a command in
`cli/lab.py`; a quick run in `tests/lab`.
"""

from memlane.lab.bandwidth import BANDWIDTH
from memlane.lab.interface import Lab, Request
from memlane.lab.latency import LATENCY
from memlane.lab.reduction import REDUCTION
from memlane.lab.remap import REMAP
from memlane.lab.result import Machine, Result, Row, Table, machine
from memlane.lab.shift import SHIFT
from memlane.lab.stencil import STENCIL
from memlane.lab.volume import VOLUME

LABS = {lab.name: lab for lab in (BANDWIDTH, LATENCY, REDUCTION, REMAP, SHIFT, STENCIL, VOLUME)}

__all__ = ["LABS", "Lab", "Machine", "Request", "Result", "Row", "Table", "machine"]

"""memlane: see, count, explain and fix the memory accesses of CUDA kernels, on a GPU or without one.

    import memlane as ml

    module = ml.cuda("examples/transpose.cu")             # or ml.parse, ml.numba, ml.triton
    target = ml.target()                                  # the first GPU, else the emulator
    naive = target.load(module)["naive"]
    a, out = target.array(host), target.empty((1024, 1024), "f4")
    trace = ml.trace(naive[(32, 32), (32, 32)], out, a, 1024)
    for finding in ml.explain(trace):
        print(finding)

Programs     `cuda`, `numba`, `triton` and `parse` make a `Module`, and `link` makes one from several; `target(...)` returns a `Target`,
             which loads a module and returns its kernels (`Kernel`)
Measuring    `trace` -> `Trace`, `count` -> `Counts`, `time`, `check`; each launches once and leaves memory as the plain launch would
             (`time` restores it). `Tracer` (with `TraceOptions`), `Counter` and `Checker` do the same for all launches in a `with` block.
             `predict` predicts how long a launch takes on a chip that need not be present
Reading      `explain` -> `Finding`s, `compare`, `load` reads a record file
Changing     `relayout` changes the layout of an array in shared memory or behind a pointer; `advise_layout` names the layout that pays off
Data         `DeviceArray`
Plans        `PlanBuilder` makes a plan of launches, copies and host functions on several `devices`, as data; `run` runs it once, a
             `BoundPlan` runs it repeatedly, or times it; `predicted` predicts its times; `draw` writes the times as a picture, a page or a
             trace for Perfetto
Transfers    `upload` and `download` copy an array and change its layout, in chunks, so that copies and transformations overlap;
             `memlane.transfer` has `gather` for rows by index, and `lay_out` for arrays that are already on the device
Stencils     `stencil` makes a rule from a Python function; on a `Grid` it becomes kernels and a time loop that runs them;
             `plan_scaling` predicts its steps on several devices
Errors       all errors that a user can cause are `MemlaneError`s

Names are loaded when they are first used, so that the import is fast and opens neither CUDA nor the emulator.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "BoundPlan": "targets",
    "Checker": "measure",
    "Counter": "measure",
    "Counts": "record",
    "DeviceArray": "launch",
    "Finding": "diagnose",
    "Grid": "stencils",
    "Kernel": "launch",
    "MemlaneError": "errors",
    "Module": "ptx",
    "PlanBuilder": "plan",
    "Target": "launch",
    "Trace": "record",
    "TraceOptions": "instrument",
    "Tracer": "measure",
    "advise_layout": "optimize.advise",
    "check": "testing.limits",
    "compare": "diagnose",
    "count": "measure",
    "cuda": "compile",
    "devices": "targets",
    "download": "transfer",
    "draw": "report.timelines",
    "explain": "diagnose",
    "link": "compile",
    "load": "record",
    "numba": "compile",
    "parse": "ptx",
    "plan_scaling": "stencils.scaling",
    "predict": "measure",
    "predicted": "model",
    "relayout": "optimize",
    "run": "targets",
    "stencil": "timeloop",
    "target": "targets",
    "time": "measure",
    "trace": "measure",
    "triton": "compile",
    "upload": "transfer",
}

__all__ = [
    "BoundPlan",
    "Checker",
    "Counter",
    "Counts",
    "DeviceArray",
    "Finding",
    "Grid",
    "Kernel",
    "MemlaneError",
    "Module",
    "PlanBuilder",
    "Target",
    "Trace",
    "TraceOptions",
    "Tracer",
    "advise_layout",
    "check",
    "compare",
    "count",
    "cuda",
    "devices",
    "download",
    "draw",
    "explain",
    "link",
    "load",
    "numba",
    "parse",
    "plan_scaling",
    "predict",
    "predicted",
    "relayout",
    "run",
    "stencil",
    "target",
    "time",
    "trace",
    "triton",
    "upload",
]

if TYPE_CHECKING:
    from memlane.compile import cuda, link, numba, triton
    from memlane.diagnose import Finding, compare, explain
    from memlane.errors import MemlaneError
    from memlane.instrument import TraceOptions
    from memlane.launch import DeviceArray, Kernel, Target
    from memlane.measure import Checker, Counter, Tracer, count, predict, time, trace
    from memlane.model import predicted
    from memlane.optimize.advise import advise_layout
    from memlane.optimize.relayout import relayout
    from memlane.plan import PlanBuilder
    from memlane.ptx import Module, parse
    from memlane.record import Counts, Trace, load
    from memlane.report.timelines import draw
    from memlane.stencils import Grid
    from memlane.stencils.scaling import plan_scaling
    from memlane.targets import BoundPlan, devices, run, target
    from memlane.testing.limits import check
    from memlane.timeloop import stencil
    from memlane.transfer import download, upload


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'memlane' has no attribute {name!r}")
    value = getattr(import_module(f"memlane.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext memlane` does in IPython and Jupyter: the cell magic `%%memlane`."""
    import_module("memlane.notebook").load_ipython_extension(shell)


def unload_ipython_extension(shell: object) -> None:
    """What `%unload_ext memlane` does."""
    import_module("memlane.notebook").unload_ipython_extension(shell)


def _show_in_notebook() -> None:
    """Where IPython runs already, let traces, counts and findings show themselves there. Elsewhere it loads nothing."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get_shell is None else get_shell()
    if shell is not None:
        import_module("memlane.notebook").register(shell)


_show_in_notebook()

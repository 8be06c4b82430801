"""Bind stages to memory and execute them: the part of a run that handles addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from memlane.compile import cuda
from memlane.emulate.code.store import Entry, digest, keep, present_store
from memlane.launch import DeviceArray, LoadedModule, Target
from memlane.plan import KernelRef, Plan
from memlane.ptx import Module, parse, print_module
from memlane.stencils import Code, Problem, Stage
from memlane.stencils.code import StepKernel
from memlane.stencils.points import FIND, NOWHERE, point_kernel, point_kernels
from memlane.stencils.stages import REDUCTIONS, SCALARS, field_buffers
from memlane.stencils.sums import exact_value
from memlane.targets import BoundPlan
from memlane.timeloop.memory import KeptTables, blank

_KEPT_PLANS = 32
"""Most bound plans that a run keeps; each may hold a graph."""
_OLDEST = (7, 5)
"""Oldest compute capability of the compiler. The emulator runs its code for older chips too."""


class Engine:
    """A problem on one target: its memory, its kernels, and the plans bound to them."""

    def __init__(self, problem: Problem, code: Code, target: Target, arrays: dict[str, DeviceArray]) -> None:
        self.problem, self.code, self.target = problem, code, target
        self.arrays = arrays
        """Current memory of each name."""
        self.module = compiled(code, architecture(target))
        self.loaded: LoadedModule = target.load(self.module)
        self.refs: dict[str, KernelRef] = {name: self.loaded[name].ref for name in self.loaded}
        self.points = PointKernels(target, architecture(target))
        self._plans, self._tables = BoundPlans(), KeptTables()
        fused = any(kernel.variant.steps > 1 for kernel in code.kernels)
        for name in field_buffers(problem, fused):
            if name not in arrays:
                arrays[name] = blank(target, problem.grid.shape, problem.dtype(name), name)

    def execute(self, stage: Stage, scalars: DeviceArray, tables: Mapping[str, DeviceArray]) -> None:
        """Run a stage and wait for it, then reassign the memory of the names according to its swaps."""
        self.bound(stage, scalars, tables).run()
        self.arrays |= {name: self.arrays[holder] for name, holder in stage.names_after().items()}

    def bound(self, stage: Stage, scalars: DeviceArray, tables: Mapping[str, DeviceArray]) -> BoundPlan:
        """Return a stage bound to the current memory of the names."""
        memory = {**self.arrays, SCALARS: scalars, **tables}
        names = tuple(kernel.name for kernel in stage.kernels)
        key = (names, stage.turns, stage.scalar_rows, stage.points, tuple((name, one.address) for name, one in memory.items()))

        def bound() -> BoundPlan:
            refs = self.refs | self.points.refs((point.kernel, self.problem.dtype(point.field)) for point in stage.points)
            return bound_to(stage.plan(refs), memory, [self.target], [self.loaded, *self.points.loaded])

        return self._plans.get(key, bound)

    def reductions(self, stage: Stage, scalars: DeviceArray, tables: Mapping[str, DeviceArray]) -> dict[str, float]:
        """Run a stage of one turn that reduces, and return the reductions."""
        bound = self.bound(stage, scalars, tables)
        result = bound.run()[REDUCTIONS]
        self.arrays |= {name: self.arrays[holder] for name, holder in stage.names_after().items()}
        assert isinstance(result, DeviceArray)
        return reduced(stage.kernels, [result.numpy()])

    def first_not_finite(self, name: str) -> tuple[int, ...] | None:
        """Return the first cell of a field that is infinite or NaN; None if all are finite."""
        return self.points.first_not_finite(self.arrays[name], (slice(0, self.problem.grid.shape[-1]),))

    def write(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Overwrite a field."""
        padded = np.zeros(self.arrays[name].shape, self.arrays[name].dtype)
        padded[..., : value.shape[-1]] = value
        self.arrays[name].copy_from(padded)

    def table(self, values: np.ndarray[Any, Any], name: str) -> DeviceArray:
        """Return a table on the target."""
        return self._tables.of(self.target, values, name)


_COMBINED = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def reduced(kernels: Sequence[StepKernel], parts: Sequence[np.ndarray[Any, Any]]) -> dict[str, float]:
    """Return the reductions from the words that kernels wrote on each device, in the order of the devices."""
    found, first = dict[str, float](), 0
    for kernel in kernels:
        for name, words in kernel.words.items():
            own = [part[first : first + words] for part in parts]
            first += words
            found[name] = exact_value(own) if words > 1 else float(reduce(_COMBINED[kernel.reductions[name]], [one[0] for one in own]))
    return found


class PointKernels:
    """Kernels for single cells on one target, compiled for each field type at the first use."""

    def __init__(self, target: Target, architecture: str) -> None:
        self.target, self._architecture = target, architecture
        self._modules: dict[str, LoadedModule] = {}

    @property
    def loaded(self) -> list[LoadedModule]:
        return list(self._modules.values())

    def module(self, dtype: str) -> LoadedModule:
        """Return the kernels for fields of one type."""
        if dtype not in self._modules:
            text, options = point_kernels(dtype), ("-fmad=false",)
            self._modules[dtype] = self.target.load(cuda(text, name=f"<points {dtype}>", arch=self._architecture, options=options))
        return self._modules[dtype]

    def refs(self, kernels: Iterable[tuple[str, str]]) -> dict[str, KernelRef]:
        """Return kernels by their names in a plan; each is given with the type of its field."""
        return {point_kernel(kernel, dtype): self.module(dtype)[kernel].ref for kernel, dtype in kernels}

    def first_not_finite(self, array: DeviceArray, counted: Sequence[slice]) -> tuple[int, ...] | None:
        """Return the first element of an array that is infinite or NaN, within a slice of each row and, if two slices are given, a slice
        of the rows of a plane."""
        found, pitch = self.target.array(np.array([NOWHERE], np.uint64)), array.shape[-1]
        find = self.module(array.dtype.str.lstrip("<|="))[FIND]
        *planes, cells = counted
        rows, (first, end) = (array.shape[-2], (planes[0].start, planes[0].stop)) if planes else (1, (0, 1))
        find[min(1024, -(-array.size // 256)), 256](array, found, array.size, pitch, cells.start, cells.stop, rows, first, end)
        at = int(found.numpy()[0])
        return None if at == NOWHERE else tuple(int(one) for one in np.unravel_index(at, array.shape))


class BoundPlans:
    """Cache of plans bound to memory. Each may hold a graph, so only the most recent are kept."""

    def __init__(self) -> None:
        self._plans: dict[Any, BoundPlan] = {}

    def get(self, key: Any, make: Callable[[], BoundPlan]) -> BoundPlan:
        """Return the plan of a key; create it by `make` if there is none."""
        if key not in self._plans:
            while len(self._plans) >= _KEPT_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[key] = make()
        return self._plans[key]


def bound_to(
    plan: Plan, memory: Mapping[str, DeviceArray], targets: Sequence[Target], modules: Sequence[Module | LoadedModule]
) -> BoundPlan:
    """Return a plan bound to those arrays, by the names of its buffers, that it uses."""
    used = {buffer.name for buffer in plan.buffers}
    return BoundPlan(plan, {name: one for name, one in memory.items() if name in used}, targets=targets, modules=modules)


def compiled(code: Code, architecture: str) -> Module:
    """Return the module of generated code, compiled now or taken from the cache of earlier processes."""
    store, key = present_store(), digest("stencil code", code.text, architecture)
    entry = store.get(key) if store is not None else None
    if entry is None:
        module = code.module(architecture)
        keep(key, Entry({}, print_module(module).encode()))
        return module
    return replace(_parsed(entry.code, f"{code.name} (PTX)"), name=code.name, sources=code.sources)


@lru_cache(maxsize=8)
def _parsed(text: bytes, name: str) -> Module:
    """Parse a module of PTX, cached because a program may prepare the same stencil repeatedly with other values."""
    return parse(text.decode(), name)


def architecture(*targets: Target) -> str:
    """Return the architecture to compile for, which all targets can run."""
    major, minor = max(min(target.chip.compute_capability for target in targets), _OLDEST)
    return f"sm_{major}{minor}"

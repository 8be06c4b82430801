"""Define the public interface of stencils: a rule, put on a grid and prepared with values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from memlane.errors import StencilError
from memlane.launch import Target
from memlane.stencils import Footprint, Grid, Problem, Rule, Variant, read_rule
from memlane.stencils.problem import Swap, cycles_of, field_type
from memlane.targets import target as named_target
from memlane.timeloop.distributed import distributed
from memlane.timeloop.memory import as_host, dtype_of
from memlane.timeloop.run import Run
from memlane.timeloop.shared import SharedRun
from memlane.timeloop.sharing import RANKS_BY, TRANSPORTS, check_one_part


@overload
def stencil(function: Callable[..., Any]) -> Stencil: ...
@overload
def stencil(*, coefficients: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Stencil]: ...
def stencil(function: Callable[..., Any] | None = None, *, coefficients: Sequence[str] = ()) -> Any:
    """Create a stencil from a Python function that updates one cell. The function is parsed, not executed.

    @ml.stencil
    def heat(new, u, r):
        new[0, 0] = u[0, 0] + r * (u[-1, 0] + u[1, 0] + u[0, -1] + u[0, 1] - 4 * u[0, 0])

    run = heat.on(ml.Grid((512, 512), boundary="reflecting")).prepare(u=u0, r=0.2, swap=("new", "u"))
    run.steps(1000)
    u = run["u"].gather()

    A parameter that is indexed by constant offsets, one for each axis, is a field; `a[0]` in two or three dimensions is an element of an
    array of coefficients; a bare name is a scalar. `total += value` and `peak = max(peak, value)` on a parameter reduce over all cells.
    `coefficients` names arrays of coefficients of a rule of one dimension, where `a[0]` is a field otherwise. Raise StencilError with the
    position of code that is not supported.
    """
    if function is None:
        return lambda given: Stencil((read_rule(given, coefficients),))
    return Stencil((read_rule(function, coefficients),))


@dataclass(frozen=True)
class Stencil:
    """One rule, or several that are applied in sequence in each step."""

    rules: tuple[Rule, ...]

    @property
    def footprint(self) -> Footprint:
        """Reach of the rule along each axis; the largest of several rules."""
        low = [one.footprint.low for one in self.rules]
        high = [one.footprint.high for one in self.rules]
        return Footprint(tuple(map(max, zip(*low, strict=True))), tuple(map(max, zip(*high, strict=True))))

    def then(self, other: Stencil) -> Stencil:
        """Return a stencil whose step does this one over the whole grid, then the other."""
        names = [rule.name for rule in (*self.rules, *other.rules)]
        if len(set(names)) < len(names):
            raise StencilError(f"the rules of a step have names of their own; these are {', '.join(names)}")
        return Stencil((*self.rules, *other.rules))

    def on(
        self,
        grid: Grid,
        *,
        exchange_every: int | str = "auto",
        transport: str = "auto",
        overlap: bool | str = "auto",
        decomposition: Sequence[int] | str | None = None,
    ) -> Discretized:
        """Return the stencil on a grid. Raise StencilError if they do not fit.

        The options are for several devices. `exchange_every` is the number of steps between two exchanges of planes. `transport` selects
        how planes are sent: `"peer"`, by copies from device to device; `"flags"`, by stores of the devices, which signal each other
        without the host; `"persistent"`, by such stores inside kernels that make many steps; `"host"`, through pinned memory of the host;
        `"auto"`, by copies from device to device where that is possible, else through the host. With `"mpi"`, `"mpi-cuda"` and `"nccl"`
        the processes of an MPI program share the grid: all make the same calls, and each has a subdomain on one target. They exchange
        messages of MPI through the host, messages of a CUDA-aware MPI from GPU memory, or sends and receives of NCCL. `overlap` splits
        launches into borders, after which devices exchange, and the cells between them. `decomposition` is the number of parts along each
        axis, as `(2, 2, 1)` for four devices; by default slabs along the first. A model of the chip and its links chooses options that are
        `"auto"`.
        """
        for rule in self.rules:
            grid.check(rule)
        is_count = isinstance(exchange_every, int) and not isinstance(exchange_every, bool) and exchange_every >= 1
        if not is_count and exchange_every != "auto":
            raise StencilError(f"devices exchange planes every 1 or more steps, or 'auto', not {exchange_every!r}")
        if transport not in ("auto", *TRANSPORTS):
            raise StencilError(f"{transport!r} is not a transport: use {', '.join(map(repr, TRANSPORTS))}, or 'auto'")
        if not isinstance(overlap, bool) and overlap != "auto":
            raise StencilError(f"overlap is True, False or 'auto', not {overlap!r}")
        return Discretized(self, grid, exchange_every, transport, overlap, _checked_parts(grid, decomposition))

    def __str__(self) -> str:
        return "; ".join(map(str, self.rules))


@dataclass(frozen=True)
class Discretized:
    """A stencil on a grid, to be prepared with values."""

    stencil: Stencil
    grid: Grid
    exchange_every: int | str = "auto"
    transport: str = "auto"
    overlap: bool | str = "auto"
    decomposition: tuple[int, ...] | str | None = None

    def reference(self, steps: int = 1, *, swap: Swap = (), dtypes: Mapping[str, str] | None = None, **values: Any) -> dict[str, Any]:
        """Return the fields and reductions after some steps from the rule's own function on NumPy arrays, as a reference for kernels.

        `values` are as for `prepare`. A product followed by a sum is rounded twice here, and once in kernels that are prepared with
        `fmad=True`.
        """
        return self._problem(swap, values, dtypes).reference(steps, {name: as_host(value) for name, value in values.items()})

    def prepare(
        self,
        *,
        swap: Swap = (),
        targets: Target | Sequence[Target] | None = None,
        variant: Variant | str | None = None,
        dtypes: Mapping[str, str] | None = None,
        fmad: bool = True,
        exact_sums: bool = False,
        **values: Any,
    ) -> Run:
        """Compile the kernels, copy the values to a target and return the prepared run.

        `values` are an array for each field, a number for each scalar, a sequence for each array of coefficients. The first field of a swap
        needs none. A scalar that changes is an array with a number for each step, to be passed to `Run.steps`. Arrays may be those of
        NumPy, CuPy and PyTorch. Fields have the grid's type, or the type in `dtypes`; arrays of booleans are masks, which conditions read.
        `swap` holds the names that swap after each step, `("new", "u")`, or several such groups; of three names, `("new", "u", "old")`,
        each takes the place of the next. `targets` are the targets to run on, by default that of `ml.target()`. Of several, as returned by
        `ml.devices`, each has a subdomain of the grid, by default a slab along the first axis. With a transport between ranks it is the
        target of this rank, by default the GPU with the rank's number on its machine. `variant` is the variant of the kernels; by default a
        model of the chip chooses it, with `"timed"` a few timed launches. `fmad=False` disables fused multiply-adds, so that results equal
        those of NumPy bit by bit (except for functions such as `exp`). `exact_sums=True` makes sums over all cells (`+=` on a parameter)
        exact, and rounded once, so that they have the same bits on any number of devices and ranks, for any decomposition; a step that
        reduces then takes longer.

        Raise StencilError for values that do not fit, and DeviceError if memory is exhausted.
        """
        problem = replace(self._problem(swap, values, dtypes), exact_sums=exact_sums)
        given = _targets_of(targets)
        if self.transport in RANKS_BY:
            options: dict[str, Any] = {"exchange_every": self.exchange_every, "overlap": self.overlap, "decomposition": self.decomposition}
            return distributed(problem, values, given, transport=self.transport, variant=variant, fmad=fmad, **options)
        several = (named_target(),) if given is None else given
        if not several:
            raise StencilError("targets is empty: pass at least one, as ml.target(...) and ml.devices(...) give them")
        if len(several) == 1 and self.transport != "persistent":
            check_one_part(problem.grid, self.decomposition)
            return Run(problem, values, target=several[0], variant=variant, fmad=fmad)
        return SharedRun(
            problem,
            values,
            targets=several,
            variant=variant,
            fmad=fmad,
            exchange_every=self.exchange_every,
            transport=self.transport,
            overlap=self.overlap,
            decomposition=self.decomposition,
        )

    def _problem(self, swap: Swap, values: Mapping[str, Any], dtypes: Mapping[str, str] | None) -> Problem:
        fields = {name for rule in self.stencil.rules for name in rule.fields}
        for name in dtypes or {}:
            if name not in fields:
                raise StencilError(f"dtypes names {name!r}, which is not a field; the fields are {', '.join(sorted(fields))}")
        given = {name: field_type(dtype, name) for name, dtype in (dtypes or {}).items()}
        for name in fields & set(values):
            if field_type(dtype_of(values[name], self.grid.dtype), name) == "u1":
                given.setdefault(name, "u1")
        cycles = cycles_of(swap)
        for cycle in cycles:  # a written field has the type of the field that it swaps with
            known = next((given[name] for name in cycle if name in given), None)
            if known is not None:
                given |= {name: known for name in cycle if name not in given}
        problem = Problem(self.stencil.rules, self.grid, cycles, given)
        _check_names(problem, values)
        return problem


def _targets_of(targets: Any) -> tuple[Target, ...] | None:
    """Return the given targets; None if none are given. Raise StencilError for what is no target."""
    if targets is None:
        return None
    found = tuple(targets) if isinstance(targets, Iterable) and not isinstance(targets, str) else (targets,)
    for one in found:
        if not isinstance(one, Target):
            raise StencilError(f"{one!r} is not a target: pass what ml.target('emulator:h200') or ml.devices('cuda', 2) returns")
    return found


def _checked_parts(grid: Grid, given: Sequence[int] | str | None) -> tuple[int, ...] | str | None:
    """Return the parts along each axis. Raise StencilError for an invalid decomposition of the grid."""
    if given is None or given == "auto":
        return given
    parts: tuple[Any, ...] = () if isinstance(given, str) or not isinstance(given, Sequence) else tuple(given)
    if len(parts) != grid.dimensions or not all(isinstance(one, int) and not isinstance(one, bool) and one >= 1 for one in parts):
        raise StencilError(
            f"a decomposition is how many parts there are along each of the {grid.dimensions} axes of the grid, as "
            f"{(2,) * grid.dimensions}, or 'auto', not {given!r}"
        )
    return parts


def _check_names(problem: Problem, values: Mapping[str, Any]) -> None:
    known = {*problem.fields, *problem.scalars}
    for name in values:
        if name not in known:
            raise StencilError(f"{name!r} is neither a field nor a scalar of this stencil; it has {', '.join(sorted(known))}")
    for name in problem.fields:
        if name not in values and name not in problem.optional:
            raise StencilError(f"field {name!r} has no values: pass {name}=array to prepare")
        if name in values and np.shape(values[name]) != problem.grid.shape:
            raise StencilError(f"field {name!r} has the shape {tuple(np.shape(values[name]))}, and the grid {problem.grid.shape}")
    for name, length in problem.scalars.items():
        if name not in values:
            raise StencilError(f"scalar {name!r} has no value: pass {name}=number to prepare")
        shape = np.shape(values[name])
        if length is None and len(shape) > 1:
            raise StencilError(
                f"scalar {name!r} is one number, and an array of shape {shape} was given: read {name} at a cell in the rule, as "
                f"{name}[{', '.join('0' * problem.grid.dimensions)}], to make it a field"
            )
        if length is not None and (not shape or shape[-1] < length):
            raise StencilError(f"the rule uses {length} coefficients {name!r}, and {shape[-1] if shape else 'one number'} given")

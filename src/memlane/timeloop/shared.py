"""A stencil on several devices: each has a slab of the grid, and gets the planes of its neighbours that it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from memlane.errors import DeviceError, NetworkError, StencilError
from memlane.launch import DeviceArray, Target
from memlane.plan import KernelRef, Plan, Timeline
from memlane.stencils import Code, Decomposition, Grid, Problem, PutStage, SharedStage, Slab, Turn, Variant, cannot_fuse, decomposed
from memlane.stencils.choice import estimates
from memlane.stencils.code import StepKernel
from memlane.stencils.exchange import Widths, on_device, wider, widest
from memlane.stencils.geometry import itemsize
from memlane.stencils.scaling.plan import Prediction, best_exchange
from memlane.stencils.stages import REDUCTIONS, SCALARS, field_buffers
from memlane.targets import BoundPlan
from memlane.timeloop.engine import BoundPlans, PointKernels, architecture, bound_to, compiled
from memlane.timeloop.memory import allocated, as_host
from memlane.timeloop.run import Run
from memlane.timeloop.variants import code_of

TRANSPORTS = ("peer", "flags", "host", "mpi")
_COMBINED = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@dataclass(frozen=True, eq=False)
class SharedField:
    """A field as it is after the last complete step, in slabs on several devices.

    u = run["u"].gather()                       # an array of NumPy
    parts = run["u"].slabs                      # the memory of each device, with halos and padding; `decomposition` says what is where
    """

    name: str
    decomposition: Decomposition
    slabs: tuple[DeviceArray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.decomposition.grid.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.slabs[0].dtype

    def gather(self, root: int | None = None) -> npt.NDArray[Any]:
        """Return a copy of the whole field on the host. `root` counts with `transport="mpi"` only: which rank gets it."""
        parts = zip(self.decomposition.slabs, self.slabs, strict=True)
        return np.concatenate([computed_planes(slab, memory).numpy()[..., : self.shape[-1]] for slab, memory in parts])

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a field of a run cannot be seen by NumPy without a copy; leave out copy=False")
        host = self.gather()
        return host if dtype is None else host.astype(dtype)

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise AttributeError(
            f"{self.name} lies in slabs on {len(self.slabs)} devices, not in one array: use gather(), or `slabs` one by one"
        )


def computed_planes(slab: Slab, memory: DeviceArray) -> DeviceArray:
    """Return the part of the memory of a slab that holds its own planes."""
    skipped = memory.nbytes // slab.held * slab.below
    return replace(memory, address=memory.address + skipped, shape=(slab.planes, *memory.shape[1:]), owner=memory)


class SharedRun(Run):
    """A stencil with its fields in slabs on several devices; used as a `Run`.

    run = heat.on(grid, exchange_every=4).prepare(u=u0, r=0.2, swap=("new", "u"), targets=ml.devices("cuda", 2))
    print(run.plan(8))                          # what 8 steps do on which queue
    run.steps(1000)
    u = run["u"].gather()

    Fields have the same bits as on one device. So have minima and maxima; sums are those of the slabs, added in their order.
    """

    def __init__(
        self,
        problem: Problem,
        values: Mapping[str, Any],
        *,
        targets: Sequence[Target],
        variant: Variant | str | None = None,
        fmad: bool = True,
        exchange_every: int | str = "auto",
        transport: str = "auto",
        overlap: bool | str = "auto",
    ) -> None:
        """See `Stencil.on` and `Discretized.prepare`."""
        self._begin(problem, values)
        _check_targets(targets)
        self.target, self.targets = targets[0], tuple(targets)
        slabs = decomposed(problem.grid, [copy_rate(target) for target in targets])
        self._cut(slabs, choose(problem, slabs, self.target, variant, exchange_every, transport, overlap), fmad)
        self.transport, self.transport_reason = _transport(self.decomposition, self.targets, transport)
        self._load(values, architecture(*targets))

    def _cut(self, slabs: Decomposition, choice: Choice, fmad: bool) -> None:
        """Generate the kernels, and give the slabs halos as wide as these need."""
        self.reason = choice.reason
        """Why the kernels are cut as they are, and why devices exchange planes after so many steps."""
        self.exchange_every = choice.exchange_every
        """Steps between two exchanges."""
        self.overlap = choice.overlap
        """Whether an exchange is overlapped with the planes between the borders, where slabs are thick enough."""
        self._ranged = replace(self.problem, ranged=True)
        self.code: Code = code_of(self._ranged, choice.variant, fmad)
        self._kernels = {
            "step": tuple(one for one in self.code.kernels if one.variant.steps == 1 and not one.reductions),
            "steps": tuple(one for one in self.code.kernels if one.variant.steps > 1),
            "reducing": tuple(self.code.reducing),
        }
        self._wanted = self._needs()
        self.decomposition = slabs.with_halos(*widest(self._wanted.values()))
        """Which planes each device has."""

    def _load(self, values: Mapping[str, Any], architecture: str) -> None:
        """Compile the kernels, and take memory for the fields."""
        self.arrays = {name: self._upload(name, as_host(values[name])) for name in self.problem.fields if name in values}
        """The memory that each name has now, on each device of this process."""
        for name in field_buffers(self.problem, bool(self._kernels["steps"])):
            if name not in self.arrays:
                self.arrays[name] = self._upload(name, None)
        self._module = compiled(self.code, architecture)
        self._loaded, self._plans = [target.load(self._module) for target in self.targets], BoundPlans()
        self._refs: dict[str, KernelRef] = {name: self._loaded[0][name].ref for name in self._loaded[0]}
        self._point_kernels = [PointKernels(target) for target in self.targets]

    @property
    def _slabs(self) -> tuple[Slab, ...]:
        """The slabs of the targets of this process, in their order."""
        return self.decomposition.slabs

    # -- what is there -----------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """Return a field as it is after the last complete step, as a `SharedField`."""
        self._check_field(name)
        return SharedField(name, self.decomposition, self.arrays[name])

    def __repr__(self) -> str:
        names, where = "+".join(rule.name for rule in self.problem.rules), ", ".join(target.name for target in self.targets)
        return (
            f"<SharedRun: {names} on {self.problem.grid.shape}, {where}, after {self.step} steps; {self.variant}; "
            f"exchange every {self.exchange_every} steps by {self.transport_reason}{'' if self.overlap else ', behind all planes'}>"
        )

    def plan(self, steps: int | None = None) -> Plan:
        """Return the plan of a multiple of `exchange_every` steps, by default of as many: what runs on which queue, and what it waits for.

        Buffers are called by the field and the number of the device, `u@1`. Raises StencilError for another number of steps.
        """
        return self._whole_turns(steps).plan(self._refs)

    def timeline(self, steps: int | None = None) -> Timeline:
        """Make a multiple of `exchange_every` steps and return when each launch and each copy ran: measured on GPUs, modelled on emulated
        devices. Raises StencilError for another number of steps."""
        stage = self._whole_turns(steps)
        line = self._bound(stage, self._scalars_of(self._scalar_values({}, 0, 1))).time()
        self._complete(stage)
        return line

    def _complete(self, stage: SharedStage) -> None:
        """Give names the memory that a stage has left them, and count its steps."""
        self.arrays |= {name: self.arrays[holder] for name, holder in stage.names_after().items()}
        self.step += stage.steps

    def _whole_turns(self, steps: int | None) -> SharedStage:
        count = self.exchange_every if steps is None else steps
        if count < 1 or count % self.exchange_every:
            raise StencilError(
                f"a plan makes a multiple of {self.exchange_every} steps, because devices exchange planes after so many, not {count}"
            )
        ((stage, _),) = self._shared_stages(count, False, False)
        return stage

    # -- steps -------------------------------------------------------------------------------------------------------------------

    @property
    def _steps_together(self) -> int:
        return self.exchange_every

    def _turn(self, kind: str, rounds: int) -> Turn:
        return Turn(self._ranged, self._kernels[kind], rounds)

    def _needs(self) -> dict[str, Widths]:
        """Return what halos have to hold before each turn, whichever it is."""
        turns = [self._turn("step", rounds) for rounds in range(1, self.exchange_every + 1)]
        if several := self._kernels["steps"]:
            turns += [self._turn("steps", rounds) for rounds in range(1, self.exchange_every // several[0].variant.steps + 1)]
        found: dict[str, Widths] = {}
        for turn in turns:
            found |= {name: wider(found.get(name, (0, 0)), widths) for name, widths in turn.needs.items()}
        return found

    def _shared_stages(self, count: int, varying: bool, reduces: bool) -> Iterator[tuple[SharedStage, int]]:
        """Yield the stages of some steps, and the step at which each begins: whole turns, a shorter one, and a step that reduces."""
        several = self._kernels["steps"]
        kind, together = ("steps", several[0].variant.steps) if several and not varying else ("step", 1)
        last = 1 if self.problem.reductions and reduces else 0
        done, rounds = 0, self.exchange_every // together
        left = count - last
        for turn, turns in (
            (self._turn(kind, rounds), left // self.exchange_every),
            (self._turn(kind, left % self.exchange_every // together), 1),
            (self._turn("step", left % self.exchange_every % together), 1),
        ):
            if turn.rounds and turns:
                yield self._stage(turn, turns, varying), done
                done += turn.steps * turns
        if last:
            yield self._stage(self._turn("reducing", 1), 1, varying), done

    def _stage(self, turn: Turn, turns: int, varying: bool) -> SharedStage:
        rows = turn.steps * turns if varying else 1
        kind = PutStage if self.transport == "flags" else SharedStage
        return kind(self.decomposition, turn, turns, self._wanted, rows, self._strips, self.overlap, self.transport == "host")

    @property
    def _strips(self) -> dict[str, StepKernel]:
        return {kernel.rule.name: kernel for kernel in self._kernels["step"]}

    def _advance(self, count: int, schedule: Mapping[str, np.ndarray[Any, Any]], first: int, reduces: bool) -> None:
        began = time.monotonic()
        for stage, offset in self._shared_stages(count, bool(schedule), reduces):
            table = self._scalar_values(schedule, first + offset, stage.scalar_rows)
            self._execute(stage, table)
        took = (time.monotonic() - began) / count
        self._seconds_a_step = min(took, self._seconds_a_step or took)  # the first time plans are bound, too

    def _execute(self, stage: SharedStage, table: npt.NDArray[Any]) -> None:
        result = self._bound(stage, self._scalars_of(table)).run()
        self._complete(stage)
        names = [(name, kind) for kernel in stage.turn.kernels for name, kind in kernel.reductions.items()]
        if names:
            totals = self._totals([np.asarray(result[on_device(REDUCTIONS, slab.device)]) for slab in self._slabs])
            for place, (name, kind) in enumerate(names):
                value = totals[0][place]
                for total in totals[1:]:
                    value = _COMBINED[kind](value, total[place])
                self.reductions[name] = float(value)

    def _scalars_of(self, table: npt.NDArray[Any]) -> list[DeviceArray]:
        """Return a table of scalars on each device."""
        name = f"scalars {len(table)}"
        return [allocated(target, table.nbytes, name, partial(target.array, table)) for target in self.targets]

    def _totals(self, own: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return what the reductions of a step gave for each slab, of which `own` are those of this process."""
        return own

    def _bound(self, stage: SharedStage, scalars: Sequence[DeviceArray]) -> BoundPlan:
        """Return a stage bound to the memory that the names have now."""
        devices = [slab.device for slab in self._slabs]
        memory = {on_device(SCALARS, device): one for device, one in zip(devices, scalars, strict=True)}
        memory |= {on_device(name, at): one for name, parts in self.arrays.items() for at, one in zip(devices, parts, strict=True)}
        names = tuple(kernel.name for kernel in stage.turn.kernels)
        key = (names, stage.turn.rounds, stage.turns, stage.scalar_rows, tuple((name, one.address) for name, one in memory.items()))
        return self._plans.get(key, lambda: bound_to(stage.plan(self._refs), memory, self.targets, self._loaded))

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def _upload(self, name: str, host: npt.NDArray[Any] | None) -> tuple[DeviceArray, ...]:
        """Return the memory of a field on each device, with the planes of its slab and halos; with zeros where there are no values."""
        if host is not None and host.shape != self.problem.grid.shape:
            raise StencilError(f"field {name!r} has the shape {host.shape}, and the grid {self.problem.grid.shape}")
        dtype = self.problem.dtype(name)
        places = zip(self.targets, self._slabs, strict=True)
        return tuple(self._upload_slab(target, slab, name, dtype, host) for target, slab in places)

    def _upload_slab(self, target: Target, slab: Slab, name: str, dtype: str, host: npt.NDArray[Any] | None) -> DeviceArray:
        shape = self.decomposition.stored_shape(slab)
        memory = allocated(target, prod(shape) * itemsize(dtype), name, lambda: target.zeros(shape, dtype))
        if host is not None:
            self._write_slab(slab, memory, host)
        return memory

    def _write_slab(self, slab: Slab, memory: DeviceArray, host: npt.NDArray[Any]) -> None:
        planes = self.decomposition.planes_of(slab)
        padded = np.zeros(memory.shape, memory.dtype)
        padded[..., : host.shape[-1]] = host[planes[0] : planes[-1] + 1] if planes[-1] - planes[0] + 1 == slab.held else host[planes]
        memory.copy_from(padded)

    def _write(self, name: str, value: npt.NDArray[Any]) -> None:
        for slab, memory in zip(self._slabs, self.arrays[name], strict=True):
            self._write_slab(slab, memory, value)

    def _first_not_finite(self, name: str) -> tuple[int, ...] | None:
        for slab, memory, points in zip(self._slabs, self.arrays[name], self._point_kernels, strict=True):
            at = points.first_not_finite(computed_planes(slab, memory), self.problem.grid.shape[-1])
            if at is not None:
                return slab.start + at[0], *at[1:]
        return None

    # -- points ------------------------------------------------------------------------------------------------------------------

    def add_source(self, field: str, at: Any, values: Any) -> None:
        raise StencilError(
            f"a source of {field!r} needs a run on one device: prepare with one target, or write the source as a field of the rule"
        )

    def add_probe(self, field: str, at: Any) -> None:
        raise StencilError(f"a probe of {field!r} needs a run on one device: prepare with one target, or read run[{field!r}].gather()")


# -- how a grid is shared --------------------------------------------------------------------------------------------------------------


def _check_targets(targets: Sequence[Target]) -> None:
    if len({id(target) for target in targets}) < len(targets):
        raise StencilError("a target is named twice: pass different devices, as ml.devices('cuda', 2) gives them")
    if len({target.modelled for target in targets}) > 1:
        names = ", ".join(target.name for target in targets)
        raise StencilError(f"emulated devices and GPUs cannot share a grid, and {names} were given: pass devices of one kind")


def copy_rate(target: Target) -> float:
    """Return how fast the memory of a target is copied, by which slabs are as thick as their devices are fast."""
    return target.chip.copy_gb_per_s or target.chip.dram_gb_per_s


@dataclass(frozen=True)
class Choice:
    """How kernels are cut and after how many steps devices exchange planes."""

    variant: Variant | None
    exchange_every: int
    overlap: bool
    reason: str


def choose(
    problem: Problem,
    slabs: Decomposition,
    target: Target,
    variant: Variant | str | None,
    exchange_every: int | str,
    transport: str,
    overlap: bool | str,
) -> Choice:
    """Return how kernels are cut and after how many steps devices exchange planes. Raises StencilError for what does not go together."""
    if isinstance(variant, str):
        raise StencilError(
            f"a variant for several devices is a Variant or None, not {variant!r}: time variants on one device, and pass the `variant` of "
            "that run"
        )
    given = exchange_every if isinstance(exchange_every, int) else None
    if variant is not None and given is not None and given % variant.steps:
        raise StencilError(
            f"devices exchange planes every {given} steps, and each launch of {variant} makes {variant.steps}: "
            f"exchange after a multiple of {variant.steps}"
        )
    several = {} if variant is not None or target.modelled else _several_steps(problem, slabs, target)
    found: list[tuple[Prediction, Variant | None, bool]] = []
    for steps, one in {1 if variant is None else variant.steps: variant, **several}.items():
        every = [given] if given is not None else [steps * turns for turns in range(1, max(1, _MOST_STEPS // steps) + 1)]
        for overlaps in (True, False) if overlap == "auto" else (bool(overlap),):
            with suppress(StencilError):  # where nothing is left, slabs are too thin, which is said when they get halos
                found.append((_predicted(problem, len(slabs.slabs), target, transport, every, steps, overlaps), one, overlaps))
    if not found:
        return Choice(variant, given or (1 if variant is None else variant.steps), overlap is not False, "not predicted")
    best, cut, overlaps = min(found, key=lambda one: one[0].step_us)
    reason = f"{best.step_us:,.1f} us a step expected, bound by {best.bound}, by the model of {target.chip.name}"
    return Choice(cut, best.exchange_every, overlaps, reason)


_MOST_STEPS = 16
"""Steps between two exchanges that are looked at."""


def _several_steps(problem: Problem, slabs: Decomposition, target: Target) -> dict[int, Variant | None]:
    """Return for each number of steps that can share a launch the variant that the model expects to be fastest for a slab."""
    (rule, *more) = problem.rules
    if more or not problem.swap:
        return {}
    thinnest = min(slab.planes for slab in slabs.slabs)
    like = Grid((thinnest, *problem.grid.shape[1:]), problem.grid.dtype, ("fixed", *problem.grid.conditions[1:]))
    found: dict[int, Variant | None] = {}
    for one in estimates(replace(problem, grid=like), rule, target.chip):
        if one.variant.steps > 1 and not cannot_fuse(problem, one.variant.steps):
            found.setdefault(one.variant.steps, one.variant)
    return found


def _predicted(
    problem: Problem, devices: int, target: Target, transport: str, every: Sequence[int], steps: int, overlap: bool
) -> Prediction:
    """Return the fastest prediction. What a machine's network is, nobody knows here: that of the chip's file is taken."""
    predict = partial(best_exchange, problem, devices, chip=target.chip, candidates=every, steps_per_launch=steps, overlap=overlap)
    try:
        return predict(transport={"host": "host", "mpi": "host", "flags": "flags"}.get(transport, ""))
    except NetworkError:  # the file knows peers only
        return predict()


def _transport(decomposition: Decomposition, targets: Sequence[Target], asked: str) -> tuple[str, str]:
    """Return how planes travel, and that in words. Raises StencilError where devices cannot reach each other as asked."""
    if asked == "host":
        return "host", "copies through pinned memory of the host"
    chips = {target.chip.name: target.chip for target in targets if target.modelled}
    unlinked = next((name for name, chip in chips.items() if chip.links.peer_us is None or chip.links.peer_gb_per_s is None), None)
    if unlinked is not None and asked == "auto":
        return "host", f"copies through pinned memory of the host, because the chip file of {unlinked} has no links between devices"
    try:
        for lower, upper in decomposition.neighbours:
            targets[lower.device].enable_peer(targets[upper.device])
            targets[upper.device].enable_peer(targets[lower.device])
    except DeviceError as error:
        if asked != "auto":
            verb = "copy to each other" if asked == "peer" else "reach each other's memory"
            raise StencilError(f"devices cannot {verb}: {error}; leave out transport, or pass transport='host'") from None
        return "host", f"copies through pinned memory of the host, because {error}"
    if asked == "flags":
        return "flags", "stores into the neighbours' halos, with flags by which devices signal each other"
    return "peer", "copies from device to device"

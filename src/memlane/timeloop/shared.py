"""Run a stencil on several devices: each has a subdomain of the grid, and receives the cells of its neighbours that it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.compile import cuda
from memlane.errors import StencilError
from memlane.launch import DeviceArray, Target
from memlane.plan import KernelRef, Plan, Timeline
from memlane.stencils import (
    Code,
    Decomposition,
    PersistentKernel,
    PersistentStage,
    Problem,
    PutStage,
    ResidentKernel,
    SharedStage,
    Subdomain,
    Turn,
    Variant,
)
from memlane.stencils.borders import BorderKernel
from memlane.stencils.code import StepKernel
from memlane.stencils.decomposition import Margins
from memlane.stencils.faces import face_kernels
from memlane.stencils.geometry import ALIGNED, itemsize
from memlane.stencils.persistent_stage import ARRIVED, SIGNALS, StayingKernel
from memlane.stencils.stages import REDUCTIONS, SCALARS, field_buffers, on_device
from memlane.stencils.turns import no_margins, wider, widest
from memlane.targets import BoundPlan, PlanRun
from memlane.timeloop.engine import BoundPlans, PointKernels, architecture, bound_to, compiled, reduced
from memlane.timeloop.memory import KeptTables, as_host
from memlane.timeloop.parts import SharedField, computed_planes, upload_part, write_part
from memlane.timeloop.points import Home, Points, Tables
from memlane.timeloop.residence import Residence, staying, tile_of
from memlane.timeloop.run import Run
from memlane.timeloop.sharing import Choice, check_targets, choose, copy_rate, decompositions, transport_of
from memlane.timeloop.variants import code_of


class SharedRun(Run):
    """A stencil with its fields in subdomains on several devices; used like a `Run`.

    run = heat.on(grid, exchange_every=4).prepare(u=u0, r=0.2, swap=("new", "u"), targets=ml.devices("cuda", 2))
    print(run.plan(8))                          # what 8 steps do on which queue
    run.steps(1000)
    u = run["u"].gather()

    Fields, minima and maxima have the same bits as on one device; sums are those of the subdomains, added in order.
    """

    _signals = False
    """Whether devices signal each other by flags."""
    _stays = False
    """Whether kernels stay on their devices for many steps."""

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
        decomposition: Sequence[int] | str | None = None,
    ) -> None:
        """See `Stencil.on` and `Discretized.prepare`."""
        self._begin(problem, values)
        check_targets(targets)
        self._stays, self._signals = transport == "persistent", transport in ("flags", "persistent")
        self.target, self.targets = targets[0], tuple(targets)
        ways = decompositions(problem.grid, [copy_rate(target) for target in targets], decomposition)
        if self._stays:
            ways = staying(problem, ways, variant, targets)
        choice = choose(problem, ways, self.target, variant, exchange_every, transport, overlap)
        keeps = self._stays and variant is None and (choice.in_tiles or len(targets) == 1)
        self._tile = tile_of(problem, ways[choice.way], self.targets) if keeps else None
        """Tile in which multiprocessors keep the cells; None if they do not."""
        self._cut(ways[choice.way], choice, fmad)
        self.transport, self.transport_reason = transport_of(self.decomposition, self.targets, transport)
        if self._tile is not None:
            self.transport_reason = f"kernels that stay and keep the cells on the multiprocessors, in {self._tile}"
        self._load(values, architecture(*targets))

    def _cut(self, decomposition: Decomposition, choice: Choice, fmad: bool) -> None:
        """Generate the kernels, and give the subdomains halos as wide as these need."""
        self.reason = choice.reason
        """Reason for the choice of the kernels' variant and of the steps between exchanges."""
        self.exchange_every = choice.exchange_every
        """Steps between two exchanges."""
        self.overlap = choice.overlap
        """Whether an exchange is overlapped with the planes between the borders, where these are thick enough."""
        self._generate(replace(self.problem, cut=decomposition.cut), choice.variant, fmad)
        self._wanted = self._needs()
        """Cells of halos that must be valid before any turn."""
        self.decomposition = decomposition.with_halos(*widest([no_margins(self.problem), *self._wanted.values()]))
        """Division of the grid among the devices."""
        if decomposition.cut != (0,):
            held = self.decomposition.stored_shape(self.decomposition.subdomains[0])
            self._generate(replace(self._part, held=held), choice.variant, fmad)

    def _generate(self, part: Problem, variant: Variant | None, fmad: bool) -> None:
        """Generate the kernels of a part of the grid."""
        self._part = part
        self.code: Code = code_of(part, variant, fmad)
        if self._stays:
            self._staying = self._staying_kernel(part, fmad)
            self.code = replace(self.code, more=(self._staying,))
        self._border = next((BorderKernel.of(one) for one in self.code.kernels if BorderKernel.fits(one)), None) if self._signals else None
        if self._border is not None:
            self.code = replace(self.code, more=(*self.code.more, self._border))
        self._kernels = {
            "step": tuple(one for one in self.code.kernels if one.variant.steps == 1 and not one.reductions),
            "steps": tuple(one for one in self.code.kernels if one.variant.steps > 1),
            "reducing": tuple(self.code.reducing),
        }
        wide = next((one.variant for one in self.code.kernels if ALIGNED % one.variant.vector), None)
        if wide is not None and part.grid.dimensions - 1 in part.cut:
            raise StencilError(f"rows are cut, and threads of {wide} have {wide.vector} cells of a row: use 1, 2, 4 or {ALIGNED}")

    def _staying_kernel(self, part: Problem, fmad: bool) -> StayingKernel:
        """Return the persistent kernel: one that keeps the cells on the multiprocessors if they fit."""
        if self._tile is not None:
            return ResidentKernel(part, part.rules[0], self._tile, fmad=fmad)
        single = [one for one in self.code.kernels if one.variant.steps == 1 and not one.reductions]
        return PersistentKernel(part, single, self.exchange_every, fmad=fmad)

    def _load(self, values: Mapping[str, Any], architecture: str) -> None:
        """Compile the kernels, and allocate memory for the fields."""
        self.arrays = {name: self._upload(name, as_host(values[name])) for name in self.problem.fields if name in values}
        """Current memory of each name, on each device of this process."""
        for name in field_buffers(self.problem, bool(self._kernels["steps"])):
            if name not in self.arrays:
                self.arrays[name] = self._upload(name, None)
        self._module = compiled(self.code, architecture)
        modules = [self._module]
        if sizes := self._message_sizes():
            modules.append(cuda(face_kernels(sizes), name="<stencil faces>", arch=architecture))
        self._loaded, self._plans = [target.load(module) for module in modules for target in self.targets], BoundPlans()
        self._tables = KeptTables()
        self._refs: dict[str, KernelRef] = {name: loaded[name].ref for loaded in self._loaded[:: len(self.targets)] for name in loaded}
        self._point_kernels = [PointKernels(target, architecture) for target in self.targets]
        homes = zip(self.targets, self._subdomains, strict=True)
        self._points = Points(self.problem, [Home.of_subdomain(target, self.decomposition, subdomain) for target, subdomain in homes])

    @property
    def _subdomains(self) -> tuple[Subdomain, ...]:
        """Subdomains of the targets of this process, in their order."""
        return self.decomposition.subdomains

    @cached_property
    def _residence(self) -> Residence:
        """Persistent kernel with its memory on the devices."""
        return Residence.of(self._staying, self._subdomains, self.targets, self._loaded[: len(self.targets)])

    # -- what is there -----------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """Return the state of a field after the last complete step, as a `SharedField`."""
        self._check_field(name)
        return SharedField(name, self.decomposition, self.arrays[name])

    def __repr__(self) -> str:
        names, where = "+".join(rule.name for rule in self.problem.rules), ", ".join(target.name for target in self.targets)
        parts = f" in {' x '.join(map(str, self.decomposition.process_grid))} parts" if any(self.decomposition.cut) else ""
        behind = "" if self.overlap else ", behind all planes"
        return (
            f"<SharedRun: {names} on {self.problem.grid.shape}{parts}, {where}, after {self.step} steps; {self.variant}; "
            f"exchange every {self.exchange_every} steps by {self.transport_reason}{behind}>"
        )

    def plan(self, steps: int | None = None) -> Plan:
        """Return the plan of `steps`, a multiple of `exchange_every` and by default equal: the work on each queue, and its dependencies.

        Buffers are named by the field and the number of the device, `u@1`. Raise StencilError for another number of steps.
        """
        stage = self._whole_turns(steps)
        return stage.plan(self._refs | self._point_refs(stage))

    def timeline(self, steps: int | None = None) -> Timeline:
        """Make a multiple of `exchange_every` steps and return the times of all launches and copies: measured on GPUs, modelled on emulated
        devices. Raise StencilError for another number of steps, and if emulated devices wait for each other inside their kernels."""
        if self._stays and self.target.modelled:
            raise StencilError(
                "kernels that wait for each other have no modelled time: how long an emulated one polls depends on the host; use "
                "transport='flags', whose waits are steps of the plan"
            )
        stage = self._whole_turns(steps)
        tables = self._point_tables(stage)
        line = self._bound(stage, self._scalars_of(self._scalar_values({}, 0, 1)), tables).time()
        if isinstance(stage, PersistentStage):
            self._residence.check(self.decomposition)
        self._points.take_probes(tables, stage.steps)
        self._complete(stage)
        return line

    def _complete(self, stage: SharedStage) -> None:
        """Reassign the memory of the names after a stage, and count its steps."""
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
        return Turn(self._part, self._kernels[kind], rounds)

    def _turns(self) -> list[Turn]:
        """Return all turns that a run may make, except those that reduce, which read the same cells."""
        turns = [self._turn("step", rounds) for rounds in range(1, self.exchange_every + 1)]
        if several := self._kernels["steps"]:
            turns += [self._turn("steps", rounds) for rounds in range(1, self.exchange_every // several[0].variant.steps + 1)]
        return turns

    def _needs(self) -> dict[str, Margins]:
        """Return the cells of halos that must be valid before any turn."""
        found: dict[str, Margins] = {}
        for turn in self._turns():
            found |= {name: wider(found.get(name, margins), margins) for name, margins in turn.needs.items()}
        return found

    @cached_property
    def _reads_corners(self) -> bool:
        """Whether any turn reads halos along two axes at once."""
        return any(turn.reads_corners for turn in (*self._turns(), self._turn("reducing", 1)))

    def _message_sizes(self) -> list[tuple[int, ...]]:
        """Return the bytes of the elements of all fields of each message that is packed."""
        found = {
            tuple(itemsize(self.problem.dtype(name)) for name, _ in sent)
            for turn in (*self._turns(), self._turn("reducing", 1))
            for axis in self.decomposition.cut
            if axis
            for sent in turn.faces(self._wanted, axis)
            if sent
        }
        return sorted(found)

    def _shared_stages(self, count: int, varying: bool, reduces: bool) -> Iterator[tuple[SharedStage, int]]:
        """Yield the stages of some steps, each with its first step: whole turns, a shorter one, and a step that reduces."""
        several = self._kernels["steps"]
        kind, together = ("steps", several[0].variant.steps) if several and not varying and not self._points.any else ("step", 1)
        last = 1 if self.problem.reductions and reduces else 0
        done, rounds = 0, self.exchange_every // together
        left = count - last
        for turn, turns in (
            (self._turn(kind, rounds), left // self.exchange_every),
            (self._turn(kind, left % self.exchange_every // together), 1),
            (self._turn("step", left % self.exchange_every % together), 1),
        ):
            if turn.rounds and turns:
                yield self._with_points(self._stage(turn, turns, varying)), done
                done += turn.steps * turns
        if last:
            yield self._with_points(self._stage(self._turn("reducing", 1), 1, varying)), done

    def _stage(self, turn: Turn, turns: int, varying: bool) -> SharedStage:
        rows = turn.steps * turns if varying else 1
        given = self.decomposition, turn, turns, self._wanted, rows, self._strips, self.overlap, self.transport == "host"
        if self._stays and not self._points.any and not any(kernel.reductions for kernel in turn.kernels):
            home = self._residence
            return PersistentStage(*given, kernel=home.kernel, blocks=tuple(home.blocks), polls=home.polls)
        if self._signals:
            return PutStage(*given, corners=self._reads_corners, border=self._border)
        return SharedStage(*given, corners=self._reads_corners)

    def _with_points(self, stage: SharedStage) -> SharedStage:
        """Return a stage with the sources and probes of each device."""
        found = {subdomain.device: self._points.of_stage(at, stage.steps) for at, subdomain in enumerate(self._subdomains)}
        return replace(stage, points={device: points for device, points in found.items() if points})

    @property
    def _strips(self) -> dict[str, StepKernel]:
        return {kernel.rule.name: kernel for kernel in self._kernels["step"]}

    def _advance(self, count: int, schedule: Mapping[str, np.ndarray[Any, Any]], first: int, reduces: bool) -> None:
        began = time.monotonic()
        for stage, offset in self._shared_stages(count, bool(schedule), reduces):
            table = self._scalar_values(schedule, first + offset, stage.scalar_rows)
            self._execute(stage, table)
        took = (time.monotonic() - began) / count
        self._seconds_a_step = min(took, self._seconds_a_step or took)  # the first execution includes the binding of plans

    def _execute(self, stage: SharedStage, table: npt.NDArray[Any]) -> None:
        tables = self._point_tables(stage)
        result = self._run(self._bound(stage, self._scalars_of(table), tables))
        if isinstance(stage, PersistentStage):
            self._residence.check(self.decomposition)
        self._points.take_probes(tables, stage.steps)
        self._complete(stage)
        if any(kernel.reductions for kernel in stage.turn.kernels):
            own = [np.asarray(result[on_device(REDUCTIONS, subdomain.device)]) for subdomain in self._subdomains]
            self.reductions |= reduced(stage.turn.kernels, self._totals(own))

    def _run(self, bound: BoundPlan) -> PlanRun:
        """Run a bound plan and wait for it."""
        return bound.run()

    def _scalars_of(self, table: npt.NDArray[Any]) -> list[DeviceArray]:
        """Return a table of scalars on each device."""
        return [self._tables.of(target, table, "scalars", home, is_constant=True) for home, target in enumerate(self.targets)]

    def _totals(self, own: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return the reductions of a step for all subdomains; `own` are those of this process."""
        return own

    def _point_tables(self, stage: SharedStage) -> list[Tables]:
        """Return the tables of sources and probes of each device for the next stage."""
        return [self._points.tables(at, stage.steps, self.step) for at in range(len(self._subdomains))]

    def _point_refs(self, stage: SharedStage) -> dict[str, KernelRef]:
        used = {(point.kernel, self.problem.dtype(point.field)) for points in stage.points.values() for point in points}
        return {name: ref for kernels in self._point_kernels for name, ref in kernels.refs(used).items()}

    def _bound(self, stage: SharedStage, scalars: Sequence[DeviceArray], tables: Sequence[Tables]) -> BoundPlan:
        """Return a stage bound to the current memory of the names."""
        devices = [subdomain.device for subdomain in self._subdomains]
        memory = {on_device(SCALARS, device): one for device, one in zip(devices, scalars, strict=True)}
        memory |= {on_device(name, at): one for name, parts in self.arrays.items() for at, one in zip(devices, parts, strict=True)}
        memory |= {on_device(name, at): one for at, parts in zip(devices, tables, strict=True) for name, one in parts.items()}
        if isinstance(stage, PersistentStage):
            home = self._residence
            memory |= {on_device(SIGNALS, at): one for at, one in zip(devices, home.signals, strict=True)}
            memory |= {on_device(ARRIVED, at): one for at, one in zip(devices, home.arrived, strict=False)}
        names = type(stage).__name__, *(kernel.name for kernel in stage.turn.kernels)
        addresses = tuple((name, one.address) for name, one in memory.items())
        key = (names, stage.turn.rounds, stage.turns, stage.scalar_rows, tuple(stage.points.items()), addresses)

        def bound() -> BoundPlan:
            refs = self._refs | self._point_refs(stage)
            modules = [*self._loaded, *(one for kernels in self._point_kernels for one in kernels.loaded)]
            return bound_to(stage.plan(refs), memory, self.targets, modules)

        return self._plans.get(key, bound)

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def _upload(self, name: str, host: npt.NDArray[Any] | None) -> tuple[DeviceArray, ...]:
        """Return the memory of a field on each device, with the cells of its part and halos; zeros if there are no values."""
        if host is not None and host.shape != self.problem.grid.shape:
            raise StencilError(f"field {name!r} has the shape {host.shape}, and the grid {self.problem.grid.shape}")
        dtype = self.problem.dtype(name)
        places = zip(self.targets, self._subdomains, strict=True)
        return tuple(upload_part(target, self.decomposition, subdomain, name, dtype, host) for target, subdomain in places)

    def _write(self, name: str, value: npt.NDArray[Any]) -> None:
        for subdomain, memory in zip(self._subdomains, self.arrays[name], strict=True):
            write_part(self.decomposition, subdomain, memory, value)

    def _first_not_finite(self, name: str) -> tuple[int, ...] | None:
        for subdomain, memory, points in zip(self._subdomains, self.arrays[name], self._point_kernels, strict=True):
            own = computed_planes(subdomain, memory)
            at = points.first_not_finite(own, subdomain.own[1:] or subdomain.own)
            if at is not None:
                begins = [span.origin for span in subdomain.spans]
                return tuple(
                    begin + one for begin, one in zip([subdomain.start, *begins[1:]] if own is not memory else begins, at, strict=True)
                )
        return None

"""Predictions for each number of devices, decomposition and number of steps between exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Protocol

from memlane import network as networks
from memlane.chip import Chip
from memlane.chip import from_file as chip_from_file
from memlane.chip import load as load_chip
from memlane.errors import NetworkError, StencilError
from memlane.network import UNMEASURED, Network
from memlane.number_format import size
from memlane.stencils.geometry import ALIGNED
from memlane.stencils.grid import Grid
from memlane.stencils.problem import Problem, Swap, cycles_of
from memlane.stencils.rule import Rule
from memlane.stencils.scaling.calibrated import PACKED_US, CalibratedModel
from memlane.stencils.scaling.kawamura import CellWork, KawamuraModel
from memlane.stencils.scaling.prediction import Prediction, ScalingPlan
from memlane.stencils.scaling.regions import SCHEDULES, can_cut, check_halo, divisions, largest_share, steps_of
from memlane.stencils.scaling.work import Demand, Exchange, presumed_swap
from memlane.stencils.schedule import cannot_fuse
from memlane.stencils.tiles import best_tile

MODELS = ("memlane", "kawamura")
STAYS = "persistent"
"""The transport of kernels that stay on their devices."""
_FUSED = (1, 2, 3, 4, 6, 8, 10)
"""Steps of a launch that are looked at where nobody says how many share one: those of which `choice` has kernels, and one."""
_SIDE_SHARE = 0.5
"""Share of the time of copies through the host at one side by which a border at the other side begins earlier. Fitted to 2 times of a
7-point rule on four H200s."""
_MEMORY = "its fields need"
"""How the reason begins for which a grid does not fit into the memory of its devices."""
_MOST_DEVICES, _MOST_STEPS = 4096, 64


class HasRules(Protocol):
    """A stencil: one rule, or several that follow each other in a step."""

    @property
    def rules(self) -> tuple[Rule, ...]: ...


def plan_scaling(
    rule: HasRules | Rule,
    grid: Grid | Sequence[int],
    devices: int | Iterable[int] = (1, 2, 4, 8),
    exchange_every: int | Iterable[int] = range(1, 9),
    *,
    chip: Chip | str = "h200",
    network: Network | str = "",
    model: str = "memlane",
    transport: str = "",
    swap: Swap = (),
    dtypes: Mapping[str, str] | None = None,
    axes: int | Iterable[int] = (1, 2, 3),
    steps_per_launch: int | None = None,
    schedule: str = "",
    overlap: bool = True,
    work: CellWork | None = None,
) -> ScalingPlan:
    """Predict the time of a step of a stencil on several devices, without running anything.

    print(ml.plan_scaling(heat, ml.Grid((512, 512, 512)), devices=[1, 2, 4, 8], network="h200-nvlink"))

    `exchange_every` says how many steps pass between two exchanges. `chip` and `network` are names of data files, paths of .toml files, or
    objects; without a network the chip file's links between peers count. `transport` names a link of the network. `axes` are the numbers of
    axes to cut: with 2 all ways to cut the first two are looked at, and the fastest is shown. `swap` is as for `prepare`; by default the
    field that is written takes the place of the only one that is read at a distance. `steps_per_launch` is how many steps share a launch;
    by default as many as are fastest. `model` is `memlane` or `kawamura`, the paper's, for which `work` may replace the operations and
    bytes of a cell. `schedule` says what the planes between the borders read: `linked`, what the borders computed (memlane's plans), or
    `independent`, nothing of it (the paper).

    Without `overlap` all launches of a device follow the exchange, and it is not cut into borders and what lies between them.

    A combination that cannot be, because k steps reach further than a device has cells, is left out, and a note says so; StencilError is
    raised where nothing is left of a number of devices. NetworkError and ChipError where there is no such file.
    """
    rules = (rule,) if isinstance(rule, Rule) else getattr(rule, "rules", None)
    if not rules:
        raise StencilError(f"a plan is made for a stencil, as @ml.stencil makes of a function, not for {rule!r}")
    where = grid if isinstance(grid, Grid) else Grid(tuple(grid))
    for one in rules:
        where.check(one)
    problem = Problem(rules, where, cycles_of(swap or presumed_swap(rules)), dict(dtypes or {}))
    for name in problem.dtypes:
        if name not in problem.fields:
            raise StencilError(f"dtypes names {name!r}, which is not a field; the fields are {', '.join(problem.fields)}")
    counts, every = _numbers(devices, "devices", _MOST_DEVICES), _numbers(exchange_every, "steps between exchanges", _MOST_STEPS)
    used = _chip(chip)
    wires = _network(network, used) if max(counts) > 1 else None
    planner = _Planner(problem, used, wires, transport, _model(model, problem, used, schedule, work, transport), steps_per_launch, overlap)
    rows: list[Prediction] = []
    left_out: list[str] = []
    for count in counts:
        found, missing = planner.with_devices(count, every, _numbers(axes, "numbers of axes", 3))
        rows += found
        left_out += missing
    if not rows:
        raise StencilError(f"nothing is left to predict. {left_out[0]}")
    names = "+".join(one.name for one in rules)
    shape = " x ".join(map(str, where.shape))
    on = used.name if wires is None else f"{used.name}, {wires.name}" + (f" ({transport})" if transport else "")
    title = f"{names} on {shape} cells of {where.dtype}; {on}"
    notes = (*planner.notes, *dict.fromkeys(left_out))
    return ScalingPlan(title, f"{model}: {planner.model.sentence}", tuple(rows), notes)


def best_exchange(
    problem: Problem,
    devices: int,
    *,
    chip: Chip,
    network: Network | str = "",
    transport: str = "",
    candidates: Iterable[int] = range(1, 9),
    steps_per_launch: int | None = None,
    overlap: bool = True,
    decomposition: Sequence[int] = (),
) -> Prediction:
    """Return the prediction for the steps between exchanges that are fastest by the calibrated model, in slabs along the first axis.

    `decomposition` is another way to cut, as parts along each axis, whose product is the number of devices.
    `steps_per_launch` divides that number; by default as many share a launch as are fastest. Without `overlap` no launch is cut into
    borders and what lies between them. Without a network the links between peers of the chip's file count, or those of an H200 where it has
    none. Raises StencilError where no candidate is possible.
    """
    wires = None
    if devices > 1:
        try:
            wires = _network(network, chip)
        except NetworkError:
            if network:
                raise
            wires = networks.of_chip(load_chip("h200"))
    model = CalibratedModel.of(problem, chip, stays=transport == STAYS)
    planner = _Planner(problem, chip, wires, transport, model, steps_per_launch, overlap)
    every = _numbers(candidates, "steps between exchanges", _MOST_STEPS)
    is_cut = len(decomposition) > 0 and devices > 1
    found, left_out = planner.with_parts(tuple(decomposition), every) if is_cut else planner.with_devices(devices, every, (1,))
    if not found:
        raise StencilError(f"nothing is left to predict. {left_out[0]}")
    return min(found, key=lambda one: (one.step_us, one.exchange_every))


class _Planner:
    """Predicts one problem on one machine."""

    def __init__(
        self,
        problem: Problem,
        chip: Chip,
        wires: Network | None,
        transport: str,
        model: CalibratedModel | KawamuraModel,
        fused: int | None,
        overlap: bool = True,
    ) -> None:
        if fused is not None and fused < 1:
            raise StencilError(f"a launch makes 1 step or more, not {fused}")
        if fused is not None and not model.on_share(problem.grid.shape, 0).can_fuse(fused):
            why = (
                "has a launch for each step" if isinstance(model, KawamuraModel) else cannot_fuse(problem, fused) or "no tile fits the chip"
            )
            raise StencilError(f"{fused} steps of {problem.rules[0].name} cannot share a launch ({why}): use 1 step a launch")
        self.problem, self.chip, self.wires, self.transport, self.model = problem, chip, wires, transport, model
        if model.stays and fused not in (None, 1):
            raise StencilError(f"kernels that stay on their devices have no launches of {fused} steps: leave out steps_per_launch")
        self.fused = (fused,) if fused is not None else (1,) if model.stays else _FUSED
        self.alone = (fused,) if fused is not None else _FUSED
        """How many steps may share a launch; `alone`, on one device, where no kernel stays."""
        self.overlap, self.demand = overlap, Demand(problem)

    @property
    def notes(self) -> tuple[str, ...]:
        assumed = self.wires.assumed if self.wires is not None else ()
        name = self.wires.name if self.wires is not None else ""
        notes = [*self.model.notes, *([f"{name}: assumed, with no source: {', '.join(assumed)}"] if assumed else [])]
        if self.wires is not None and self.transport in UNMEASURED and self.transport not in self.wires.transports:
            link = next(iter(self.wires.transports))
            notes.append(f"{name} has no times of {self.transport}: those of {link} stand for them, without being fitted")
        return tuple(notes)

    def with_devices(self, count: int, every: Sequence[int], axes: Sequence[int]) -> tuple[list[Prediction], list[str]]:
        """Return the predictions with so many devices, for each number of axes the fastest way to cut, and what is left out and why.

        Raises StencilError where nothing is left.
        """
        shape = self.problem.grid.shape
        if count > shape[0] and not any(divisions(shape, count, axis) for axis in axes):
            raise StencilError(f"{count} devices cannot share a grid of {shape[0]} planes along axis 0: use {shape[0]} or fewer")
        if count == 1:  # nothing is exchanged
            whole = (1,) * len(shape)
            if why := self._refusal(whole, self.fused[0]):
                return [], [f"Left out: 1 device, because {why}"]
            models = {steps: self._model_of(whole, steps) for steps in self.alone}
            possible = [self._predicted(model, whole, steps, steps) for steps, model in models.items() if model.can_fuse(steps)]
            return [min(possible, key=lambda one: one.step_us)], []
        found: list[Prediction] = []
        refusals: list[str] = []
        if self.model.stays and 1 not in axes:
            raise StencilError("kernels that stay on their devices share a grid that is cut along its first axis alone: use 1 axis")
        for axis in (1,) if self.model.stays else axes:
            candidates = []
            for parts in divisions(shape, count, axis):
                rows, refused = self.with_parts(parts, every)
                refusals += refused
                candidates += [rows] if rows else []
            if candidates:
                found += min(candidates, key=lambda rows: min(one.step_us for one in rows))
        if refusals and not found and refusals[0].startswith(_MEMORY):
            return [], [f"Left out: {count} devices, because {refusals[0]}"]
        if not found:
            raise StencilError(
                refusals[0] if refusals else f"a grid of {shape} cells cannot be cut for {count} devices along {list(axes)} axes"
            )
        return found, [note for parts in {one.decomposition: None for one in found} if (note := self._left_out(parts, every))]

    def _left_out(self, parts: tuple[int, ...], every: Sequence[int]) -> str:
        """Return which steps between exchanges a decomposition cannot have, and why the first of them cannot."""
        refused = [(k, why) for k in every if (why := self._refusal(parts, k))]
        if not refused:
            return ""
        return (
            f"Left out of {'x'.join(map(str, parts))}: {', '.join(str(k) for k, _ in refused)} steps an exchange, because {refused[0][1]}"
        )

    def with_parts(self, parts: tuple[int, ...], every: Sequence[int]) -> tuple[list[Prediction], list[str]]:
        """Return the predictions for one way to cut, and why there is none for some steps between exchanges."""
        rows, refused = [], []
        for k in every:
            if why := self._refusal(parts, k):
                refused.append(why)
            else:
                rows.append(self.predicted(parts, k))
        return rows, refused

    def _refusal(self, parts: tuple[int, ...], k: int) -> str:
        """Return why a grid cannot be cut so with k steps between exchanges; empty where it can."""
        if all(k % steps for steps in self.fused):
            return f"steps between exchanges are a multiple of the {self.fused[0]} steps of a launch"
        nbytes = self.demand.field_bytes(self._held(parts, k))
        if nbytes > self.chip.dram_bytes:
            return f"{_MEMORY} {size(nbytes)} on a device, and {self.chip.name} has {size(self.chip.dram_bytes)}"
        try:
            check_halo(self.problem.grid.shape, parts, self.demand.reach, k)
        except StencilError as error:
            return str(error)
        return ""

    def _model_of(self, parts: tuple[int, ...], k: int) -> CalibratedModel | KawamuraModel:
        """Return the model of a device's share."""
        share = largest_share(self.problem.grid.shape, parts, self.demand.periodic)
        return self.model.on_share(share.extents, self.demand.field_bytes(self._held(parts, k)))

    def predicted(self, parts: tuple[int, ...], k: int) -> Prediction:
        """Return the prediction for one way to cut and k steps between exchanges, with as many steps a launch as are fastest."""
        model = self._model_of(parts, k)
        fused = [steps for steps in self.fused if k % steps == 0 and model.can_fuse(steps)]
        if not fused:
            raise StencilError(f"a part of {parts} is too small for launches of {self.fused[0]} steps: use 1 step a launch")
        return min((self._predicted(model, parts, k, steps) for steps in fused), key=lambda one: one.step_us)

    def _predicted(self, model: CalibratedModel | KawamuraModel, parts: tuple[int, ...], k: int, fused: int) -> Prediction:
        """Return the prediction for so many steps a launch."""
        reach, grid = self.demand.reach, self.problem.grid
        share = largest_share(grid.shape, parts, self.demand.periodic)
        units = [1] * (len(reach) - 1) + [ALIGNED if parts[-1] > 1 else 1]
        cut = self.overlap and share.count > 0 and can_cut(share, reach, k, model.schedule, units)
        steps = list(steps_of(share, reach, k, model.schedule, cut, units))
        exchange = self._exchange_us(parts, k, k // fused)
        if model.stays and share.count:
            assert isinstance(model, CalibratedModel)
            whole = list(steps_of(share, reach, k, model.schedule, False))
            turn, inner, boundary = model.staying_turn_us(whole, steps, exchange)
            computes = inner >= turn
            if k == 1 and (kept := self._in_tiles(model, parts)) is not None and kept.step_us < turn:
                return kept
        elif cut:
            inner, boundary = model.inner_us(steps, fused), model.boundary_us(steps, fused)
            turn, computes = model.turn_us(steps, fused, self._overlapped(parts, k, fused, exchange))
        else:
            inner, boundary = model.boundary_us(steps, fused), 0.0
            turn, computes = model.apart_us(steps, fused, exchange) if share.count else inner, inner >= exchange
        bound = "computation" if computes else "communication"
        times = turn / k, inner / k, exchange / k, boundary / k
        return Prediction(prod(parts), parts, k, fused, cut, *times, bound, grid.cells)

    def _overlapped(self, parts: tuple[int, ...], k: int, fused: int, exchange_us: float) -> Exchange:
        """Return the times of an exchange beside which a device computes. How events order the devices is known of slabs.

        With one launch between two exchanges, borders store their planes themselves and nothing is put. If planes travel through the host
        then, the border of one side does not wait for the copies of the other side, only for the engines that both share.
        """
        assert self.wires is not None
        link, share = self.wires.link(prod(parts), self.transport), largest_share(self.problem.grid.shape, parts, self.demand.periodic)
        launches, are_slabs = k // fused, parts[0] == prod(parts)
        puts_us = self._sending_us(parts, k) if link.name == "flags" and launches > 1 else 0.0
        if link.name == "host" and launches == 1 and are_slabs and share.count:
            face = self.demand.face_bytes(share, 0, k)
            exchange_us -= _SIDE_SHARE * (link.exchange_us(face, share.count) - link.exchange_us(face, 1))
        return Exchange(exchange_us, puts_us, link.ordered_us(share.count, launches) if are_slabs else 0.0)

    def _in_tiles(self, model: CalibratedModel, parts: tuple[int, ...]) -> Prediction | None:
        """Return the prediction for kernels that keep the cells on the multiprocessors; None where these do not hold them."""
        extent, grid = self.problem.grid.shape[0], self.problem.grid
        planes = [-(-extent // parts[0]), extent // parts[0]]
        tile = best_tile(replace(self.problem, cut=(0,)), planes, self.chip)
        if tile is None or any(count > 1 for count in parts[1:]):
            return None
        step, ends = model.tile_us(tile, self._sending_us(parts, 1))
        return Prediction(prod(parts), parts, 1, 1, True, step, step - ends, ends, 0.0, "computation", grid.cells, tile)

    def _sending_us(self, parts: tuple[int, ...], k: int) -> float:
        """Return for how long the faces travel that multiprocessors themselves store to the neighbours."""
        assert self.wires is not None
        share = largest_share(self.problem.grid.shape, parts, self.demand.periodic)
        message = self.wires.link(prod(parts), self.transport).message
        faces = sum(self.demand.face_bytes(share, axis, k) * sum(has) for axis, has in enumerate(share.neighbours))
        return message.us(faces) - message.us(0)

    def _held(self, parts: tuple[int, ...], k: int) -> list[int]:
        """Return the cells along each axis that the memory of a device has, with halos for k steps."""
        share = largest_share(self.problem.grid.shape, parts, self.demand.periodic)
        halos = zip(self.demand.reach, share.neighbours, strict=True)
        wider = [sum(k * one for one, has in zip(*pair, strict=True) if has) for pair in halos]
        return [extent + more for extent, more in zip(share.extents, wider, strict=True)]

    def _exchange_us(self, parts: tuple[int, ...], k: int, launches: int) -> float:
        """Return the time of one exchange after so many launches.

        It goes axis by axis, so that corners arrive with the faces of the next axis, or over all axes at once where no corner is read.
        Faces that do not lie side by side are packed, unless devices store them as they lie.
        """
        share = largest_share(self.problem.grid.shape, parts, self.demand.periodic)
        if not share.count:
            return 0.0
        assert self.wires is not None
        link = self.wires.link(prod(parts), self.transport)
        cut = [axis for axis, has in enumerate(share.neighbours) if any(has)]
        in_turn = link.name == "mpi" or self.transport in UNMEASURED or self.demand.reads_corners(cut, k)
        faces = {axis: (self.demand.face_bytes(share, axis, k, in_turn), sum(share.neighbours[axis])) for axis in cut}
        total = sum(link.exchange_us(*face) for face in faces.values()) if in_turn else link.exchange_us(0, 0, *faces.values())
        packed = [] if link.name == "flags" else [nbytes * count for axis, (nbytes, count) in faces.items() if axis and nbytes]
        # Faces of all sides are packed side by side, where they are exchanged at once.
        if packed:
            total += PACKED_US
        total -= link.saved_us(share.count, launches) if total and parts[0] == prod(parts) else 0.0
        return total + sum(self.model.pack_us(nbytes) for nbytes in (packed if in_turn or not packed else [sum(packed)]))


def _numbers(given: int | Iterable[int], what: str, most: int) -> list[int]:
    """Return whole numbers of 1 or more, each once, in ascending order."""
    found = list(given) if isinstance(given, Iterable) else [given]
    if not found or not all(isinstance(one, int) and 1 <= one <= most for one in found):
        raise StencilError(f"{what} must be whole numbers from 1 to {most:,}, not {found if isinstance(given, Iterable) else given}")
    return sorted(set(found))


def _model(
    name: str, problem: Problem, chip: Chip, schedule: str, work: CellWork | None, transport: str
) -> CalibratedModel | KawamuraModel:
    if schedule not in ("", *SCHEDULES):
        raise StencilError(f"no schedule is called {schedule!r}; known: {', '.join(SCHEDULES)}")
    if name == "memlane":
        if work is not None:
            raise StencilError("operations and bytes of a cell are for the model kawamura; the model memlane takes them from the rule")
        return CalibratedModel.of(problem, chip, "independent" if schedule == "independent" else "linked", transport == STAYS)
    if name != "kawamura":
        raise StencilError(f"no model is called {name!r}; known: {', '.join(MODELS)}")
    if transport == STAYS:
        raise StencilError("the model kawamura has a launch for each step and knows no kernels that stay: use the model memlane")
    if schedule == "linked":
        raise StencilError("the model kawamura knows the schedule independent only: leave it out, or use the model memlane")
    return KawamuraModel.of(problem, chip, work)


def _chip(given: Chip | str) -> Chip:
    if isinstance(given, Chip):
        return given
    return chip_from_file(given) if given.endswith(".toml") else load_chip(given)


def _network(given: Network | str, chip: Chip) -> Network:
    if isinstance(given, Network):
        return given
    if not isinstance(given, str):
        raise NetworkError(f"a network is a name, the path of a .toml file or a Network, not {given!r}")
    return networks.named(given) if given else networks.of_chip(chip)

"""Run a stencil on the processes of an MPI program: each has a subdomain of the grid on one target."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import MemlaneError, MissingDependency, RankError, StencilError
from memlane.launch import DeviceArray, Target
from memlane.plan import Timeline
from memlane.stencils import Problem, RankStage, SharedStage, Subdomain, Turn, Variant
from memlane.targets import BoundPlan, PlanRun, target_of_process
from memlane.timeloop.engine import architecture
from memlane.timeloop.mpi import Ranks, world
from memlane.timeloop.parts import SharedField, computed_cells
from memlane.timeloop.points import Recorded, Tables
from memlane.timeloop.rank_transports import RANK_TRANSPORTS, NcclLink, check_mpi, check_target
from memlane.timeloop.run import Run
from memlane.timeloop.series import Series
from memlane.timeloop.shared import SharedRun
from memlane.timeloop.sharing import Choice, check_one_part, choose, copy_rate, decompositions
from memlane.timeloop.snapshots import read_snapshot, write_snapshot


def distributed(
    problem: Problem, values: Mapping[str, Any], targets: Sequence[Target] | None, *, transport: str = "mpi", **options: Any
) -> Run:
    """Return the run of this rank: on its own target, with a subdomain of the grid where there are several ranks.

    `targets` is the target of this rank. None selects that of `ml.target()`, or, on a machine with several GPUs, the GPU with the rank's
    number on its machine.
    """
    try:
        ranks = world()
    except MissingDependency:
        raise MissingDependency(f"transport={transport!r}", "mpi") from None
    if targets is not None and len(targets) != 1:
        raise StencilError(
            f"with transport={transport!r} each rank has one target, and {len(targets)} were given: pass one, and start more ranks"
        )
    own = target_of_process(ranks.number_on_machine) if targets is None else targets[0]
    if ranks.count == 1:
        check_one_part(problem.grid, options["decomposition"])
        return Run(problem, values, target=own, variant=options["variant"], fmad=options["fmad"])
    return DistributedRun(problem, values, ranks=ranks, target=own, transport=transport, **options)


_PIECE = 4096
"""Most cells of one message when boxes are gathered: MPI counts in 32 bits."""


@dataclass(frozen=True, eq=False)
class DistributedField(SharedField):
    """A field as it is after the last complete step, in subdomains on several ranks.

    u = run["u"].gather()                       # an array of NumPy, on every rank
    u = run["u"].gather(root=0)                 # on rank 0; None on the others

    Every rank must call these. `subdomains` is the memory of this rank only, and `subdomain` describes its cells.
    """

    ranks: Ranks
    subdomain: Subdomain

    def gather(self, root: int | None = None) -> Any:
        """Return a copy of the whole field on the host: on all ranks, or on rank `root` and None on the others. Every rank must call it."""
        if root is not None and not 0 <= root < self.ranks.count:
            raise StencilError(f"there is no rank {root} to gather {self.name!r} on: give one of 0 to {self.ranks.count - 1}")
        own, what = computed_cells(self.subdomain, self.subdomains[0]), f"field {self.name!r} of all ranks"
        subdomains = self.decomposition.subdomains
        if not any(self.decomposition.cut):
            return self.ranks.joined(np.ascontiguousarray(own), [subdomain.planes for subdomain in subdomains], root, what)
        pieces = [-(-subdomain.cells // _PIECE) for subdomain in subdomains]
        padded = np.zeros((pieces[self.subdomain.device], _PIECE), own.dtype)
        padded.reshape(-1)[: own.size] = own.reshape(-1)
        joined, whole = self.ranks.joined(padded, pieces, root, what), np.empty(self.shape, own.dtype)
        if joined is None:
            return None
        for subdomain, end, count in zip(subdomains, np.cumsum(pieces), pieces, strict=True):
            part = whole[subdomain.region]
            part[...] = joined[end - count : end].reshape(-1)[: subdomain.cells].reshape(part.shape)
        return whole


class DistributedRun(SharedRun):
    """A stencil with its fields in subdomains on the ranks of an MPI program; used like a `Run`, with the same calls on all ranks.

    run = heat.on(grid, transport="mpi").prepare(u=u0, r=0.2, swap=("new", "u"))
    run.steps(1000)
    u = run["u"].gather(root=0)                 # None on the other ranks
    if run.rank == 0:
        print(run, u.mean())

    With `"mpi"`, planes that neighbours need are copied to the host, sent by MPI, and copied to the neighbour's device. With `"mpi-cuda"`
    and `"nccl"`, MPI or NCCL sends them from the memory of one device to that of the other. Fields have the same bits as on
    one device. Reductions have the same bits on every rank: minima and maxima those of one device, sums those of the subdomains added in
    order.
    """

    def __init__(
        self,
        problem: Problem,
        values: Mapping[str, Any],
        *,
        ranks: Ranks,
        target: Target,
        transport: str = "mpi",
        variant: Variant | str | None = None,
        fmad: bool = True,
        exchange_every: int | str = "auto",
        overlap: bool | str = "auto",
        decomposition: Sequence[int] | str | None = None,
    ) -> None:
        """See `Stencil.on` and `Discretized.prepare`."""
        self._begin(problem, values)
        self.target, self.targets = target, (target,)
        self._ranks, self.rank, self.ranks = ranks, ranks.number, ranks.count
        self.transport, self._between_ranks = transport, RANK_TRANSPORTS[transport]
        self.transport_reason = self._between_ranks.reason
        options = {"transport": transport, "variant": variant, "exchange_every": exchange_every, "overlap": overlap, "fmad": fmad}
        own = _About.of(problem, target, decomposition=decomposition, **options)
        about: list[_About] = ranks.all_of(own, "what each rank prepares")
        _check_same(about)
        check_target(transport, target)
        ways = decompositions(problem.grid, [one.rate for one in about], decomposition)
        choice: Choice | None = None
        refused: Exception | None = None
        try:
            choice = choose(problem, ways, target, variant, exchange_every, transport, overlap) if self.rank == 0 else None
        except MemlaneError as error:
            refused = error
        agreed = self._agreed(choice, refused, "how kernels are cut")[0]
        self._cut(ways[agreed.way], agreed, fmad)
        self._load_on_all(values, min(about, key=lambda one: one.capability).architecture)
        neighbours = {one.device for pair in self.decomposition.neighbours for one in pair if self.subdomain in pair}
        self._link = NcclLink(ranks, target, neighbours, self._agreed) if transport == "nccl" else None

    def _load_on_all(self, values: Mapping[str, Any], architecture: str) -> None:
        """Compile the kernels and allocate memory on all ranks. An error of one rank is raised on all."""
        refused: Exception | None = None
        try:
            check_mpi(self.transport, self.target, self._ranks)
            with self._memory():
                self._load(values, architecture)
        except (MemlaneError, MemoryError) as error:
            refused = error
        self._agreed(None, refused, "memory and kernels")

    def _agreed(self, value: Any, refused: Exception | None, what: str, nbytes: int = 0) -> list[Any]:
        """Return the values that all ranks pass; an error of one rank is raised on all."""
        said: list[tuple[Any, str]] = self._ranks.all_of(
            (value, "" if refused is None else f"{type(refused).__name__}: {refused}"), what, nbytes
        )
        if refused is not None:
            raise refused
        for rank, (_, text) in enumerate(said):
            if text:
                raise RankError(f"rank {rank} cannot go on, and so no other rank can: {text}")
        return [one for one, _ in said]

    # -- what is there -----------------------------------------------------------------------------------------------------------

    @property
    def subdomain(self) -> Subdomain:
        """The subdomain of this rank."""
        return self.decomposition.subdomains[self.rank]

    @property
    def _subdomains(self) -> tuple[Subdomain, ...]:
        return (self.subdomain,)

    def __getitem__(self, name: str) -> Any:
        """Return the state of a field after the last complete step, as a `DistributedField`, whose values all ranks gather together."""
        self._check_field(name)
        return DistributedField(name, self.decomposition, self.arrays[name], self._ranks, self.subdomain)

    def __repr__(self) -> str:
        names, subdomain = "+".join(rule.name for rule in self.problem.rules), self.subdomain
        cells = f"planes {subdomain.start} to {subdomain.stop - 1}"
        if any(self.decomposition.cut):
            cells = f"cells {', '.join(f'{one.start}-{one.stop - 1}' for one in subdomain.spans)}"
        return (
            f"<DistributedRun: {names} on {self.problem.grid.shape}, rank {self.rank} of {self.ranks} with {cells} on {self.target.name}, "
            f"after {self.step} steps; {self.variant}; "
            f"exchange every {self.exchange_every} steps by {self.transport_reason}{'' if self.overlap else ', behind all planes'}>"
        )

    # -- steps -------------------------------------------------------------------------------------------------------------------

    def steps(self, count: int, *, progress: bool | None = None, **options: Any) -> Run:
        """See `Run.steps`. Only rank 0 shows progress. Ctrl-C on one rank ends the run on all ranks after the same step."""
        return super().steps(count, progress=False if progress is None and self.rank else progress, **options)

    def _stage(self, turn: Turn, turns: int, varying: bool) -> SharedStage:
        rows = turn.steps * turns if varying else 1
        way = self._between_ranks
        return RankStage(
            self.decomposition, turn, turns, self._wanted, rows, self._strips, self.overlap,
            own=self.rank, function=way.function, is_direct=way.is_direct, enqueues=way.enqueues,
        )  # fmt: skip

    def _memory(self) -> AbstractContextManager[None]:
        """Return a `with` block in which memory is allocated from which the transport can send."""
        return self.target.mappable() if self._between_ranks.shows_memory else nullcontext()

    def _bound(self, stage: SharedStage, scalars: Sequence[DeviceArray], tables: Sequence[Tables]) -> BoundPlan:
        with self._memory():
            return super()._bound(stage, scalars, tables)

    def _run(self, bound: BoundPlan) -> PlanRun:
        return super()._run(bound) if self._link is None else self._link.run(bound)

    def timeline(self, steps: int | None = None) -> Timeline:
        """See `SharedRun.timeline`. Every rank must call it. Raise StencilError for `"mpi-cuda"` on GPUs, whose plan is no single graph."""
        if self._between_ranks.shows_memory and not self.target.modelled:
            raise StencilError(
                f"with transport={self.transport!r} ranks exchange between CUDA graphs, which cannot be timed as one: time steps as a whole"
            )
        if self._link is None:
            return super().timeline(steps)
        with self._ranks.telling(), self._ranks.ending("the timeline of steps with exchanges by NCCL"):
            return super().timeline(steps)

    def _advance(self, count: int, schedule: Mapping[str, np.ndarray[Any, Any]], first: int, reduces: bool) -> None:
        with self._ranks.telling():
            super()._advance(count, schedule, first, reduces)

    def _totals(self, own: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        return self._ranks.all_of(own[0], "reductions")

    def _is_interrupted(self, asked: bool) -> bool:
        """Agree between ranks on local decisions: whether the run ends, and the time of a step, which determines the plans."""
        said = self._ranks.all_of((asked, self._seconds_a_step), f"the end of step {self.step}")
        self._seconds_a_step = max(seconds for _, seconds in said)
        return any(one for one, _ in said)

    def _recorded(self, field: str) -> Sequence[Recorded]:
        return self._ranks.all_of(self._points.recorded(field), f"what probes of {field!r} recorded")

    def _first_not_finite(self, name: str) -> tuple[int, ...] | None:
        found = self._ranks.all_of(super()._first_not_finite(name), f"whether field {name!r} is finite")
        return next((cell for cell in found if cell is not None), None)

    # -- snapshots ---------------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all fields, scalars and the number of steps to a file, like `Run.save`. Rank 0 writes it, and every rank must call this."""
        fields = {name: self[name].gather(root=0) for name in self.problem.fields}
        refused = None
        if self.rank == 0:
            try:
                write_snapshot(path, self.step, fields, self.scalars)
            except MemlaneError as error:
                refused = error
        self._agreed(None, refused, "rank 0, which writes a snapshot", self._field_bytes)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file of `save`, written by any number of ranks. Rank 0 reads it, and every rank must call this."""
        read, refused = None, None
        if self.rank == 0:
            try:
                read = read_snapshot(path, self.problem)
            except MemlaneError as error:
                refused = error
        header = None if read is None else (read[0], read[2])
        step, scalars = self._agreed(header, refused, "rank 0, which reads a snapshot", self._field_bytes)[0]
        for name in self.problem.fields:
            value = np.empty(self.problem.grid.shape, self.problem.dtype(name)) if read is None else np.ascontiguousarray(read[1][name])
            self._ranks.spread(value, f"field {name!r} of the snapshot")
            self._write(name, value)
        self.step, self.scalars = step, scalars

    def _series(self, path: Path, names: Sequence[str]) -> Series:
        found, refused = None, None
        try:
            found = Series(self.problem, path, names, writes=self.rank == 0)
        except MemlaneError as error:
            refused = error
        self._agreed(None, refused, "rank 0, which creates a series", 0)
        assert found is not None
        return found

    @property
    def _field_bytes(self) -> int:
        """Return the bytes of all fields of the whole grid."""
        return self.problem.grid.cells * sum(np.dtype(self.problem.dtype(name)).itemsize for name in self.problem.fields)


# -- what ranks have to agree on -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _About:
    """Description of the run that one rank prepares, and its target, for comparison with the other ranks."""

    wanted: dict[str, str]
    """Properties that must be equal on all ranks, in words."""
    target: str
    modelled: bool
    rate: float
    capability: tuple[int, int]
    architecture: str

    @classmethod
    def of(cls, problem: Problem, target: Target, **options: Any) -> _About:
        wanted = {
            "rule": "; ".join(repr(rule.body) for rule in problem.rules),
            "grid": repr(problem.grid),
            "swap": repr(problem.swap),
            "exact_sums": repr(problem.exact_sums),
            "dtypes": repr(sorted((name, problem.dtype(name)) for name in problem.fields)),
            **{name: repr(value) for name, value in options.items()},
        }
        return cls(wanted, target.name, target.modelled, copy_rate(target), target.chip.compute_capability, architecture(target))


def _check_same(about: Sequence[_About]) -> None:
    """Raise RankError if ranks prepare different runs."""
    first = about[0]
    for rank, one in enumerate(about):
        for name, value in one.wanted.items():
            if value != first.wanted[name]:
                shown = "" if name == "rule" else f": {first.wanted[name]} and {value}"
                raise RankError(f"rank 0 and rank {rank} prepare runs with another {name}{shown}; pass the same on all ranks")
        if one.modelled != first.modelled:
            found = f"rank 0 has {first.target}, and rank {rank} {one.target}"
            raise RankError(f"emulated devices and GPUs cannot share a grid, and {found}: pass targets of one kind on all ranks")

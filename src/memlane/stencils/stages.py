"""Plan the steps of a problem: stages that repeat one kind of launch, with buffers that swap in between.

A plan names memory by the names of fields. The memory of a name changes from launch to launch; `Stage.names_after` returns the assignment
at the end, which the code that binds plans to memory must track.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memlane.plan import KernelRef, Plan, PlanBuilder, Scalar, StepRef, View
from memlane.stencils.code import StepKernel
from memlane.stencils.geometry import stored_shape
from memlane.stencils.points import ADD, point_kernel
from memlane.stencils.problem import Problem, spares

SCALARS, REDUCTIONS = "scalars", "reductions"


@dataclass(frozen=True)
class Point:
    """Sources or probes: cells at which values of a table are added to a field after each step, or are recorded into a table."""

    kernel: str
    field: str
    table: str
    """Buffer of the table: a row for each step, an element for each cell."""
    places: str
    """Buffer with the indices of the cells in the memory of the field."""
    count: int
    rows: int


@dataclass(frozen=True)
class Stage:
    """Consecutive launches: `turns` times the kernels in order, `steps` steps each time."""

    problem: Problem
    kernels: tuple[StepKernel, ...]
    turns: int
    scalar_rows: int = 1
    """Rows of the table of scalars: 1 where they stay the same, else one for each step of the stage."""
    points: tuple[Point, ...] = ()

    @property
    def steps_a_turn(self) -> int:
        return self.kernels[0].variant.steps

    @property
    def rotation(self) -> tuple[tuple[str, ...], ...]:
        """Groups of names; after each turn each name has the memory of the next one in its group."""
        return rotation(self.problem, self.steps_a_turn)

    def names_after(self, turns: int | None = None) -> dict[str, str]:
        """Map each name that moves to the name whose initial memory it has after some turns (by default all)."""
        count = self.turns if turns is None else turns
        return {name: group[(at + count) % len(group)] for group in self.rotation for at, name in enumerate(group)}

    def plan(self, refs: Mapping[str, KernelRef]) -> Plan:
        """Return the plan of the stage, with the kernels by their names in the module."""
        return _Writer(self, refs).plan()


def rotation(problem: Problem, steps: int) -> tuple[tuple[str, ...], ...]:
    """Return the cycles of names that swap after a launch of one step, or of several steps (which write all final values)."""
    if steps == 1:
        return tuple(tuple(reversed(cycle)) for cycle in problem.swap)
    return tuple((name, spare) for cycle in problem.swap for name, spare in zip(cycle[1:], spares(cycle), strict=True))


def field_buffers(problem: Problem, fused: bool) -> list[str]:
    """Return the names of all fields and spare buffers."""
    extra = [name for cycle in problem.swap for name in spares(cycle)[1:]] if fused else []
    return [*problem.fields, *extra]


class _Writer:
    """Builder of the plan of one stage."""

    def __init__(self, stage: Stage, refs: Mapping[str, KernelRef]) -> None:
        self.stage, self.refs, self.builder = stage, refs, PlanBuilder()
        problem = stage.problem
        shape = stored_shape(problem.grid.shape)
        self.views: dict[str, View] = {}
        for name in field_buffers(problem, stage.steps_a_turn > 1):
            self.views[name] = self.builder.array(name, shape, problem.dtype(name), 0)
        self.scalars = self.builder.array(SCALARS, scalars_shape(problem, stage.scalar_rows), scalar_type(problem), 0)
        for point in stage.points:
            self.views[point.table] = self.builder.array(point.table, (point.rows, point.count), problem.dtype(point.field), 0)
            if point.places not in self.views:
                self.views[point.places] = self.builder.array(point.places, point.count, "i8", 0)
        self.totals = self._totals()

    def _totals(self) -> dict[str, tuple[View, View]]:
        """Return the buffer of partial values and the place of the totals for each kernel that reduces."""
        reducing = [kernel for kernel in self.stage.kernels if kernel.reductions]
        if not reducing:
            return {}
        whole = self.builder.array(REDUCTIONS, sum(kernel.word_count for kernel in reducing), "f8", 0)
        found, first = {}, 0
        for kernel in reducing:
            count = kernel.word_count
            partial = self.builder.array(f"partial_{kernel.name}", (count, kernel.blocks), "f8", 0)
            found[kernel.name] = partial, whole[first : first + count]
            first += count
        return found

    def plan(self) -> Plan:
        groups = [tuple(self.views[name] for name in group) for group in self.stage.rotation]
        if self.stage.turns == 1:
            self._turn(self.builder)
        else:
            with self.builder.repeat(self.stage.turns, rotate=groups) as loop:
                self._turn(loop)
        return self.builder.plan()

    def _turn(self, builder: PlanBuilder) -> None:
        row: Any = Scalar(0, self.stage.steps_a_turn) if self.stage.scalar_rows > 1 and self.stage.turns > 1 else 0
        for kernel in self.stage.kernels:
            inputs, outputs = [self.views[one] for one in kernel.inputs], [self.views[one] for one in kernel.outputs]
            arguments: list[Any] = [*outputs, *inputs, self.scalars, row]
            partial = self.totals.get(kernel.name)
            written = [*outputs, *([partial[0]] if partial else [])]
            arguments += [partial[0]] if partial else []
            builder.launch(
                self.refs[kernel.name],
                kernel.grid,
                kernel.block,
                *arguments,
                reads=[*inputs, self.scalars],
                writes=written,
                shared_bytes=kernel.shared_bytes,
                label=kernel.name,
            )
            if partial:
                builder.launch(
                    self.refs[kernel.finish_name], kernel.word_count, 256, partial[1], partial[0], kernel.blocks,
                    reads=[partial[0]], writes=[partial[1]],
                )  # fmt: skip
        for point in self.stage.points:
            self._point(builder, point)

    def _point(self, builder: PlanBuilder, point: Point) -> None:
        ref = self.refs[point_kernel(point.kernel, self.stage.problem.dtype(point.field))]
        launch_point(builder, ref, point, self.views, Scalar(0, 1) if self.stage.turns > 1 else 0)


def launch_point(
    builder: PlanBuilder, ref: KernelRef, point: Point, views: Mapping[str, View], row: Any, device: int = 0, queue: int = 0
) -> StepRef:
    """Add the launch for sources or probes. `views` has the field, the table and the places by name; `row` is that of the step."""
    field, table, places = views[point.field], views[point.table], views[point.places]
    reads, writes = ([places, table, field], [field]) if point.kernel == ADD else ([places, field], [table])
    return builder.launch(
        ref, -(-point.count // 128), 128, field, table, places, point.count, row,
        reads=reads, writes=writes, label=f"{point.kernel} {point.field}", device=device, queue=queue,
    )  # fmt: skip


def scalars_shape(problem: Problem, rows: int) -> tuple[int, int]:
    """Return the shape of a table of scalars with so many rows, each for one step or for all."""
    return rows, max(1, scalar_count(problem))


def scalar_type(problem: Problem) -> str:
    """Return the type of a table of scalars, that in which kernels compute: for a grid of halves they are halves in single precision."""
    return "f4" if problem.grid.dtype == "f2" else problem.grid.dtype


def scalar_count(problem: Problem) -> int:
    """Return the number of values of a step: scalars and elements of coefficients."""
    return sum(1 if length is None else length for length in problem.scalars.values())


def on_device(name: str, device: int) -> str:
    """Return the name of a buffer of a plan: the memory of a name on one device."""
    return f"{name}@{device}"

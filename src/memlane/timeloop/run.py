"""Run a stencil on a target: steps, fields, reductions, snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memlane.errors import StencilError
from memlane.launch import DeviceArray, Target
from memlane.stencils import Code, Problem, Stage, Variant
from memlane.stencils.stages import scalar_type, scalars_shape
from memlane.timeloop.engine import Engine
from memlane.timeloop.memory import FieldView, as_numbers, upload
from memlane.timeloop.points import Home, Points, Recorded
from memlane.timeloop.series import Series, changing_fields, series_path
from memlane.timeloop.snapshots import read_snapshot, write_snapshot
from memlane.timeloop.variants import chosen_code
from memlane.timeloop.watching import ProgressLine, interruptible

_LOOK_S = 0.25
"""Approximate seconds between two checks for Ctrl-C; more if a single step takes longer."""
_MOST_STEPS = 1 << 11
"""Most steps of one plan."""


class Run:
    """A stencil with its fields on a target. `step` is the number of steps that are complete.

    run.steps(1000)                                      # 1000 steps; Python is not in the loop
    run.steps(1000, every=100, call=lambda run: plot(run["u"].gather()))
    run.steps(500, dt=schedule)                          # an array of 500 numbers: one for each step
    run.until("change", below=1e-6, every=100)           # a reduction of the rule
    run["u"].gather(), run.reductions["change"]          # after the last step
    """

    rank, ranks = 0, 1
    """The number of this process among those that share the grid, and how many these are: with `transport="mpi"` more than one."""
    transport_reason: str = "one device and one process exchange nothing"
    """The transport in use, and why."""

    def __init__(
        self,
        problem: Problem,
        values: Mapping[str, Any],
        *,
        target: Target,
        variant: Variant | str | None = None,
        fmad: bool = True,
    ) -> None:
        """See `Discretized.prepare`."""
        self._begin(problem, values)
        self.target = target
        arrays = {
            name: upload(self.target, values[name], problem.grid.shape, problem.dtype(name), name)
            for name in problem.fields
            if name in values
        }
        chosen = chosen_code(problem, self.target, variant, fmad, arrays)
        self.code: Code = chosen.code
        self.reason = chosen.reason
        """Reason for the choice of the kernels' variant."""
        self.engine = Engine(problem, self.code, self.target, arrays)
        self._points = Points(problem, [Home.whole(self.target, problem.grid)])

    def _begin(self, problem: Problem, values: Mapping[str, Any]) -> None:
        """Initialise the state that all kinds of runs share. Raise StencilError if values are missing."""
        for new, old in problem.previous.items():
            if new not in values and old not in values:
                raise StencilError(f"field {old!r} has no values: pass {old}=array to prepare")
        self.problem, self.step = problem, 0
        self.scalars = {name: as_numbers(values[name], name, problem.grid.dtype) for name in problem.scalars}
        for name, length in problem.scalars.items():
            if length is None and self.scalars[name].size != 1:
                raise StencilError(
                    f"scalar {name!r} is one number, and {self.scalars[name].size} were given: pass {name}=number to prepare, and numbers "
                    "for each step to `steps`"
                )
        self.reductions: dict[str, float] = {}
        """Reductions of the last step."""
        self._seconds_a_step = 0.0

    # -- what is there -----------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> FieldView:
        """Return the state of a field after the last complete step."""
        self._check_field(name)
        return FieldView(name, self.problem.grid.shape, self.engine.arrays[name], self.target)

    def _check_field(self, name: str) -> None:
        if name not in self.problem.fields:
            raise StencilError(f"no field {name!r}; the run has {', '.join(self.problem.fields)}")

    def source(self) -> str:
        """Return the generated CUDA C++."""
        return self.code.readable

    @property
    def variant(self) -> Variant:
        """Variant of the kernels that make most steps."""
        return max((kernel.variant for kernel in self.code.kernels), key=lambda one: one.steps)

    def __repr__(self) -> str:
        names = "+".join(rule.name for rule in self.problem.rules)
        return f"<Run: {names} on {self.problem.grid.shape}, {self.target.name}, after {self.step} steps; {self.variant}>"

    # -- steps -------------------------------------------------------------------------------------------------------------------

    def steps(
        self,
        count: int,
        *,
        every: int | None = None,
        call: Callable[[Run], object] | None = None,
        stop_on_nan: int | None = None,
        progress: bool | None = None,
        **scalars: Any,
    ) -> Run:
        """Make `count` steps and wait for them. Reductions are those of the last step.

        `call` is called with the run after each `every` steps and may read fields; an exception in it ends the run. `stop_on_nan` is the
        number of steps between checks of all fields; StencilError names the first cell that is not finite. `scalars` replace the earlier
        values; an array has a number for each of the steps. `progress` shows a progress line on the terminal (by default if there is a
        terminal and the run takes long). Ctrl-C ends the run after a complete step, whose fields can be read.
        """
        count = _whole("the number of steps", count, 0)
        every = None if every is None else _whole("`every`, steps between two calls,", every, 1)
        stop_on_nan = None if stop_on_nan is None else _whole("`stop_on_nan`, steps between two looks at all fields,", stop_on_nan, 1)
        schedule = self._schedule(scalars, count)
        begun = self.step
        with interruptible() as interruption, ProgressLine("steps", count, progress) as line:
            for first, length in self._chunks(count, every, stop_on_nan):
                done = first + length
                is_seen = done == count or (call is not None and every is not None and done % every == 0)
                self._advance(length, schedule, first, reduces=is_seen)
                line.advanced(self.step - begun)
                if stop_on_nan is not None and (done % stop_on_nan == 0 or done == count):
                    self._check_finite(stop_on_nan)
                if call is not None and every is not None and done % every == 0:
                    call(self)
                if self._is_interrupted(interruption.asked):
                    raise KeyboardInterrupt(f"stopped after step {self.step}, whose fields can be read")
        for name, value in schedule.items():
            self.scalars[name] = value[-1] if len(value) else self.scalars[name]
        return self

    def _is_interrupted(self, asked: bool) -> bool:
        """Return whether the run ends after the current step; `asked` tells if Ctrl-C was pressed in this process."""
        return asked

    def until(self, name: str, *, below: float, every: int = 1, at_most: int = 1 << 20, **scalars: Any) -> int:
        """Make steps until the reduction `name` is below a bound after a multiple of `every` steps; return how many were made.

        Raise StencilError if `at_most` steps do not suffice, or the reduction is NaN.
        """
        if name not in self.problem.reductions:
            raise StencilError(f"no rule reduces {name!r}; the reductions are {', '.join(self.problem.reductions) or 'none'}")
        every, at_most = _whole("`every`, steps between two looks,", every, 1), _whole("`at_most`, a number of steps,", at_most, 1)
        begun = self.step
        while self.step - begun < at_most:
            self.steps(min(every, at_most - (self.step - begun)), **scalars)
            value = self.reductions[name]
            if value != value:
                raise StencilError(f"{name} is not a number after step {self.step}, so it will not fall below {below}")
            if value < below:
                return self.step - begun
        raise StencilError(f"{name} is {self.reductions.get(name, float('nan')):.6g} after {at_most} steps, not yet below {below}")

    def _chunks(self, count: int, *periods: int | None) -> Iterator[tuple[int, int]]:
        """Split the steps into chunks that end at callbacks and checks, and are short enough for Ctrl-C and the progress line."""
        first = 0
        while first < count:
            ends = [count, *((first // one + 1) * one for one in periods if one is not None)]
            length = min(min(ends) - first, self._most_steps())
            yield first, length
            first += length

    def _most_steps(self) -> int:
        """Return the number of steps of one plan: a power of two times the least number after which each name has its own memory again, so
        that few plans are bound, and large enough that the checks between plans cost little."""
        unit = self.problem.period * self._steps_together
        if self._seconds_a_step == 0.0:
            return unit if self.target.modelled else 64 * unit
        fitting = max(1, min(_MOST_STEPS, int(_LOOK_S / self._seconds_a_step)) // unit)
        return unit * (1 << (fitting.bit_length() - 1))

    @property
    def _steps_together(self) -> int:
        """Least number of steps between two calls of a callback, if so many are left."""
        return self.variant.steps

    def _advance(self, count: int, schedule: Mapping[str, np.ndarray[Any, Any]], first: int, reduces: bool) -> None:
        began = time.monotonic()
        for stage, offset in self._stages(count, bool(schedule), reduces):
            table = self._scalar_table(schedule, first + offset, stage)
            tables = self._points.tables(0, stage.turns, self.step) if stage.points else {}
            if any(kernel.reductions for kernel in stage.kernels):
                self.reductions = self.engine.reductions(stage, table, tables)
            else:
                self.engine.execute(stage, table, tables)
            self._points.take_probes([tables], stage.turns)
            self.step += stage.turns * stage.steps_a_turn
        took = (time.monotonic() - began) / count
        self._seconds_a_step = min(took, self._seconds_a_step or took)  # the first execution includes the binding of plans

    def _stages(self, count: int, varying: bool, reduces: bool) -> Iterator[tuple[Stage, int]]:
        """Yield the stages of some steps, each with its first step: launches of several steps, of one step, and one that reduces."""
        plain = tuple(kernel for kernel in self.code.kernels if kernel.variant.steps == 1 and not kernel.reductions)
        several = tuple(kernel for kernel in self.code.kernels if kernel.variant.steps > 1)
        reducing = tuple(self.code.reducing)
        last = 1 if self.problem.reductions and reduces else 0
        done = 0
        if several and not varying and not self._points.any and count - last >= several[0].variant.steps:
            steps = several[0].variant.steps
            turns = (count - last) // steps
            yield Stage(self.problem, several, turns), 0
            done = turns * steps
        if count - last > done:
            turns = count - last - done
            yield Stage(self.problem, plain, turns, turns if varying else 1, self._points.of_stage(0, turns)), done
            done += turns
        if last:
            yield Stage(self.problem, reducing, 1, 1, self._points.of_stage(0, 1)), done

    def _schedule(self, scalars: Mapping[str, Any], count: int) -> dict[str, np.ndarray[Any, Any]]:
        """Store new scalars, and return those that change from step to step."""
        found = {}
        for name, value in scalars.items():
            if name not in self.problem.scalars:
                raise StencilError(f"no scalar {name!r}; the scalars are {', '.join(self.problem.scalars) or 'none'}")
            given = as_numbers(value, name, self.problem.grid.dtype)
            varies = given.ndim == (1 if self.problem.scalars[name] is None else 2)
            if varies and len(given) != count:
                raise StencilError(f"scalar {name!r} has {len(given)} values for {count} steps: give one for each step")
            if varies:
                found[name] = given
            else:
                self.scalars[name] = given
        return found

    def _scalar_table(self, schedule: Mapping[str, np.ndarray[Any, Any]], first: int, stage: Stage) -> DeviceArray:
        return self.engine.table(self._scalar_values(schedule, first, stage.scalar_rows), f"scalars {stage.scalar_rows}")

    def _scalar_values(self, schedule: Mapping[str, np.ndarray[Any, Any]], first: int, rows: int) -> np.ndarray[Any, Any]:
        """Return a table with the scalars of some steps, a row for each."""
        table = np.zeros(scalars_shape(self.problem, rows), self.problem.grid.dtype)
        column = 0
        for name, length in self.problem.scalars.items():
            width = 1 if length is None else length
            values = schedule[name][first : first + rows] if name in schedule else self.scalars[name]
            table[:, column : column + width] = np.asarray(values).reshape(-1, 1) if length is None else np.asarray(values)[..., :length]
            column += width
        return table.astype(scalar_type(self.problem), copy=False)

    # -- points ------------------------------------------------------------------------------------------------------------------

    def add_source(self, field: str, at: Sequence[int] | Sequence[Sequence[int]], values: Any) -> None:
        """Add `values[i]` to the field at one cell, or `values[i, j]` at the j-th of several, after the i-th step from now on.

        With sources and probes every step is a separate launch. After the last row of `values` nothing is added.
        """
        self._check_field(field)
        self._points.add_source(field, at, values, self.step)

    def add_probe(self, field: str, at: Sequence[int] | Sequence[Sequence[int]]) -> None:
        """Record the field at one cell, or several, after each step from now on; `probed` returns the records."""
        self._check_field(field)
        self._points.add_probe(field, at)

    def probed(self, field: str) -> np.ndarray[Any, Any]:
        """Return the records of a field: a row for each step since `add_probe`, an element for each cell. With `transport="mpi"` every rank
        must call it."""
        return self._points.probed(field, self._recorded(field))

    def _recorded(self, field: str) -> Sequence[Recorded]:
        """Return the records of each process."""
        return [self._points.recorded(field)]

    # -- snapshots ---------------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all fields, scalars and the number of steps to a file for `restore`. An existing file is replaced when the new one is
        complete."""
        fields = {name: self[name].gather() for name in self.problem.fields}
        write_snapshot(path, self.step, fields, self.scalars)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file of `save`: the following steps give the same bits as in the run that wrote it."""
        step, fields, scalars = read_snapshot(path, self.problem)
        for name, value in fields.items():
            self._write(name, value)
        self.step, self.scalars = step, scalars

    def series(self, path: str | os.PathLike[str], *fields: str) -> Series:
        """Create a file that appends the current state of some fields at each call: `run.steps(1000, every=100, call=series)`.

        The suffix selects HDF5 (`.h5`) or Zarr (`.zarr`), which need `pip install 'memlane[hdf5]'` or `'memlane[zarr]'`. Without names, it
        takes all fields that steps change. States are written while the next steps run; use it in a `with` block, which waits for the
        last. Raise RecordError if the file exists or cannot be created.
        """
        names = fields or tuple(changing_fields(self.problem))
        return self._series(series_path(os.fspath(path), self.problem, names), names)

    def _series(self, path: Path, names: Sequence[str]) -> Series:
        return Series(self.problem, path, names, writes=True)

    def _write(self, name: str, value: np.ndarray[Any, Any]) -> None:
        self.engine.write(name, value)

    # -- states that are not finite ----------------------------------------------------------------------------------------------

    def _check_finite(self, every: int) -> None:
        for name in self.problem.fields:
            if self.problem.dtype(name) == "u1":
                continue
            cell = self._first_not_finite(name)
            if cell is not None:
                raise StencilError(
                    f"field {name!r} is not finite at cell {cell} after step {self.step} (fields are looked at every {every} steps): "
                    "make the time step smaller, or look at every step to find the first"
                )

    def _first_not_finite(self, name: str) -> tuple[int, ...] | None:
        return self.engine.first_not_finite(name)


def _whole(what: str, value: object, least: int) -> int:
    """Convert a Python or NumPy integer to a Python one. Raise StencilError for anything else, and for less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise StencilError(f"{what} must be a whole number of at least {least}, not {value!r}")
    return int(value)

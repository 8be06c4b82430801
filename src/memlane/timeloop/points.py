"""Manage sources and probes: cells of a field at which values are added or recorded after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import StencilError
from memlane.launch import DeviceArray, Target
from memlane.stencils import Decomposition, Grid, Point, Problem, Subdomain
from memlane.stencils.geometry import stored_shape
from memlane.stencils.points import ADD, RECORD
from memlane.timeloop.memory import KeptTables, allocated

Cells = npt.NDArray[np.int64]
Tables = dict[str, DeviceArray]
Recorded = tuple[list[int], npt.NDArray[Any]]
"""Indices of recorded cells of a probe, and their values, a row for each step."""


@dataclass(frozen=True)
class Home:
    """Layout of a field's memory on one target: the cells of the grid in it, and those that the target computes."""

    target: Target
    shape: tuple[int, ...]
    """Shape of the memory, padding included."""
    held: tuple[Sequence[int], ...]
    """Index of the grid's cell at each place of the memory, along each axis. A cell occurs twice if halos wrap around a periodic grid."""
    own: tuple[range, ...]
    """Places in memory of the computed cells, along each axis."""

    @classmethod
    def whole(cls, target: Target, grid: Grid) -> Home:
        """Return the layout of a run on one target."""
        every = tuple(range(extent) for extent in grid.shape)
        return cls(target, stored_shape(grid.shape), every, every)

    @classmethod
    def of_subdomain(cls, target: Target, decomposition: Decomposition, subdomain: Subdomain) -> Home:
        """Return the layout of a part of the grid, with its halos."""
        held = tuple(decomposition.cells_of(subdomain, axis) for axis in range(decomposition.grid.dimensions))
        own = tuple(range(span.start, span.stop) for span in subdomain.own)
        return cls(target, decomposition.stored_shape(subdomain), held, own)

    def copies(self, cells: Cells) -> tuple[list[int], Cells]:
        """Return every place of the memory with one of the cells, and the number of its cell: also those in halos, from which this target
        computes its own cells until the next exchange."""
        return self._places(cells, tuple(range(len(one)) for one in self.held))

    def computed(self, cells: Cells) -> tuple[list[int], Cells]:
        """Return the places of the cells that this target computes, and the numbers of these cells."""
        return self._places(cells, self.own)

    def _places(self, cells: Cells, among: Sequence[range]) -> tuple[list[int], Cells]:
        at: list[dict[int, list[int]]] = []
        for held, places in zip(self.held, among, strict=True):
            found: dict[int, list[int]] = {}
            for place in places:
                found.setdefault(held[place], []).append(place)
            at.append(found)
        pairs = [
            (number, place)
            for number, cell in enumerate(cells)
            for place in product(*(axis.get(int(one), ()) for axis, one in zip(at, cell, strict=True)))
        ]
        indices = np.array([place for _, place in pairs], np.int64).reshape(-1, len(self.held))
        return [number for number, _ in pairs], np.asarray(np.ravel_multi_index(tuple(indices.T), self.shape), np.int64)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of a field, and their places on each target of the process."""

    count: int
    numbers: tuple[list[int], ...]
    """Indices of the cells on each home."""
    places: tuple[DeviceArray | None, ...]
    """Places of the cells in the memory of each home; None if it has none."""


@dataclass(frozen=True, eq=False)
class _Source:
    cells: _Cells
    table: npt.NDArray[Any]
    begun: int
    """Step after which the first row is added."""

    def rows(self, step: int, count: int) -> npt.NDArray[Any]:
        """Return the rows to add after each of `count` steps from `step` on; zeros before the first row and after the last."""
        rows = np.zeros((count, self.cells.count), self.table.dtype)
        first = max(0, self.begun - step)
        given = self.table[max(0, step - self.begun) : max(0, step + count - self.begun)]
        rows[first : first + len(given)] = given
        return rows


@dataclass(frozen=True, eq=False)
class _Probe:
    cells: _Cells
    records: list[npt.NDArray[Any]] = field(default_factory=list)


class Points:
    """Sources and probes of a run, one of each per field, on all targets of the process."""

    def __init__(self, problem: Problem, homes: Sequence[Home]) -> None:
        self.problem, self.homes = problem, tuple(homes)
        self._sources: dict[str, _Source] = {}
        self._probes: dict[str, _Probe] = {}
        self._tables = KeptTables()

    @property
    def any(self) -> bool:
        return bool(self._sources or self._probes)

    def add_source(self, name: str, at: Any, values: Any, step: int) -> None:
        cells = self._checked(at)
        given = np.asarray(values, self.problem.dtype(name))
        if given.size % len(cells):
            raise StencilError(f"a source at {len(cells)} cells has a row of {len(cells)} values for each step, not {given.shape}")
        found = [home.copies(cells) for home in self.homes]
        self._sources[name] = _Source(self._placed(len(cells), found), given.reshape(-1, len(cells)), step)

    def add_probe(self, name: str, at: Any) -> None:
        cells = self._checked(at)
        self._probes[name] = _Probe(self._placed(len(cells), [home.computed(cells) for home in self.homes]))

    def recorded(self, name: str) -> Recorded:
        """Return the cells that the targets of this process have recorded, with a row of values for each step."""
        if name not in self._probes:
            raise StencilError(f"field {name!r} has no probe: call add_probe({name!r}, at=...) first")
        probe = self._probes[name]
        numbers = [number for home in probe.cells.numbers for number in home]
        return numbers, np.concatenate([np.empty((0, len(numbers)), self.problem.dtype(name)), *probe.records])

    def probed(self, name: str, parts: Sequence[Recorded]) -> npt.NDArray[Any]:
        """Return the rows of all cells of a probe, from those of each process."""
        rows = max(len(part) for _, part in parts)
        found = np.zeros((rows, self._probes[name].cells.count), self.problem.dtype(name))
        for numbers, part in parts:
            found[:, numbers] = part
        return found

    def of_stage(self, home: int, rows: int) -> tuple[Point, ...]:
        """Return the sources and probes of one target for a stage of so many single steps, sources first."""
        both: tuple[tuple[str, str, Mapping[str, _Source | _Probe]], ...]
        both = (ADD, "source", self._sources), (RECORD, "probe", self._probes)
        return tuple(
            Point(kernel, self._inside(name), f"{name}_{word}", f"{name}_{word}_at", len(one.cells.numbers[home]), rows)
            for kernel, word, points in both
            for name, one in points.items()
            if one.cells.numbers[home]
        )

    def tables(self, home: int, rows: int, step: int) -> Tables:
        """Return the tables of one target for so many steps that begin after `step`."""
        target, found = self.homes[home].target, Tables()
        for name, source in self._sources.items():
            places, numbers = source.cells.places[home], source.cells.numbers[home]
            if places is not None:
                found |= {
                    f"{name}_source": self._tables.of(target, source.rows(step, rows)[:, numbers], f"source {name}", home),
                    f"{name}_source_at": places,
                }
        for name, probe in self._probes.items():
            places, numbers = probe.cells.places[home], probe.cells.numbers[home]
            if places is not None:
                blank = np.zeros((rows, len(numbers)), self.problem.dtype(name))
                found |= {f"{name}_probe": self._tables.of(target, blank, f"probe {name}", home), f"{name}_probe_at": places}
        return found

    def take_probes(self, tables: Sequence[Tables], rows: int) -> None:
        """Store the values that a stage of so many steps has recorded on each target."""
        for name, probe in self._probes.items():
            parts = [one[f"{name}_probe"].numpy() for one in tables if f"{name}_probe" in one]
            probe.records.append(np.concatenate([np.empty((rows, 0), self.problem.dtype(name)), *parts], axis=1))

    def _inside(self, name: str) -> str:
        """Return the name inside a step of the field that is called `name` after it: the name that takes its place in the swap."""
        return next((cycle[cycle.index(name) - 1] for cycle in self.problem.swap if name in cycle), name)

    def _placed(self, count: int, found: Sequence[tuple[list[int], Cells]]) -> _Cells:
        places = [_on(home.target, places, "places") if len(places) else None for home, (_, places) in zip(self.homes, found, strict=True)]
        return _Cells(count, tuple(numbers for numbers, _ in found), tuple(places))

    def _checked(self, at: Any) -> Cells:
        """Validate cells of the grid and return a row of indices for each."""
        shape = self.problem.grid.shape
        cells = np.atleast_2d(np.asarray(at, np.int64))
        if cells.ndim != 2 or cells.shape[1] != len(shape) or (cells < 0).any() or (cells >= shape).any():
            raise StencilError(f"cells of a grid of shape {shape} have {len(shape)} indices inside it, not {at}")
        if len(np.unique(cells, axis=0)) < len(cells):
            raise StencilError(f"the cells {at} are not all different: add up what belongs to one cell")
        return cells


def _on(target: Target, values: npt.NDArray[Any], name: str) -> DeviceArray:
    return allocated(target, values.nbytes, name, partial(target.array, np.ascontiguousarray(values)))

"""Sources and probes: cells of a field to which something is added, or which are recorded, after each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import StencilError
from memlane.launch import DeviceArray
from memlane.stencils import Point, Stage
from memlane.stencils.geometry import stored_shape
from memlane.stencils.points import ADD, RECORD
from memlane.timeloop.engine import Engine


@dataclass(frozen=True, eq=False)
class _Source:
    places: DeviceArray
    table: npt.NDArray[Any]
    begun: int
    """The step after which the first row is added."""


@dataclass(frozen=True, eq=False)
class _Probe:
    places: DeviceArray
    records: list[npt.NDArray[Any]] = field(default_factory=list)


class Points:
    """The sources and probes of a run, one of each for a field."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._sources: dict[str, _Source] = {}
        self._probes: dict[str, _Probe] = {}

    @property
    def any(self) -> bool:
        return bool(self._sources or self._probes)

    def add_source(self, name: str, at: Any, values: Any, step: int) -> None:
        places = self._places(at)
        given = np.asarray(values, self.engine.problem.dtype(name))
        if given.size % places.size:
            raise StencilError(f"a source at {places.size} cells has a row of {places.size} values for each step, not {given.shape}")
        self._sources[name] = _Source(self.engine.table(places, "places"), given.reshape(-1, places.size), step)

    def add_probe(self, name: str, at: Any) -> None:
        self._probes[name] = _Probe(self.engine.table(self._places(at), "places"))

    def probed(self, name: str) -> npt.NDArray[Any]:
        if name not in self._probes:
            raise StencilError(f"field {name!r} has no probe: call add_probe({name!r}, at=...) first")
        probe = self._probes[name]
        return np.concatenate([np.empty((0, probe.places.size), self.engine.problem.dtype(name)), *probe.records])

    def of_stage(self, turns: int) -> tuple[Point, ...]:
        """Return what happens after each step of a stage of single steps: sources first."""
        sources = [self.engine.point(ADD, name, (f"{name}_source_at", one.places.size), f"{name}_source", turns)
                   for name, one in self._sources.items()]  # fmt: skip
        probes = [self.engine.point(RECORD, name, (f"{name}_probe_at", one.places.size), f"{name}_probe", turns)
                  for name, one in self._probes.items()]  # fmt: skip
        return (*sources, *probes)

    def tables(self, stage: Stage, step: int) -> dict[str, DeviceArray]:
        """Return the tables of a stage that begins after `step` steps."""
        found: dict[str, DeviceArray] = {}
        if not stage.points:
            return found
        for name, source in self._sources.items():
            rows = np.zeros((stage.turns, source.places.size), source.table.dtype)
            begin = step - source.begun
            given = source.table[begin : begin + stage.turns]
            rows[: len(given)] = given
            found |= {f"{name}_source": self.engine.table(rows, "source"), f"{name}_source_at": source.places}
        for name, probe in self._probes.items():
            rows = np.zeros((stage.turns, probe.places.size), self.engine.problem.dtype(name))
            found |= {f"{name}_probe": self.engine.table(rows, "probe"), f"{name}_probe_at": probe.places}
        return found

    def take_probes(self, tables: Mapping[str, DeviceArray]) -> None:
        """Keep what a stage has recorded."""
        for name, probe in self._probes.items():
            if f"{name}_probe" in tables:
                probe.records.append(tables[f"{name}_probe"].numpy())

    def _places(self, at: Any) -> npt.NDArray[np.int64]:
        """Return where cells lie in the memory of a field."""
        shape = self.engine.problem.grid.shape
        cells = np.atleast_2d(np.asarray(at, np.int64))
        if cells.ndim != 2 or cells.shape[1] != len(shape) or (cells < 0).any() or (cells >= shape).any():
            raise StencilError(f"cells of a grid of shape {shape} have {len(shape)} indices inside it, not {at}")
        if len(np.unique(cells, axis=0)) < len(cells):
            raise StencilError(f"the cells {at} are not all different: add up what belongs to one cell")
        return np.asarray(np.ravel_multi_index(tuple(cells.T), stored_shape(shape)), np.int64)

"""Measure the cycles of the accesses of one case, over many runs of one launch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memlane.chip import LANES, AccessKind, batch
from memlane.compile import cuda
from memlane.lab.shift.cases import SEARCHED, SIDE, Accesses, Drawn, accesses, drawn
from memlane.launch import DeviceArray, KernelCall, LoadedModule, Target

SOURCE = Path(__file__).with_name("access.cu")
_TABLES = {"": 0, "global": 1, "constant": 2, "shared": 3}
_ELEMENTS = {4: "unsigned", 8: "unsigned long long"}
_NORMAL = 1.96
"""Standard errors on either side of a mean that make its 95 % interval."""


@dataclass(frozen=True)
class Mean:
    """A mean over runs, and half the width of its 95 % interval."""

    value: float
    within: float

    @classmethod
    def of(cls, samples: npt.NDArray[np.float64]) -> Mean:
        spread = float(samples.std(ddof=1)) if len(samples) > 1 else 0.0
        return cls(float(samples.mean()), _NORMAL * spread / math.sqrt(len(samples)))

    def over(self, other: Mean) -> Mean:
        """Return the quotient; its interval comes by propagation of the two, which are independent."""
        ratio = self.value / other.value
        return Mean(ratio, abs(ratio) * math.hypot(self.within / self.value, other.within / other.value))


@dataclass(frozen=True)
class Cycles:
    """The cycles of the runs of one case."""

    warp: Mean
    """Cycles from the first clock read of a warp to its second, as a mean over the warps."""
    block: Mean | None
    """Cycles from the first clock read of any warp to the last of any; None with bare clock reads, which are 32 bits wide."""


@dataclass(frozen=True)
class Case:
    """A layout, and how it is accessed."""

    pattern: str
    layout: str
    width: int
    kind: str
    """`read` or `write`."""
    warps: int
    count: int
    """Accesses of each warp between its clock reads."""
    included: bool = False
    """Whether the address is computed between them too."""
    table: str = "shared"
    """Memory of the shifts, if they are looked up."""
    bare: bool = False
    """Whether the clock is read as in the published experiment."""


class Bench:
    """The kernels on a target, one module for each layout, width and number of accesses."""

    def __init__(self, target: Target, runs: int, draws: int) -> None:
        self.target, self.runs, self.draws = target, runs, draws
        self._modules: dict[tuple[object, ...], LoadedModule] = {}
        self._arrays: dict[tuple[object, ...], DeviceArray] = {}
        self._nothing = target.zeros(1, "i4")

    def layout(self, case: Case) -> Drawn:
        return drawn(case.layout, case.width, self.target.chip, self.draws)

    def places(self, case: Case) -> Accesses:
        return accesses(case.pattern, case.warps, case.count, self.draws)

    def cycles(self, case: Case) -> Cycles:
        """Launch the case once. Where time is real, a first run is discarded."""
        warm = 0 if self.target.modelled else 1
        times = self.target.empty((self.runs + warm, case.warps, 2), "i8")
        call, arguments = self.bound(case, times)
        call(*arguments)
        taken = times.numpy()[warm:]
        starts, ends = taken[..., 0], taken[..., 1]
        block = None if case.bare else Mean.of((ends.max(axis=1) - starts.min(axis=1)).astype(np.float64))
        return Cycles(Mean.of((ends - starts).mean(axis=1)), block)

    def bound(self, case: Case, times: DeviceArray) -> tuple[KernelCall, tuple[object, ...]]:
        """Return the kernel and its arguments; it makes as many runs as `times`, i64[runs, warps, 2], has room for."""
        layout, places = self.layout(case), self.places(case)
        key = (case.pattern, case.warps, case.count)
        if case.included:
            given = (self._nothing, self._array(("rows", *key), places.rows), self._array(("columns", *key), places.columns))
        else:
            own = ("offsets", *key, layout.name, case.width if layout.name == SEARCHED else 0)
            given = (self._array(own, places.offsets(layout)), self._nothing, self._nothing)
        tables = self._array(("tables", layout.name), layout.shifts) if self._table(case) else self._nothing
        kernel = self._module(case)[("bare_" if case.bare else "") + case.kind]
        return kernel[(1,), (case.warps * LANES,)], (*given, tables, places.draws, times.shape[0], times, 0)

    def wavefronts(self, case: Case) -> float:
        """Return the mean wavefronts of an access by the chip's rule."""
        offsets = self.places(case).offsets(self.layout(case)).reshape(-1, LANES)
        masks = np.full(len(offsets), 0xFFFFFFFF, np.uint32)
        kind: AccessKind = "load" if case.kind == "read" else "store"
        return float(batch.wavefronts(self.target.chip, (offsets * case.width).astype(np.uint64), masks, case.width, kind).mean())

    def _table(self, case: Case) -> str:
        """Return the memory where shifts are looked up, empty if they are not."""
        return case.table if case.included and len(self.layout(case).shifts) else ""

    def _array(self, key: tuple[object, ...], host: npt.NDArray[np.int32]) -> DeviceArray:
        if key not in self._arrays:
            self._arrays[key] = self.target.array(np.ascontiguousarray(host))
        return self._arrays[key]

    def _module(self, case: Case) -> LoadedModule:
        layout, table = self.layout(case), self._table(case)
        key = (layout.name if case.included else layout.room, case.width, case.count, case.included, table)
        if key not in self._modules:
            self._modules[key] = self._load(case, layout, table)
        return self._modules[key]

    def _load(self, case: Case, layout: Drawn, table: str) -> LoadedModule:
        define = {
            "ELEMENT": _ELEMENTS[case.width],
            "WIDTH": case.width,
            "ROWS": SIDE,
            "ROOM": layout.room,
            "COUNT": case.count,
            "INCLUDED": int(case.included),
            "TABLE": _TABLES[table],
            "TABLE_WORDS": max(1, layout.shifts.size),
        }
        macros = "".join(f"#define {name} {value}\n" for name, value in define.items())
        place = layout.first.cuda_source("place", tables="argument") if case.included else ""
        loaded = self.target.load(cuda(macros + place + SOURCE.read_text(encoding="utf-8"), name="access.cu"))
        if table == "constant":
            address, _ = self.target.symbol(loaded, "constant_table")
            self.target.write(address, np.ascontiguousarray(layout.shifts))
        return loaded

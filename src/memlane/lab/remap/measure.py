"""Time a case: its transfers without a remap, with one behind the copy and with an overlapped one, and its kernels on each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from memlane.errors import LaunchError
from memlane.lab.remap.cases import SPARSE, Call, Case, Memory, Way
from memlane.launch import DeviceArray, Target
from memlane.layout import ArrayLayout
from memlane.measure import count
from memlane.measure.prediction import predict_launch
from memlane.plan import PlanBuilder, Timeline, View
from memlane.targets import BoundPlan
from memlane.transfer import LaidOutArray, Transfer, gather, upload

CHUNKS = (1, 2, 4, 8, 16, 32, 64)
MOST_PREDICTED = 24
"""Largest number of launches of a way that are predicted."""
BEHIND, OVERLAPPED = "behind the copy", "overlapped"


@dataclass
class Outcome:
    """The times of a case, in ns, and its counts."""

    case: Case
    transfer: float = 0.0
    """Upload of all arrays unchanged."""
    remapped: dict[str, float] = field(default_factory=dict)
    """Upload with one array remapped, by `BEHIND` and `OVERLAPPED`."""
    predicted: float | None = None
    """Predicted time of the overlapped upload of the remapped array; `alone` is its measured time."""
    alone: float = 0.0
    chosen: int = 0
    """Number of chunks that `auto` chose."""
    kernels: dict[str, float] = field(default_factory=dict)
    """Time of one run by way: `without`, `with`, `by hand`."""
    preparation: float = 0.0
    """Time of the preparation of the way by hand, once per upload."""
    sectors: dict[str, int] = field(default_factory=dict)
    sweep: dict[tuple[int, bool], float] = field(default_factory=dict)
    """Times by number of chunks and overlap."""
    timelines: dict[str, Timeline] = field(default_factory=dict)
    """Timelines of the remapping upload with 16 chunks, by `BEHIND` and `OVERLAPPED`."""
    model: dict[str, float] = field(default_factory=dict)
    """Times like `kernels`, predicted by the model of kernels for the chip of an emulator; empty where time is measured."""
    works: dict[int, float] = field(default_factory=dict)
    """Times of the kernel on the remapped array, by the amount of work per thread."""


class Bench:
    def __init__(self, target: Target, rounds: int) -> None:
        self.target, self.rounds = target, rounds

    def outcome(self, case: Case, sweep: Sequence[int]) -> Outcome:
        found = Outcome(case)
        plain = self._uploaded(case)
        found.transfer = sum(self._took(array.transfer) for array in plain.values())
        moved = [name for name in case.host if name == case.remapped or (case.layout == "gather" and name == "columns")]
        others = sum(self._took(array.transfer) for name, array in plain.items() if name not in moved)
        memory: Memory = {name: self.target.zeros(*kind) for name, kind in case.made.items()}
        found.kernels["without"], _ = self._run(case, case.without, {**plain, **memory}, remapped=False)
        found.sectors["without"] = self._sectors(case.without, {**plain, **memory})
        if self.target.modelled:
            found.model["without"] = self._predicted(case.without, {**plain, **memory})
        if case.by_hand is not None:
            found.kernels["by hand"], found.preparation = self._run(case, case.by_hand, {**plain, **memory}, remapped=False)
        behind = self._laid_out(case, chunks=1, overlap=False)
        found.remapped[BEHIND] = others + self._took(behind.transfer)
        array = self._laid_out(case)
        found.alone = self._took(array.transfer)
        found.remapped[OVERLAPPED] = others + found.alone
        assert array.transfer is not None
        found.chosen = array.transfer.chunks
        found.predicted = None if array.transfer.predicted is None else array.transfer.predicted.elapsed_ns
        there = {**plain, **memory, case.remapped: array}
        found.kernels["with"], _ = self._run(case, case.with_remap, there, remapped=True)
        found.sectors["with"] = self._sectors(case.with_remap, there)
        if self.target.modelled:
            found.model["with"] = self._predicted(case.with_remap, there)
        for work, way in case.works.items() if sweep else ():
            found.works[work], _ = self._run(case, way, there, remapped=True)
        for chunks in sweep:
            for overlap in (True, False):
                one = self._laid_out(case, chunks=chunks, overlap=overlap)
                found.sweep[chunks, overlap] = others + self._took(one.transfer)
        if sweep and case.layout != "gather":
            for name, overlap in ((BEHIND, False), (OVERLAPPED, True)):
                one = self._laid_out(case, chunks=min(16, max(sweep)), overlap=overlap)
                assert one.transfer is not None
                found.timelines[name] = one.transfer.time()
        return found

    def _uploaded(self, case: Case) -> dict[str, LaidOutArray]:
        return {name: upload(self.target, self._pinned(host), chunks=1) for name, host in case.host.items()}

    def _pinned(self, host: np.ndarray) -> np.ndarray:
        pinned = self.target.pinned(host.shape, host.dtype)
        pinned[...] = host
        return pinned

    def _laid_out(self, case: Case, chunks: int | None = None, overlap: bool = True) -> LaidOutArray:
        host = self._pinned(case.host[case.remapped])
        if case.layout == "gather":
            columns = self._pinned(case.host["columns"])
            return gather(self.target, host, columns, chunks=chunks or "auto", overlap=overlap)
        return upload(self.target, host, layout=case.layout, chunks=chunks or "auto", overlap=overlap)

    def _took(self, transfer: Transfer | None) -> float:
        assert transfer is not None
        times = [transfer.time().elapsed_ns for _ in range(self.rounds)]
        return statistics.median(times)

    def _run(self, case: Case, way: Way, memory: Memory, remapped: bool) -> tuple[float, float]:
        """Run a way and return the times of its kernels and of its preparation. Raises LaunchError if NumPy's results differ."""
        preparation = self._elapsed(way, way.preparation, memory) if way.preparation else 0.0
        elapsed = self._elapsed(way, way.calls, memory)
        for name, expected in case.results.items():
            found = memory[name].numpy()
            layout = case.result_layouts.get(name) if remapped else None
            if layout is not None:
                found = _row_major(found, layout)
            if not np.allclose(found, expected, rtol=case.tolerance, atol=case.tolerance):
                raise LaunchError(f"{case.name} of {case.size}: {name} differs from what NumPy gives")
        return elapsed, preparation

    def _elapsed(self, way: Way, calls: Sequence[Call], memory: Memory) -> float:
        """Return the time of some launches, one after another."""
        module = self.target.load(way.module)
        b = PlanBuilder()
        views = {name: b.array(name, array.shape, array.dtype) for name, array in memory.items()}
        for call in calls:
            arguments = [views[one] if isinstance(one, str) else one for one in call.arguments]
            b.launch(module[call.kernel].ref, call.grid, call.block, *arguments)
        used = {view.buffer.name for step in b.plan().steps for view in _views(step)}
        bindings: dict[str, DeviceArray] = {name: memory[name] for name in used}
        bound = BoundPlan(b.plan(), bindings, targets=[self.target], modules=[module])
        if self.target.modelled:
            return bound.time().elapsed_ns
        graph = bound.graph()
        graph.replay()
        graph.wait()
        times = [self.target.elapsed_ns(graph.replay) for _ in range(self.rounds)]
        return statistics.median(times)

    def _predicted(self, way: Way, memory: Memory) -> float:
        """Predict the time of a way's launches, one after another; many launches are represented by some that are spread evenly."""
        module = self.target.load(way.module)
        some = way.calls[:: -(-len(way.calls) // MOST_PREDICTED)]
        launches = [module[one.kernel][one.grid, one.block].bind(*_arguments(one, memory)) for one in some]
        return 1e3 * statistics.fmean(predict_launch(one).us for one in launches) * len(way.calls)

    def _sectors(self, way: Way, memory: Memory) -> int:
        """Return the sectors of the middle launch, which is as wide as any."""
        call = way.calls[len(way.calls) // 2]
        kernel = self.target.load(way.module)[call.kernel]
        return count(kernel[call.grid, call.block], *_arguments(call, memory)).total().sectors


def _arguments(call: Call, memory: Memory) -> list[object]:
    return [memory[one] if isinstance(one, str) else one for one in call.arguments]


def _row_major(found: np.ndarray, layout: ArrayLayout) -> np.ndarray:
    """Return an array of a layout in row-major order, some rows at a time, because their places are numbers of 8 bytes."""
    flat, rows = found.ravel(), 1 << 8
    pieces = [np.arange(first, min(first + rows, layout.shape[0]))[:, None] for first in range(0, layout.shape[0], rows)]
    return np.concatenate([flat[layout(piece, np.arange(layout.shape[1])[None, :])] for piece in pieces])


def _views(step: object) -> list[View]:
    return [one for one in step.action.arguments if isinstance(one, View)]  # type: ignore[attr-defined]


def runs_for(case: Case, outcome: Outcome) -> int:
    """Return the number of kernel runs per upload for which kernel time relates to transfer time as in the paper's figures."""
    ratio = {"k-means": 0.66, "Needleman-Wunsch": 1.6, SPARSE: 0.38}.get(case.name.partition(" of ")[0], 0.66)
    return max(1, round(ratio * outcome.transfer / outcome.kernels["without"]))

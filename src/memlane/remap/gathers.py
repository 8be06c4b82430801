"""Plan a gather during an upload: the rows first, then the indices in chunks, each gathered while the next one is copied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from memlane.chip import Chip
from memlane.plan import Launch, PlanBuilder, StepRef, Timeline, View
from memlane.ptx import Module
from memlane.remap.kernels import gather_of
from memlane.remap.requests import CHUNK_COUNTS, COPIES, DEFAULT_CHUNKS, KERNELS, RING, TransferPlan
from memlane.remap.staging import COPY
from memlane.remap.transfers import prediction

SECTOR_BYTES = 32
"""Minimum bytes read per row."""
WRONG = "first wrong position"
"""Name of the host buffer with the position of the first index out of range, or the number of positions if there is none."""
CLEAN = "no wrong position"
"""Name of the host buffer with the number of positions, the initial value of the device's report."""


@dataclass(frozen=True)
class Rows:
    """One input of a gather, the rows or the indices, on the host or on the device."""

    count: int
    nbytes: int
    """Bytes of each row, or index."""
    home: str | int
    """Location: `host`, `pinned`, or a device number if it is already there."""


def gather_plan(rows: Rows, indices: Rows, chunks: int, *, overlap: bool = True, threads: int = 1) -> TransferPlan:
    """Return a plan that puts row `indices[k]` at position k of the buffer `array`. Its inputs are the buffers `rows` and `indices`."""
    return _GatherWriter(rows, indices, chunks, overlap, threads).write()


def gather_prediction(made: TransferPlan, rows: Rows, chip: Chip, host_gb_per_s: float) -> Timeline | None:
    """Return when each step of a gather runs on a chip; None if the chip file lacks a required number."""

    def moved_bytes(launch: Launch) -> int:
        assert launch.reads is not None
        assert launch.writes is not None
        indices, out = launch.reads[1], launch.writes[0]
        return indices.nbytes + out.nbytes + indices.size * max(SECTOR_BYTES, rows.nbytes)

    return prediction(made, chip, host_gb_per_s, moved_bytes=moved_bytes)


@lru_cache(maxsize=64)
def best_gather_chunks(rows: Rows, indices: Rows, chip: Chip, host_gb_per_s: float, *, overlap: bool, threads: int) -> int:
    """Return the number of chunks with the shortest predicted time; 16, the paper's choice, if nothing can be predicted."""
    times: dict[int, float] = {}
    for chunks in CHUNK_COUNTS:
        made = gather_plan(rows, indices, chunks, overlap=overlap, threads=threads)
        if made.chunks in times:
            continue
        timeline = gather_prediction(made, rows, chip, host_gb_per_s)
        if timeline is None:
            return DEFAULT_CHUNKS
        times[made.chunks] = timeline.elapsed_ns
    return min(times, key=lambda chunks: (times[chunks], chunks))


class _GatherWriter:
    def __init__(self, rows: Rows, indices: Rows, chunks: int, overlap: bool, threads: int) -> None:
        self.rows, self.indices, self.overlap, self.threads = rows, indices, overlap, threads
        self.b = b = PlanBuilder()
        self.out = b.array("array", (indices.count, rows.nbytes), "u1")
        self.modules: dict[str, Module] = {}
        per = -(-indices.count // chunks)
        per = min(indices.count, -(-per // 1024) * 1024)
        self.borders = (*range(0, indices.count, per), indices.count)
        self.staged: list[str] = []
        self.copies: list[StepRef] = []
        self.order: list[StepRef] = []

    def write(self) -> TransferPlan:
        b = self.b
        clean, wrong, report = b.array(CLEAN, 1, "u8", "pinned"), b.array("wrong", 1, "u8"), b.array(WRONG, 1, "u8", "pinned")
        cleared = b.copy(wrong, clean, queue=COPIES, label="clear the report")
        rows, kind = self._rows(), f"i{self.indices.nbytes}"
        given = b.array("indices", self.indices.count, kind, self.indices.home)  # type: ignore[arg-type]
        on_device = given if isinstance(self.indices.home, int) else None
        largest = max(end - first for first, end in pairwise(self.borders))
        ring = [] if on_device else [b.array(f"chunk {slot}", largest, kind) for slot in range(min(RING, len(self.borders) - 1))]
        pinned = self._ring("pinned", largest * self.indices.nbytes, len(ring)) if self.indices.home == "host" else []
        done: list[StepRef] = []
        arrived: list[StepRef] = []
        for number, (first, end) in enumerate(pairwise(self.borders)):
            part, waits = given[first:end], self._waits()
            if ring:
                slot, again = number % len(ring), number - len(ring)
                source = part
                if pinned:
                    source = pinned[slot].buffer.view(kind, end - first)
                    waits = [self._call(source, part, [*waits, *(arrived[again : again + 1] if again >= 0 else [])], f"stage {number}")]
                chunk = ring[slot][: end - first]
                arrived.append(self._copy(chunk, source, [*waits, *(done[again : again + 1] if again >= 0 else [])], f"upload {number}"))
                part, waits = chunk, [arrived[-1]]
            done.append(self._gather(rows, part, wrong, first, [cleared, *waits, *self.copies]))
        b.copy(report, wrong, queue=COPIES, after=done, label="report")
        return TransferPlan(b.plan(), tuple(self.modules.values()), 0, self.borders, tuple(self.staged), tuple(self.modules))

    def _rows(self) -> View:
        """Return the rows on the device, adding copies if they are not there yet."""
        shape, home = (self.rows.count, self.rows.nbytes), self.rows.home
        given = self.b.array("rows", shape, "u1", home)  # type: ignore[arg-type]
        if isinstance(home, int):
            return given
        on_device = self.b.array("rows on the device", shape, "u1")
        pieces = min(self.rows.count, max(1, -(-given.nbytes // (1 << 25))))
        ends = [self.rows.count * piece // pieces for piece in range(pieces + 1)]
        largest = max(end - first for first, end in pairwise(ends))
        pinned = self._ring("pinned rows", largest * self.rows.nbytes, min(RING, pieces)) if home == "host" else []
        for number, (first, end) in enumerate(pairwise(ends)):
            source, waits = given[first:end], self._waits()
            if pinned:
                again = number - len(pinned)
                staged = pinned[number % len(pinned)].buffer.view("u1", source.shape)
                waits = [
                    self._call(staged, source, [*waits, *(self.copies[again : again + 1] if again >= 0 else [])], f"stage rows {number}")
                ]
                source = staged
            self.copies.append(self._copy(on_device[first:end], source, waits, f"upload rows {number}"))
        return on_device

    def _ring(self, name: str, nbytes: int, slots: int) -> list[View]:
        found = [self.b.array(f"{name} {slot}", nbytes, "u1", "pinned") for slot in range(slots)]
        self.staged += [view.buffer.name for view in found]
        return found

    def _gather(self, rows: View, indices: View, wrong: View, first: int, waits: list[StepRef]) -> StepRef:
        out = self.out[first : first + indices.size]
        remap = gather_of(out, rows, indices, wrong, first, self.rows.count, self.rows.nbytes)
        self.modules[remap.launch.kernel.module] = remap.module
        return self._record_step(self.b.add(remap.launch, device=0, queue=KERNELS, after=waits, label=f"gather {first}"))

    def _copy(self, to: View, of: View, waits: list[StepRef], label: str) -> StepRef:
        return self._record_step(self.b.copy(to, of, queue=COPIES, after=waits, label=label))

    def _call(self, to: View, of: View, waits: list[StepRef], label: str) -> StepRef:
        return self._record_step(self.b.call(COPY, to, of, self.threads, after=waits, reads=[of], writes=[to], label=label))

    def _waits(self) -> list[StepRef]:
        return [] if self.overlap else self.order[-1:]

    def _record_step(self, step: StepRef) -> StepRef:
        self.order.append(step)
        return step

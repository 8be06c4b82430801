"""The device memory that the probes of one module write into."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlane.instrument import (
    HEADER_BYTES,
    NO_ENTRY,
    POINTER,
    RECORD_DTYPE,
    WINDOW,
    BufferLayout,
    Decoded,
    buffer_layout,
    decode,
    entry,
    initial_header,
    taken_slices,
)
from memlane.launch import Launch
from memlane.measure.plan import LaunchPlan
from memlane.measure.probed import ProbedModule
from memlane.measure.readout import filled_part, header_of, slices_asked

DEVICE_SHARE = 16
"""A buffer for a kernel with loops takes at most this part (a 16th) of the memory of the chip ..."""
EMULATOR_BYTES = 1 << 30
"""... and on the emulator at most this much, for it is the host's."""
SPARE_BYTES = {True: 1 << 24, False: 1 << 28}
"""A buffer has at least this much on the emulator and on a GPU, so that launches overlap and graphs start again in it: it is emptied, and
with that the device waited for, only when it is full."""
LEADERS_PER_SITE = 4
"""Without loops lane 0 records each site once at most; other lanes lead only when a warp diverges, into as many parts at a site as this."""
PLACES_PER_RECORD = 2
"""Other lanes take places by the chunk, of which up to every second one stays empty."""
RECORDS_IN_LOOPS = (64, 1 << 15)
"""The least and the most records of a warp whose sites lie in loops."""
_RECORD_BYTES = RECORD_DTYPE.itemsize


@dataclass
class _Buffer:
    address: int
    owner: object
    layout: BufferLayout
    reserved: int = 0
    """Warps of the launches sent out since it was empty that ask for their slices."""
    assigned: int = 0
    """Slices that were given to launches since it was empty."""

    def fits(self, need: _Need) -> bool:
        """Whether a launch more finds slices that hold its records."""
        layout = self.layout
        return (
            self.reserved + need.asking <= layout.slices
            and self.assigned + need.assigned <= layout.assigned
            and need.capacity <= layout.capacity
            and need.overflow <= layout.overflow
        )


@dataclass(frozen=True)
class _Need:
    """What a launch needs of a buffer."""

    asking: int
    """Warps that ask for their slices."""
    assigned: int
    """Slices that are its own."""
    capacity: int
    overflow: int


@dataclass(frozen=True)
class Room:
    """What a launch finds in the trace buffer."""

    records: int
    """How many records all its warps may make, traced or not."""
    first: int
    """The first of the slices that are its own; 0 where its warps ask for theirs."""


class Arena:
    """One trace buffer after another: `make_room` before a launch, `collect` when all is done."""

    def __init__(self, probed: ProbedModule, records_per_warp: int | None) -> None:
        self._probed = probed
        self._target = probed.loaded.target
        self._records_per_warp = records_per_warp
        self._buffer: _Buffer | None = None
        self._asks = self._assigns = False
        """Whether there were launches whose warps ask for their slices, and such as have their own."""
        self._collected: list[Decoded] = []
        if probed.sampling.windows:
            probed.twin.set_words(WINDOW, probed.sampling.words())

    def plan(self, launch: Launch) -> LaunchPlan:
        """What of `launch` is traced, and with how much room. Raises BadLaunch for a launch that is too large for its sample."""
        sampling, chosen = self._probed.sampling, self._probed.chosen(launch)
        capacity, overflow, limited = self._records(launch, max(1, chosen.warps))
        return LaunchPlan(
            kernel=launch.kernel.title,
            blocks=launch.blocks,
            warps_per_block=launch.warps_per_block,
            chosen=chosen.warps,
            sample=sampling.sample(chosen),
            records_per_warp=capacity,
            others_per_warp=overflow,
            limited=limited,
        )

    def make_room(self, launch: Launch, plan: LaunchPlan | None = None) -> Room:
        """See that the warps of `launch` find slices that are large enough, and say which they are.

        If the present buffer has too few left, what it holds is taken out first, which waits for the launches before.
        """
        plan = plan or self.plan(launch)
        assigned = self._probed.assignable(launch) if plan.chosen else 0
        need = _Need(0 if assigned else plan.chosen, assigned, plan.records_per_warp, plan.others_per_warp)
        if self._buffer is None or not self._buffer.fits(need):
            self._buffer = self._renewed(need)
        buffer, layout = self._buffer, self._buffer.layout
        first = 1 + layout.slices + buffer.assigned if assigned else 0
        buffer.reserved += need.asking
        buffer.assigned += assigned
        each = layout.capacity + layout.overflow
        return Room(max(plan.chosen * each, min(plan.warps * each, self._budget // _RECORD_BYTES)), first)

    def _renewed(self, need: _Need) -> _Buffer:
        """An empty buffer with room for a launch, and for what may still come of those before."""
        previous = self._buffer
        self._asks, self._assigns = self._asks or need.asking > 0, self._assigns or need.assigned > 0
        pending = self._drain()
        layout = buffer_layout(max(1, pending + need.asking), need.capacity, need.overflow, need.assigned)
        if previous is not None and pending:
            layout = self._as_promised(layout, previous.layout)
        buffer = self._allocate(layout)
        buffer.reserved = pending
        return buffer

    @property
    def _budget(self) -> int:
        """Bytes that a buffer may have for the sake of loops."""
        return EMULATOR_BYTES if self._target.modelled else self._target.chip.dram_bytes // DEVICE_SHARE

    def _as_promised(self, layout: BufferLayout, previous: BufferLayout) -> BufferLayout:
        """The layout with slices as large as those that launches still to come found when they were sent out, if memory allows."""
        larger = replace(layout, capacity=max(layout.capacity, previous.capacity), overflow=max(layout.overflow, previous.overflow))
        return larger if larger.nbytes <= self._budget else layout

    def _records(self, launch: Launch, warps: int) -> tuple[int, int, bool]:
        """Records of a warp led by lane 0 and by other lanes, and whether lane 0 may make more than these."""
        sites, window = self._probed.sites_of(launch.kernel.name), self._probed.sampling.executions
        loops = self._probed.loops(launch.kernel.name)
        longest = 1 if not loops else None if window is None else window[1] - window[0]
        if self._records_per_warp is not None:
            given = self._records_per_warp
            return given, PLACES_PER_RECORD * given, longest is None or given < longest * sites
        fit = self._budget // (warps * _RECORD_BYTES)
        of_others = PLACES_PER_RECORD * LEADERS_PER_SITE
        if longest is not None and (not loops or longest * sites * (1 + of_others) <= fit):
            return longest * sites, of_others * longest * sites, False
        least, most = RECORDS_IN_LOOPS
        records = min(most, max(least, fit))
        return records - records // 4, records // 4, True

    def _allocate(self, least: BufferLayout) -> _Buffer:
        spare = SPARE_BYTES[self._target.modelled] // least.slice_bytes // max(1, self._asks + self._assigns)
        slices = max(least.slices, spare) if self._asks else least.slices
        layout = replace(least, slices=slices, assigned=max(least.assigned, spare) if self._assigns else 0)
        address, owner = self._target.allocate_cleared(layout.nbytes)
        self._target.write(address, initial_header(layout))
        self._probed.twin.set_words(POINTER, entry(address, layout))
        return _Buffer(address, owner, layout)

    def _drain(self) -> int:
        """Take out what the present buffer holds; the warps that were sent out and have not come yet (those of graphs not started)."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            return 0
        header, numbered = header_of(self._target, buffer.address), self._probed.sampling.executions is not None
        self._collected.append(decode(filled_part(self._target, buffer.address, buffer.layout, header, buffer.assigned), numbered))
        return max(0, buffer.reserved - slices_asked(header))

    def discard(self) -> None:
        """Empty the present buffer and forget what it held, after everything launched has finished.

        Only as far as it was filled: to clear all of it would turn everything else out of the L2 cache, the code of the kernels too.
        """
        if self._buffer is not None:
            address, layout = self._buffer.address, self._buffer.layout
            last = int(taken_slices(header_of(self._target, address)).max(initial=0))
            self._target.clear(address, HEADER_BYTES + (1 + last) * layout.slice_bytes)
            if assigned := self._buffer.assigned:
                self._target.clear(address + HEADER_BYTES + (1 + layout.slices) * layout.slice_bytes, assigned * layout.slice_bytes)
            self._target.write(address, initial_header(layout))

    def close(self) -> None:
        """Record nothing from now on, and forget what was recorded since the last `collect`."""
        self._probed.twin.set_words(POINTER, NO_ENTRY)
        self._buffer = None

    def collect(self) -> list[Decoded]:
        """All that was recorded, after everything launched has finished. Whatever runs later (a graph may) records nothing."""
        self._probed.twin.set_words(POINTER, NO_ENTRY)
        self._drain()
        return self._collected

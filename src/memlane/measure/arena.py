"""Manage the device memory that the probes of one module write into."""

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
from memlane.measure.instrumented_module import InstrumentedModule
from memlane.measure.plan import LaunchPlan
from memlane.measure.readout import filled_part, header_of, slices_asked

DEVICE_SHARE = 16
"""Inverse of the share of the chip's memory that a buffer for a kernel with loops may take."""
EMULATOR_BYTES = 1 << 30
"""Maximum bytes of such a buffer on the emulator, which uses the host's memory."""
SPARE_BYTES = {True: 1 << 24, False: 1 << 28}
"""Minimum bytes of a buffer, on the emulator (True) and on a GPU (False), so that launches overlap and graphs restart within one buffer: it
is emptied only when full, which waits for the device."""
LEADERS_PER_SITE = 4
"""Leaders per site assumed for overflow records: without loops lane 0 records each site at most once; other lanes lead only in a diverged
warp."""
PLACES_PER_RECORD = 2
"""Places reserved per overflow record: other lanes take them in chunks, of which up to half stay empty."""
RECORDS_IN_LOOPS = (64, 1 << 15)
"""Minimum and maximum records per warp for kernels with sites in loops."""
_RECORD_BYTES = RECORD_DTYPE.itemsize


@dataclass
class _Buffer:
    """A trace buffer on the target and how much of it is reserved."""

    address: int
    owner: object
    layout: BufferLayout
    reserved: int = 0
    """Warps that take slices from the counters, over the launches issued since the buffer was empty."""
    assigned: int = 0
    """Slices assigned to launches since the buffer was empty."""

    def fits(self, need: _Need) -> bool:
        """Return whether another launch gets slices that hold its records."""
        layout = self.layout
        return (
            self.reserved + need.taking <= layout.slices
            and self.assigned + need.assigned <= layout.assigned
            and need.capacity <= layout.capacity
            and need.overflow <= layout.overflow
        )


@dataclass(frozen=True)
class _Need:
    """Demand of a launch on a buffer."""

    taking: int
    """Warps that take slices from the counters."""
    assigned: int
    """Slices to assign to the launch."""
    capacity: int
    overflow: int


@dataclass(frozen=True)
class Room:
    """Capacity that a launch gets in the trace buffer."""

    records: int
    """Upper bound of the records that all its warps may make, traced or not."""
    first: int
    """First of the slices assigned to the launch; 0 if its warps take slices from the counters."""


class Arena:
    """Manages one trace buffer after another: `make_room` before a launch, `collect` when all have finished."""

    def __init__(self, probed: InstrumentedModule, records_per_warp: int | None) -> None:
        self._probed = probed
        self._target = probed.loaded.target
        self._records_per_warp = records_per_warp
        self._buffer: _Buffer | None = None
        self._any_taking = self._any_assigned = False
        """Whether any launch had warps that take slices from the counters, and whether any had assigned slices."""
        self._collected: list[Decoded] = []
        if probed.sampling.windows:
            probed.twin.set_words(WINDOW, probed.sampling.words())

    def plan(self, launch: Launch) -> LaunchPlan:
        """Return which part of `launch` is traced and its capacity in the buffer. Raises BadLaunch for a launch that is too large for its
        sample."""
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
        """Reserve slices that are large enough for `launch` and return them.

        If the present buffer has too few left, its contents are read out first, which waits for the previous launches.
        """
        plan = plan or self.plan(launch)
        assigned = self._probed.assignable(launch) if plan.chosen else 0
        need = _Need(0 if assigned else plan.chosen, assigned, plan.records_per_warp, plan.others_per_warp)
        if self._buffer is None or not self._buffer.fits(need):
            self._buffer = self._next_buffer(need)
        buffer, layout = self._buffer, self._buffer.layout
        first = 1 + layout.slices + buffer.assigned if assigned else 0
        buffer.reserved += need.taking
        buffer.assigned += assigned
        each = layout.capacity + layout.overflow
        return Room(max(plan.chosen * each, min(plan.warps * each, self._budget // _RECORD_BYTES)), first)

    def _next_buffer(self, need: _Need) -> _Buffer:
        """Return an empty buffer with room for a launch and for pending runs of earlier ones."""
        previous = self._buffer
        self._any_taking, self._any_assigned = self._any_taking or need.taking > 0, self._any_assigned or need.assigned > 0
        pending = self._drain()
        layout = buffer_layout(max(1, pending + need.taking), need.capacity, need.overflow, need.assigned)
        if previous is not None and pending:
            layout = self._at_least_as_large(layout, previous.layout)
        buffer = self._allocate(layout)
        buffer.reserved = pending
        return buffer

    @property
    def _budget(self) -> int:
        """Maximum bytes of a buffer for kernels with loops."""
        return EMULATOR_BYTES if self._target.modelled else self._target.chip.dram_bytes // DEVICE_SHARE

    def _at_least_as_large(self, layout: BufferLayout, previous: BufferLayout) -> BufferLayout:
        """Return the layout with slices at least as large as those that pending launches were issued with, if memory allows."""
        larger = replace(layout, capacity=max(layout.capacity, previous.capacity), overflow=max(layout.overflow, previous.overflow))
        return larger if larger.nbytes <= self._budget else layout

    def _records(self, launch: Launch, warps: int) -> tuple[int, int, bool]:
        """Return the records per warp led by lane 0 and by other lanes, and whether lane 0 may make more than these."""
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
        """Allocate a cleared buffer with at least this layout and direct the probes to it."""
        spare = SPARE_BYTES[self._target.modelled] // least.slice_bytes // max(1, self._any_taking + self._any_assigned)
        slices = max(least.slices, spare) if self._any_taking else least.slices
        layout = replace(least, slices=slices, assigned=max(least.assigned, spare) if self._any_assigned else 0)
        address, owner = self._target.allocate_cleared(layout.nbytes)
        self._target.write(address, initial_header(layout))
        self._probed.twin.set_words(POINTER, entry(address, layout))
        return _Buffer(address, owner, layout)

    def _drain(self) -> int:
        """Read out the present buffer; return the number of warps that were issued but have not started (those of graphs not launched)."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            return 0
        header, numbered = header_of(self._target, buffer.address), self._probed.sampling.executions is not None
        self._collected.append(decode(filled_part(self._target, buffer.address, buffer.layout, header, buffer.assigned), numbered))
        return max(0, buffer.reserved - slices_asked(header))

    def discard(self) -> None:
        """Empty the present buffer and drop its contents, after all launches have finished.

        Only the filled part is cleared: clearing all of it would evict everything else from the L2 cache, including the code of the
        kernels.
        """
        if self._buffer is not None:
            address, layout = self._buffer.address, self._buffer.layout
            last = int(taken_slices(header_of(self._target, address)).max(initial=0))
            self._target.clear(address, HEADER_BYTES + (1 + last) * layout.slice_bytes)
            if assigned := self._buffer.assigned:
                self._target.clear(address + HEADER_BYTES + (1 + layout.slices) * layout.slice_bytes, assigned * layout.slice_bytes)
            self._target.write(address, initial_header(layout))

    def close(self) -> None:
        """Stop recording, and drop what was recorded since the last `collect`."""
        self._probed.twin.set_words(POINTER, NO_ENTRY)
        self._buffer = None

    def collect(self) -> list[Decoded]:
        """Return all records, after all launches have finished. Later runs (of a graph) record nothing."""
        self._probed.twin.set_words(POINTER, NO_ENTRY)
        self._drain()
        return self._collected

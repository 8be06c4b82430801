"""Run variants of a launch in its place, and compare their wavefronts, times and output."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memlane.chip.occupancy import resident_blocks
from memlane.compile import assemble, assembler_version, kernel_usage
from memlane.emulate.code.store import Entry, Sources, digest, keep, present_store
from memlane.errors import CompileError, MissingDependency
from memlane.instrument import site_table
from memlane.launch import Kernel, Launch, Launcher, Layers, Observation, apply_observers, observing
from memlane.layout import Layout
from memlane.measure import Counter
from memlane.measure.counter import counts_of
from memlane.measure.memory import Snapshot
from memlane.measure.observed_counts import site_counts
from memlane.optimize.candidates import LanePattern
from memlane.optimize.lane_addresses import Examples, examples
from memlane.ptx import inline_calls, print_module
from memlane.record import Counts, SiteCounts
from memlane.rewrite import ArrayAccess, SharedArray, cached_accesses_to_shared, shared_arrays
from memlane.rewrite.arrays import static_bytes

ROUNDS = 15
"""Rounds in which original and candidates run in turn on a GPU."""
LAUNCHES = 3
"""Launches of each variant per round; the shortest counts."""

_ASSEMBLING = Sources("compile", "ptx", "errors.py", "source.py", "titles.py", "walks.py")
"""Parts of memlane's code that determine the registers of a kernel."""


@dataclass(frozen=True)
class Needs:
    """Resources of a kernel on a multiprocessor."""

    registers: int | None
    """Registers per thread in the assembled code; None if no assembler is installed."""
    shared_bytes: int
    blocks: int | None
    """Blocks that fit on one multiprocessor."""


@dataclass(frozen=True)
class Measured:
    """One layout with its measurements."""

    layout: Layout | None
    """The layout; None for the original array."""
    wavefronts: int
    """Wavefronts of all accesses to the array."""
    ideal_wavefronts: int
    time_ns: float
    """Median over the rounds in ns; modelled on the emulator."""
    speedup: float
    """Speedup over the original, the median over the rounds."""
    same: bool
    """Whether it produced the same output as the original."""
    needs: Needs
    limited_by: str = ""
    """Limiter of the modelled time: a floor of the launch, or `latency`. Empty if the time was measured."""
    layout_alone: float | None = None
    """Estimated speedup of a padding without the cost of rewriting, from a padding by all banks, which changes only the code. None if that
    was not tried."""
    in_source: bool = False
    """Whether the source was compiled with this padding. Otherwise the compiled kernel was rewritten, which adds instructions to each
    access that the source would not have."""


@dataclass(frozen=True)
class _Timed:
    """Observation of a launch while its time was modelled."""

    seen: Observation
    same: bool
    """Whether it left the same bytes in memory as the original did when counted."""


class Trials:
    """Runner of a launch and its variants, each with the original memory contents."""

    def __init__(self, launch: Launch, before: Snapshot) -> None:
        self.launch, self._before = launch, before
        self._target: Launcher = launch.kernel.target
        self._examples: Examples | None = None
        self._has_looked = False
        self.limited_by: dict[Kernel, str] = {}
        """Limiters of the modelled times, by kernel."""
        self._timed: dict[Kernel, _Timed] = {}
        self.counts = self._count(launch)
        self._left = Snapshot(launch)

    # -- what is seen ------------------------------------------------------------------------------------------------------------

    def _count(self, launch: Launch) -> Counts:
        """Return the counts of a launch, whose effects stay until the next one."""
        self._before.restore()
        counter = Counter()
        with observing(counter):
            self._target.launch(apply_observers(launch))
        return counter.finish()[0]

    def accesses(self, kernel: Kernel, array: SharedArray) -> tuple[ArrayAccess, ...]:
        arrays = shared_arrays(kernel.module, kernel.function)
        found = cached_accesses_to_shared(kernel.module, kernel.function, arrays).accesses
        return tuple(one for one in found if one.pointer.array.same_memory(array))

    def _indices_after_inlining(self, kernel: Kernel, array: SharedArray) -> set[int]:
        """Return the indices of the accesses in counts and examples, which refer to the kernel with its functions inlined."""
        own, origins = {one.index for one in self.accesses(kernel, array)}, inline_calls(kernel.module).origins.get(kernel.name)
        if origins is None:
            return own
        return {index for index, origin in enumerate(origins) if not origin.calls and origin.instruction in own}

    def wavefronts(self, counts: Counts, kernel: Kernel, array: SharedArray) -> tuple[int, int]:
        """Return wavefronts and ideal wavefronts of the accesses to the array.

        In a kernel with a changed layout, these are still the only accesses with an address derived from the array's start.
        """
        mine = self._indices_after_inlining(kernel, array)
        return _sum_wavefronts(one for one in counts.sites if one.site.instruction in mine)

    def seen(self, array: SharedArray, element: int) -> list[LanePattern]:
        """Return the relative lane addresses of the accesses to an array; empty if they cannot be recorded."""
        if not self._has_looked:
            self._before.restore()
            self._examples, self._has_looked = examples(self.launch), True
        if self._examples is None:
            return []
        mine = self._indices_after_inlining(self.launch.kernel, array)
        excess = {one.site.instruction: one.conflicts or 0 for one in self.counts.sites}
        found = []
        for one in self._examples:
            index = int(one["instruction"])
            if index in mine:
                distances = (one["addresses"].astype(np.int64) - int(one["addresses"][0])) // element
                found.append(
                    LanePattern(
                        distances, int(one["mask"]), excess.get(index, 0), int(one["nbytes"]), max(1, int(one["nbytes"]) // element)
                    )
                )
        return found

    # -- what it costs -----------------------------------------------------------------------------------------------------------

    def measured(
        self, layout: Layout | None, array: SharedArray, launch: Launch, times: tuple[Sequence[float], Sequence[float]] | None
    ) -> Measured:
        if layout is None:
            same, (wavefronts, ideal) = True, self.wavefronts(self.counts, launch.kernel, array)
        else:
            same, (wavefronts, ideal) = self._compare(launch, array)
        ours, theirs = times or ([0.0], [0.0])
        limited_by = self.limited_by.get(launch.kernel, "") if times else ""
        speedup = statistics.median(other / mine for mine, other in zip(ours, theirs, strict=True)) if times else 1.0
        return Measured(layout, wavefronts, ideal, statistics.median(ours), speedup, same, _needs(launch), limited_by)

    def _compare(self, launch: Launch, array: SharedArray) -> tuple[bool, tuple[int, int]]:
        """Return whether a changed launch leaves the same bytes as the original, and the wavefronts of its accesses to the array.

        Counts taken during timing are used only if thread order, which differs in modelled timing, affects neither the original's counts
        nor the output; else the launch is counted like the original.
        """
        timed = self._timed.get(launch.kernel)
        places = (
            None if timed is None or not timed.same or not self._is_order_independent else _map_indices(self.launch.kernel, launch.kernel)
        )
        if timed is None or places is None:
            counts = self._count(launch)
            return self._is_same(), self.wavefronts(counts, launch.kernel, array)
        sites = site_table(self.launch.kernel.module).of_kernel[self.launch.kernel.name]
        mine = self._indices_after_inlining(self.launch.kernel, array) & sites.keys()
        return True, _sum_wavefronts(site_counts(timed.seen, {places[index]: sites[index] for index in mine}))

    @cached_property
    def _is_order_independent(self) -> bool:
        """Whether the original did the same when timed, in another thread order, as when counted."""
        timed = self._timed.get(self.launch.kernel)
        return timed is not None and timed.same and counts_of(timed.seen).sites == self.counts.sites

    def is_same(self, kernel: Kernel) -> bool:
        """Launch a kernel in place of the original, and return whether it leaves the same bytes. Raises MemlaneError if the launch
        fails."""
        self._before.restore()
        self._target.launch(replace(self.launch, kernel=kernel))
        return self._is_same()

    def _is_same(self) -> bool:
        return Snapshot(self.launch).holds_what(self._left)

    def times(self, kernels: dict[str, Kernel]) -> dict[str, list[float]]:
        """Return nanoseconds of each kernel, one number per round."""
        found: dict[str, list[float]] = {name: [] for name in kernels}
        for number in range(1 if self._target.modelled else ROUNDS + 1):
            for name, kernel in kernels.items():
                self._before.restore()
                seen: list[Observation] = []
                launch = self._with_counts(replace(self.launch, kernel=kernel), seen)
                times = self._target.time_launches([launch] * (1 if self._target.modelled else LAUNCHES))
                if times[0].model is not None:
                    self.limited_by[kernel] = times[0].model.limited_by
                if seen:
                    self._timed[kernel] = _Timed(seen[0], self._is_same())
                if number or self._target.modelled:  # the first round warms up
                    found[name].append(min(one.elapsed_ns for one in times))
        return found

    def _with_counts(self, launch: Launch, seen: list[Observation]) -> Launch:
        """Return the launch, with counts if that saves a compilation and does not change its code.

        Counting inlines the functions that a kernel calls, which would change its time.
        """
        if not self._target.observes or inline_calls(launch.kernel.module).origins.get(launch.kernel.name) is not None:
            return launch
        return replace(launch, layers=launch.layers.merged(Layers(counts=True, report=seen.append)))


def _sum_wavefronts(sites: Iterable[SiteCounts]) -> tuple[int, int]:
    """Return the sums of wavefronts and ideal wavefronts."""
    found = [(one.wavefronts or 0, one.ideal_wavefronts or 0) for one in sites]
    return sum(one for one, _ in found), sum(ideal for _, ideal in found)


def _map_indices(original: Kernel, changed: Kernel) -> dict[int, int] | None:
    """Return the index of each memory access of a kernel -> its index in the kernel with changed layouts.

    Accesses keep their order, and only tables in constant memory are read additionally; None if that does not hold.
    """
    before, after = (
        [(index, one.name) for index, one in enumerate(kernel.function.instructions()) if set(one.form.addresses.values()) - {"const"}]
        for kernel in (original, changed)
    )
    if [name for _, name in before] != [name for _, name in after]:
        return None
    return {old: new for (old, _), (new, _) in zip(before, after, strict=True)}


def _needs(launch: Launch) -> Needs:
    """Return the resources of a launch's kernel, from the assembled code that runs, or else that would run."""
    kernel = launch.kernel
    static = static_bytes(kernel.module, kernel.function)
    try:
        cubin = kernel.target.assembled(kernel.loaded)
        registers = kernel_usage(cubin)[kernel.name].registers if cubin is not None else _registers(kernel)
    except (MissingDependency, CompileError, KeyError):
        return Needs(None, static + launch.shared_bytes, None)
    fits = resident_blocks(kernel.target.chip, launch.threads_per_block, registers, static + launch.shared_bytes)
    return Needs(registers, static + launch.shared_bytes, fits.blocks)


def _registers(kernel: Kernel) -> int:
    """Return the registers per thread of a kernel once assembled: from the store, or else by assembling it and storing the result."""
    store = present_store()
    if store is None or not _ASSEMBLING.digest:
        return assemble(kernel.module).kernels[kernel.name].registers
    key = digest("registers", _ASSEMBLING.digest, kernel.name, print_module(kernel.module), assembler_version())
    entry = store.get(key)
    if entry is None:
        entry = Entry({"registers": assemble(kernel.module).kernels[kernel.name].registers}, b"")
        keep(key, entry, _ASSEMBLING)
    return int(entry.facts["registers"])

"""Advise other layouts for arrays in global memory: each inefficiently accessed parameter of a launch is tried under several layouts.

Each candidate is really run: the kernel is changed (`relayout` of a parameter), the array is remapped on the device, the results are
compared, and the accesses are counted and timed like those of the original. The cost of the remap is predicted for an upload that overlaps
with it, and measured for an array that is already on the device.
"""

from __future__ import annotations

import statistics
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, prod

import numpy as np

from memlane.compile import parameter_names
from memlane.errors import LayoutError, MemlaneError, RelayoutError
from memlane.launch import DeviceArray, KernelCall, Launch, Target, apply_observers, observing
from memlane.layout import ArrayLayout, Fields, Permuted, array_layout
from memlane.measure import Counter
from memlane.measure.isolation import without_observers
from memlane.measure.memory import Snapshot
from memlane.number_format import duration, plural, rounded
from memlane.optimize.extents import Extents, extents_of
from memlane.optimize.relayout import argument_of, relayout
from memlane.record import Counts, SiteCounts
from memlane.remap.requests import HostArray, Request
from memlane.remap.transfers import best_chunks, copied_ns, plan_of, prediction
from memlane.transfer import download, lay_out

MIN_RATIO = 1.5
"""Minimum ratio of sectors to ideal sectors at which an array counts as inefficiently accessed."""
GAIN = 1.02
"""Minimum speedup for a layout to count as better."""
REPEATS = 10


@dataclass(frozen=True)
class Tried:
    """One layout of an array, with the launch's cost under it."""

    layout: ArrayLayout
    sectors: int
    """Sectors of all global memory accesses of the launch."""
    time_ns: float
    same: bool
    """Whether the launch computed the same values."""
    remap_ns: float
    """Time of the remap on the device, in ns."""
    exposed_ns: float | None
    """Predicted additional time of an upload that overlaps with the remap, in ns; None if the chip file lacks numbers."""

    def cost_ns(self, *, uploaded: bool) -> float:
        """Return the cost of the remap, as part of an upload or on the device."""
        return max(0.0, self.exposed_ns if uploaded and self.exposed_ns is not None else self.remap_ns)


@dataclass(frozen=True)
class LayoutAdvice:
    """The layouts tried for the array behind one parameter."""

    kernel: str
    target: str
    modelled: bool
    parameter: int
    shape: tuple[int, ...]
    dtype: str
    sectors: int
    """Sectors of the accesses to this array in its original layout."""
    ideal_sectors: int
    original: tuple[int, float]
    """Sectors of the whole launch, and its time in ns."""
    tried: tuple[Tried, ...]
    refused: tuple[tuple[str, str], ...]
    """Layouts that could not be tried, each with the reason."""
    name: str = ""
    """Name of the parameter in the source or PTX."""
    given: str = ""
    """Type and shape of the passed array, if it was interpreted with another shape; else empty."""
    limited_by: str = ""
    """Limiter of the original's modelled time: a floor of the launch, or `latency`. Empty if the time was measured."""

    @property
    def best(self) -> Tried | None:
        """The fastest layout with the same results; None if none is faster by `GAIN`."""
        better = [one for one in self.tried if one.same and self.original[1] >= GAIN * one.time_ns]
        return min(better, key=lambda one: one.time_ns, default=None)

    def break_even(self, *, uploaded: bool = True) -> float:
        """Return after how many launches the best layout pays off, for an array that is uploaded or already on the device; inf if never."""
        best = self.best
        if best is None:
            return inf
        return max(1, ceil(best.cost_ns(uploaded=uploaded) / (self.original[1] - best.time_ns)))

    def layout(self, launches: int, *, uploaded: bool = True) -> ArrayLayout:
        """Return the layout that minimises the time of the remap and `launches` launches; row-major if no remap pays off.

            array = ml.upload(target, host, layout=advice.layout(launches=100))

        The layout applies to an array of the advice's `shape`, or to structures. `uploaded`: whether the remap is part of an upload, rather
        than of an array that is already on the device.
        """
        totals = {
            one.layout: one.cost_ns(uploaded=uploaded) + launches * one.time_ns
            for one in self.tried
            if one.same and self.original[1] >= GAIN * one.time_ns
        }
        of_fields = any(isinstance(one.layout, Fields) for one in self.tried)  # the host has structures and not their words
        as_it_is = array_layout("row-major", self.shape[:1] if of_fields else self.shape)
        best = min(totals, key=lambda layout: totals[layout], default=as_it_is)
        return best if totals.get(best, inf) < launches * self.original[1] else as_it_is

    @property
    def verdict(self) -> str:
        """The advice, in a sentence or two."""
        ratio = self.sectors / max(1, self.ideal_sectors)
        named = f" ({self.name})" if self.name else ""
        array = f"{self.dtype}{list(self.shape)}"
        if self.given:
            array = f"{self.given} (taken as {array})"
        begun = f"Argument {self.parameter + 1}{named} of {self.kernel}, {array}, moves {rounded(ratio)} times the sectors it needs"
        if not self.tried:
            return f"{begun}. No layout could be tried: {self.refused[0][1]}."
        how, best = "modelled" if self.modelled else "measured", self.best
        if best is None:
            return f"{begun}. {self._why_declined(how)}"
        uploaded = self.break_even()
        exposed = best.cost_ns(uploaded=True)
        return (
            f"{begun}. With {best.layout}, the launch takes {duration(best.time_ns)} instead of {duration(self.original[1])} ({how}), "
            f"{rounded(self.original[1] / best.time_ns)} times as fast. The remap adds {duration(exposed)} to an upload, so it pays "
            f"off after {_launches(uploaded)}; on the device it takes {duration(best.remap_ns)} and pays off after "
            f"{_launches(self.break_even(uploaded=False))}."
        )

    def _why_declined(self, how: str) -> str:
        """Return why no remap pays off, in a sentence or two."""
        same = [one for one in self.tried if one.same]
        if not same:
            return "No remap pays off: with every layout that was tried, the launch computes different values."
        nearest, fewest = min(same, key=lambda one: one.time_ns), min(same, key=lambda one: one.sectors)
        declined = (
            f"No remap pays off: with {nearest.layout}, the fastest layout tried, the launch takes {duration(nearest.time_ns)} instead "
            f"of {duration(self.original[1])} ({how})."
        )
        if self.limited_by == "latency":
            declined += " Latency limits this launch, so its time does not show what a larger launch would gain."
        if 2 * fewest.sectors > self.original[0]:
            return declined
        return (
            f"{declined} {'It' if fewest is nearest else fewest.layout} moves {rounded(self.original[0] / fewest.sectors)} times fewer "
            "sectors. Here, each access computes its new position from the old one; the layout's index function in the source may be "
            "faster."
        )

    def __str__(self) -> str:
        return self.verdict


def _launches(number: float) -> str:
    return "1 launch" if number == 1 else f"{plural(round(number), 'launch')}"


def advise_layout(call: KernelCall, *args: object, shapes: Mapping[int, tuple[int, ...]] | None = None) -> tuple[LayoutAdvice, ...]:
    """Try other layouts of each array in global memory that `call(*args)` accesses inefficiently; memory is restored.

        for advice in ml.advise_layout(assign[grid, block], points, centres, members, n, 34, 5):
            print(advice)           # the layout, the gain of the kernel, the cost of the remap, and after how many launches it pays

    Arrays of two to four dimensions are tried; `shapes` gives, by parameter, the intended shape of a one-dimensional array. Returns the
    worst array first; empty if no array moves 1.5 times the sectors that it needs.
    """
    launch = call.bind(*args)
    with without_observers(launch):
        return advise_launch(launch, shapes=shapes)


def advise_launch(launch: Launch, *, shapes: Mapping[int, tuple[int, ...]] | None = None) -> tuple[LayoutAdvice, ...]:
    """Advise layouts for a launch without observers, like `advise_layout`."""
    before = Snapshot(launch)
    try:
        counts = _count(launch)
        found = sorted(_badly_accessed(counts, launch), key=lambda one: one.ideal - one.sectors)
        return tuple(advice for one in found if (advice := _Trial(launch, before, counts).advice(one, shapes or {})) is not None)
    finally:
        before.restore()


def _count(launch: Launch) -> Counts:
    counter = Counter()
    with observing(counter):
        launch.kernel.target.launch(apply_observers(launch))
    return counter.finish()[0]


@dataclass(frozen=True)
class _BadlyAccessed:
    """An array behind a PTX parameter with excess sectors."""

    parameter: int
    sectors: int
    ideal: int
    sites: tuple[SiteCounts, ...]


def _badly_accessed(counts: Counts, launch: Launch) -> Iterator[_BadlyAccessed]:
    of: dict[int, list[SiteCounts]] = {}
    for entry in counts.sites:
        pointers = [one for one in entry.site.address_parameters if one < len(launch.arguments) and launch.arguments[one].memory]
        if entry.site.space in ("global", "generic") and len(pointers) == 1 and entry.sectors is not None:
            of.setdefault(pointers[0], []).append(entry)
    for parameter, entries in of.items():
        sectors, ideal = sum(one.sectors or 0 for one in entries), sum(one.ideal_sectors or 0 for one in entries)
        if ideal and sectors >= MIN_RATIO * ideal:
            yield _BadlyAccessed(parameter, sectors, ideal, tuple(entries))


class _Trial:
    def __init__(self, launch: Launch, before: Snapshot, counts: Counts) -> None:
        self.launch, self.before, self.counts = launch, before, counts
        kernel = launch.kernel
        assert isinstance(kernel.target, Target)
        self.target = kernel.target
        before.restore()
        self.limited_by = ""
        self.time_ns = self._time(launch)
        before.restore()
        self.target.launch(launch)
        self.after = Snapshot(launch)

    def advice(self, badly: _BadlyAccessed, shapes: Mapping[int, tuple[int, ...]]) -> LayoutAdvice | None:
        """Return the layouts tried for the array behind a PTX parameter; None if its shape is unknown."""
        parameter = badly.parameter
        argument, kernel = self.launch.arguments[parameter], self.launch.kernel
        position = argument_of(kernel, kernel.function.params[parameter].name)[0]
        given = argument.shape
        if not given or not argument.dtype or argument.memory is None:
            return None
        if position in shapes and prod(shapes[position]) != prod(given):
            raise LayoutError(
                f"the array of parameter {position} has {plural(prod(given), 'element')}, which do not fill an array of shape "
                f"{shapes[position]}"
            )
        taken: Extents | str = Extents(shapes.get(position, given), argument.dtype)
        if position not in shapes:
            self.before.restore()
            taken = extents_of(self.launch, badly.sites, given, argument.dtype)
        tried: list[Tried] = []
        refused: list[tuple[str, str]] = []
        if isinstance(taken, str):
            refused.append(("", taken))
            taken = Extents(given, argument.dtype)
        extents = taken.shape
        array = DeviceArray(self.target, argument.memory[0], extents, np.dtype(taken.dtype), argument.owner)
        for layout in _candidates(taken):
            try:
                tried.append(self._try_layout(parameter, array, layout))
            except RelayoutError as error:
                refused.append((str(layout), str(error).partition("\n")[0]))
            except MemlaneError as error:
                refused.append((str(layout), str(error)))
        return LayoutAdvice(
            kernel=self.launch.kernel.title,
            target=self.target.name,
            modelled=self.target.modelled,
            parameter=position,
            shape=extents,
            dtype=taken.dtype,
            sectors=badly.sectors,
            ideal_sectors=badly.ideal,
            original=(self.counts.total().sectors, self.time_ns),
            tried=tuple(tried),
            refused=tuple(refused),
            name=dict(enumerate(parameter_names(kernel.module, kernel.function))).get(position, ""),
            given="" if extents == given else f"{argument.dtype}{list(given)}",
            limited_by=self.limited_by,
        )

    def _try_layout(self, parameter: int, array: DeviceArray, layout: ArrayLayout) -> Tried:
        wanted = self.launch.kernel.function.params[parameter].name
        kernel = relayout(self.launch.kernel, layout, parameter=wanted, shape=array.shape, dtype=array.dtype)
        self.before.restore()
        laid_out = lay_out(array, layout=layout)
        old = self.launch.arguments[parameter]
        data = struct.pack("<Q", laid_out.address)
        memory = laid_out.address, laid_out.nbytes
        arguments = list(self.launch.arguments)
        arguments[parameter] = replace(old, data=data, owner=laid_out, memory=memory)
        launch = replace(self.launch, kernel=kernel, arguments=tuple(arguments))
        self.target.launch(launch)
        # Copy the array back to its original layout, so that all memory can be compared with the original's result.
        self.target.write(array.address, np.ascontiguousarray(download(laid_out)))
        same = Snapshot(self.launch).holds_what(self.after)
        self.before.restore()
        lay_out(array, layout=layout, out=laid_out)
        counts = _count(launch)
        self.before.restore()
        time_ns = self._time(launch)
        self.before.restore()
        remap_ns = self._remap_ns(array, layout)
        return Tried(layout, counts.total().sectors, time_ns, same, remap_ns, self._exposed_ns(array, layout, remap_ns))

    def _time(self, launch: Launch) -> float:
        if not self.target.modelled:
            self.target.time_launches([launch] * 3)
        times = self.target.time_launches([launch] * (1 if self.target.modelled else REPEATS))
        if launch is self.launch and times[0].model is not None:
            self.limited_by = times[0].model.limited_by
        return statistics.median(one.elapsed_ns for one in times)

    def _remap_ns(self, array: DeviceArray, layout: ArrayLayout) -> float:
        seen: list[Launch] = []

        class Keeper:
            def launching(self, launch: Launch) -> Launch:
                seen.append(launch)
                return launch

        with observing(Keeper()):
            lay_out(array, layout=layout)
        return sum(self._time(launch) for launch in seen)

    def _exposed_ns(self, array: DeviceArray, layout: ArrayLayout, remap_ns: float) -> float | None:
        """Return the predicted additional time of an overlapped remap, the difference of two predictions; None if unknown.

        The time by which a remap of the whole array exceeds a copy of its bytes is added for each chunk, because a small remap takes as
        long as its latencies.
        """
        host = HostArray(array.shape, f"V{array.dtype.itemsize}", True)
        wish = Request("upload", host, layout, 1)
        plain = Request("upload", host, array_layout("row-major", array.shape), 1)
        chip = self.target.chip
        slowness_ns = max(0.0, remap_ns - copied_ns(chip, 2 * array.nbytes))
        chunks = best_chunks(wish, chip, 1.0, slowness_ns=slowness_ns)
        remapped = prediction(plan_of(replace(wish, chunks=chunks)), chip, 1.0, slowness_ns=slowness_ns)
        copied = prediction(plan_of(plain), chip, 1.0)
        return None if remapped is None or copied is None else remapped.elapsed_ns - copied.elapsed_ns


def _candidates(taken: Extents) -> Sequence[ArrayLayout]:
    """Return layouts with another fastest axis, and the diagonal layout of a matrix; for structures, arrays of their words."""
    shape = taken.shape
    if taken.are_fields:
        return [Fields(shape, (1,) * shape[1])]
    axes = range(len(shape))
    last = [(*(one for one in axes if one != fastest), fastest) for fastest in axes if fastest != len(shape) - 1 and shape[fastest] > 1]
    reverse = tuple(reversed(axes))
    orders = dict.fromkeys([*([reverse] if len(shape) > 1 else []), *last])
    found: list[ArrayLayout] = [Permuted(shape, order) for order in orders]
    if len(shape) == 2:
        found.append(array_layout("diagonal", shape))
    return [one for one in found if not one.is_row_major]

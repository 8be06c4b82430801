"""Measure the ladder, the comparison with the peers, and the further ideas."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memlane.errors import MemlaneError
from memlane.lab.reduction import peers
from memlane.lab.reduction.ladder import STEPS, Passes, Step, passes
from memlane.lab.reduction.reducer import Reducer, bulk_launch, reduce
from memlane.lab.reduction.settings import size_name
from memlane.lab.reduction.shapes import CLUSTER, PACKED, TICKET, Shape
from memlane.lab.reduction.timing import Run, copy_launch, empty_launch, interleaved, ratio, read_launch, repeats_for, replayed
from memlane.launch import DeviceArray, Launch, Target, apply_observers
from memlane.measure.prediction import predict_launch

_CHUNK = 1 << 22
COPY_ELEMENTS = 1 << 28
SIDE = 16384
"""Side of the matrix whose axes are summed."""


def random_array(target: Target, shape: int | tuple[int, ...], dtype: type) -> DeviceArray:
    """Return an array of random numbers, with a period of 2^22 elements: any int32, or floats from 0 to 1."""
    array, random = target.empty(shape, dtype), np.random.default_rng(7)
    if array.dtype == np.int32:
        chunk = random.integers(-(2**31), 2**31, min(_CHUNK, array.size)).astype(np.int32)
    else:
        chunk = random.random(min(_CHUNK, array.size)).astype(dtype)
    for start in range(0, array.size, _CHUNK):
        target.write(array.address + start * array.dtype.itemsize, chunk[: array.size - start])
    return array


def head(array: DeviceArray, n: int) -> DeviceArray:
    """Return the first n elements of an array."""
    return DeviceArray(array.target, array.address, (n,), array.dtype, array)


@dataclass(frozen=True)
class Timed:
    """The time of a step of the ladder at one size."""

    step: Step
    n: int
    block: int
    us: float
    """Median time of the whole sum, to the single final value."""
    launches: int

    @property
    def gb_per_s(self) -> float:
        return 4 * self.n / self.us / 1e3


def ladder(target: Target, array: DeviceArray, n: int, block: int, rounds: int, steps: Sequence[Step] = STEPS) -> list[Timed]:
    """Time every step at one size. Raises MemlaneError for a wrong sum."""
    data = head(array, n)
    made = [passes(step, data, block) for step in steps]
    _check(made, int(data.numpy().sum(dtype=np.int32)))
    if target.modelled:
        return [Timed(one.step, n, block, _modelled_us(target, one), len(one.launches)) for one in made]
    repeats = repeats_for(4 * n)
    times = interleaved(target, {one.step.title: replayed(target, one.launches, repeats) for one in made}, rounds)
    return [Timed(one.step, n, block, statistics.median(times[one.step.title]), len(one.launches)) for one in made]


def _modelled_us(target: Target, sum_of: Passes) -> float:
    launches = [apply_observers(launch) for launch in sum_of.launches]
    return sum(one.elapsed_ns for one in target.time_launches(launches)) / 1e3


def _check(made: Sequence[Passes], expected: int) -> None:
    for one in made:
        got = int(one.run())
        if got != expected:
            raise MemlaneError(f"step {one.step.title} gives {got}, not {expected}")


@dataclass(frozen=True)
class Predicted:
    """A step of the ladder as the model of kernels predicts it for a chip."""

    step: Step
    n: int
    block: int
    us: float
    """Predicted time of the whole sum: its launches one after another, each between two events."""
    limiting: str
    """Limiting resource of the longest launch."""
    share: float
    """Share of the blocks of that launch that ran for the prediction."""
    missing: tuple[str, ...]
    """Rates that the chip file lacks."""

    @property
    def gb_per_s(self) -> float:
        return 4 * self.n / self.us / 1e3


def predicted_step(array: DeviceArray, step: Step, n: int, block: int) -> Predicted:
    """Predict a step on the chip of the array's emulator. Its sums are not computed."""
    found = [predict_launch(launch) for launch in passes(step, head(array, n), block).launches]
    longest = max(found, key=lambda one: one.us)
    return Predicted(step, n, block, sum(one.us for one in found), longest.limiting, longest.share, longest.missing)


@dataclass(frozen=True)
class Floors:
    """Best rates and times of the machine, measured in the same run."""

    copy_gb_per_s: float | None
    """Rate of a copy of two arrays of 1 GiB, bytes read and written."""
    read_gb_per_s: float | None
    """Rate of a kernel that only loads an array of 1 GiB."""
    empty_us: float | None
    """Time of a kernel that does nothing, in a replayed graph."""


def floors(target: Target, rounds: int) -> Floors:
    """Measure the floors on a target that measures time; return empty ones elsewhere."""
    if target.modelled:
        return Floors(None, None, None)
    array, other = random_array(target, COPY_ELEMENTS, np.int32), target.empty(COPY_ELEMENTS, np.int32)
    runs = {
        "copy": replayed(target, [copy_launch(other, array)], 2),
        "read": replayed(target, [read_launch(array)], 2),
        "empty": replayed(target, [empty_launch(target)], 10),
    }
    us = {name: statistics.median(times) for name, times in interleaved(target, runs, rounds).items()}
    return Floors(2 * array.nbytes / us["copy"] / 1e3, array.nbytes / us["read"] / 1e3, us["empty"])


@dataclass(frozen=True)
class PeerComparison:
    """Our times next to those of other libraries, over the same memory."""

    case: str
    nbytes: int
    times: Mapping[str, list[float]]
    """Microseconds by name, one per round; ours is `memlane`."""
    missing: tuple[str, ...] = field(default=())
    """Sentences on libraries that could not be measured."""

    def us(self, name: str = "memlane") -> float:
        return statistics.median(self.times[name])

    def against(self, name: str) -> float:
        """Return how many times as fast as another library we are: the median of the paired ratios."""
        return ratio(self.times[name], self.times["memlane"])

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in peers.PEERS if name in self.times)


def compare_with_peers(
    target: Target, array: DeviceArray, case: str, rounds: int, axis: int | None = None, reproducible: bool = False
) -> PeerComparison:
    """Time replayed graphs of ours and PyTorch's, and calls of CuPy's where the array is so large that call overhead does not matter."""
    bound = Reducer(array, axis=axis, reproducible=reproducible)
    out, repeats = bound.empty(), repeats_for(array.nbytes)
    runs: dict[str, tuple[Run, int]] = {"memlane": replayed(target, [bound.launch(out)], repeats)}
    runs["only read"] = replayed(target, [read_launch(array)], repeats)
    wanted: dict[str, Callable[[], Run]] = {"PyTorch": lambda: peers.captured(array, repeats, axis)}
    if array.nbytes >= 1 << 28:
        wanted["CuPy"] = lambda: _repeated(peers.eager("CuPy", array, axis), repeats)
    absent = _add(runs, wanted, repeats)
    times = interleaved(target, runs, rounds)
    host = array.numpy()
    right = out.numpy() == host.sum(axis, np.int32) if host.dtype.kind == "i" else np.isclose(out.numpy(), host.sum(axis, np.float64), 1e-4)
    if not np.all(right):
        raise MemlaneError(f"the sum of {case} is wrong")
    return PeerComparison(case, array.nbytes, times, absent)


def _add(runs: dict[str, tuple[Run, int]], wanted: Mapping[str, Callable[[], Run]], repeats: int) -> tuple[str, ...]:
    """Add the runs of the peers that work here; return a sentence for each of the others."""
    absent = []
    for name, make in wanted.items():
        said = peers.missing(name)
        try:
            if not said:
                run = make()
                run()
                runs[name] = (run, repeats)
        except Exception as error:  # whatever another library raises; ours is measured anyway
            said = f"{name} fails: {type(error).__name__}: {str(error)[:160]}"
        absent += [said] if said else []
    return tuple(absent)


def _repeated(run: Callable[[], object], times: int) -> Run:
    def several() -> None:
        for _ in range(times):
            run()

    return several


def eager(target: Target, array: DeviceArray, rounds: int) -> PeerComparison:
    """Time one call from Python, between two events on an idle device, and the two events alone."""
    runs: dict[str, tuple[Run, int]] = {"memlane": (lambda: reduce(array), 1), "only the events": (_nothing, 1)}
    bound = Reducer(array)
    plain = bound.launch(bound.empty())
    runs["memlane, a launch like others"] = (lambda: target.launch(plain), 1)
    absent = _add(runs, {"PyTorch": lambda: peers.eager("PyTorch", array), "CuPy": lambda: peers.eager("CuPy", array)}, 1)
    return PeerComparison(f"{size_name(array.size)}, one call from Python", array.nbytes, interleaved(target, runs, rounds), absent)


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Idea:
    """A way that may make the last kernel faster, as two launch shapes that differ only in it."""

    name: str
    n: int
    without: Shape
    using: Shape


def ideas(target: Target) -> list[Idea]:
    """Return the ideas, each at the size where it could help."""
    sms = target.chip.sm_count
    return [
        Idea("one word instead of a ticket", 1 << 16, Shape(256, 4, 16, TICKET), Shape(256, 4, 16, PACKED)),
        Idea("a cluster instead of a ticket", 1 << 16, Shape(512, 4, 8, TICKET), Shape(512, 4, 8, CLUSTER)),
        Idea("a cluster instead of one word", 1 << 16, Shape(512, 4, 8, PACKED), Shape(512, 4, 8, CLUSTER)),
        Idea("all multiprocessors instead of eight", 1 << 20, Shape(512, 8, 8, PACKED), Shape(256, 4, 256, PACKED)),
        Idea("eight loads in flight instead of one", 1 << 24, Shape(512, 1, 2 * sms, PACKED), Shape(512, 8, 2 * sms, PACKED)),
        Idea("past the first cache", 1 << 24, Shape(512, 8, 2 * sms, PACKED, 0), Shape(512, 8, 2 * sms, PACKED)),
        Idea("half of it kept in the second cache", 1 << 24, Shape(512, 8, 2 * sms, PACKED), Shape(512, 8, 2 * sms, PACKED, 4)),
        Idea("more blocks than fit, in their order", 1 << 28, Shape(512, 4, 4 * sms, PACKED), Shape(512, 4, 1 << 12, PACKED)),
    ]


@dataclass(frozen=True)
class Gain:
    """The gain of an idea."""

    name: str
    n: int
    without_us: float
    using_us: float
    times: float
    """Speed-up: the median of the paired ratios."""


def gains(target: Target, array: DeviceArray, rounds: int) -> list[Gain]:
    """Measure each idea with and without, and the cost of reproducible bits."""
    found = []
    for idea in ideas(target):
        data = head(array, idea.n)
        pair = {name: Reducer(data, shape=shape) for name, shape in (("without", idea.without), ("using", idea.using))}
        found.append(_gain(target, idea.name, data, pair, rounds))
    data = head(array, 1 << 28)
    bound, out = Reducer(data), target.empty(1, np.int32)
    launches = {"without": bound.launch(bound.empty()), "using": bulk_launch(out, data)}
    found.append(_gained(target, "the copy engine brings it to shared memory", data, launches, rounds))
    for n in (1 << 20, 1 << 24, 1 << 28):
        data = head(array, n)
        pair = {"without": Reducer(data), "using": Reducer(data, reproducible=True)}
        found.append(_gain(target, "the same bits for every launch shape", data, pair, rounds))
    return found


def _gain(target: Target, name: str, data: DeviceArray, pair: Mapping[str, Reducer], rounds: int) -> Gain:
    return _gained(target, name, data, {which: bound.launch(bound.empty()) for which, bound in pair.items()}, rounds)


def _gained(target: Target, name: str, data: DeviceArray, launches: Mapping[str, Launch], rounds: int) -> Gain:
    repeats = repeats_for(data.nbytes)
    times = interleaved(target, {which: replayed(target, [one], repeats) for which, one in launches.items()}, rounds)
    medians = [statistics.median(times[which]) for which in ("without", "using")]
    return Gain(name, data.size, medians[0], medians[1], ratio(times["without"], times["using"]))

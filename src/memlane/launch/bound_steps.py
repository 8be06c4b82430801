"""Define steps of a plan with addresses, which a target runs alone or as a graph."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from types import FrameType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from memlane.errors import BadLaunch, DeviceError
from memlane.launch.configuration import Origin, Stream
from memlane.launch.events import DoneEvent, Event
from memlane.launch.kernel import Launch, Launcher
from memlane.launch.memory import DeviceArray, Memory


@dataclass(frozen=True, slots=True)
class End:
    """One end of a copy: the address of its first element, and the stride along each axis."""

    address: int
    strides: tuple[int, ...]
    """Strides in bytes; may be negative."""
    target: Memory | None = None
    """Target whose memory it is; None is the host."""
    owner: object = field(default=None, repr=False, compare=False)
    """Object that keeps the memory alive."""

    @property
    def is_on_host(self) -> bool:
        return self.target is None


@dataclass(frozen=True, slots=True)
class Rows:
    """Pitched 2D copy: `height` rows of `width` bytes each, with a pitch on either side, which the driver copies in one call."""

    destination: int
    source: int
    width: int
    height: int
    destination_pitch: int
    source_pitch: int


@dataclass(frozen=True, slots=True)
class BoundCopy:
    """Copy of strided elements between two places, on the host or on devices."""

    destination: End
    source: End
    shape: tuple[int, ...]
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.itemsize

    def rows(self) -> Iterator[Rows]:
        """Yield the pitched copies that it consists of: as few as the strides allow."""
        if 0 in self.shape:
            return
        to, of, width, axes = self.simplified()
        pitched = [axis for axis in axes if min(axis[1:]) >= width]
        longest = max(pitched, default=(1, width, width))
        if pitched:
            axes.remove(longest)
        for to_offset, of_offset in offsets_of(axes):
            yield Rows(to + to_offset, of + of_offset, width, *longest)

    def simplified(self) -> tuple[int, int, int, list[Axis]]:
        """Return the first addresses of destination and source, the number of contiguous bytes there, and the axes along which these are
        repeated.

        The axes are as few as the strides allow, the longest stride first.
        """
        to, of = self.destination.address, self.source.address
        axes: list[Axis] = []
        for extent, to_stride, of_stride in zip(self.shape, self.destination.strides, self.source.strides, strict=True):
            if extent > 1 and to_stride < 0 and of_stride < 0:  # from the other end
                to, of = to + (extent - 1) * to_stride, of + (extent - 1) * of_stride
                to_stride, of_stride = -to_stride, -of_stride
            if extent > 1:
                axes.append((extent, to_stride, of_stride))
        axes = _joined_axes(sorted(axes, key=lambda axis: abs(axis[1]), reverse=True))
        width = self.itemsize
        if axes and axes[-1][1:] == (width, width):
            width *= axes.pop()[0]
        return to, of, width, axes


Axis = tuple[int, int, int]
"""Number of elements along an axis, and its strides in bytes at the destination and at the source."""


def _joined_axes(axes: list[Axis]) -> list[Axis]:
    """Return the axes with adjacent ones joined if both sides are contiguous across them."""
    found: list[Axis] = []
    for extent, to_stride, of_stride in axes:
        if found and found[-1][1:] == (extent * to_stride, extent * of_stride):
            found[-1] = found[-1][0] * extent, to_stride, of_stride
        else:
            found.append((extent, to_stride, of_stride))
    return found


def offsets_of(axes: Sequence[Axis]) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each element from the first, at the destination and at the source."""
    if not axes:
        yield 0, 0
        return
    (extent, to_stride, of_stride), *inner = axes
    for index in range(extent):
        for to_offset, of_offset in offsets_of(inner):
            yield index * to_stride + to_offset, index * of_stride + of_offset


Place = DeviceArray | npt.NDArray[Any]
"""An array at one end of a copy."""


def whole_copy(destination: Place, source: Place) -> BoundCopy:
    """Return the copy of one array to another.

    Raises BadLaunch if they differ in shape or element size, or the destination is read-only.
    """
    if destination.shape != source.shape or destination.dtype.itemsize != source.dtype.itemsize:
        raise BadLaunch(f"cannot copy {_type_of(source)} to {_type_of(destination)}: their shapes and element sizes must be the same")
    if isinstance(destination, np.ndarray) and not destination.flags.writeable:
        raise BadLaunch(f"cannot copy to {_type_of(destination)}: the array is read-only")
    return BoundCopy(_end(destination), _end(source), source.shape, source.dtype.itemsize)


def _end(place: Place) -> End:
    if isinstance(place, np.ndarray):
        return End(int(place.ctypes.data), place.strides, owner=place)
    itemsize, shape = place.dtype.itemsize, place.shape
    return End(place.address, tuple(itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))), place.target, place)


def _type_of(place: Place) -> str:
    return f"{place.dtype}[{', '.join(map(str, place.shape))}]"


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the `with` block, so that its work is not interrupted halfway."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


class Copies(Memory):
    """Copies between the memory of a target, that of other targets, and the host's."""

    def copy(self, copy: BoundCopy) -> None:
        """Copy elements between any two places, after all earlier work on their targets, and wait for the copy."""
        values = np.empty(copy.shape, f"V{copy.itemsize}")
        here = End(values.ctypes.data, values.strides)
        with defer_interrupts():
            for destination, source in ((here, copy.source), (copy.destination, here)):
                for rows in BoundCopy(destination, source, copy.shape, copy.itemsize).rows():
                    _move(rows, destination.target, source.target)

    def start_copy(self, destination: Place, source: Place, stream: Stream | None = None) -> Event:
        """Copy the elements of one array to another of the same shape and element size, on a stream, and return an event after the copy.

        Each is an array of this target or a peer, or one of NumPy, which a GPU takes from `pinned` only. Both are kept until the copy is
        done. Raises BadLaunch for arrays that do not fit together.
        """
        self.copy(whole_copy(destination, source))
        return DoneEvent()

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """Return an array on the host, with undefined contents, that copies of this target can use without staging: page-locked for a
        GPU."""
        return np.empty(shape, dtype)

    def is_pinned(self, host: npt.NDArray[Any]) -> bool:
        """Return whether copies of this target can use a host array without staging."""
        return True

    def enable_peer(self, other: Copies) -> None:
        """Allow kernels of this target to access memory of `other` from now on. Raises DeviceError if they cannot."""
        raise DeviceError(f"{self.name} and {other.name} are not peers: kernels on one cannot access memory of the other")


def _move(rows: Rows, to_target: Memory | None, of_target: Memory | None) -> None:
    """Copy rows on the host, or between the host and a target."""
    for row in range(rows.height):
        to, of = rows.destination + row * rows.destination_pitch, rows.source + row * rows.source_pitch
        if to_target is not None:
            to_target.write(to, _bytes_at(of, rows.width))
        elif of_target is not None:
            of_target.read(of, _bytes_at(to, rows.width))
        else:
            ctypes.memmove(to, of, rows.width)


def _bytes_at(address: int, nbytes: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A host function with its arguments."""

    call: Callable[[], None]


@dataclass(frozen=True, slots=True)
class BoundEnqueue:
    """A function that enqueues work on a stream of a GPU, whose handle it gets."""

    enqueue: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One execution of a step, ready to run."""

    action: Launch | BoundCopy | BoundCall | BoundEnqueue
    target: Memory | None
    """Target that executes it; None is the host."""
    waits: tuple[int, ...] = ()
    """Positions of earlier steps in the same list that have to finish first."""
    beside: bool = False
    """Whether it is a launch that runs concurrently with the previous one in the list, and may wait for it."""
    origin: Origin | None = None
    """Step of the plan that it comes from; None unless it is observed."""
    is_urgent: bool = False
    """Whether blocks of the launch are scheduled before waiting blocks of other launches."""


def same_kinds(before: Sequence[BoundStep], after: Sequence[BoundStep]) -> bool:
    """Return whether a graph of `before` can be updated to `after`: the same number, kinds and shapes of steps, in the same order."""

    def kind(step: BoundStep) -> object:
        action = step.action
        shape = (action.shape, action.itemsize, action.destination.strides, action.source.strides) if isinstance(action, BoundCopy) else ()
        return type(action), shape, step.target, step.waits, step.beside, step.is_urgent

    return [kind(step) for step in before] == [kind(step) for step in after]


def chained(launches: Iterable[Launch]) -> tuple[BoundStep, ...]:
    """Return steps that run launches one after another."""
    return tuple(BoundStep(one, one.kernel.target, (number - 1,) if number else ()) for number, one in enumerate(launches))


class StepGraph(Protocol):
    """A list of bound steps, prepared once to be started many times."""

    def replay(self, stream: Stream | None = None) -> None:
        """Start it asynchronously."""
        ...

    def wait(self) -> None:
        """Wait for the replays so far, and raise exceptions of their host functions."""
        ...

    def update(self, steps: Sequence[BoundStep]) -> None:
        """Use other memory, arguments and host functions in replays from now on. Replays in progress are unaffected.

        The number, kinds and order of the steps must stay the same.
        """
        ...

    def times_ns(self) -> list[tuple[float, float]]:
        """Wait, and return start and end of each step in the last replay, in ns from its start; only of a timed graph."""
        ...


class Graphs(Launcher, Copies):
    """Preparation of steps for repeated starts."""

    def graph_of_steps(self, steps: Sequence[BoundStep], *, timed: bool = False) -> StepGraph:
        """Prepare steps on this target and its peers for repeated starts; with `timed`, the times of each start can be queried."""
        raise BadLaunch(f"{self.name} does not support graphs of steps; it runs the steps one after another")

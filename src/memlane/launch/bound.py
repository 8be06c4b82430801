"""Steps of a plan with addresses: what a target is handed to run, alone or as a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memlane.launch.launch import Launch, Stream

if TYPE_CHECKING:
    from memlane.launch.target import Target


@dataclass(frozen=True, slots=True)
class End:
    """One side of a copy: where its first element lies, and how far it is to the next along each axis."""

    address: int
    strides: tuple[int, ...]
    """In bytes; may be negative."""
    target: Target | None = None
    """Whose memory it is; None is the host."""

    @property
    def is_on_host(self) -> bool:
        return self.target is None


@dataclass(frozen=True, slots=True)
class Rows:
    """`height` rows of `width` bytes each, which lie a pitch apart on either side: a copy that the driver does at once."""

    destination: int
    source: int
    width: int
    height: int
    destination_pitch: int
    source_pitch: int


@dataclass(frozen=True, slots=True)
class BoundCopy:
    """A copy of strided elements between two places, on the host or on devices."""

    destination: End
    source: End
    shape: tuple[int, ...]
    itemsize: int

    def rows(self) -> Iterator[Rows]:
        """Yield the copies of rows that it consists of: as few as the strides allow."""
        if 0 in self.shape:
            return
        to, of = self.destination.address, self.source.address
        axes: list[tuple[int, int, int]] = []
        for extent, to_stride, of_stride in zip(self.shape, self.destination.strides, self.source.strides, strict=True):
            if extent > 1 and to_stride < 0 and of_stride < 0:  # from the other end
                to, of = to + (extent - 1) * to_stride, of + (extent - 1) * of_stride
                to_stride, of_stride = -to_stride, -of_stride
            if extent > 1:
                axes.append((extent, to_stride, of_stride))
        axes = _merged(sorted(axes, key=lambda axis: abs(axis[1]), reverse=True))
        width = self.itemsize
        if axes and axes[-1][1:] == (width, width):
            width *= axes.pop()[0]
        pitched = [axis for axis in axes if min(axis[1:]) >= width]
        longest = max(pitched, default=(1, width, width))
        if pitched:
            axes.remove(longest)
        for to_offset, of_offset in _offsets(axes):
            yield Rows(to + to_offset, of + of_offset, width, *longest)


def _merged(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join axes along which both sides go on where the axis inside them ends."""
    found: list[tuple[int, int, int]] = []
    for extent, to_stride, of_stride in axes:
        if found and found[-1][1:] == (extent * to_stride, extent * of_stride):
            found[-1] = found[-1][0] * extent, to_stride, of_stride
        else:
            found.append((extent, to_stride, of_stride))
    return found


def _offsets(axes: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    if not axes:
        yield 0, 0
        return
    (extent, to_stride, of_stride), *inner = axes
    for index in range(extent):
        for to_offset, of_offset in _offsets(inner):
            yield index * to_stride + to_offset, index * of_stride + of_offset


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A host function with its arguments."""

    call: Callable[[], None]


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One execution of a step, ready to run."""

    action: Launch | BoundCopy | BoundCall
    target: Target | None
    """Who does it; None is the host."""
    waits: tuple[int, ...] = ()
    """Positions of earlier steps in the same list that have to end first."""
    beside: bool = False
    """Whether it is a launch that runs at the same time as the one before it in the list, and may wait for it."""


def chained(launches: Iterable[Launch]) -> tuple[BoundStep, ...]:
    """Return steps that make launches one after another."""
    return tuple(BoundStep(one, one.kernel.target, (number - 1,) if number else ()) for number, one in enumerate(launches))


class StepGraph(Protocol):
    """A list of bound steps prepared once to be started many times."""

    def replay(self, stream: Stream | None = None) -> None:
        """Start it; asynchronous."""
        ...

    def wait(self) -> None:
        """Wait for the replays so far, and raise what host functions raised in them."""
        ...

    def times_ns(self) -> list[tuple[float, float]]:
        """Wait, and return start and end of each step in the last replay, in ns from its start; only of a timed graph."""
        ...

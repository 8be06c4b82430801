"""Define events: points in the work of a stream that can be waited for."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Generator

from memlane.errors import BadLaunch
from memlane.launch.configuration import Stream
from memlane.launch.memory import Memory


class Event(ABC):
    """A point in the work of a stream. It is done when all work before it is.

    event = target.record(stream)
    event.done()                    # does not wait
    event.wait()                    # blocks this thread until then
    await event                     # suspends only this asyncio task
    """

    @abstractmethod
    def done(self) -> bool:
        """Return whether the work is done, without waiting. Raises the error of the work if it failed."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the work is done. Raises the error of the work if it failed."""

    def __await__(self) -> Generator[object, None, None]:
        """Wait in a thread of the event loop's executor, which sleeps until the work is done."""
        if not self.done():
            yield from asyncio.to_thread(self.wait).__await__()


class DoneEvent(Event):
    """Event of a target whose calls return when the work is done."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        """Return at once."""


_LEAST_ADDRESS = 4096
"""Smallest valid handle: handles are addresses, and 0 to 2 are the default streams."""


class Streams(Memory):
    """Streams of a target, and the events on them. On a target without streams all work is done when a call returns."""

    default_stream: Stream

    @abstractmethod
    def stream(self) -> Stream:
        """Return a new stream."""

    @abstractmethod
    def sync(self) -> None:
        """Wait for all work; errors of asynchronous work are raised here at the latest."""

    def adopt_stream(self, value: object) -> Stream:
        """Return a stream of another library as a stream of this target: an object with `__cuda_stream__`, a stream of PyTorch or CuPy, or
        its handle as an int. Raises BadLaunch for anything else.

        Its work and that of the target's default stream wait for each other, as with streams of `stream()`. The stream has to live until
        the work is done.
        """
        handle = stream_handle(value, self.name)
        return Stream(handle, value) if handle > 1 else self.default_stream

    def stream_of(self, value: object = None) -> Stream:
        """Return the stream for an argument `stream`: the default one for None, one of the target, or one of another library."""
        if value is None:
            return self.default_stream
        return value if isinstance(value, Stream) else self.adopt_stream(value)

    def is_recording(self, stream: Stream) -> bool:
        """Return whether another library is capturing the stream into a graph, which may run often."""
        return False

    def record(self, stream: Stream | None = None) -> Event:
        """Return an event after all work so far on the stream, by default the default stream."""
        return DoneEvent()

    def wait_for(self, event: object, stream: Stream | None = None) -> None:
        """Make all later work on the stream wait for an event: one of a target, of PyTorch, CuPy or cuda.core, or its handle as an int. The
        host does not wait if the target has streams. Raises BadLaunch for what is not an event."""
        if not isinstance(event, Event):
            raise BadLaunch(f"{self.name} cannot use events of other libraries: wait on the host, with event.synchronize()")
        event.wait()


def stream_handle(value: object, target: str) -> int:
    """Return the handle of a stream of another library; 0 or 1 is the legacy default stream, 2 that of the calling thread.

    Raises BadLaunch for what is not a stream; `target` is the name of the receiving target.
    """
    found = _handle(value, "__cuda_stream__", ("cuda_stream", "ptr"))
    if found is None or (found > 2 and found < _LEAST_ADDRESS) or found < 0:
        given = f"the number {value}" if isinstance(value, int) else f"a {type(value).__name__}"
        raise BadLaunch(f"{given} is not a stream for {target}: pass one of target.stream(), an object with __cuda_stream__, or its handle")
    return found


def event_handle(value: object, target: str) -> int:
    """Return the handle of an event of another library. Raises BadLaunch for anything else."""
    found = _handle(value, "__cuda_event__", ("cuda_event", "ptr", "handle"))
    if found is None or found < _LEAST_ADDRESS:
        given = f"the number {value}" if isinstance(value, int) else f"a {type(value).__name__}"
        raise BadLaunch(f"{given} is not an event for {target}: pass one of target.record(), of PyTorch, CuPy or cuda.core, or its handle")
    return found


def _handle(value: object, protocol: str, names: tuple[str, ...]) -> int | None:
    """Return the handle from an int or an object: by the method of a protocol, after its version, or as an attribute; None if there is
    none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = getattr(value, protocol, None)
    if found is not None:
        return int((found() if callable(found) else found)[1])
    for name in names:
        if (held := getattr(value, name, None)) is not None:
            return int(held)
    return None

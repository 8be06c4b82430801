"""Manage the streams and events of a GPU, its own and those of other libraries, and the objects that must outlive their work.

The default stream is CUDA's legacy default stream, and streams created here are *blocking* ones: work on the default stream waits for all
work launched before it, and all work launched after it waits for it. Events put a non-blocking stream of another library into the same
order when memlane launches on it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cuda import core
from cuda.bindings import driver
from cuda.core.graph import Graph

from memlane.driver.calls import CallError, checked
from memlane.driver.context import Context
from memlane.errors import BadLaunch
from memlane.launch import Event, Stream, event_handle, stream_handle

DEFAULT = core.LEGACY_DEFAULT_STREAM


@dataclass(frozen=True, eq=False)
class Queue:
    """Handle of a device's `Stream`."""

    context: Context
    stream: core.Stream
    is_unordered: bool = False
    """Whether CUDA does not order it with the default stream: a non-blocking stream of another library."""
    owner: object = None


class DeviceEvent(Event):
    """An event of a GPU."""

    def __init__(self, context: Context, event: core.Event) -> None:
        self._context, self.event = context, event

    @property
    def handle(self) -> int:
        """Handle of the event, for other libraries."""
        return int(self.event.handle)

    def done(self) -> bool:
        with self._context.translated_errors("a query of its work"):
            return bool(self.event.is_done)

    def wait(self) -> None:
        with self._context.translated_errors("a wait for its work"):
            self.event.sync()


class Streams:
    """The streams of one device. Some methods require its context to be current, as they state."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.default = Stream(0, Queue(context, DEFAULT))
        self.unordered: dict[int, core.Stream] = {}
        """Handle -> stream, for streams with possibly pending work that CUDA does not order with the default stream."""
        self.others: list[core.Event] = []
        """Events after the work of graphs that other devices have started here."""
        self.kept: deque[tuple[core.Event, object]] = deque()
        """Objects to keep alive until an event is done."""
        self._counter = itertools.count(1)
        self._numbers: dict[int, int] = {}
        """Handle -> number of a stream of another library."""

    def queue(self, stream: Stream | None) -> Queue:
        """Return the queue of a stream of this device; None is the default stream. Raises BadLaunch for a stream of another target."""
        handle = self.default.handle if stream is None or (stream.number == 0 and stream.handle is None) else stream.handle
        if isinstance(handle, Queue) and handle.context is self.context:
            return handle
        number = stream.number if stream is not None else 0
        raise BadLaunch(f"stream {number} was not made by this {self.context.name}; make one with target.stream()")

    def new(self) -> Stream:
        """Return a new stream."""
        with self.context.current("a stream"):
            stream = self.context.device.create_stream(options=core.StreamOptions(nonblocking=False))
        return Stream(next(self._counter), Queue(self.context, stream))

    def adopt(self, value: object) -> Stream:
        """Return a stream of another library as one of this device."""
        handle = stream_handle(value, self.context.name)
        if handle < 2:
            return self.default
        with self.context.current("a stream of another library"):
            found = core.PER_THREAD_DEFAULT_STREAM if handle == 2 else core.Stream.from_handle(handle)
            # CUDA refuses to tell the flags of a stream from which a graph is captured, and the graph orders what is captured.
            is_unordered = handle != 2 and not _is_captured(found) and bool(found.is_nonblocking)
        if handle not in self._numbers:
            self._numbers[handle] = next(self._counter)
        return Stream(self._numbers[handle], Queue(self.context, found, is_unordered, value))

    def is_recording(self, stream: Stream) -> bool:
        """Return whether a graph is being captured from the stream; True if CUDA does not tell."""
        with self.context.current("the state of a stream"):
            return _is_captured(self.queue(stream).stream)

    def join(self) -> None:
        """Order later work on the default stream after all work of memlane on other streams. The context must be current."""
        for before in (*self.unordered.values(), *self.others):
            DEFAULT.wait(before)
        self.unordered.clear()
        self.others.clear()

    def order(self, queue: Queue) -> None:
        """Order later work on a stream with the default stream, if CUDA does not. The context must be current."""
        if queue.is_unordered:
            queue.stream.wait(DEFAULT)
            self.unordered[int(queue.stream.handle)] = queue.stream
        elif (self.unordered or self.others) and queue.stream is DEFAULT:
            self.join()

    @contextmanager
    def across(self, queue: Queue, others: Sequence[Streams]) -> Iterator[None]:
        """Order the work enqueued in the `with` block, which uses memory of further devices, with these devices.

        It waits for their default streams, and later work there waits for it. The context must be current.
        """
        self.order(queue)
        for other in others:
            with other.context.current("an event"):
                other.join()
                event = DEFAULT.record()
            queue.stream.wait(event)
        yield
        if others:
            end = queue.stream.record()
            for other in others:
                other.others.append(end)

    def start(self, graph: Graph, stream: Stream | None, others: Sequence[Streams]) -> None:
        """Start a graph that also works on the devices `others`. The context must be current."""
        queue = self.queue(stream)
        if others:
            with self.across(queue, others):
                graph.launch(queue.stream)
        else:
            self.order(queue)
            graph.launch(queue.stream)

    def wait_for_default(self) -> None:
        """Wait for the default stream, and so for all streams ordered with it; non-blocking streams of other libraries continue.

        The context must be current.
        """
        checked(driver.cuStreamSynchronize(DEFAULT.handle))
        self.context.running.clear()
        self.release()

    def wait_on(self, stream: Stream | None) -> None:
        """Wait for the work on a stream so far."""
        queue = self.queue(stream)
        with self.context.current("a wait for its work"):
            checked(driver.cuStreamSynchronize(queue.stream.handle))

    def record(self, stream: Stream | None) -> DeviceEvent:
        """Return an event after the work on a stream so far. A thread that waits for it sleeps."""
        queue = self.queue(stream)
        with self.context.current("an event"):
            return DeviceEvent(self.context, queue.stream.record(options=core.EventOptions(blocking_sync=True)))

    def wait_for(self, event: object, stream: Stream | None) -> None:
        """Order later work on a stream after an event of this device, another one, or another library."""
        queue = self.queue(stream)
        if isinstance(event, Event) and not isinstance(event, DeviceEvent):
            event.wait()
            return
        handle = event_handle(event, self.context.name)
        with self.context.current("a wait for an event"):
            checked(driver.cuStreamWaitEvent(queue.stream.handle, handle, 0))

    def keep(self, stream: Stream | None, kept: object) -> None:
        """Keep an object alive until the work on a stream so far has ended."""
        queue = self.queue(stream)
        with self.context.current("an event"):
            self.kept.append((queue.stream.record(), kept))

    def release(self) -> None:
        """Release the objects whose work has ended."""
        while self.kept and self.kept[0][0].is_done:
            self.kept.popleft()


def _is_captured(stream: core.Stream) -> bool:
    try:
        status = checked(driver.cuStreamIsCapturing(stream.handle))
    except CallError:  # a graph is captured elsewhere, and CUDA does not tell
        return True
    return bool(status != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)

"""Exchange memory of GPUs between processes by NCCL, in the order of a stream.

One communicator of each process connects its GPU to those of all others. `exchange`, a function of plans, only enqueues, and CUDA graphs
capture its work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from memlane.errors import DeviceError, MissingDependency
from memlane.launch import DeviceArray

if TYPE_CHECKING:
    from memlane.driver.device import Device

EXCHANGE = "memlane.driver.nccl:exchange"
"""Name in plans of the function that exchanges memory."""
_BYTES = 1
"""NCCL's number of the type of bytes, `ncclUint8`."""
_COMMUNICATORS: dict[int, Communicator] = {}
"""Communicator of each GPU of this process, by the number of the device."""


def _library() -> Any:
    """Return NCCL's functions."""
    try:
        from nccl.bindings import nccl
    except ImportError:
        raise MissingDependency("transport='nccl'", "nccl") from None
    return nccl


@contextmanager
def _translated(doing: str) -> Iterator[Any]:
    """Yield NCCL's functions, and translate its errors into memlane's."""
    library = _library()
    try:
        yield library
    except library.NCCLError as error:
        raise DeviceError(f"NCCL failed at {doing}: {error}") from None
    except RuntimeError as error:
        if type(error).__name__ != "DynamicLibNotFoundError":
            raise
        raise MissingDependency("transport='nccl'", "nccl") from None


def check_library() -> None:
    """Raise MissingDependency if nccl4py or NCCL is not installed."""
    with _translated("the start") as library:
        library.get_version()


def unique_id() -> bytes:
    """Return a new name by which processes find each other. One of them makes it, and all pass it to `Communicator`."""
    with _translated("the start"):
        from nccl.core import get_unique_id

        return bytes(get_unique_id())


def device_uuid(device: Device) -> str:
    """Return the name of a GPU that all processes of a machine use for it."""
    return str(device.context.device.uuid)


class Communicator:
    """The connection of the GPU of one process to those of all others."""

    def __init__(self, device: Device, number: int, count: int, name: bytes) -> None:
        """Connect to the other processes, all of which must do this at the same time. `number`: of this process, one of `count`."""
        self._device = device
        self._is_aborted = False
        self._words: list[tuple[int, DeviceArray, DeviceArray]] = []
        """For each neighbour its number, the word sent to it, and the word received."""
        with _translated("the connection of the processes") as library, device.calling():
            from nccl.core import Communicator as Connection
            from nccl.core import UniqueId

            self._connection = Connection.init(count, number, UniqueId.from_bytes(name))
            self._handle = library.Comm(self._connection.ptr)
        _COMMUNICATORS[device.context.device.device_id] = self

    def enqueue(self, stream: int, sends: Sequence[tuple[int, DeviceArray]], receives: Sequence[tuple[int, DeviceArray]]) -> None:
        """Send and receive arrays at the same time, in the order of a stream."""
        with _translated("an exchange") as library, self._device.calling():
            library.group_start()
            try:
                for rank, array in sends:
                    library.send(array.address, array.nbytes, _BYTES, rank, self._handle, stream)
                for rank, array in receives:
                    library.recv(array.address, array.nbytes, _BYTES, rank, self._handle, stream)
            finally:
                library.group_end()

    def connect(self, neighbours: Iterable[int], number: int) -> None:
        """Exchange a word with each neighbour, so that all connections are there before graphs capture exchanges.

        The processes must call it at the same time; the work is on the default stream.
        """
        own, nothing = (np.full(1, value, np.int32) for value in (number, -1))
        self._words = [(rank, self._device.array(own), self._device.array(nothing)) for rank in neighbours]
        self.enqueue(0, [(rank, sent) for rank, sent, _ in self._words], [(rank, received) for rank, _, received in self._words])

    def check(self) -> None:
        """Raise DeviceError if the words of the neighbours are not theirs."""
        for rank, _, received in self._words:
            if received.item() != rank:
                raise DeviceError(f"NCCL received {received.item()} from process {rank} instead of its number")

    def raise_failure(self) -> None:
        """Raise DeviceError if work that was enqueued has failed."""
        with _translated("an exchange") as library:
            state = library.Result(self._connection.get_async_error())
            if state not in (library.Result.Success, library.Result.InProgress):
                raise DeviceError(f"NCCL failed at an exchange: {library.get_error_string(int(state))}")

    def abort(self) -> None:
        """End the work that waits for other processes. NCCL then waits for graphs, so a thread of its own does this."""
        if not self._is_aborted:
            self._is_aborted = True
            threading.Thread(target=self._abort, daemon=True).start()

    def _abort(self) -> None:
        with suppress(Exception), self._device.calling():
            self._connection.abort()


def communicator(device: Device) -> Communicator | None:
    """Return the communicator of a GPU; None if it has none that works."""
    found = _COMMUNICATORS.get(device.context.device.device_id)
    return None if found is None or found._is_aborted else found


def exchange(stream: int, sends: int, *messages: Any) -> None:
    """Enqueue an exchange of arrays: for each the number of the other process and its memory, first `sends` that are sent."""
    pairs = list(zip(messages[::2], messages[1::2], strict=True))
    home: Any = pairs[0][1].target
    found = communicator(home)
    assert found is not None
    found.enqueue(stream, pairs[:sends], pairs[sends:])

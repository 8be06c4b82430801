"""Run generated code next to Python: carry exceptions across generated code, and let Ctrl-C stop a launch.

Python handles signals in the main thread, between two bytecodes. If the main thread ran generated code itself, Ctrl-C would be delayed
until the launch returns, or would strike inside a callback before it can catch anything. So a launch of the main thread runs in other
threads, one per worker, while the main thread waits and stops them when it has an exception to raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.emulate.layout import BLOCK_BYTES, BROKEN, FINISHED, INTERRUPTED, NO_FAULT, WARP, offset

_POLL_S = 0.05
"""Polling interval of the main thread in seconds: a signal that another thread received does not wake it."""


class Halt:
    """A switch that stops one launch from Python and keeps the error to raise."""

    def __init__(self, workers: npt.NDArray[Any], contexts: npt.NDArray[Any], slots: npt.NDArray[np.uint8]) -> None:
        """Take the records of the launch: the state that its workers share, the contexts of the workers, and the slots."""
        self._workers, self._contexts, self._slots = workers, contexts, slots
        self.error: BaseException | None = None
        self.is_alone = False
        """Whether the launch runs in the calling thread, which then has to report progress itself."""

    def stop(self) -> None:
        """Make every warp stop at its next back edge, barrier or exit.

        Generated code updates its budgets without synchronisation, so a single request may be lost: repeat it until the launch ends.
        """
        faults, workers, record = self._contexts["fault"], self._workers[0], self._contexts[0]
        running = faults == NO_FAULT
        if workers["faulting_worker"]:
            running[workers["faulting_worker"] - 1] = False  # it is about to record its fault, which must not be overwritten
        faults[running] = INTERRUPTED
        taken = min(int(workers["slots_taken"]), int(record["slot_count"]))
        shape = taken, int(record["warps"])
        start, steps = BLOCK_BYTES + offset(WARP, "budget"), (int(record["slot_bytes"]), int(record["warp_bytes"]))
        np.ndarray(shape, np.int32, self._slots.data, start, steps)[:] = -1

    def keep(self, error: BaseException) -> None:
        """Stop the launch because of an error; the first error is kept."""
        self.error = self.error or error
        self.stop()

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """Return a wrapper of `function` for generated code: it catches every exception and stops the launch."""

        def call(*arguments: int) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # generated code cannot propagate it, Ctrl-C neither: the caller of the launch raises it
                self.keep(error)

        return call

    def run(self, works: Sequence[Callable[[], int]], look: Callable[[], None]) -> int:
        """Run all `works` in parallel and return FINISHED if all of them did, else BROKEN; an exception meanwhile stops them and is kept.

        `look` is called while this thread waits. A single work outside the main thread runs in this thread, and must call `look` itself.
        """
        if len(works) == 1 and threading.current_thread() is not threading.main_thread():
            self.is_alone = True
            return works[0]()
        results: list[int] = []
        gate: SimpleQueue[bool] = SimpleQueue()
        ends = [threading.Event() for _ in works]

        def run(work: Callable[[], int], end: threading.Event) -> None:
            try:
                if gate.get():
                    results.append(work())
            except BaseException as error:  # it would end this thread alone; the caller of the launch raises it
                self.keep(error)
            finally:
                end.set()

        begun = False
        try:
            for work, end in zip(works, ends, strict=True):
                threading.Thread(target=run, args=(work, end), name="memlane launch", daemon=True).start()
            begun = True
            self._open(gate, len(works), begun)
        except BaseException as error:  # Ctrl-C may arrive anywhere here; it is raised when all threads have ended
            self.keep(error)
            self._open(gate, len(works), begun)  # after an exception before the gate opened, started threads must not work
        if begun:
            self._wait(ends, look)
        return FINISHED if results == [FINISHED] * len(works) else BROKEN

    @staticmethod
    def _open(gate: SimpleQueue[bool], count: int, begun: bool) -> None:
        for _ in range(count):
            gate.put(begun)

    def _wait(self, ends: Sequence[threading.Event], look: Callable[[], None]) -> None:
        while True:
            try:
                for end in ends:
                    while not end.wait(_POLL_S):
                        if self.error is not None or self._workers[0]["faulting_worker"]:
                            self.stop()
                        else:
                            look()
                return
            except BaseException as error:  # Ctrl-C, or what `look` raises: it is raised when all threads have ended
                self.keep(error)

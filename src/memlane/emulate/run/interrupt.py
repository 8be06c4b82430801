"""Python and generated code at the same time: errors that must not pass through generated code, and Ctrl-C.

Signals are handled by the main thread, between two steps of Python. Were it to run a launch, Ctrl-C would have to wait for the launch to
come back, or would strike in a function that generated code calls, before that function could catch anything. So a launch of the main
thread runs in a thread of its own, or in one for each worker, while the main thread waits, and tells it to stop when it gets something to
raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.emulate.layout import BLOCK_BYTES, BROKEN, FINISHED, INTERRUPTED, NO_FAULT, WARP, offset

_LOOK_S = 0.05
"""How often the main thread looks up: a signal that another thread received does not wake it."""


class Halt:
    """Stops one launch from Python, and keeps the error that is to be raised for it."""

    def __init__(self, crew: npt.NDArray[Any], contexts: npt.NDArray[Any], slots: npt.NDArray[np.uint8]) -> None:
        """The records of the launch: what its workers share, what each has, and their slots."""
        self._crew, self._contexts, self._slots = crew, contexts, slots
        self.error: BaseException | None = None
        self.is_alone = False
        """Whether no thread waits for the one that runs the launch, so that it looks up itself."""

    def stop(self) -> None:
        """Let every warp stop at its next back edge, barrier or exit.

        Generated code keeps the books on its budgets without a thought to us, so an order may get lost: repeat it until the launch ends.
        """
        faults, crew, record = self._contexts["fault"], self._crew[0], self._contexts[0]
        running = faults == NO_FAULT
        if crew["culprit"]:
            running[crew["culprit"] - 1] = False  # it is about to write down its fault, which is not to be lost
        faults[running] = INTERRUPTED
        taken = min(int(crew["slots_taken"]), int(record["slot_count"]))
        shape = taken, int(record["warps"])
        start, steps = BLOCK_BYTES + offset(WARP, "budget"), (int(record["slot_bytes"]), int(record["warp_bytes"]))
        np.ndarray(shape, np.int32, self._slots.data, start, steps)[:] = -1

    def keep(self, error: BaseException) -> None:
        """Stop because of an error, the first of which is kept."""
        self.error = self.error or error
        self.stop()

    def guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function for generated code to call: no exception leaves it."""

        def call(*arguments: int) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # generated code cannot pass it on, Ctrl-C neither: who started the launch raises it
                self.keep(error)

        return call

    def run(self, works: Sequence[Callable[[], int]], look: Callable[[], None]) -> int:
        """Do all `works` at a time, which run generated code: FINISHED if all are. What strikes meanwhile stops them, and is kept.

        `look` is called while this thread waits; where it has one work and does it itself, because it is not the main thread, the work is
        to call it.
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
            except BaseException as error:  # it would end this thread alone; who started the launch raises it
                self.keep(error)
            finally:
                end.set()

        begun = False
        try:
            for work, end in zip(works, ends, strict=True):
                threading.Thread(target=run, args=(work, end), name="memlane launch", daemon=True).start()
            begun = True
            self._open(gate, len(works), begun)
        except BaseException as error:  # Ctrl-C may strike anywhere here; it is raised when all threads have ended
            self.keep(error)
            self._open(gate, len(works), begun)  # what struck before the gate opened leaves threads that must not work, or none
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
                    while not end.wait(_LOOK_S):
                        if self.error is not None or self._crew[0]["culprit"]:
                            self.stop()
                        else:
                            look()
                return
            except BaseException as error:  # Ctrl-C, or what `look` raises: it is raised when all threads have ended
                self.keep(error)

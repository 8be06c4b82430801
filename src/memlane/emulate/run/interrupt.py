"""Python and generated code at the same time: errors that must not pass through generated code, and Ctrl-C.

Signals are handled by the main thread, between two steps of Python. Were it to run a launch, Ctrl-C would have to wait for the launch to
come back, or would strike in a function that generated code calls, before that function could catch anything. So a launch of the main
thread runs in a thread of its own, while the main thread waits, and tells it to stop when it gets something to raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.emulate.layout import BLOCK_BYTES, BROKEN, INTERRUPTED, NO_FAULT, WARP, offset

_LOOK_S = 0.05
"""How often the main thread looks up: a signal that another thread received does not wake it."""


class Halt:
    """Stops one launch from Python, and keeps the error that is to be raised for it."""

    def __init__(self, context: npt.NDArray[Any], slots: npt.NDArray[np.uint8]) -> None:
        self._context, self._slots = context, slots
        self.error: BaseException | None = None
        self.is_alone = False
        """Whether no thread waits for the one that runs the launch, so that it looks up itself."""

    def stop(self) -> None:
        """Let every warp stop at its next back edge, barrier or exit.

        Generated code keeps the books on its budgets without a thought to us, so an order may get lost: repeat it until the launch ends.
        """
        record = self._context[0]
        if record["fault"] == NO_FAULT:
            record["fault"] = INTERRUPTED
        shape = int(record["active"]), int(record["warps"])
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
            except BaseException as error:
                self.keep(error)

        return call

    def run(self, work: Callable[[], int], look: Callable[[], None]) -> int:
        """The result of `work`, which runs generated code; what strikes meanwhile stops it, and is kept.

        `look` is called while the main thread waits; where it is another thread that launches, `work` is to call it.
        """
        if threading.current_thread() is not threading.main_thread():
            self.is_alone = True
            return work()
        results: list[int] = []
        gate: SimpleQueue[bool] = SimpleQueue()
        done = threading.Event()

        def run() -> None:
            try:
                if gate.get():
                    results.append(work())
            except BaseException as error:
                self.keep(error)
            finally:
                done.set()

        begun = False
        try:
            threading.Thread(target=run, name="memlane launch", daemon=True).start()
            begun = True
            gate.put(True)
        except BaseException as error:
            self.keep(error)
            gate.put(begun)  # what struck before the gate opened leaves a thread that must not work, or none
        if begun:
            self._wait(done, look)
        return results[0] if results else BROKEN

    def _wait(self, done: threading.Event, look: Callable[[], None]) -> None:
        while True:
            try:
                while not done.wait(_LOOK_S):
                    if self.error is not None:
                        self.stop()
                    else:
                        look()
                return
            except BaseException as error:
                self.keep(error)

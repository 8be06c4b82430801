"""Ctrl-C in the middle of a launch, for scripts that tests run in a process of their own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from memlane.launch import following

SOON = 2
"""Seconds of the processor's time, of all threads together."""


def interrupted(run: Callable[[], object]) -> str:
    """How `run` took a Ctrl-C that strikes when its launch is said to run, however long it takes to compile."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    running, struck = threading.Event(), []

    def strike() -> None:
        running.wait()
        struck.append(time.process_time())
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=strike, daemon=True).start()
    try:
        with following(lambda launch, done: running.set()):
            run()
    except KeyboardInterrupt:
        return "stopped soon" if time.process_time() - struck[0] < SOON else "stopped late"
    return "went on to its end"

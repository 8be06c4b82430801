"""The work that some code does, which no other process changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

TraceFunction = Callable[[FrameType, str, object], object]


def steps_of(run: Callable[[], object]) -> int:
    """Return the number of lines of Python that are executed while `run` runs."""
    steps = 0

    def step(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal steps
        steps += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        run()
    finally:
        sys.settrace(before)
    return steps

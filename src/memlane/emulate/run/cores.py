"""How many threads of this process can run at a time."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says how much time of processors a container gets: microseconds, or `max`, in each so many microseconds."""


def usable_cores() -> int:
    """The cores that the process may use, or fewer where its container gets the time of fewer: more threads would wait for each other's
    turn."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(bound, _granted())))


def _granted() -> float:
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf

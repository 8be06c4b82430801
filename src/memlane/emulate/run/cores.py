"""Count the threads that this process can run in parallel."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Linux's file with the CPU quota of a container: microseconds, or `max`, per period in microseconds."""


def usable_cores() -> int:
    """Return the cores that the process may use, bounded by its container's CPU quota: more threads would only wait for each other."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(bound, _granted())))


def _granted() -> float:
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf

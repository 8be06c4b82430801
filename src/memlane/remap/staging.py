"""Copy on the host, as host functions of a plan: with several threads, any strides, and byte swapping."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

COPY = "memlane.remap.staging:copy"
"""Name of `copy` in plans."""
MOST_THREADS = 8
"""Maximum number of threads; more were slower beside an H200 with 16 processors: 81 ms for 1 GiB with 16 threads, 55 ms with 8."""
_LEAST = 1 << 20
"""Minimum bytes per thread for a further thread to pay."""


def default_threads() -> int:
    """Return the number of copying threads on this host: half of the available processors, at most 8."""
    return max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // 2 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 2) // 2))


def copy(to: npt.NDArray[Any], of: npt.NDArray[Any], threads: int) -> None:
    """Copy the elements of one array to another of the same shape, which may have the other byte order."""
    if to.dtype.byteorder == of.dtype.byteorder or to.dtype.kind == "V":
        to, of = _as_bytes(to, of)
    parts = min(threads, max(1, to.nbytes // _LEAST), max(1, to.shape[0] if to.ndim else 1))
    if parts < 2:
        np.copyto(to, of)
        return
    borders = [len(to) * part // parts for part in range(parts + 1)]
    # Building the list raises exceptions of the threads.
    list(_pool(threads).map(lambda ends: np.copyto(to[ends[0] : ends[1]], of[ends[0] : ends[1]]), pairwise(borders)))


def _as_bytes(to: npt.NDArray[Any], of: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return two arrays as bytes if both are contiguous, which copies at memory speed; else as plain elements."""
    if to.flags.c_contiguous and of.flags.c_contiguous:
        return to.reshape(-1).view(np.uint8), of.reshape(-1).view(np.uint8)
    plain = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}.get(to.itemsize, f"V{to.itemsize}")
    return to.view(plain), of.view(plain)


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "memlane-staging")

"""Match observed accesses to records."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def match_by_time(group: IntArray, start: IntArray, end: IntArray, seen_group: IntArray, seen_at: IntArray) -> IntArray:
    """Return for each record the index of the access that was observed within it, or -1.

    A record of `group` lasted from `start` to `end`; an access of `seen_group` left its warp at `seen_at`. All times are of one clock. A
    record matches the first access of its group at or after its start, if that is not after its end; so a dropped record does not shift the
    matches of others.
    """
    records, seen = len(group), len(seen_group)
    groups = np.concatenate([seen_group, group])
    times = np.concatenate([seen_at, start])
    is_record = np.concatenate([np.zeros(seen, np.int8), np.ones(records, np.int8)])
    # A record sorts before an access of the same time, because both may fall into one cycle.
    order = np.lexsort((1 - is_record, times, groups))
    following = _next_seen(order, seen)
    found = np.full(records, -1, np.int64)
    positions = np.flatnonzero(order >= seen)
    found[order[positions] - seen] = following[positions]
    fits = found >= 0
    candidates = found[fits]
    fits[fits] = (seen_group[candidates] == group[fits]) & (seen_at[candidates] <= end[fits])
    return np.where(fits, found, -1)


def _next_seen(order: npt.NDArray[Any], seen: int) -> IntArray:
    """Return for each position in `order` the first access (an index below `seen`) at or after it, -1 if there is none."""
    places = np.where(order < seen, np.arange(len(order)), len(order))
    next_place = np.minimum.accumulate(places[::-1])[::-1]
    extended = np.append(order, -1)
    return extended[next_place].astype(np.int64)

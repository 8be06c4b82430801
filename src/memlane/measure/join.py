"""Which observed access belongs to which record."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def match_by_time(group: IntArray, start: IntArray, end: IntArray, seen_group: IntArray, seen_at: IntArray) -> IntArray:
    """For each record the index of the access that was seen within it, or -1.

    A record of `group` lasted from `start` to `end`; an access of `seen_group` left its warp at `seen_at`. All are of one clock. The access
    of a record is the first of the same group at or after its start, if it is not after its end; so a lost record costs no other its match.
    """
    records, seen = len(group), len(seen_group)
    groups = np.concatenate([seen_group, group])
    times = np.concatenate([seen_at, start])
    is_record = np.concatenate([np.zeros(seen, np.int8), np.ones(records, np.int8)])
    # A record stands before an access of the same time, because both may fall into one cycle.
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
    """For each position in `order` the access (an index below `seen`) that stands there or is the next to stand, -1 if none does."""
    places = np.where(order < seen, np.arange(len(order)), len(order))
    next_place = np.minimum.accumulate(places[::-1])[::-1]
    extended = np.append(order, -1)
    return extended[next_place].astype(np.int64)

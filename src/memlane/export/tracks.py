"""Lay out the tracks of a time-line viewer: each access on the track of its warp's slot, on one axis of nanoseconds.

A slot is a place of an SM that holds one warp at a time. The hardware does not report the slot of a warp, so slots are assigned here: a
warp takes the lowest one that is free when it begins.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.errors import RecordError
from memlane.record import TimeAxis, Trace, time_axis

Ints = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lives:
    """The traced warps: life time and slot of each in its SM."""

    sm: Ints
    place: Ints
    """Number of the SM, unique across devices (`Trace.sms_apart`), by which viewers sort."""
    slot: Ints
    launch: Ints
    block: Ints
    warp: Ints
    begin_ns: Times
    end_ns: Times

    @property
    def slots(self) -> int:
        """Largest number of slots of an SM."""
        return int(self.slot.max()) + 1 if len(self.slot) else 0


@dataclass(frozen=True, eq=False)
class Tracks:
    """The rows of a trace with their times in ns since its first anchor, and the life (an index into `lives`) of each."""

    lives: Lives
    life: Ints
    lane: Ints
    """0 for an access that overlaps no earlier one of its warp, else the lowest lane that is free when it starts."""
    start_ns: Times
    end_ns: Times
    order: Ints
    """Rows ordered by life, and in it by start."""
    axis: TimeAxis


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of a time-line viewer: one for each slot of each SM, and below it one for each further lane of its warps."""

    places: list[tuple[int, int, int]]
    """SM (as in `Lives.place`), slot and lane of each line."""
    of_row: Ints
    """Line of each access, as an index into `places`."""
    of_life: Ints

    @property
    def sms(self) -> list[int]:
        """SMs that have lines, ascending."""
        return sorted({sm for sm, _, _ in self.places})


def lines(drawn: Tracks) -> Lines:
    """Return the lines that the accesses and lives of `drawn` take."""
    lives, lanes = drawn.lives, drawn.lane
    wide, deep = lives.slots + 1, int(lanes.max()) + 1 if len(lanes) else 1
    of_life = (lives.place * wide + lives.slot) * deep
    keys = np.concatenate((of_life, of_life[drawn.life] + lanes))
    distinct, index = np.unique(keys, return_inverse=True)
    places = [(key // deep // wide, key // deep % wide, key % deep) for key in distinct.tolist()]
    return Lines(places, index[len(of_life) :], index[: len(of_life)])


def line_name(slot: int, lane: int) -> str:
    """Return the name of a line."""
    return f"slot {slot}" if lane == 0 else f"slot {slot}, overlapping {lane}"


def tracks(trace: Trace) -> Tracks:
    """Return the tracks of `trace`. Raises RecordError if it does not tell how its clocks are related."""
    axis = time_axis(trace)
    warps = trace.warps
    columns = {name: trace.table[name].to_numpy() for name in ("launch", "block", "warp", "sm", "start", "end")}
    life = _lives_of_rows(columns, warps)
    start, end = (axis.ns(columns["launch"], columns["sm"], columns[name]) for name in ("start", "end"))
    begins = axis.ns(warps["launch"], warps["sm"], warps["begin_cycles"])
    ends = axis.ns(warps["launch"], warps["sm"], warps["end_cycles"])
    ends = np.where(warps["end_ns"] > 0, ends, begins)
    if np.isnan(begins).any() or np.isnan(start).any():
        raise RecordError(
            "this trace does not contain the clock rate of its chip, and its launches are too short to determine it, so there is "
            "no common time axis"
        )
    np.minimum.at(begins, life, start)
    np.maximum.at(ends, life, end)
    places = trace.sms_apart(warps["launch"], warps["sm"])
    slots = _slots(places, begins, ends)
    named = {name: warps[name].astype(np.int64) for name in ("sm", "launch", "block", "warp")}
    order = _order(life, start)
    return Tracks(
        Lives(place=places, slot=slots, begin_ns=begins, end_ns=ends, **named),
        life,
        _lanes(life, start, end, order),
        start,
        end,
        order,
        axis,
    )


def _lives_of_rows(rows: dict[str, npt.NDArray[Any]], warps: npt.NDArray[Any]) -> Ints:
    """Return the index into `warps` of each row's warp."""
    wide = [max(int(part[name].max()) + 1 if len(part[name]) else 1 for part in (rows, warps)) for name in ("block", "warp")]
    keys, wanted = (
        (part["launch"].astype(np.int64) * wide[0] + part["block"].astype(np.int64)) * wide[1] + part["warp"].astype(np.int64)
        for part in (warps, rows)
    )
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, wanted, sorter=order)
    found = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(wanted), np.int64)
    if len(wanted) and (not len(order) or (keys[found] != wanted).any()):
        raise RecordError("this trace lacks the clocks of some of its warps, so their accesses cannot be placed on a common time axis")
    return found.astype(np.int64)


def _order(life: Ints, start: Times) -> Ints:
    """Return the rows ordered by life and start; those of a life are mostly adjacent and ascending already, which makes this fast."""
    order = np.argsort(life, kind="stable")
    grouped, starts = life[order], start[order]
    return np.lexsort((start, life)) if ((starts[1:] < starts[:-1]) & (grouped[1:] == grouped[:-1])).any() else order


def _lanes(life: Ints, start: Times, end: Times, order: Ints) -> Ints:
    lanes = np.zeros(len(life), np.int64)
    grouped, starts, ends = life[order], start[order], end[order]
    overlaps = (grouped[1:] == grouped[:-1]) & (starts[1:] < ends[:-1])
    for one in np.unique(grouped[1:][overlaps]).tolist():
        first, last = np.searchsorted(grouped, [one, one + 1]).tolist()
        lanes[order[first:last]] = _first_free(starts[first:last].tolist(), ends[first:last].tolist())
    return lanes


def _first_free(starts: list[float], ends: list[float]) -> list[int]:
    """Return the lowest lane that is free at the start of each interval; intervals are ordered by start."""
    free_at: list[float] = []
    chosen = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((number for number, time in enumerate(free_at) if time <= start), len(free_at))
        free_at[lane : lane + 1] = [end]
        chosen.append(lane)
    return chosen


def _slots(sm: npt.NDArray[Any], begins: Times, ends: Times) -> Ints:
    """Return the lowest free slot of its SM for each warp; a slot is free a nanosecond after its last warp ended."""
    slots = np.zeros(len(sm), np.int64)
    for number in np.unique(sm).tolist():
        own = np.flatnonzero(sm == number)
        own = own[np.argsort(begins[own], kind="stable")]
        free: list[int] = []
        busy: list[tuple[float, int]] = []
        for index, begin, end in zip(own.tolist(), begins[own].tolist(), ends[own].tolist(), strict=True):
            while busy and busy[0][0] + 1 <= begin:
                heapq.heappush(free, heapq.heappop(busy)[1])
            slot = heapq.heappop(free) if free else len(busy)
            slots[index] = slot
            heapq.heappush(busy, (end, slot))
    return slots

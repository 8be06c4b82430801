"""Say what several devices gain over one from the rows of a benchmark of stencils, and keep the rows that a run does not measure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import Row
from stencil_scaling_cases import CASES, REACHES, SPEED_UPS, SPEED_UPS_EACH_STEP, WEAK, WEAK_REACH, named

NO_TIME = "left out: no time was left for it"
TWICE = "2 slabs of one device"
"""One GPU that stands for two: what exchanges and borders cost where nothing is faster for them."""
BY = {"": ("peer", "host"), " by flags": ("flags",), " by persistent kernels": ("persistent",)}
"""Transports by what a case is called with them. Each case is a process: GPUs that wait for a flag in vain lose their context."""
COUNTS = (1, 2, 4, 8)
BEST = "time of a step, best k and transport"
OF_ALL = "time of a step, best of all"
EACH_STEP = "time of a step, k = 1"
SLOWER = "slower than is to be reached; the rows beside it say what a step waits for"
_GAINS = ("speed-up over one device", "speed-up, k = 1", "efficiency", "efficiency, k = 1")


def speed_ups(rows: Sequence[Row], is_stated: bool) -> list[Row]:
    """Return what several devices gain over one, from the rows of all cases. `is_stated`: whether H200s were measured."""
    found = list(_best_of_all(rows, is_stated))
    for metric, reaches, title in ((BEST, SPEED_UPS, "speed-up over one device"), (EACH_STEP, SPEED_UPS_EACH_STEP, "speed-up, k = 1")):
        us = {case: row.value for case, row in _fastest(rows, metric).items() if row.value is not None}
        for name in (*CASES, WEAK):
            alone = us.get(named(name, 1))
            for count in COUNTS[1:]:
                several = us.get(named(name, count))
                if alone is None or several is None:
                    continue
                reach = WEAK_REACH.get(count) if name == WEAK and metric == BEST else reaches.get((name, count))
                reach = reach if is_stated else None
                value = round(alone / several, 4)
                words = title if name != WEAK else title.replace("speed-up over one device", "efficiency").replace("speed-up", "efficiency")
                note = "" if reach is None or value >= reach else SLOWER
                found.append(Row(named(name, count), words, value, "", reach, "higher", note=note))
    return found


def _fastest(rows: Sequence[Row], metric: str) -> dict[str, Row]:
    """Return by case the row with the least time, whichever transports it was measured with."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.metric == metric and row.value is not None:
            case = split(row.case)[0]
            found[case] = min(found.get(case, row), row, key=lambda one: one.value or 0.0)
    return found


def _best_of_all(rows: Sequence[Row], is_stated: bool) -> Iterator[Row]:
    for case, row in _fastest(rows, BEST).items():
        name, _, devices = case.rpartition(", ")
        count = 0 if devices == TWICE else int(devices.split()[0])
        reach = REACHES.get((name, count)) if is_stated else None
        missed = reach is not None and row.value is not None and row.value > reach
        yield Row(case, OF_ALL, row.value, "us", reach, note=f"{row.note}; {SLOWER}" if missed else row.note)


def split(title: str) -> tuple[str, str]:
    """Return a case without what says its transports, and that."""
    by = next((one for one in BY if one and title.endswith(one)), "")
    return title.removesuffix(by), by


def earlier(path: Path) -> list[Row]:
    """Return the measured rows of an earlier result, with where they come from in their notes."""
    if not path.exists():
        return []
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**{name: value for name, value in row.items() if name != "holds"}) for row in document["rows"]]
    from_there = f"measured at commit {document['commit'][:12]}, {document['date']}"
    own = [row for row in rows if row.metric != OF_ALL and not row.note.startswith(NO_TIME)]
    return [row if "measured at commit" in row.note else Row(**{**vars(row), "note": "; ".join(filter(None, (row.note, from_there)))})
            for row in own]  # fmt: skip


def over_all(before: Sequence[Row], names: Sequence[str], rows: Sequence[Row], is_stated: bool) -> list[Row]:
    """Return the rows that stand beside those of the cases measured now: the earlier rows of all others, and what several devices gain.

    A gain that was known stays if its case is not measured now: one device may be measured now with other kernels.
    """
    measured_now = set(names) - {row.case for row in rows if row.note == NO_TIME}
    kept = [row for row in before if not any(row.case == one or row.case.startswith(f"{one}, ") for one in measured_now)]
    known = {(row.case, row.metric): row for row in before if row.metric in _GAINS}
    kept = [row for row in kept if row.metric not in _GAINS]
    now = {split(name)[0] for name in measured_now}
    gains = speed_ups([*kept, *rows], is_stated)
    return [*kept, *(row if row.case in now else known.get((row.case, row.metric), row) for row in gains)]

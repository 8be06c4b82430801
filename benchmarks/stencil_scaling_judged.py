"""Compare measured steps of stencils on several devices with the model that chooses k, at once or later.

A row `steps that share a launch` says beside the times of a case which kernels ran. So a model that has changed since can be compared with
the same times: `stencil_scaling.py --rejudge h200` renews the rows of this module in a result, and leaves all times as they are, with the
commit and the date of their measurement. It leaves out times of plans and kernels that memlane does not make any more (`OLDER_PLANS`).
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from math import prod
from pathlib import Path

from harness import Row, commit
from stencil_scaling_cases import EVERY, case_of
from stencil_scaling_gains import BEST, TWICE, split

from memlane.chip import Chip, load
from memlane.errors import NetworkError, StencilError
from memlane.lab.stencil.cases import Case
from memlane.stencils.scaling import best_exchange

SHARED_BY = "steps that share a launch"
CHOSEN = "k and overlap chosen by the model over the best"
ERRORS = {"average": 0.1, "worst": 0.2}
"""How far the model may be off, by the end of a metric."""
OLDER_PLANS = ("65d225396f8a", "3c1296b333cf", "258525129aa5", "7d372ba8c853", "9ad3a81847ee", "090477019680")
"""Commits at which each copy still waited for the neighbour's border, each border for the copies of both sides, and kernels of several
steps were 1 to 8 % slower. The model is of the plans and kernels since 383a20f59b55."""
_AGAIN = "judged again"
_MEASURED = re.compile(r"measured at commit (?P<commit>[0-9a-f]+)")
_SETTING = re.compile(r"(?P<transport>[a-z]+)(, (?P<parts>\d+(x\d+)*))?, k = (?P<k>\d+)(?P<apart>, not overlapped)?$")


@dataclass(frozen=True)
class Setting:
    """The exchange settings of a run."""

    transport: str
    k: int
    overlap: bool
    parts: tuple[int, ...] = ()
    """Along each axis; empty: slabs along Z."""

    def __str__(self) -> str:
        where = f", {'x'.join(map(str, self.parts))}" if self.parts else ""
        return f"{self.transport}{where}, k = {self.k}{'' if self.overlap else ', not overlapped'}"

    @classmethod
    def of(cls, text: str) -> Setting:
        """Return the setting that a row names so."""
        found = _SETTING.match(text)
        if found is None:
            raise ValueError(f"{text!r} is no setting, as 'peer, 1x2x1, k = 2, not overlapped'")
        parts = tuple(int(one) for one in (found["parts"] or "").split("x") if one)
        return cls(found["transport"], int(found["k"]), found["apart"] is None, parts)


def settings_of(case: Case, count: int, transports: Sequence[str], quick: bool) -> Iterator[Setting]:
    """Yield all settings: slabs, and behind them all other ways to cut the grid, overlapped."""
    if transports == ("persistent",):
        yield from (Setting("persistent", k, True) for k in ((1, 2) if quick else (1, 2, 3, 4)))
        return
    for k in EVERY[: 2 if quick else None]:
        yield from (Setting(transport, k, overlap) for transport in transports for overlap in (True, False))
    ways = [parts for parts in product(range(1, count + 1), repeat=len(case.shape)) if prod(parts) == count and parts[0] < count]
    for k in (1,) if quick else (1, 2, 4):
        yield from (Setting(transport, k, True, parts) for parts in ways for transport in transports if transport != "host")


def predicted_us(case: Case, chip: Chip, count: int, setting: Setting, fused: int | None = None) -> float:
    """Return the time of a setting by the model that chooses k, in us, with so many steps a launch; None takes the fastest number."""
    for transport in (setting.transport, ""):
        try:
            return best_exchange(
                case.problem, count, chip=chip, transport=transport if count > 1 else "", candidates=[setting.k],
                steps_per_launch=fused, overlap=setting.overlap, decomposition=setting.parts,
            ).step_us  # fmt: skip
        except NetworkError:  # the chip's file has no such link
            continue
    return 50.0  # nobody knows


def model_rows(
    where: str, case: Case, chip: Chip, count: int, times: Mapping[Setting, float], fused: Mapping[Setting, int], asked: Iterable[Setting]
) -> Iterator[Row]:
    """Yield the loss by the model's choice, and the errors of its times.

    The model chooses among all `asked` settings. If there was no time for the one that it takes, the loss is not known.
    """
    expected = {one: predicted_us(case, chip, count, one, fused[one]) for one in times}
    for one in asked:
        with suppress(StencilError):  # too many steps for a slab
            expected.setdefault(one, predicted_us(case, chip, count, one))
    for transport in dict.fromkeys(setting.transport for setting in times):
        own, expected_of_it = ([one for one in some if one.transport == transport] for some in (times, expected))
        chosen, best = min(expected_of_it, key=lambda one: expected[one]), min(own, key=lambda one: times[one])
        if chosen in times:
            yield Row(
                f"{where}, {transport}", CHOSEN, round(times[chosen] / times[best], 4), "", 1.05, note=f"chosen: {chosen}; best: {best}"
            )
        else:
            note = f"chosen: {chosen}, which was not measured; best of {len(own)} measured settings: {best}"
            yield Row(f"{where}, {transport}", CHOSEN, None, "", note=note)
        errors = [expected[one] / times[one] - 1 for one in own]
        peer = {str(one).partition(", ")[2]: round(error, 3) for one, error in zip(own, errors, strict=True)}
        values = {"average": round(statistics.mean(map(abs, errors)), 4), "worst": round(max(map(abs, errors)), 4)}
        for end, reach in ERRORS.items():
            note = "" if values[end] <= reach else "docs/scaling.md says what the model was fitted to and what it leaves out"
            yield Row(f"{where}, {transport}", _error(end), values[end], "", reach, peer=peer, note=note)


def _error(end: str) -> str:
    return f"predicted over measured, less 1, {end}"


def shared_row(where: str, fused: Mapping[Setting, int], note: str = "") -> Row:
    """Return how many steps shared a launch in each setting of a case."""
    return Row(where, SHARED_BY, float(len(fused)), "settings", peer={str(one): float(steps) for one, steps in fused.items()}, note=note)


# -- a result that is there ------------------------------------------------------------------------------------------------------


def rejudge(path: Path) -> list[Row]:
    """Renew what the rows of a result say about the model, and return these rows.

    Times, their notes, and the commit, date and command of the result stay. Rows of cases without a row `steps that share a launch` stay
    too, and so do those of one GPU that stands for two and those measured at one of `OLDER_PLANS`.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**{name: value for name, value in row.items() if name != "holds"}) for row in document["rows"]]
    words = f"{_AGAIN} on {datetime.now(UTC):%Y-%m-%d} by the model of commit {commit()[:12]}"
    now = {(row.case, row.metric): row for row in judged(rows, load(document["chip"]), document["commit"])}
    found = [_renewed(row, now.get((row.case, row.metric)), words, document["chip"] == "h200") for row in rows]
    document["rows"] = [row.as_json() for row in found]
    path.write_text(json.dumps(document, indent=1) + "\n")
    return [row for row in found if (row.case, row.metric) in now]


def has_older_plans(note: str, commit: str) -> bool:
    """Return whether a row was measured with older plans, by its note or else by the commit of its document."""
    found = _MEASURED.search(note)
    return (found["commit"] if found else commit).startswith(OLDER_PLANS)


def judged(rows: list[Row], chip: Chip, commit: str) -> Iterator[Row]:
    """Yield what the model makes of the stored times of all cases whose kernels are known and whose plans are those of today."""
    known = {row.case: row for row in rows if row.metric == SHARED_BY}
    for row in rows:
        name, _, devices = split(row.case)[0].rpartition(", ")
        if row.metric != BEST or row.case not in known or devices == TWICE or not row.peer or has_older_plans(row.note, commit):
            continue
        count, fused = int(devices.split()[0]), known[row.case].peer
        times = {Setting.of(text): us for text, us in row.peer.items() if text in fused}
        steps_per_launch, case = {Setting.of(text): int(fused[text]) for text in fused}, case_of(name, count)
        asked = settings_of(case, count, tuple(dict.fromkeys(one.transport for one in times)), quick=False)
        yield from model_rows(row.case, case, chip, count, times, steps_per_launch, asked)


def _renewed(old: Row, new: Row | None, words: str, is_h200: bool) -> Row:
    """Return a row with a new value and note, and what was said of its measurement. Only H200s have a reach."""
    if new is None:
        return old
    measured = [part for part in old.note.split("; ") if part.startswith("measured at commit")]
    note = "; ".join(filter(None, (new.note, words, *measured)))
    return Row(**{**vars(new), "reach": new.reach if is_h200 else None, "note": note})

"""Select the examples of a trace from those that a target kept of its launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from memlane.chip import ACCESS_KINDS
from memlane.chip.model import WIDTHS
from memlane.launch import SPACE_NAMES, Observation
from memlane.record import AccessExample


@dataclass(frozen=True)
class ObservedRun:
    """One run of a launch, as a target observed it."""

    launch: int
    """Number of the launch in the trace."""
    observation: Observation
    sites: Mapping[int, int]
    """Number of the site in the trace, by index of an instruction of the kernel that ran."""


def chosen_examples(runs: Iterable[ObservedRun]) -> list[AccessExample]:
    """Return for each site and space the worst access over all runs, and the first one if it has fewer transactions; ordered by site."""
    first: dict[tuple[int, bool], AccessExample] = {}
    worst: dict[tuple[int, bool], AccessExample] = {}
    for run in runs:
        for example in examples_of(run):
            key = example.site, example.space == "shared"
            if not example.worst:
                first.setdefault(key, example)
            elif key not in worst or example.transactions > worst[key].transactions:
                worst[key] = example
    fewer = [one for key, one in first.items() if one.transactions < worst[key].transactions]
    return sorted([*fewer, *worst.values()], key=lambda one: (one.site, one.space, one.worst))


def asked_examples(runs: Iterable[ObservedRun]) -> list[AccessExample]:
    """Return for each site and space the requested access, from the first run that has it."""
    found: dict[tuple[int, bool], AccessExample] = {}
    for run in runs:
        for example in examples_of(run):
            if not example.worst:
                found.setdefault((example.site, example.space == "shared"), example)
    return [found[key] for key in sorted(found)]


def examples_of(run: ObservedRun) -> list[AccessExample]:
    """Return all examples that the target kept of one run at the sites of the trace, in order of time."""
    seen = run.observation
    if seen.examples is None:
        return []
    rows = seen.examples[np.argsort(seen.examples["row"], kind="stable")]
    # The rules of chips do not cover wider accesses.
    mine = [row for row in rows if run.sites.get(int(row["instruction"]), -1) >= 0 and int(row["nbytes"]) in WIDTHS]
    return [_example(run, row) for row in mine]


def _example(run: ObservedRun, row: Any) -> AccessExample:
    """Return an example of the trace from a row of the observation."""
    mask = int(row["mask"])
    return AccessExample(
        launch=run.launch,
        site=run.sites[int(row["instruction"])],
        space=SPACE_NAMES[int(row["space"])],
        access=ACCESS_KINDS[int(row["kind"])],
        worst=bool(row["worst"]),
        block=int(row["block"]),
        warp=int(row["warp"]),
        execution=_execution(run.observation, row),
        active_mask=mask,
        nbytes=int(row["nbytes"]),
        addresses=tuple(int(address) if mask >> lane & 1 else 0 for lane, address in enumerate(row["addresses"])),
        transactions=int(row["transactions"]),
        ideal=int(row["ideal"]),
    )


def _execution(seen: Observation, row: Any) -> int | None:
    """Return how many accesses of the same warp by the same instruction to the same space came before; None if the rows were not kept."""
    if row["row"] < 0 or seen.accesses is None:
        return None
    before = seen.accesses[: int(row["row"])]
    places = np.flatnonzero(before["instruction"] == row["instruction"])
    for name in ("block", "warp", "space"):
        places = places[before[name][places] == row[name]]
    return len(places)

"""Traces of one kernel made by hand, on a chip whose calibration is known: what the rules that go by times are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.diagnose import Finding, explain
from memlane.record import WARP_DTYPE, ArrayArgument, BranchCounts, Site, SiteCounts, Trace, build_trace
from tests.synthetic import NAIVE, SOURCE, launch
from tests.synthetic import site as plain_site

FULL = 0xFFFFFFFF
WINDOW = 5.0


def site(number: int, op: str = "ld.global.f32", line: int = 4, **changes: Any) -> Site:
    """Whose address comes from the second argument."""
    return plain_site(number, op, line, **{"address_parameters": (1,), "argument": 1, **changes})


@dataclass(frozen=True)
class Accesses:
    """Of one site: net cycles by block, warp and execution."""

    site: Site
    cycles: npt.NDArray[np.int64]
    mask: int = FULL


def accesses(where: Site, cycles: object, shape: tuple[int, int, int], mask: int = FULL) -> Accesses:
    """`cycles` are spread over blocks, warps and executions."""
    return Accesses(where, np.broadcast_to(np.asarray(cycles, np.int64), shape).copy(), mask)


def counted(where: Site, requests: int, lanes: int = 32, **per_request: float) -> SiteCounts:
    totals: dict[str, Any] = {name: round(value * requests) for name, value in per_request.items()}
    return SiteCounts(where, requests, lanes * requests, lanes * requests * where.nbytes, **totals)


def arrays(arguments: Sequence[str]) -> tuple[ArrayArgument, ...]:
    """The arrays among arguments that are written as `f4[1024]`."""
    parts = [(place, *one.rstrip("]").split("[")) for place, one in enumerate(arguments) if "[" in one]
    return tuple(ArrayArgument(place, int(dtype[1:]) * int(length), dtype, (int(length),)) for place, dtype, length in parts)


def trace(
    made: Sequence[Accesses],
    counts: Sequence[SiteCounts] = (),
    branches: Sequence[BranchCounts] = (),
    *,
    lives: object = 100_000,
    sms: Sequence[int] | None = None,
    **of_launch: Any,
) -> Trace:
    """Warps that live so long (by block and warp), each block on the SM of its number or on those given."""
    blocks, warps = (max(one.cycles.shape[axis] for one in made) for axis in (0, 1))
    place = np.arange(blocks) if sms is None else np.asarray(sms)
    parts = []
    for one in made:
        block, warp, execution = (axis.ravel() for axis in np.indices(one.cycles.shape))
        start = 2000 * execution + 10 * one.site.id
        end = start + one.cycles.ravel() + round(WINDOW)
        same = np.full(len(block), one.site.id), np.full(len(block), one.mask)
        parts.append((np.zeros(len(block), np.int64), same[0], block, warp, place[block], same[1], start, end))
    names = ("launch", "site", "block", "warp", "sm", "mask", "start", "end")
    columns = {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}
    life = np.zeros(blocks * warps, WARP_DTYPE)
    life["block"], life["warp"] = np.repeat(np.arange(blocks), warps), np.tile(np.arange(warps), blocks)
    life["sm"] = place[life["block"]]
    life["end_cycles"] = np.broadcast_to(np.asarray(lives), (blocks, warps)).ravel()
    given = {
        "grid": (blocks, 1, 1),
        "block": (32 * warps, 1, 1),
        "arguments": ("f4[1024]", "f4[1024]", "64"),
        "resident_blocks": 8,
        "counts": tuple(counts),
        "branches": tuple(branches),
    }
    return build_trace(
        columns,
        sites=[one.site for one in made],
        launches=[launch(0, NAIVE, **{"arrays": arrays(of_launch.get("arguments", given["arguments"])), **given, **of_launch})],
        warps=life,
        chip="h200",
        target="emulator:h200",
        modelled=True,
        clock_mhz=2000,
        sources={"transpose.cu": SOURCE},
        windows={"dependent": WINDOW},
    )


def found(made: Trace, rule: str) -> list[Finding]:
    """The findings of one rule. That it could not look would be an error of the test."""
    said = explain(made)
    assert rule not in {one.rule for one in said.unexamined}, said.unexamined
    return [one for one in said if one.rule == rule]

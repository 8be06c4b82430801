"""Present the results as rows for the result file, and as tables for people and spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memlane.lab.result import Row, Table
from memlane.lab.volume.claims import ALIKE, ALL_SAME, HIT, RATE, SHARES, Claim, correlation, robust, spread
from memlane.lab.volume.frames import SCHEMES, Frames, Measured
from memlane.lab.volume.observe import Observed
from memlane.lab.volume.scene import FRONT, View
from memlane.number_format import plural

FRAME_RATE, HIT_RATE = "frame rate", "hit rate of the texture cache"
FREQUENCY, SHARE = "access frequency", "share of the warps' time in accesses"
PEARSON, SPEARMAN = "Pearson's r", "Spearman's rho"
CLAIM = "found in 2012"
"""Metrics of the rows."""
_AGAINST = {RATE: FRAME_RATE, HIT: HIT_RATE}


def rows(frames: Frames, warps: Mapping[str, Observed], said: Sequence[Claim]) -> list[Row]:
    """Return all measurements as numbers."""
    found = [row for (view, shape), one in frames.of.items() for row in _frame_rows(f"{view}, {shape}", one, frames)]
    found += [row for view in frames.views for row in _correlation_rows(frames, view)]
    for shape, seen in warps.items():
        peer = {"warps": float(len(seen.means)), "warps that miss the volume": float(seen.idle), "records lost": float(seen.lost)}
        peer |= {"accesses": float(seen.accesses.sum()), "least": float(seen.means.min()), "most": float(seen.means.max())}
        peer |= {"deviation over warps": float(seen.means.std()), "deviation in the chosen warp": float(seen.series(seen.chosen).std())}
        found.append(Row(f"along one SM, {shape}", "access time", _rounded(seen.access_time), "cycles", peer=_all_rounded(peer)))
    for claim in said:
        value = None if claim.value is None else _rounded(claim.value)
        found.append(Row(f"fig. {claim.figure}: {claim.found}", CLAIM, value, "", note=f"{claim.holds}: {claim.here}"))
    return found


def _frame_rows(case: str, one: Measured, frames: Frames) -> Iterator[Row]:
    yield Row(case, FRAME_RATE, _rounded(one.per_second), "frames/s", better="higher")
    reason = "" if one.hit_rate is not None else f"unknown: {frames.hits_unknown}"
    sectors = {"sectors looked up": _rounded(one.hits.sectors)} if one.hits and one.hits.sectors else {}
    if one.predicted_us is not None:
        yield Row(case, "predicted time of a frame", _rounded(one.predicted_us), "us", note="without what the texture cache misses")
    yield Row(case, HIT_RATE, None if one.hit_rate is None else _rounded(one.hit_rate), "share", None, "higher", sectors, reason)
    for scheme, seen in one.observed.items():
        if seen is None:
            yield Row(f"{case}, {scheme}", FREQUENCY, None, "", note="no fetch was recorded")
            continue
        peer = {
            "access time, cycles": seen.access_time,
            "access time, half interval": seen.within,
            "other time, cycles": seen.other_time,
            "accesses": float(seen.accesses.sum()),
        }
        peer |= {"warps": float(len(seen.means)), "warps that miss the volume": float(seen.idle), "weight of a warp": seen.weight}
        peer |= {"records lost": float(seen.lost), **_footprint(seen)}
        note = f"{plural(seen.lost, 'record')} did not fit into the buffer; all means are of the others" if seen.lost else ""
        yield Row(f"{case}, {scheme}", FREQUENCY, _rounded(seen.frequency), "per 1000 cycles", None, "higher", _all_rounded(peer), note)
        yield Row(f"{case}, {scheme}", SHARE, _rounded(seen.share), "share")


def _footprint(seen: Observed) -> dict[str, float]:
    """Return the cost of the probes, where the machine code tells it."""
    changed = seen.probes
    if changed is None or changed.plain is None or changed.probed is None:
        return {}
    ends = {"original": changed.plain, "traced": changed.probed}
    registers = {f"registers, {which}": float(one.registers) for which, one in ends.items()}
    return registers | {f"blocks, {which}": float(one.resident_blocks) for which, one in ends.items()}


def _correlation_rows(frames: Frames, view: View) -> Iterator[Row]:
    apart = spread(frames, view)
    yield Row(f"seen from {view}", "fastest shape over slowest", _rounded(1.0 + apart), "", better="higher")
    for against, name in _AGAINST.items():
        for scheme in SCHEMES:
            for ranked, metric in ((False, PEARSON), (True, SPEARMAN)):
                one = correlation(frames, view, scheme, against, ranked=ranked)
                case = f"seen from {view}, {scheme}: {FREQUENCY} and {name}"
                if one is None:
                    reason = frames.hits_unknown if against == HIT and frames.hits_unknown else ALL_SAME
                    yield Row(case, metric, None, "", note=f"unknown: {reason}")
                    continue
                note = (
                    f"frame rates hardly differ ({100 * apart:.1f} %): no correlation is claimed"
                    if against == RATE and apart < ALIKE
                    else ""
                )
                peer = {"low": one.low, "high": one.high, "shapes": float(one.count)}
                if left := robust(frames, view, scheme, against, ranked):
                    peer |= {"least without a shape": min(left), "most without a shape": max(left)}
                yield Row(case, metric, _rounded(one.value), "", better="higher", peer=_all_rounded(peer), note=note)


def tables(frames: Frames, warps: Mapping[str, Observed], turned: View, said: Sequence[Claim]) -> dict[str, Table]:
    """Return the non-empty tables, by name. `turned`: the viewpoint of `warps`."""
    found = {
        "shapes": _shapes(frames),
        "paper": _paper(frames),
        "frames": _frames(frames),
        "correlations": _correlations(frames),
        "warps": _along(warps, turned),
        "series": _series(warps, turned),
        "claims": Table(
            ("figure", "holds", "found in 2012", "here"),
            tuple((one.figure, one.holds, one.found, one.here) for one in said),
        ),
    }
    return {name: table for name, table in found.items() if table.lines}


def _shapes(frames: Frames) -> Table:
    """Return a line for each frame, for people."""
    head = ["view", "shape", "frames/s", "hits, %"]
    for scheme in SCHEMES:
        head += [f"{scheme}_cycles", f"{scheme}, % of time"]
    lines = []
    for (view, shape), one in frames.of.items():
        line: list[str | float | None] = [str(view), shape, one.per_second, _percent(one.hit_rate)]
        for seen in one.observed.values():
            line += (None, None) if seen is None else (seen.access_time, _percent(seen.share))
        lines.append(tuple(line))
    return Table(tuple(head), tuple(lines))


def _paper(frames: Frames) -> Table:
    """Return figure 5: the published shares next to those here, and the predicted time of a frame where time is modelled."""
    lines: list[tuple[str | float | None, ...]] = []
    for (scheme, shape), published in SHARES.items():
        one = frames.of.get((FRONT, shape))
        seen = one.observed[scheme] if one else None
        if one is not None and seen is not None:
            lines.append((scheme, shape, 100.0 * seen.share, 100.0 * published, one.predicted_us))
    return Table(("probe", "shape", "% of time", "published, %", "frame predicted, us"), tuple(lines))


def _frames(frames: Frames) -> Table:
    """Return the data of figures 5 to 9."""
    head = ["view", "shape", "frames/s", "hit rate"]
    for scheme in SCHEMES:
        head += [
            f"{scheme}: {what}" for what in ("access time_cycles", "other time_cycles", "share in accesses", FREQUENCY + " per 1000 cycles")
        ]
    lines = []
    for (view, shape), one in frames.of.items():
        line: list[str | float | None] = [str(view), shape, one.per_second, one.hit_rate]
        for seen in one.observed.values():
            line += (None,) * 4 if seen is None else (seen.access_time, seen.other_time, seen.share, seen.frequency)
        lines.append(tuple(line))
    return Table(tuple(head), tuple(lines), printed=False)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _correlations(frames: Frames) -> Table:
    """Return a line for each view, scheme and rate, as text; the numbers are in the rows.

    Tenths, as in other tables, are too coarse for coefficients.
    """
    lines: list[tuple[str | float | None, ...]] = []
    for view in frames.views:
        found = [row for row in _correlation_rows(frames, view) if row.metric in (PEARSON, SPEARMAN)]
        for linear, ranked in zip(found[::2], found[1::2], strict=True):
            what = linear.case.partition(": ")[2].removeprefix(f"{FREQUENCY} and ")
            scheme = linear.case.partition(": ")[0].rpartition(", ")[2]
            lines.append((str(view), scheme, what, _interval(linear), _interval(ranked), linear.note))
    return Table(("view", "probe", "access frequency and", PEARSON, SPEARMAN, "remark"), tuple(lines), remarks=("remark",))


def _interval(row: Row) -> str:
    return f"{row.value:+.2f} ({row.peer['low']:+.2f} to {row.peer['high']:+.2f})" if row.value is not None else "-"


def _along(warps: Mapping[str, Observed], view: View) -> Table:
    """Return the data of figure 10."""
    lines = [
        (str(view), shape, str(number), str(accesses), float(mean))
        for shape, seen in warps.items()
        for number, accesses, mean in zip(seen.warp.tolist(), seen.accesses.tolist(), seen.means.tolist(), strict=True)
    ]
    return Table(("view", "shape", "warp", "accesses", "access time_cycles"), tuple(lines), printed=False)


def _series(warps: Mapping[str, Observed], view: View) -> Table:
    """Return the data of figure 11."""
    lines = [
        (str(view), shape, str(seen.warp[seen.chosen]), str(number), float(cycles))
        for shape, seen in warps.items()
        for number, cycles in enumerate(seen.series(seen.chosen).tolist())
    ]
    return Table(("view", "shape", "warp", "access", "time_cycles"), tuple(lines), printed=False)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _all_rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: _rounded(value) for name, value in values.items()}

"""Present the measurements as rows, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memlane.chip import Chip
from memlane.lab.figures import Bars, Figure
from memlane.lab.reduction.counting import Reasons
from memlane.lab.reduction.ladder import STEPS
from memlane.lab.reduction.measure import Floors, Gain, PeerComparison, Predicted, Timed
from memlane.lab.reduction.peers import PEERS
from memlane.lab.reduction.settings import COURSE_BLOCK, COURSE_SIZE, size_name
from memlane.lab.result import Row, Table

COURSE_CHIP = "s1070"
COURSE_US = {1: 3510.0, 2: 1620.0, 3: 810.0, 4: 470.0, 5: 280.0, 6: 250.0, 7: 220.0}
"""Times of the course's seven kernels, on one GPU of a Tesla S1070, 2^22 elements, blocks of 128 threads."""
AS_QUICK = 0.99
"""Speed to reach relative to the better one of the peers, where bandwidth decides."""
GRAPH_US = {"2^24": 19.0, "2^20": 4.0, "2^16": 3.0}
CALL_US = 8.0


@dataclass
class Measurements:
    """All measurements on a target."""

    chip: Chip
    floors: Floors
    timed: list[Timed] = field(default_factory=list)
    reasons: dict[int, Reasons] = field(default_factory=dict)
    """Counts by the number of the step."""
    predicted: list[Predicted] = field(default_factory=list)
    beside: list[PeerComparison] = field(default_factory=list)
    called: PeerComparison | None = None
    gains: list[Gain] = field(default_factory=list)


def rows(found: Measurements) -> list[Row]:
    """Return every number next to its goal."""
    return [
        *_ladder_rows(found),
        *_reason_rows(found),
        *_predicted_rows(found),
        *_peer_rows(found),
        *_called_rows(found),
        *_gain_rows(found),
        *_floor_rows(found),
    ]


def tables(found: Measurements) -> dict[str, Table]:
    """Return tables for people and spreadsheets."""
    made = {f"ladder-{size_name(n)}-{block}".replace(",", ""): _ladder_table(found, of) for (n, block), of in ladders(found).items()}
    if found.timed:
        steps = {one.step.number: one.step for one in found.timed}.values()
        made["removed"] = Table(("step", "what it removes"), tuple((one.title, one.removed) for one in steps))
    if found.reasons:
        made["reasons"] = _reason_table(found)
    if found.predicted:
        made["predicted"] = _predicted_table(found)
    if found.beside:
        made["beside"] = _peer_table(found)
    if found.gains:
        lines = [(one.name, size_name(one.n), one.without_us, one.using_us, f"{one.times:.2f}") for one in found.gains]
        made["beyond"] = Table(("idea", "elements", "without, us", "with, us", "times as quick"), tuple(lines))
    return made


def figures(found: Measurements) -> dict[str, Figure]:
    """Return bandwidth by step, with a bar for each size."""
    of_block: dict[int, dict[str, Sequence[float | None]]] = {}
    labels: tuple[str, ...] = ()
    for (n, block), of in ladders(found).items():
        of_block.setdefault(block, {})[size_name(n)] = [one.gb_per_s for one in of]
        labels = tuple(one.step.title for one in of)
    return {
        f"ladder-{block}": Bars(f"Sum of int32 by steps, blocks of {block} threads", "GB/s", labels, series)
        for block, series in of_block.items()
    }


def ladders(found: Measurements) -> dict[tuple[int, int], list[Timed]]:
    """Return the steps at each size and block size."""
    made: dict[tuple[int, int], list[Timed]] = {}
    for one in found.timed:
        made.setdefault((one.n, one.block), []).append(one)
    return made


def _shares(found: Measurements, one: Timed) -> tuple[float | None, float]:
    """Return the percentages of the copy bandwidth and of the datasheet's."""
    copy = found.floors.copy_gb_per_s
    return None if copy is None else 100 * one.gb_per_s / copy, 100 * one.gb_per_s / found.chip.dram_gb_per_s


def _ladder_rows(found: Measurements) -> Iterator[Row]:
    for (n, block), of in ladders(found).items():
        for before, one in zip([of[0], *of], of, strict=False):
            of_copy, of_sheet = _shares(found, one)
            peer = {"GB/s": one.gb_per_s, "of the datasheet": of_sheet, "step": before.us / one.us, "all": of[0].us / one.us}
            peer |= {"launches": float(one.launches)} | ({} if of_copy is None else {"of the copy": of_copy})
            case = f"{size_name(n)}, block {block}, {one.step.title}"
            yield Row(case, "time of a step", one.us, "us", peer=peer, note=one.step.removed)


def _ladder_table(found: Measurements, of: Sequence[Timed]) -> Table:
    head = ("step", "us", "GB/s", "% of copy", "% of datasheet", "step", "all")
    lines: list[tuple[str | float | None, ...]] = []
    for before, one in zip([of[0], *of], of, strict=False):
        shares = _shares(found, one)
        gained = ("", "") if one is of[0] else (f"{before.us / one.us:.2f}x", f"{of[0].us / one.us:.1f}x")
        lines.append((one.step.title, one.us, one.gb_per_s, *shares, *gained))
    return Table(head, tuple(lines))


_REASONS = ("divergent branches", "excess wavefronts", "wavefronts", "instructions an element", "idle lanes, %", "barriers", "sectors")


def _values(one: Reasons) -> tuple[float | None, ...]:
    per_block = one.per_block
    return (
        per_block["divergent_branches"],
        per_block["excess_wavefronts"],
        per_block["wavefronts"],
        one.instructions / one.elements,
        None if one.idle_lanes is None else 100 * one.idle_lanes,
        float(one.barriers),
        one.sectors / one.elements * 1024,
    )


def _reason_rows(found: Measurements) -> Iterator[Row]:
    titles = {one.number: one.title for one in STEPS}
    for number, one in found.reasons.items():
        title = titles[number]
        peer = {name: value for name, value in zip(_REASONS, _values(one), strict=True) if value is not None}
        peer |= {"launches": float(one.launches), "blocks": float(one.blocks)}
        case = f"{size_name(one.elements)}, block {one.block}, {title}"
        yield Row(case, "counted, of a block", None, "", peer=peer, note="counted on the emulator of this chip")


def _reason_table(found: Measurements) -> Table:
    titles = {one.number: one.title for one in STEPS}
    head = ("step", "launches", *(name if name != "sectors" else "sectors of 1024 elements" for name in _REASONS))
    lines = tuple((titles[number], one.launches, *_values(one)) for number, one in found.reasons.items())
    return Table(head, lines, spare=("launches", "barriers", head[-1]))


def _course_us(found: Measurements, one: Predicted) -> float | None:
    """Return the course's time if the case is the course's, else None."""
    is_course = (found.chip.name, one.n, one.block) == (COURSE_CHIP, COURSE_SIZE, COURSE_BLOCK)
    return COURSE_US.get(one.step.number) if is_course else None


def _predicted_rows(found: Measurements) -> Iterator[Row]:
    for one in found.predicted:
        course = _course_us(found, one)
        peer = {"GB/s": one.gb_per_s, "share of blocks": one.share}
        peer |= {} if course is None else {"course us": course, "over the course": one.us / course}
        lacking = f"; the chip file has no rate of {', '.join(one.missing)}" if one.missing else ""
        case = f"{size_name(one.n)}, block {one.block}, {one.step.title}"
        yield Row(case, "predicted time of a step", one.us, "us", peer=peer, note=f"limited by {one.limiting}{lacking}")


def _predicted_table(found: Measurements) -> Table:
    """Return the predicted times, next to those of the course on its own chip."""
    head = ("step", "block", "predicted, us", "GB/s", "limited by", "the course, us", "predicted / course")
    lines: list[tuple[str | float | None, ...]] = []
    for one in found.predicted:
        course = _course_us(found, one)
        beside = ("-", "-") if course is None else (course, f"{one.us / course:.2f}")
        lines.append((one.step.title, one.block, one.us, one.gb_per_s, one.limiting, *beside))
    return Table(head, tuple(lines), spare=("block",))


def _best(one: PeerComparison) -> tuple[str, float] | None:
    """Return the better one of the peers, and how many times as fast we are; None without peers."""
    against = {name: one.against(name) for name in one.peers}
    return min(against.items(), key=lambda item: item[1]) if against else None


def _floor_note(found: Measurements, one: PeerComparison) -> str:
    return f"a kernel that only reads it takes {one.us('only read'):.2f} us, an empty kernel {found.floors.empty_us:.2f} us"


def _peer_rows(found: Measurements) -> Iterator[Row]:
    for one in found.beside:
        peer = {name: one.us(name) for name in one.times} | {f"TB/s, {name}": one.nbytes / one.us(name) / 1e6 for name in one.times}
        note = "; ".join([_floor_note(found, one), *one.missing])
        if (better := _best(one)) is not None:
            peer["times as quick"] = better[1]
        best, reach, wanted = _best(one), GRAPH_US.get(one.case), AS_QUICK if one.case in WANTED else None
        if reach is not None:
            yield Row(one.case, "time in a replayed graph", one.us(), "us", reach, "lower", peer, note)
        elif best is None:
            yield Row(one.case, "times as quick as the better peer", None, "", wanted, "higher", peer, note)
        else:
            yield Row(one.case, "times as quick as the better peer", best[1], "", wanted, "higher", peer, f"{best[0]} is; {note}")


WANTED = ("2^30", "2^28", "16384 x 16384 float32, axis 0", "16384 x 16384 float32, axis 1")


def _peer_table(found: Measurements) -> Table:
    head = ("sum", "us", "TB/s", *(f"{name}, us" for name in PEERS), "times as quick", "only read, us")
    lines: list[tuple[str | float | None, ...]] = []
    for one in [*found.beside, *([] if found.called is None else [found.called])]:
        peers = [f"{one.us(name):.2f}" if name in one.times else "-" for name in PEERS]
        best = _best(one)
        floor = f"{one.us('only read'):.2f}" if "only read" in one.times else "-"
        quick = "-" if best is None else f"{best[1]:.3f}"
        lines.append((one.case, f"{one.us():.2f}", f"{one.nbytes / one.us() / 1e6:.3f}", *peers, quick, floor))
    return Table(head, tuple(lines))


def _called_rows(found: Measurements) -> Iterator[Row]:
    one = found.called
    if one is not None:
        note = f"the two events alone take {one.us('only the events'):.2f} us, the host's way to the driver the rest"
        yield Row(one.case, "time between events", one.us(), "us", CALL_US, "lower", {name: one.us(name) for name in one.times}, note)


def _gain_rows(found: Measurements) -> Iterator[Row]:
    for one in found.gains:
        peer = {"us without": one.without_us, "us with": one.using_us}
        yield Row(f"{size_name(one.n)}, {one.name}", "times as quick with the idea", one.times, "", peer=peer)


def _floor_rows(found: Measurements) -> Iterator[Row]:
    values: Mapping[str, tuple[float | None, str]] = {
        "copy of 1 GiB, read and written": (found.floors.copy_gb_per_s, "GB/s"),
        "1 GiB that is only read": (found.floors.read_gb_per_s, "GB/s"),
        "an empty kernel in a replayed graph": (found.floors.empty_us, "us"),
    }
    for case, (value, unit) in values.items():
        if value is not None:
            yield Row(case, "floor", value, unit)

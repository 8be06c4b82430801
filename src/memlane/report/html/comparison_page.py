"""Write two traces as one page, before and after: differences by source line, the findings of both, and their resources."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from memlane.diagnose.changes import MEASURES, Change, Comparison, KernelChange, LineChange, sentences
from memlane.diagnose.comparison import compare_sides
from memlane.diagnose.side import Line, read_side
from memlane.number_format import UNKNOWN
from memlane.record import Trace, kernel_label, replacing
from memlane.report.comparison import footer_notes, in_words, number_alone
from memlane.report.html.finding_cards import FindingCards, finding_cards
from memlane.report.html.levels import chip_of
from memlane.report.html.model import FindingCard
from memlane.report.html.page import embedded, environment
from memlane.report.html.resources import Resources, resources_of

SCRIPTS = ("data", "theme", "source", "sort", "compare")
DRAWN = 5
"""Number of findings on each side that show the drawing of an access."""
HEADS = {
    "requests": "accesses per launch",
    "sectors_per_request": "sectors per request",
    "wavefronts_per_request": "wavefronts per request",
    "cycles_p50": "p50 cycles",
    "cycles_per_warp": "cycles per warp",
}
"""Column heading of each measure."""


@dataclass(frozen=True)
class Cell:
    """One number of a table, before and after."""

    name: str
    text: str
    kind: str
    """`more`, `less`, `same` or `unsure`; the style of the cell."""
    title: str = ""


@dataclass(frozen=True)
class Row:
    """One operation of a source line."""

    lines: str
    source: str
    was: str
    op: str
    cells: tuple[Cell, ...]
    only: str = ""
    """`gone` or `new` for an operation that only one side has."""


@dataclass(frozen=True)
class KernelTable:
    """One kernel on both sides."""

    title: str
    whole: tuple[tuple[str, Cell], ...]
    notes: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class SideCard:
    """One of the two traces."""

    word: str
    """`before` or `after`."""
    name: str
    origin: str
    findings: tuple[tuple[FindingCard, str], ...]
    """Findings, each with `gone`, `new`, or an empty string if both sides have it."""
    notes: tuple[str, ...]
    resources: Resources


def write_comparison(
    before: Trace,
    after: Trace,
    path: str | os.PathLike[str],
    *,
    names: tuple[str, str] = ("before", "after"),
    kernels: Mapping[str, str] | None = None,
    force: bool = False,
) -> None:
    """Write the page of two traces to the file `path`, atomically.

    `names`: the names of the traces, such as their files. `kernels`: pairs of kernels, as for `memlane.compare`. Raises CommandError if
    nothing can be compared, RecordError if the file exists and not `force`, or cannot be written.
    """
    text = render_comparison_page(before, after, names, kernels)
    with replacing(path, force) as stream:
        stream.write(text.encode())


def render_comparison_page(before: Trace, after: Trace, names: tuple[str, str], kernels: Mapping[str, str] | None = None) -> str:
    """Return the page of two traces as text."""
    changes = compare_sides(read_side(before, names[0]), read_side(after, names[1]), kernels)
    traces = (before, after)
    compared = [{(one.before, one.after)[side] for one in changes.kernels} for side in (0, 1)]
    results = [finding_cards(trace, chip_of(trace), DRAWN, kernels) for trace, kernels in zip(traces, compared, strict=True)]
    fates = _fates(changes, *results)
    sides = [_side(side, traces[side], names[side], results[side], fates[side], compared[side]) for side in (0, 1)]
    return (
        environment()
        .get_template("compare.html.j2")
        .render(
            version=after.version,
            sides=sides,
            summary=sentences(changes),
            notes=[_sentence(note) for note in changes.notes],
            kernels=[_table(kernel) for kernel in changes.kernels],
            footer=footer_notes(changes),
            **embedded({"launches": [], "operations": []}, SCRIPTS),
        )
    )


def _fates(changes: Comparison, before: FindingCards, after: FindingCards) -> tuple[dict[int, str], dict[int, str]]:
    """Return, by rank, the findings that are gone and those that are new: a rule that holds at a line on one side only."""
    place_after = {
        (kernel.before, line.file, line.before): (kernel.after, line.file, line.after)
        for kernel in changes.kernels
        for line in kernel.lines
    }
    here = {(card.rule, card.kernel, card.file, card.line) for card in after.cards}
    gone, kept = {}, set()
    for card in before.cards:
        place = (card.rule, *place_after.get((card.kernel, card.file, card.line), ("", "", 0)))
        if place in here:
            kept.add(place)
        else:
            gone[card.rank] = "gone"
    new = {card.rank: "new" for card in after.cards if (card.rule, card.kernel, card.file, card.line) not in kept}
    return gone, new


def _side(number: int, trace: Trace, name: str, result: FindingCards, fates: Mapping[int, str], kernels: Collection[str]) -> SideCard:
    launches = tuple(one for one in trace.launches if kernel_label(one.kernel) in kernels)
    times = f"modelled for {trace.chip} by the emulator, not measured" if trace.modelled else f"measured on {trace.chip}"
    cards = tuple((card, fates.get(card.rank, "")) for card in result.cards)
    resources = resources_of(replace(trace, launches=launches), chip_of(trace))
    return SideCard(("before", "after")[number], name, f"{times} ({trace.target})", cards, result.notes, resources)


def _table(kernel: KernelChange) -> KernelTable:
    shown = [
        name
        for name in MEASURES
        if any(line.changes[name].before is not None or line.changes[name].after is not None for line in kernel.lines)
        or any(number_alone(line, name, 1) != UNKNOWN for line in (*kernel.only_before, *kernel.only_after))
    ]
    rows = [_row(line, shown) for line in kernel.lines]
    rows += [_alone(line, shown, "gone", kernel.launches[0]) for line in kernel.only_before]
    rows += [_alone(line, shown, "new", kernel.launches[1]) for line in kernel.only_after]
    whole = [
        ("time of a launch without probes, us", _cell("time", _in_us(kernel.time_ns))),
        ("modelled time of a launch with probes, us", _cell("probed", _in_us(_with_probes(kernel)))),
        ("life of a traced warp, cycles", _cell("life", kernel.cycles_of_life)),
    ]
    return KernelTable(
        _from_to(kernel.before, kernel.after),
        tuple((name, cell) for name, cell in whole if cell.text != UNKNOWN),
        tuple(_sentence(note) for note in kernel.notes),
        tuple(HEADS[name] for name in shown),
        tuple(rows),
    )


def _with_probes(kernel: KernelChange) -> Change:
    """Return the modelled time with probes where none without probes is known."""
    return kernel.probed_ns if kernel.time_ns.difference is None else Change(None, None)


def _in_us(change: Change) -> Change:
    before, after, low, high = (None if one is None else one / 1e3 for one in (change.before, change.after, change.low, change.high))
    return Change(before, after, low, high, change.is_exact)


def _row(line: LineChange, shown: Sequence[str]) -> Row:
    cells = tuple(_cell(name, line.changes[name]) for name in shown)
    return Row(_from_to(str(line.before), str(line.after)), f"{PurePath(line.file).name}: {line.text}", line.was, line.op, cells)


def _alone(line: Line, shown: Sequence[str], only: str, launches: int) -> Row:
    cells = tuple(Cell(name, number_alone(line, name, launches), "same") for name in shown)
    return Row(str(line.line), f"{PurePath(line.file).name}: {line.text}", "", line.op, cells, only)


def _cell(name: str, change: Change) -> Cell:
    text = in_words(change)
    if not change.is_change:
        unsure = change.difference is not None and not change.is_exact
        return Cell(name, text, "unsure" if unsure else "same", "no change beyond noise" if unsure and change.is_known else "")
    assert change.difference is not None
    return Cell(name, text, "more" if change.difference > 0 else "less")


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _from_to(before: str, after: str) -> str:
    return after if before == after else f"{before} \N{RIGHTWARDS ARROW} {after}"

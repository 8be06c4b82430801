"""Present the measurements of the lab as tables, rows and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from memlane.chip import LANES
from memlane.lab.figures import Figure, Lines
from memlane.lab.result import Row, Table
from memlane.lab.shift.cases import COUNTS, KINDS, LAYOUTS, NONE, PATTERNS, RAP, RAS, SEARCHED, TABLES, WARPS, WIDTHS
from memlane.lab.shift.kernels import Outcome
from memlane.lab.shift.measure import Bench, Case, Cycles, Mean
from memlane.number_format import plural

SPEED_UP, OF_RAP, PUBLISHED = "speed-up over no shift", "cycles over those of rap", "speed-up over no shift, one access"
EACH = "cycles of the block for each wavefront"
PLAIN, PLACED = "cycles without a shift", "speed-up over no shift by the place of the table"
REACH = {4: 20.0, 8: 15.0}
"""Speed-up to reach on an H200 for stride, by width: the most warps, 16 accesses each, address excluded."""
SLIDES = {False: 23.0, True: 2.3}
"""Published speed-up for stride and the better of RAS and RAP, with the address excluded and included."""
_ADDRESS = {"excluded": False, "included": True}

Measured = Mapping[Case, Cycles]
Line = tuple[str | float | None, ...]


def tables(bench: Bench, measured: Measured, found: Sequence[Sequence[Outcome]], most: int) -> dict[str, Table]:
    """Return all non-empty tables, by name. `most`: the number of warps in the overviews."""
    made = {f"{address}-{count}": _overview(measured, count, address, most) for address in _ADDRESS for count in COUNTS}
    made |= {"probes": _probes(measured, most), "tables": _placements(measured, most), "wavefronts": _wavefronts(bench, measured, most)}
    made |= {"kernels": _kernels(found), "paper": _paper(measured, most), "all": _all(bench, measured)}
    return {name: table for name, table in made.items() if table.lines}


def rows(measured: Measured, found: Sequence[Sequence[Outcome]], made: Mapping[str, Table], most: int) -> Iterator[Row]:
    """Yield the rows of the result, those with goals first."""
    yield from _reaches(measured, most)
    yield from _overview_rows(measured, most)
    yield from _placement_rows(measured, most)
    yield from _published(measured, most)
    yield from _clock_rows(made)
    yield from _warps_rows(measured)
    yield from _kernel_rows(found)


def speed_up(measured: Measured, case: Case) -> Mean:
    """Return the speed-up over the same accesses without a shift, by the mean over the warps."""
    return measured[_plain(measured, case)].warp.over(measured[case].warp)


def _plain(measured: Measured, case: Case) -> Case:
    """Return the same accesses without a shift; if these look up nothing, the place of the table makes no difference."""
    plain = replace(case, layout=NONE)
    return plain if plain in measured else replace(plain, table="shared")


# -- tables --------------------------------------------------------------------------------------------------------------------


def _overview(measured: Measured, count: int, address: str, warps: int) -> Table:
    """Return a line for each width, kind and pattern: cycles without a shift, and the speed-up by each layout."""
    others = [layout for layout in LAYOUTS if layout != NONE]
    lines: list[Line] = []
    for width, kind, pattern in product(WIDTHS, KINDS, PATTERNS):
        plain = Case(pattern, NONE, width, kind, warps, count, _ADDRESS[address])
        if plain in measured:
            gained = [speed_up(measured, replace(plain, layout=layout)).value for layout in others]
            lines.append((pattern, f"{kind}, {width} bytes", measured[plain].warp.value, *gained))
    return Table(("pattern", "access", "none_cycles", *others), tuple(lines))


def _probes(measured: Measured, warps: int) -> Table:
    """Return the published probe next to ours: one access, stride."""
    lines: list[Line] = []
    for width, kind, layout, included in product(WIDTHS, KINDS, (NONE, RAS, RAP), (False, True)):
        ours = Case("stride", layout, width, kind, warps, 1, included)
        theirs = replace(ours, bare=True)
        if ours in measured and theirs in measured:
            gained = (speed_up(measured, ours).value, speed_up(measured, theirs).value)
            where = "included" if included else "excluded"
            lines.append((layout, f"{kind}, {width} bytes, {where}", measured[ours].warp.value, measured[theirs].warp.value, *gained))
    head = ("layout", "access", "ours_cycles", "bare clock reads_cycles", "speed-up, ours", "speed-up, bare")
    return Table(head, tuple(lines))


def _placements(measured: Measured, warps: int) -> Table:
    """Return the speed-up by the place of the table, for reads, address included."""
    lines: list[Line] = []
    for pattern, width, layout, count in product(PATTERNS, WIDTHS, (RAS, RAP), COUNTS):
        cases = [Case(pattern, layout, width, "read", warps, count, True, table) for table in TABLES]
        if any(case in measured for case in cases):
            gained = [speed_up(measured, case).value if case in measured else None for case in cases]
            lines.append((pattern, f"{layout}, {width} bytes, {count} accesses", *gained))
    return Table(("pattern", "access", *TABLES), tuple(lines))


def _wavefronts(bench: Bench, measured: Measured, warps: int) -> Table:
    """Return the chip's rule next to the clock: cycles of the block for each access after the first of a warp."""
    fewest, most = COUNTS
    lines: list[Line] = []
    for width, kind, pattern, layout in product(WIDTHS, KINDS, PATTERNS, LAYOUTS):
        case = Case(pattern, layout, width, kind, warps, most)
        if case in measured:
            one, many = measured[replace(case, count=fewest)].block, measured[case].block
            assert one is not None
            assert many is not None
            each = (many.value - one.value) / ((most - fewest) * warps)
            lines.append((pattern, f"{layout}, {kind}, {width} bytes", bench.wavefronts(case), each))
    return Table(("pattern", "access", "wavefronts by the rule", "by the clock_cycles"), tuple(lines), printed=False)


def _paper(measured: Measured, warps: int) -> Table:
    """Return the published speed-ups, of a column of 8-byte elements, next to ours of the same accesses."""
    lines: list[Line] = []
    for included, published in SLIDES.items():
        case = Case("stride", RAP, WIDTHS[-1], "read", warps, 1, included)
        if case in measured:
            better = max(speed_up(measured, replace(case, layout=layout)).value for layout in (RAS, RAP))
            theirs = max(speed_up(measured, replace(case, layout=layout, bare=True)).value for layout in (RAS, RAP))
            lines.append(("included" if included else "excluded", better, theirs, published))
    return Table(("address", "speed-up, ours", "speed-up, bare", "published"), tuple(lines))


def _kernels(found: Sequence[Sequence[Outcome]]) -> Table:
    lines: list[Line] = []
    for several in found:
        plain = several[0]
        for one in several:
            gained = plain.time_ns / one.time_ns
            lines.append((one.kernel, f"{one.way}: {one.layout}", one.wavefronts, one.time_ns / 1e3, gained, one.resident_blocks))
    return Table(("kernel", "tile", "wavefronts", "time, us", "speed-up", "blocks of an SM"), tuple(lines))


def _all(bench: Bench, measured: Measured) -> Table:
    """Return everything, for spreadsheets."""
    head = ("pattern", "layout", "width", "kind", "warps", "accesses", "address", "table", "probe", "warp_cycles", "warp_within_cycles",
            "block_cycles", "speed-up", "speed-up within", "wavefronts")  # fmt: skip
    lines: list[Line] = []
    for case, cycles in measured.items():
        gained = speed_up(measured, case)
        block = None if cycles.block is None else cycles.block.value
        words = ("included" if case.included else "excluded", case.table, "bare" if case.bare else "dependent")
        numbers = (cycles.warp.value, cycles.warp.within, block, gained.value, gained.within, bench.wavefronts(case))
        lines.append((case.pattern, case.layout, case.width, case.kind, case.warps, case.count, *words, *numbers))
    return Table(head, tuple(lines), printed=False)


# -- rows ----------------------------------------------------------------------------------------------------------------------


def _reaches(measured: Measured, warps: int) -> Iterator[Row]:
    """Yield the rows with goals, for reads and writes: 16 accesses of each warp, address excluded."""
    for width, kind in product(WIDTHS, KINDS):
        case = Case("stride", SEARCHED, width, kind, warps, COUNTS[-1])
        what = f"{kind} of {width} bytes, {warps} warps, {COUNTS[-1]} accesses"
        if case in measured:
            others = {layout: speed_up(measured, replace(case, layout=layout)) for layout in LAYOUTS if layout != NONE}
            peer = {layout: round(gained.value, 3) for layout, gained in others.items()} | {"within": round(others[SEARCHED].within, 3)}
            plain, best = measured[_plain(measured, case)].warp.value, measured[case].warp.value
            note = f"{plain:.0f} cycles without a shift, {best:.0f} with the searched layout"
            yield Row(f"stride, {what}", SPEED_UP, round(others[SEARCHED].value, 3), "ratio", REACH[width], "higher", peer, note)
        for pattern in ("diagonal", "antidiagonal"):
            case = Case(pattern, SEARCHED, width, kind, warps, COUNTS[-1])
            if case in measured:
                of_rap = measured[case].warp.over(measured[replace(case, layout=RAP)].warp)
                peer = {"within": round(of_rap.within, 4)}
                yield Row(f"{pattern}, {what}", OF_RAP, round(of_rap.value, 4), "ratio", 1.0, "lower", peer, "the searched layout")


def _overview_rows(measured: Measured, warps: int) -> Iterator[Row]:
    """Yield the rows of the overviews: cycles without a shift, with the speed-up by each layout."""
    for (address, included), count, width, kind, pattern in product(_ADDRESS.items(), COUNTS, WIDTHS, KINDS, PATTERNS):
        plain = Case(pattern, NONE, width, kind, warps, count, included)
        if plain in measured:
            gained = {layout: round(speed_up(measured, replace(plain, layout=layout)).value, 3) for layout in LAYOUTS if layout != NONE}
            case = f"{pattern}, {kind} of {width} bytes, {plural(count, 'access')}, {address}"
            yield Row(case, PLAIN, round(measured[plain].warp.value, 1), "cycles", peer=gained)


def _placement_rows(measured: Measured, warps: int) -> Iterator[Row]:
    """Yield the rows of the table placements: reads, address included."""
    for pattern, width, layout, count in product(PATTERNS, WIDTHS, (RAS, RAP), COUNTS):
        cases = [Case(pattern, layout, width, "read", warps, count, True, table) for table in TABLES]
        gained = {case.table: round(speed_up(measured, case).value, 3) for case in cases if case in measured}
        if gained:
            what = f"{pattern}, {layout}, read of {width} bytes, {plural(count, 'access')}"
            yield Row(what, PLACED, max(gained.values()), "ratio", peer=gained, note=f"best: {max(gained, key=lambda one: gained[one])}")


def _published(measured: Measured, warps: int) -> Iterator[Row]:
    """Yield one access as in the slides, reads of 8 bytes, with the published numbers for stride."""
    for pattern, included in product(PATTERNS, (False, True)):
        case = Case(pattern, RAP, WIDTHS[-1], "read", warps, 1, included)
        if case in measured:
            ways = {"ras": replace(case, layout=RAS), "bare clock, rap": replace(case, bare=True)}
            peer = {name: round(speed_up(measured, one).value, 3) for name, one in ways.items()}
            peer |= {"published": SLIDES[included]} if pattern == "stride" else {}
            gained, where = speed_up(measured, case), "included" if included else "excluded"
            yield Row(f"{pattern}, address {where}, rap", PUBLISHED, round(gained.value, 3), "ratio", peer=peer)


def _clock_rows(made: Mapping[str, Table]) -> Iterator[Row]:
    """Yield the deviation of the clock from the rule; with a wavefront or two per access, instruction issue can take longer."""
    lines = made["wavefronts"].lines if "wavefronts" in made else ()
    for what, some in (("3 wavefronts or more", True), ("fewer", False)):
        ratios = [
            clock / rule for _, _, rule, clock in lines if isinstance(rule, float) and isinstance(clock, float) and (rule >= 3) is some
        ]
        if ratios:
            peer = {"least": round(min(ratios), 3), "most": round(max(ratios), 3)}
            middle = sorted(ratios)[len(ratios) // 2]
            yield Row(f"accesses of {what}", "cycles of an access over its wavefronts", round(middle, 3), "ratio", peer=peer,
                      note=f"the median of {len(ratios)} pairs of pattern and layout")  # fmt: skip


def _warps_rows(measured: Measured) -> Iterator[Row]:
    """Yield the number of warps that it takes to keep shared memory busy: a column without a shift, where all cost is conflicts."""
    for width, kind, warps in product(WIDTHS, KINDS, WARPS):
        case = Case("stride", NONE, width, kind, warps, COUNTS[-1])
        block = measured[case].block if case in measured else None
        if block is not None:
            each = block.value / (COUNTS[-1] * warps * LANES)
            yield Row(f"{kind} of {width} bytes, {plural(warps, 'warp')}", EACH, round(each, 3), "cycles")


def _kernel_rows(found: Sequence[Sequence[Outcome]]) -> Iterator[Row]:
    for several in found:
        plain = several[0]
        for one in several[1:]:
            numbers = {"wavefronts": one.wavefronts, "without": plain.wavefronts, "us": round(one.time_ns / 1e3, 3)}
            blocks = {"blocks": one.resident_blocks, "blocks without": plain.resident_blocks}
            peer = {name: float(value) for name, value in (numbers | blocks).items()}
            yield Row(f"{one.kernel}, {one.way}", SPEED_UP, round(plain.time_ns / one.time_ns, 3), "ratio", peer=peer, note=str(one.layout))


def figures(measured: Measured) -> dict[str, Figure]:
    """Return the figures of the slides, by width: speed-up over warps, for each pattern and both shifts."""
    drawn: dict[str, Figure] = {}
    for width, kind, (address, included), count in product(WIDTHS, KINDS, _ADDRESS.items(), COUNTS):
        series = {}
        for pattern, layout in product(PATTERNS, (RAS, RAP, SEARCHED)):
            cases = [Case(pattern, layout, width, kind, warps, count, included) for warps in WARPS]
            points = [(float(case.warps), speed_up(measured, case).value) for case in cases if case in measured]
            if points:
                series[f"{pattern}, {layout}"] = points
        if series:
            title = f"{kind} of {width} bytes, {plural(count, 'access')}, address {address}"
            drawn[f"{kind}-{width}-{address}-{count}"] = Lines(title, "warps", "speed-up over no shift", series, True, True)
    return drawn

"""Choose the access of a line to draw, and draw all lines of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from memlane.chip import Chip, load, names
from memlane.errors import CommandError
from memlane.record import AccessExample, Site, Trace
from memlane.report.picture import drawing_of, to_svg


def access_pictures(trace: Trace) -> dict[tuple[str, int], str]:
    """Return the costliest access of each source line as SVG, by file (as `Trace.sites` names it) and line.

    Empty for a trace without addresses, such as one from a GPU; the emulator records them.
    """
    chip, found = load(trace.chip), {}
    for place, examples in by_line(trace).items():
        found[place] = to_svg(drawing_of(trace, costliest(examples), chip))
    return found


def by_line(trace: Trace) -> dict[tuple[str, int], list[AccessExample]]:
    """Return the examples of a trace by file and line, in their order."""
    found: dict[tuple[str, int], list[AccessExample]] = {}
    for example in trace.examples:
        site = trace.sites[example.site]
        found.setdefault((site.file, site.line), []).append(example)
    return found


def costliest(examples: Sequence[AccessExample]) -> AccessExample:
    """Return the access with the most excess transactions, then the most transactions; the first among equals."""
    return max(examples, key=lambda one: (one.transactions - one.ideal, one.transactions))


def draw_access(trace: Trace, example: AccessExample, chip: Chip | None = None) -> str:
    """Return one access as SVG, by the rules of `chip` or else of the chip on which it was traced."""
    return to_svg(drawing_of(trace, example, chip or load(trace.chip)))


# -- one line ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourcePlace:
    """A source line named by the user."""

    file: str
    """File as written: a name, or the end of a path."""
    line: int
    column: int | None = None
    """Column where the statement begins; None for the whole line."""

    @classmethod
    def parse(cls, text: str) -> SourcePlace:
        """Parse `transpose.cu:18`, or with a column `transpose.cu:18:5`. Raises CommandError for anything else."""
        file, colon, line = text.rpartition(":")
        before, _, first = file.rpartition(":")
        column = line if before and first.isdecimal() else ""
        if column:
            file, line = before, first
        if not colon or not file or not line.isdecimal() or int(line) < 1 or (column and not column.isdecimal()):
            raise CommandError(f"{text!r} is not a source line: write FILE:LINE or FILE:LINE:COLUMN, for example transpose.cu:18")
        return cls(file, int(line), int(column) if column else None)

    def is_in(self, file: str) -> bool:
        """Return whether the place is in a file of the trace: by its name, or by the end of its path."""
        asked, known = PurePath(self.file).parts, PurePath(file).parts
        return known[-len(asked) :] == asked

    def __str__(self) -> str:
        return f"{self.file}:{self.line}{'' if self.column is None else f':{self.column}'}"


def examples_at(trace: Trace, place: SourcePlace, op: str = "", asked: str = "", array: str = "") -> list[AccessExample]:
    """Return the examples of a source line, the costliest first.

    `op` selects opcodes with this prefix, such as `ld.global`; `array` selects accesses of the array of that name. `asked` tells which warp
    or execution the examples were restricted to, if any. Raises CommandError that says what there is instead: for a line without accesses,
    for one whose accesses were never executed, and for a trace without addresses.
    """
    here = _sites_at(trace, place)
    known = list(dict.fromkeys(site.array for site in here if site.array))
    if array and array not in known:
        listed = f"it has {', '.join(known)}" if known else "the names of its accesses are not known"
        raise CommandError(f"{place} has no access of an array {array}; {listed}", exit_code=1)
    wanted = [site for site in here if site.op.startswith(op) and array in ("", site.array)]
    if not wanted:
        of = f" of {array}" if array else ""
        raise CommandError(f"{place} has no access {op}{of}; it has {', '.join(_ops(here, place.line))}", exit_code=1)
    if not trace.examples and not asked:
        raise CommandError(_without_addresses(trace, place), exit_code=1)
    numbers = {site.id for site in wanted}
    found = [one for one in trace.examples if one.site in numbers]
    if not found:
        raise CommandError(
            _why_not(wanted, place, asked, any(row.site.id in numbers and row.lanes for launch in trace.launches for row in launch.counts)),
            exit_code=1,
        )
    return sorted(found, key=lambda one: (one.ideal - one.transactions, -one.transactions))


_NEAREST = 4


def _sites_at(trace: Trace, place: SourcePlace) -> list[Site]:
    """Return the sites of a line, all in one file; raises CommandError if there are none."""
    sites = [site for site in trace.sites if place.is_in(site.file)]
    here = [site for site in sites if site.line == place.line]
    if not sites:
        raise CommandError(
            f"no access in a file {place.file}; there are accesses in {_listed(site.file for site in trace.sites)}", exit_code=1
        )
    if not here:
        nearest = sorted(dict.fromkeys(site.line for site in sites), key=lambda line: (abs(line - place.line), line))[:_NEAREST]
        known = "; ".join(f"line {line} ({', '.join(_ops(sites, line))})" for line in sorted(nearest))
        raise CommandError(f"{place} has no memory access; the nearest ones are in {known}", exit_code=1)
    if place.column is not None and (in_column := [site for site in here if site.column == place.column]):
        here = in_column
    elif place.column is not None:
        columns = ", ".join(map(str, dict.fromkeys(site.column for site in here)))
        raise CommandError(f"{place} has no memory access; those of line {place.line} begin at column {columns}", exit_code=1)
    files = dict.fromkeys(site.file for site in here)
    if len(files) > 1:
        raise CommandError(f"{place} may be {' or '.join(files)}; write more of the path", exit_code=1)
    return here


def _ops(sites: Sequence[Site], line: int) -> list[str]:
    return list(dict.fromkeys(site.op for site in sites if site.line == line))


def _listed(files: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(files)) or "no file at all"


def _without_addresses(trace: Trace, place: SourcePlace) -> str:
    emulator = f"emulator:{trace.chip}" if trace.chip in names() else "emulator"
    remedy = f"memlane show {place} PROGRAM --target {emulator} draws it from a run on the emulator"
    if trace.modelled:
        return f"the trace holds no addresses of lanes: it was recorded by an older memlane, or all its launches failed; {remedy}"
    return f"the trace was recorded on {trace.target}, which does not record the addresses of the lanes; {remedy}"


def _why_not(sites: Sequence[Site], place: SourcePlace, asked: str, came: bool) -> str:
    spaces = list(dict.fromkeys(site.space for site in sites))
    if not set(spaces) & {"global", "local", "shared", "generic"}:
        return f"{place} accesses {' and '.join(spaces)} memory, whose sectors and banks are not known, so there is nothing to draw"
    if came and not asked:
        return f"{place} accessed constants or the shared memory of another block, whose sectors and banks are not known"
    return f"there is no access at {place} by {asked}" if asked else f"no warp executed the access at {place}"

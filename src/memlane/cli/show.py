"""Implement `memlane show FILE:LINE`: draw one access of a warp."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program_or_file
from memlane.cli.failure import Failure, finished, passing_on
from memlane.cli.later import later
from memlane.cli.output import may_write
from memlane.cli.programs import Program, nothing_launched
from memlane.cli.terminal import show as display
from memlane.errors import ChipError, CommandError
from memlane.number_format import plural

if TYPE_CHECKING:
    from memlane import chip as chips
    from memlane import launch as launching
    from memlane import measure, record, report, targets
    from memlane.chip import Chip
    from memlane.cli import progress
    from memlane.launch import ExampleOf
    from memlane.record import AccessExample, Site, Trace
    from memlane.report import picture as pictures
    from memlane.report import show as places
    from memlane.report.show import SourcePlace
else:
    chips = later("memlane.chip")
    progress = later("memlane.cli.progress")
    launching = later("memlane.launch")
    measure = later("memlane.measure")
    pictures = later("memlane.report.picture")
    places = later("memlane.report.show")
    record = later("memlane.record")
    report = later("memlane.report")
    targets = later("memlane.targets")

WIDTH = 100
"""Columns of the picture, independent of the terminal, because a narrower picture is unreadable."""


Place = Annotated[
    str, typer.Argument(metavar="FILE:LINE", help="The source line, as transpose.cu:18 or, with the column, transpose.cu:18:5.")
]
Opcode = Annotated[
    str,
    typer.Option(
        "--op",
        metavar="OPCODE",
        help="If the line has several accesses: the one whose opcode begins with this, for example ld.global or st.shared.",
        rich_help_panel=o.WHAT,
    ),
]
Array = Annotated[
    str,
    typer.Option(
        "--array",
        metavar="NAME",
        help="If the line has several accesses: the one to this array (an argument of the kernel, or a variable).",
        rich_help_panel=o.WHAT,
    ),
]
Warp = Annotated[
    int | None,
    typer.Option(
        "--warp", metavar="N", min=0, help="The warp, by its number in the block, from 0; default: the worst.", rich_help_panel=o.WHAT
    ),
]
InBlock = Annotated[
    int | None,
    typer.Option(
        "--in-block", metavar="N", min=0, help="The block, by its linear index, from 0; default: the worst.", rich_help_panel=o.WHAT
    ),
]
Execution = Annotated[
    int | None,
    typer.Option(
        "--execution",
        metavar="N",
        min=0,
        help="The N-th access of that warp at that place, from 0; default: the worst.",
        rich_help_panel=o.WHAT,
    ),
]
Rules = Annotated[
    str,
    typer.Option(
        "--chip",
        metavar="NAME",
        help="Draw it by the rules of another chip, for example v100 or gtx480.",
        autocompletion=o.chip_names,
        rich_help_panel=o.RESULT,
    ),
]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the picture as SVG too.", rich_help_panel=o.RESULT)]


@runs_program_or_file
def show(
    program: Program,
    place: Place,
    op: Opcode = "",
    array: Array = "",
    warp: Warp = None,
    in_block: InBlock = None,
    execution: Execution = None,
    chip: Rules = "",
    svg: Svg = None,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    force: o.Force = False,
) -> None:
    """Draw how the lanes of one access map to sectors or banks, wavefront by wavefront.

    INPUT is a program, which is run on the emulator, or the record file of a trace that was taken there.
    """
    wanted = places.SourcePlace.parse(place)
    rules = _chip(chip)
    picture = None if svg is None else may_write(svg, program.path, force)
    asked = _Asked(in_block, warp, execution)
    recorded = _recorded(program, wanted, asked, launch, target)
    if recorded is not None:
        trace, own, failure = recorded, None, None
    else:
        trace, own, failure = _viewed(program, asked, launch, target)
    found = _examples(trace, wanted, (op, array), asked, failure)
    drawing = pictures.drawing_of(trace, found[0], rules or own or _chip_of(trace))
    with passing_on(failure):
        if picture is not None and failure is None:  # before anything is printed, which fails where a reader closed the pipe
            with record.replacing(picture, force) as stream:
                stream.write(pictures.to_svg(drawing).encode())
        display(pictures.render_drawing(drawing), width=WIDTH)
        for line in _others(trace, trace.sites[found[0].site]):
            typer.echo(line)
        if failure is not None:
            display(report.broken_off_note(failure.why), *([f"{svg} was not written."] if svg else []))
        elif picture is not None:
            typer.echo(f"Wrote {svg}")


def _chip(name: str) -> Chip | None:
    if not name:
        return None
    try:
        return chips.load(name)
    except ChipError as error:
        raise CommandError(f"--chip {name}: {error}") from None


@dataclass(frozen=True)
class _Asked:
    """The access to draw, as far as options specify it."""

    block: int | None
    warp: int | None
    execution: int | None

    @property
    def example(self) -> ExampleOf:
        """The example to record. An execution number counts within one warp, the first by default."""
        if self.execution is None:
            return launching.ExampleOf(self.block, self.warp)
        return launching.ExampleOf(self.block or 0, self.warp or 0, self.execution)

    def __str__(self) -> str:
        example = self.example
        numbers = {"block": example.block, "warp": example.warp, "execution": self.execution}
        return ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)


def _recorded(program: Program, place: SourcePlace, asked: _Asked, launch: int | None, target: str) -> Trace | None:
    """Return the trace if the input is a record file, else None. Raises CommandError for options that need a program."""
    if not program.path.is_file():
        return None  # Program.check reports the missing file.
    if not record.is_record(program.path):
        return None
    options = {
        "--warp": asked.warp,
        "--in-block": asked.block,
        "--execution": asked.execution,
        "--launch": launch,
        "--target": target or None,
    }
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise CommandError(
            f"{given[0]} needs a run, because a record file keeps only the addresses of the worst access of each line; "
            f"name the program instead: memlane show {place} PROGRAM {given[0]} ..."
        )
    if program.arguments or program.launch.kernel or program.launch.grid or program.launch.block or program.launch.arguments:
        raise CommandError(f"{program.path} is a record file, so it takes no options or arguments of a program")
    return record.load(program.path)


def _chip_of(trace: Trace) -> Chip:
    if trace.chip not in chips.names():
        raise CommandError(
            f"the trace was taken on {trace.chip}, and there is no chip file for it here; choose another chip with --chip: "
            f"{', '.join(chips.names())}"
        )
    return chips.load(trace.chip)


def _viewed(program: Program, asked: _Asked, launch: int | None, target: str) -> tuple[Trace, Chip, Failure | None]:
    """Run the program on the emulator; return its trace, the emulated chip, and the failure."""
    program.check()
    viewer = measure.Viewer(asked.example, worst=asked.execution is None, only_launch=launch)
    with progress.progress("viewing"):
        failure = program.run(_emulator(target), viewer)
    failure = failure or nothing_launched(program, viewer.seen, launch is None or launch < viewer.seen, launch, "draw")
    trace = finished(viewer.finish, failure)
    return trace, viewer.chip, failure


def _examples(trace: Trace, place: SourcePlace, which: tuple[str, str], asked: _Asked, failure: Failure | None) -> list[AccessExample]:
    """Return the accesses at a place with an opcode and an array, most expensive first. Without any, raises the failure of the program."""
    try:
        return places.examples_at(trace, place, which[0], str(asked), which[1])
    except CommandError:
        if failure is None:
            raise
        raise failure.error from None


def _emulator(name: str) -> str:
    """Return the target to run on: the requested one, else an emulator of the chip that the program would run on."""
    found = targets.target(name or None)
    if found.observes:
        return name
    if name:
        raise CommandError(
            f"{name} does not record the addresses of the lanes; only the emulator does: pass --target emulator, or leave --target out"
        )
    return f"emulator:{found.chip.name}" if found.chip.name in chips.names() else "emulator"


def _others(trace: Trace, drawn: Site) -> list[str]:
    """Return a line that lists the other accesses at the source line, with the place and options that draw each; empty if none."""
    sites = [trace.sites[number] for number in dict.fromkeys(one.site for one in trace.examples)]
    here = [site for site in sites if (site.file, site.line) == (drawn.file, drawn.line)]
    columns: dict[tuple[str, str], dict[int, None]] = {}
    for site in here:
        columns.setdefault((site.op, site.array), {})[site.column] = None
    alike = sum((one.op, one.array, one.column) == (drawn.op, drawn.array, drawn.column) for one in here) - 1
    told = [f"{plural(alike, 'more finding')} of this kind at this place, none more expensive"] if alike else []
    for (op, array), of_it in sorted(columns.items(), key=lambda one: (one[0][1] or "~", one[0][0])):
        options = f"--op {op}" + (f" --array {array}" if array else "")
        same = (op, array) == (drawn.op, drawn.array)
        if len(of_it) > 1:
            place = f"{PurePath(drawn.file).name}:{drawn.line}"
            told += [f"{place}:{column} {options}" for column in of_it if not same or column != drawn.column]
        elif not same:
            told.append(options)
    return [f"Other accesses of this line: {', '.join(told)}"] if told else []

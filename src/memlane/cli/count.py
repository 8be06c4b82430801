"""`memlane count`: how many transactions each access costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.later import later
from memlane.cli.output import may_write, tell_of
from memlane.cli.programs import Program, check_launched
from memlane.cli.progress import progress
from memlane.cli.stream import for_a_document
from memlane.cli.terminal import columns, show, show_json
from memlane.errors import CommandError

if TYPE_CHECKING:
    from memlane import measure, record, report
    from memlane.record import Counts
else:
    measure = later("memlane.measure")
    record = later("memlane.record")
    report = later("memlane.report")

_FORMS = {".json": "json", ".csv": "csv"}
"""What the name of an output file says of its format; any other name stands for the table."""


@runs_program
def count(
    program: Program,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    check: o.Checked = False,
    deterministic: o.Deterministic = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.", rich_help_panel=o.RESULT)] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="CSV instead of a table, one line for each access of the PTX.", rich_help_panel=o.RESULT)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to a file, not to the terminal. A name that ends in .json or .csv asks for that format.",
            rich_help_panel=o.RESULT,
        ),
    ] = None,
    force: o.Force = False,
) -> None:
    """Count the transactions of every memory access: sectors, wavefronts, and the least that would do."""
    form = _form(as_json, as_csv, output)
    program.check()
    place = None if output is None else may_write(output, program.path, force)
    counter = measure.Counter(only_launch=launch, merged=True)
    alone = form != "table" and place is None
    with for_a_document(alone), progress("counting"), checking(Check(insist=True) if check else None):
        program.run(target, counter, deterministic)
    check_launched(program, counter.seen, bool(counter.counted), launch, "count")
    counted = _Counted(counter.finish(), counter.sources, form)
    if place is None:
        counted.show()
        return
    with record.replacing(place, force) as stream:
        stream.write(counted.text().encode())
    tell_of(place, output)


def _form(as_json: bool, as_csv: bool, output: Path | None) -> str:
    """`json`, `csv` or `table`: what was asked for, else what the name of the file says."""
    if as_json and as_csv:
        raise CommandError("--json and --csv are two formats; name one")
    if as_json or as_csv:
        return "json" if as_json else "csv"
    return _FORMS.get(output.suffix.lower(), "table") if output is not None else "table"


@dataclass(frozen=True)
class _Counted:
    """What was counted, in the form that was asked for."""

    launches: Sequence[Counts]
    sources: Mapping[str, str]
    form: str

    def show(self) -> None:
        if self.form == "table":
            show(self._tables())
        elif self.form == "csv":
            typer.echo(report.counts_csv(self.launches), nl=False)
        else:
            show_json(self._document())

    def text(self) -> str:
        """For a file."""
        if self.form == "table":
            return report.to_text(self._tables(), columns())
        return report.counts_csv(self.launches) if self.form == "csv" else report.to_json(self._document())

    def _tables(self) -> Group:
        tables = [report.render_counts(counts, self.sources) for counts in self.launches]
        return Group(*(part for number, table in enumerate(tables) for part in ((Text(), table) if number else (table,))))

    def _document(self) -> dict[str, object]:
        return report.counts_document(self.launches, self.sources)

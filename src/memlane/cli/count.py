"""Implement `memlane count`: count the transactions of each access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.checks import Check, checking
from memlane.cli import options as o
from memlane.cli.command import runs_program
from memlane.cli.failure import finished, passing_on, why
from memlane.cli.later import later
from memlane.cli.output import may_write, tell_of
from memlane.cli.programs import Program, nothing_launched
from memlane.cli.stream import for_a_document
from memlane.cli.terminal import columns, show, show_json
from memlane.errors import CommandError, RecordError

if TYPE_CHECKING:
    from rich import console as consoles
    from rich import text as texts
    from rich.console import Group

    from memlane import measure, record, report
    from memlane.cli import progress
    from memlane.measure import FailedLaunch
    from memlane.record import Counts
else:
    texts = later("rich.text")
    consoles = later("rich.console")
    progress = later("memlane.cli.progress")
    measure = later("memlane.measure")
    record = later("memlane.record")
    report = later("memlane.report")

_FORMS = {".json": "json", ".csv": "csv"}
"""Output format by the suffix of the output file; any other suffix gives a table."""


@runs_program
def count(
    program: Program,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    check: o.Checked = False,
    deterministic: o.Deterministic = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=o.RESULT)] = False,
    as_csv: Annotated[
        bool,
        typer.Option("--csv", help="Print CSV instead of a table, with one line for each access in the PTX.", rich_help_panel=o.RESULT),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to a file instead of the terminal. A name that ends in .json or .csv chooses that format.",
            rich_help_panel=o.RESULT,
        ),
    ] = None,
    force: o.Force = False,
) -> None:
    """Count the transactions of every memory access: sectors, wavefronts, and the fewest possible of each."""
    form = _form(as_json, as_csv, output)
    program.check()
    place = None if output is None else may_write(output, program.path, force)
    counter = measure.Counter(only_launch=launch, merged=True)
    alone = form != "table" and place is None
    with for_a_document(alone), progress.progress("counting"), checking(Check(insist=True) if check else None):
        failure = program.run(target, counter, deterministic)
    failure = failure or nothing_launched(program, counter.seen, bool(counter.counted), launch, "count")
    launches = finished(counter.finish, failure) if counter.counted else []
    counted = _Counted(launches, counter.sources, counter.failures, form if place is None or failure is None else "table", why(failure))
    with passing_on(failure):
        if place is None or failure is not None:
            counted.show()
        else:
            _write(counted, place, force)
            tell_of(place, output)
        if place is not None and failure is not None and launches:
            typer.echo(f"{output} was not written, because the program failed.")


def _write(counted: _Counted, place: Path, force: bool) -> None:
    """Write the output file; if that fails, print the table before raising."""
    try:
        with record.replacing(place, force) as stream:
            stream.write(counted.text().encode())
    except RecordError:
        replace(counted, form="table").show()
        raise


def _form(as_json: bool, as_csv: bool, output: Path | None) -> str:
    """Return `json`, `csv` or `table`: the format requested by an option, else the one of the output file's suffix."""
    if as_json and as_csv:
        raise CommandError("--json and --csv cannot be combined; pass one of them")
    if as_json or as_csv:
        return "json" if as_json else "csv"
    return _FORMS.get(output.suffix.lower(), "table") if output is not None else "table"


@dataclass(frozen=True)
class _Counted:
    """Counts of the launches, in the requested format."""

    launches: Sequence[Counts]
    sources: Mapping[str, str]
    failures: Sequence[FailedLaunch]
    form: str
    failed: str
    """Reason why the program failed; empty if it completed."""

    def show(self) -> None:
        if self.form == "json":
            show_json(self._document())
        elif not self.launches:
            return
        elif self.form == "table":
            show(self._tables())
        else:
            typer.echo(report.counts_csv(self.launches), nl=False)

    def text(self) -> str:
        """Return the text to write to a file."""
        if self.form == "table":
            return report.to_text(self._tables(), columns())
        return report.counts_csv(self.launches) if self.form == "csv" else report.to_json(self._document())

    def _tables(self) -> Group:
        tables = [report.render_counts(counts, self.sources) for counts in self.launches]
        parts = [part for number, table in enumerate(tables) for part in ((texts.Text(), table) if number else (table,))]
        notes = report.failed_notes(self.failed, self.failures, "It is not counted.")
        return consoles.Group(*parts, *([texts.Text(), *map(texts.Text, notes)] if notes else []))

    def _document(self) -> dict[str, object]:
        return report.counts_document(self.launches, self.sources, self.failed, self.failures)

"""Implement `memlane explain INPUT`: list problems with the memory accesses of a program or a record file."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from memlane.cli import options as o
from memlane.cli.command import runs_program_or_file
from memlane.cli.failure import passing_on
from memlane.cli.later import later
from memlane.cli.output import recorded
from memlane.cli.programs import Program
from memlane.cli.recording import Recording, record_program
from memlane.cli.terminal import show, show_json
from memlane.errors import BadAccess, CommandError, RecordError

if TYPE_CHECKING:
    from memlane import diagnose, report
    from memlane.cli import progress
    from memlane.diagnose import Findings
    from memlane.record import Trace
else:
    progress = later("memlane.cli.progress")
    diagnose = later("memlane.diagnose")
    report = later("memlane.report")

FINDINGS = "Which findings, and how"
"""Name of the option group for what to show."""

Top = Annotated[
    int | None, typer.Option("--top", metavar="N", min=1, help="Show the N most expensive findings; default: 3.", rich_help_panel=FINDINGS)
]
Why = Annotated[bool, typer.Option("--why", help="Show all findings, and how the cost of each was found.", rich_help_panel=FINDINGS)]
Brief = Annotated[bool, typer.Option("--brief", help="Show one line for each finding.", rich_help_panel=FINDINGS)]


@runs_program_or_file
def explain(
    program: Program,
    launch: o.LaunchNumber = None,
    target: o.TargetName = "",
    deterministic: o.Deterministic = False,
    counts: o.WithCounts = False,
    top: Top = None,
    why: Why = False,
    brief: Brief = False,
    as_json: o.Json = False,
) -> None:
    """Explain what is wrong with the memory accesses of a program or a record file, most expensive first.

    A program is traced and its transactions are counted. On a GPU, each launch runs a second time for that, and is not counted if the
    memory that it writes cannot be restored in between. For a script or a record file, `--kernel` selects the findings of one kernel.
    """
    if program.is_record:
        program.refuse_options(launch=launch, target=target, deterministic=deterministic, counts=counts)
        with progress.working(f"reading {program.path}"):
            done = Recording(recorded(program.path))
    else:
        plain = program.without_kernel()
        done = record_program(plain, verb="explain", target=target, launch=launch, counts=counts or "safe", deterministic=deterministic)
    _tell(done, program, top, why, brief, as_json)


def _tell(done: Recording, program: Program, top: int | None, why: bool, brief: bool, as_json: bool) -> None:
    trace = done.trace
    with progress.working(f"explaining {program.path}"):
        findings, silent = _explained(done, program), diagnose.uncounted_launches(trace)
        clean = diagnose.clean_kernels(trace, findings)
    if program.launch.kernel and (program.is_record or program.is_script):
        findings, clean = _of_kernel(trace, findings, clean, program.launch.kernel)
    sampled = [launch for launch in trace.launches if launch.sample is not None and launch not in silent]
    with passing_on(done.failure):
        if as_json:
            show_json(report.findings_document(findings, silent, clean, trace.skipped, sampled, trace.failed, trace))
            return
        if why:
            show(report.render_findings(findings, silent, clean, trace.skipped, sampled, trace.failed, trace))
        else:
            notes = report.short_notes(findings, silent, clean, trace.skipped, sampled, trace.failed, trace.modelled)
            show(report.render_worst(findings, clean, top or (len(findings) if brief else report.TOP), notes=notes, brief=brief))
        for title, reason in done.uncounted.items():
            typer.echo(f"{report.label(title)} was not counted: {reason}. Pass --counts to count it anyway.")
        command = "Next: memlane report"
        if not findings and not program.is_record:
            command = "Next, to look for races, accesses out of bounds and misused barriers: memlane check"
        typer.echo(f"{command} {shlex.quote(str(program.path))}{program.launch_words}")


def _explained(done: Recording, program: Program) -> Findings:
    """Return the findings of a recording. Raises the program's own error if no launch was counted."""
    try:
        return diagnose.explain(done.trace)
    except RecordError as error:
        if done.failure is None:
            if not (program.is_record or program.is_script) and not done.trace.table.num_rows:
                error.add_note(
                    "with these arguments every thread left before its first access: give other numbers with --arg, or other sizes"
                )
            raise
        if isinstance(done.failure.error, BadAccess):
            command = f"memlane check {shlex.quote(str(program.path))}{program.launch_words}"
            done.failure.error.add_note(f"nothing could be explained, because no launch completed; to list every faulty access: {command}")
        raise done.failure.error from None


def _of_kernel(trace: Trace, findings: Findings, clean: tuple[str, ...], name: str) -> tuple[Findings, tuple[str, ...]]:
    """Return the findings in one kernel. Raises CommandError if the trace has no such kernel."""
    titles = dict.fromkeys(launch.kernel for launch in trace.launches)
    found = [title for title in titles if name in (title, report.label(title), title.partition("(")[0])]
    if not found:
        raise CommandError(f"--kernel {name}: no such kernel was launched; launched kernels: {', '.join(map(report.label, titles))}")
    kept = diagnose.Findings(
        [one for one in findings if one.kernel in found], [one for one in findings.unexamined if set(one.kernels) & set(found)]
    )
    return kept, tuple(title for title in clean if title in found)

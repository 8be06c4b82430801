"""Run a program under a tracer, for `memlane trace`, `explain` and `report`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memlane.checks import Check, checking
from memlane.cli.failure import Failure, finished
from memlane.cli.later import later
from memlane.cli.notes import plan_notes
from memlane.cli.programs import Program, nothing_launched

if TYPE_CHECKING:
    from memlane import launch as launching
    from memlane import measure
    from memlane.cli import progress, selected
    from memlane.instrument import TraceOptions
    from memlane.record import Trace
else:
    progress = later("memlane.cli.progress")
    launching = later("memlane.launch")
    measure = later("memlane.measure")
    selected = later("memlane.cli.selected")


@dataclass(frozen=True)
class Recording:
    """The trace of a program, with its failure."""

    trace: Trace
    failure: Failure | None = None
    """Failure of the program; None if it completed."""
    uncounted: Mapping[str, str] = field(default_factory=dict)
    """Reason why a kernel's transactions were not counted, by the kernel's title."""


def record_program(
    program: Program,
    options: TraceOptions | None = None,
    *,
    verb: str,
    target: str,
    launch: int | None = None,
    counts: bool | str = False,
    perturbation: bool = False,
    check: bool = False,
    deterministic: bool = False,
) -> Recording:
    """Run a program and trace its launches. Raises its error if nothing was recorded. `verb` is the command's action, such as `trace`."""
    tracer = measure.Tracer(
        options, only_launch=launch, counts=counts, perturbation=perturbation, predictions=verb in ("explain", "report")
    )
    launched = selected.LaunchedKernels(launch)
    checks = Check(insist=True) if check else None
    with (
        progress.progress("tracing"),
        plan_notes() if verb == "trace" else nullcontext(),
        checking(checks),
        launching.observing(launched, everywhere=True),
    ):
        failure = program.run(target, tracer, deterministic)
    failure = failure or nothing_launched(program, tracer.seen, bool(tracer.traced), launch, verb)
    if failure is None:
        launched.check(tracer.options.selection)
        selected.check_plans(tracer.plans)
    elif not tracer.traced:
        raise failure.error
    result = finished(tracer.finish, failure)
    if failure is not None:
        if not result.launches:
            raise failure.error
        result = replace(result, failed=failure.why)
    return Recording(result, failure, tracer.uncounted)

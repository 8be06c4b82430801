"""Add the checker to launches on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.checks import Check, requested_check
from memlane.errors import CheckFailed, MemlaneError
from memlane.launch.kernel import Launch, Launcher, Observation
from memlane.launch.observation import Layers
from memlane.launch.reports import Actor, Report

_SHOWN = 10


def with_checker(launch: Launch) -> Launch:
    """Return the launch with the checker added if a check is requested; it raises CheckFailed at its end if anything was found.

    Returns `launch` itself if no check is requested, if the target has no checker, or if the launch already has the checker. Raises
    MemlaneError if the target has none and the request insists on it. If the request has a judge, the judge receives the counts.
    """
    wish = requested_check()
    if wish is None:
        return launch
    counted = _with_counts(launch, wish)
    return counted if launch.layers.check or not wish.correctness else _with_correctness_check(counted, wish)


def _with_counts(launch: Launch, wish: Check) -> Launch:
    """Return the launch with counts, for the judge; unchanged if it is already observed or runs on a GPU."""
    judge = wish.judge
    if judge is None or launch.layers != Layers() or not launch.kernel.target.observes:
        return launch

    def report(seen: Observation) -> None:
        if not seen.broke_off:
            judge(launch, seen)

    return replace(launch, layers=launch.layers.merged(Layers(counts=True, report=report)))


def demand_checker(target: Launcher) -> None:
    """Raise MemlaneError if the target cannot check launches."""
    if not target.observes:
        raise MemlaneError(f"{target.name} cannot check a launch; only the emulator can: use the target emulator:{target.chip.name}")


def _with_correctness_check(launch: Launch, wish: Check) -> Launch:
    """Return the launch with the checker added."""
    if wish.insist:
        demand_checker(launch.kernel.target)
    if not launch.kernel.target.observes:
        return launch

    def judge(seen: Observation) -> None:
        if seen.reports:
            raise CheckFailed(_findings(launch, seen.reports))

    return replace(launch, layers=launch.layers.merged(Layers(check=True, seed=wish.seed, report=judge)))


def _findings(launch: Launch, reports: Sequence[Report]) -> str:
    """Return each report with the source lines that it refers to."""
    sources = {name: text.splitlines() for name, text in launch.kernel.module.sources.items()}

    def quoted(actor: Actor) -> list[str]:
        lines = sources.get(actor.file, [])
        return [f"{actor.line:>6} | {lines[actor.line - 1].strip()}"] if 0 < actor.line <= len(lines) else []

    paragraphs = []
    for report in reports[:_SHOWN]:
        actors = [report.who] if report.other is None or report.other.place == report.place else [report.who, report.other]
        paragraphs.append("\n".join([str(report), *(line for actor in actors for line in quoted(actor))]))
    more = [f"and {len(reports) - _SHOWN} more"] if len(reports) > _SHOWN else []
    return "\n".join([*paragraphs, *more])

"""Launches that must keep the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.checks import Check, requested_check
from memlane.errors import CheckFailed, MemlaneError
from memlane.launch.kernel import Launch, Launcher, Observation
from memlane.launch.observation import Layers
from memlane.launch.reports import Actor, Report

_SHOWN = 10


def checked(launch: Launch) -> Launch:
    """The launch with the checker where that is wished. It raises CheckFailed at the end of the launch if something was found.

    It is `launch` itself where nobody wishes it, where the target has no checker, and where someone else has asked for the checker.
    MemlaneError where the target has none and the wish is firm. Where the wish has a judge, it gets the counts.
    """
    wish = requested_check()
    if wish is None:
        return launch
    counted = _counted(launch, wish)
    return counted if launch.layers.check or not wish.correctness else _correct(counted, wish)


def _counted(launch: Launch, wish: Check) -> Launch:
    """The launch with counts, for the judge; one that is observed already, or on a GPU, is left alone."""
    judge = wish.judge
    if judge is None or launch.layers != Layers() or not launch.kernel.target.observes:
        return launch

    def report(seen: Observation) -> None:
        if not seen.broke_off:
            judge(launch, seen)

    return replace(launch, layers=launch.layers.merged(Layers(counts=True, report=report)))


def demand_checker(target: Launcher) -> None:
    """MemlaneError where the target cannot check launches."""
    if not target.observes:
        raise MemlaneError(f"{target.name} cannot check a launch; only the emulator can: use the target emulator:{target.chip.name}")


def _correct(launch: Launch, wish: Check) -> Launch:
    if wish.insist:
        demand_checker(launch.kernel.target)
    if not launch.kernel.target.observes:
        return launch

    def judge(seen: Observation) -> None:
        if seen.reports:
            raise CheckFailed(_findings(launch, seen.reports))

    return replace(launch, layers=launch.layers.merged(Layers(check=True, seed=wish.seed, report=judge)))


def _findings(launch: Launch, reports: Sequence[Report]) -> str:
    """Each report under the source lines that it speaks of."""
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

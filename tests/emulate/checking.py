"""Launching kernels under the checker from tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from memlane.compile import cuda
from memlane.errors import LaunchError
from memlane.launch import KernelCall, Layers, LoadedModule, Observation, Report, Target
from memlane.ptx import Module

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def compiled(source: str, name: str = "test.cu") -> Module:
    """The module of a CUDA program."""
    return cuda(source, name=name)


def mutated(target: Target, name: str, *changes: tuple[str, str]) -> LoadedModule:
    """An example with pieces of its source replaced. Each piece must be there."""
    source = (EXAMPLES / f"{name}.cu").read_text()
    for old, new in changes:
        assert old in source, f"{name}.cu no longer has {old!r}"
        source = source.replace(old, new)
    return target.load(compiled(source, f"{name}.cu"))


def check(call: KernelCall, *arguments: object) -> tuple[Report, ...]:
    """What the checker finds in a launch, also in one that ends in an error."""
    seen: list[Observation] = []
    launch = replace(call.bind(*arguments), layers=Layers(check=True, report=seen.append))
    try:
        call.kernel.target.launch(launch)
    except LaunchError:
        if not seen:
            raise
    (observation,) = seen
    assert observation.reports is not None
    return observation.reports


def kinds(reports: tuple[Report, ...]) -> set[tuple[str, str]]:
    """Kind and state space of each report."""
    return {(report.kind, report.space) for report in reports}


def line(call: KernelCall, text: str, which: int = 0) -> int:
    """The number of the `which`-th source line that contains a text."""
    (source,) = (one for name, one in call.kernel.module.sources.items() if name.endswith(".cu"))
    return [number for number, one in enumerate(source.splitlines(), 1) if text in one][which]

"""Kernels of Python front ends, measured: by the emulator's own eyes, by counting kernels, and with probes."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np

import memlane as ml
from memlane.launch import Layers, Observation
from memlane.record import Counts
from memlane.targets import target as target_named
from tests.compile.cases import Case


def check_quiet(case: Case) -> None:
    """The checker finds nothing, with the warps in another order than their numbers'."""
    target = target_named("emulator:h200")
    call, arguments = case.prepare(target)
    seen: list[Observation] = []
    target.launch(replace(call.bind(*arguments), layers=Layers(check=True, seed=3, report=seen.append)))
    case.check(arguments)
    assert [observation.reports for observation in seen] == [()]


def check_counts(case: Case) -> None:
    """What the emulator counts by itself equals what a kernel counts that was instrumented to, as on a GPU; both compute the same."""
    seen, counted = (_counts(case, observes) for observes in (True, False))
    assert (seen.how, counted.how) == ("emulated", "counted on the device")
    assert seen.sites
    assert _without_stride(seen) == _without_stride(counted)
    assert seen.branches == counted.branches


def _counts(case: Case, observes: bool) -> Counts:
    target = target_named("emulator:h200")
    target.observes = observes
    call, arguments = case.prepare(target)
    counts = ml.count(call, *arguments)
    case.check(arguments)
    return counts


def _without_stride(counts: Counts) -> list[tuple[Any, ...]]:
    """The counting kernels also find out the distance between lanes."""
    return [
        (s.site.instruction, s.requests, s.lanes, s.bytes, s.sectors, s.ideal_sectors, s.wavefronts, s.ideal_wavefronts)
        for s in counts.sites
    ]


def check_trace(case: Case, file: str, function: Any) -> None:
    """With probes the kernel computes the same; each access it executes is recorded once, on a line of the function where it has one."""
    target = target_named("emulator:h200")
    call, arguments = case.prepare(target)
    trace = ml.trace(call, *arguments)
    case.check(arguments)
    requests = {site.site.instruction: site.requests for site in _counts(case, True).sites}
    kernel_sites = {site.id: site for site in trace.sites}
    numbers, rows = np.unique(trace.table["site"].to_numpy(), return_counts=True)
    recorded = {kernel_sites[number].instruction: count for number, count in zip(numbers, rows, strict=True)}
    waits = {site.instruction for site in trace.sites if site.kind == "wait"}
    assert {instruction: count for instruction, count in recorded.items() if instruction not in waits} == requests
    assert trace.lost == 0
    lines, first = inspect.getsourcelines(getattr(function, "py_func", getattr(function, "fn", function)))
    own = [site for site in trace.sites if site.file == file]
    assert own
    assert all(first <= site.line < first + len(lines) for site in own)
    assert all(site.line for site in trace.sites)

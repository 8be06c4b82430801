"""Measurements inside of observed programs, and several observers of one launch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.launch import Layers, Observer, observing
from memlane.measure import Checker, Counter, Tracer, check, count, time, trace
from memlane.ptx import Module


def program(module: Module) -> list[object]:
    """What a script measures by itself, and what its launches compute."""
    target = Emulator(load("h200"))
    data = target.array(np.arange(128, dtype=np.uint32))
    call = target.load(module)["add"][1, 128]
    timing = time(call, data, 5)
    counts = count(call, data, 5)
    made = trace(call, data, 5)
    found = check(call, data, 5)
    return [
        timing.median_ns,
        [(one.site, one.requests, one.sectors) for one in counts.sites],
        counts.thread_instructions,
        made.table.num_rows,
        [(one.site.op, one.requests) for one in made.launches[0].counts],
        found,
        data.numpy().tolist(),
    ]


@pytest.mark.parametrize("outer", [Tracer, Counter, Checker])
def test_a_program_that_measures_gets_the_same_numbers_when_it_is_observed(module: Module, outer: Callable[[], Observer]) -> None:
    alone = program(module)
    assert alone[-1] == list(range(15, 143)), "three launches; `time` puts back what its own did"
    with observing(outer()):
        assert program(module) == alone


def test_the_observer_sees_the_plain_launch_of_every_measurement_once(module: Module) -> None:
    with observing(counter := Counter()), observing(tracer := Tracer(only_launch=1)):
        program(module)
    assert (counter.seen, tracer.seen, tracer.traced) == (4, 4, 1)
    assert [[(one.site.op, one.requests) for one in counts.sites] for counts in counter.finish()] == [
        [("ld.global.u32", 4), ("st.global.u32", 4)]
    ] * 4
    assert tracer.finish().table.num_rows == 8


def test_an_observer_before_a_tracer_is_told_of_the_plain_kernel(module: Module) -> None:
    target = Emulator(load("h200"))
    data = target.zeros(128, np.uint32)
    call = target.load(module)["add"][1, 128]
    plain = count(call, data, 5)
    with observing(counter := Counter()), observing(tracer := Tracer()):
        call(data, 5)
    [counts] = counter.finish()
    assert counts.sites == plain.sites
    assert tracer.finish().table.num_rows == 8


def test_layers_of_two_observers() -> None:
    told: list[str] = []
    first = Layers(counts=True, accesses=True, max_accesses=10, seed=3, report=lambda _: told.append("first"))
    both = first.merged(Layers(clock=True, check=True, stop=True, report=lambda _: told.append("second")))
    assert both == Layers(counts=True, clock=True, accesses=True, max_accesses=10, check=True, stop=True, seed=3)
    assert both.report is not None
    both.report(None)  # type: ignore[arg-type]
    assert told == ["first", "second"]
    assert first.merged(Layers(accesses=True, max_accesses=20)).max_accesses == 20
    assert first.merged(Layers(accesses=True)).max_accesses is None
    assert first.merged(Layers(seed=4)).seed == 4

"""Graphs that are started again when the measurement is over."""

from __future__ import annotations

import gc

import numpy as np

from memlane.emulate import Emulator
from memlane.launch import DeviceArray, LoadedModule, observing
from memlane.measure import Tracer
from memlane.measure.device_counters import DeviceCounters


def test_a_traced_graph_runs_on_after_the_tracer_has_finished(target: Emulator, kernels: LoadedModule, data: DeviceArray) -> None:
    with observing(tracer := Tracer()):
        graph = target.graph([kernels["add"][1, 128].bind(data, 1)])
    graph.replay()
    made = tracer.finish()
    del tracer
    gc.collect()
    graph.replay()
    assert np.array_equal(data.numpy(), np.arange(128) + 2)
    assert made.table.num_rows == 8


def test_a_tracer_that_finishes_twice_gives_the_same_trace(kernels: LoadedModule, data: DeviceArray) -> None:
    with observing(tracer := Tracer()):
        kernels["add"][1, 128](data, 1)
    assert tracer.finish().table.equals(tracer.finish().table)


def test_a_counting_graph_runs_on_after_its_counters_are_gone(target: Emulator, kernels: LoadedModule, data: DeviceArray) -> None:
    tally = DeviceCounters(kernels)
    graph = target.graph([tally.counting_launch(0, kernels["add"][1, 128].bind(data, 1))])
    graph.replay()
    [(_, counts)] = tally.collect()
    del tally
    gc.collect()
    graph.replay()
    assert np.array_equal(data.numpy(), np.arange(128) + 2)
    assert [one.requests for one in counts.sites] == [4, 4]

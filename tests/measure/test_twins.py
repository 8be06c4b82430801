"""Twins that are kept: made once for each module and choice of options, and gone with the module."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from memlane.emulate import Emulator
from memlane.errors import BadAccess
from memlane.launch import DeviceArray, LoadedModule, observing
from memlane.measure import Tracer, trace
from memlane.ptx import Module


@pytest.fixture
def loads(target: Emulator, monkeypatch: pytest.MonkeyPatch) -> list[Module]:
    """The modules that are loaded from now on."""
    found: list[Module] = []
    load = target.load_module

    def counted(module: Module) -> object:
        found.append(module)
        return load(module)

    monkeypatch.setattr(target, "load_module", counted)
    return found


def test_a_module_is_instrumented_once_for_each_choice_of_options(kernels: LoadedModule, data: DeviceArray, loads: list[Module]) -> None:
    made = [trace(kernels["add"][1, 128], data, 1) for _ in range(3)]
    assert len(loads) == 1
    assert [one.table.num_rows for one in made] == [8] * 3
    assert made[0].table.select(["site", "block", "warp"]).equals(made[2].table.select(["site", "block", "warp"]))
    assert trace(kernels["sum"][1, 32], data, 2).table.num_rows == 3
    assert len(loads) == 1
    trace(kernels["add"][1, 128], data, 1, scheme="simple")
    assert len(loads) == 2


def test_a_launch_that_fails_does_not_harm_the_next(kernels: LoadedModule, target: Emulator, data: DeviceArray) -> None:
    with pytest.raises(BadAccess):
        trace(kernels["add"][1, 128], target.zeros(64, np.uint32), 1)
    assert trace(kernels["add"][1, 128], data, 1).table.num_rows == 8


def test_a_graph_that_is_being_traced_keeps_its_own_twin(target: Emulator, kernels: LoadedModule, data: DeviceArray) -> None:
    trace(kernels["add"][1, 128], data, 1)
    with observing(tracer := Tracer()):
        graph = target.graph([kernels["add"][1, 64].bind(data, 1)])
    assert trace(kernels["add"][1, 128], data, 1).table.num_rows == 8
    graph.replay()
    assert tracer.finish().table.num_rows == 4


def test_twins_go_with_their_module(target: Emulator, module: Module, data: DeviceArray) -> None:
    loaded = target.load(module)
    trace(loaded["add"][1, 128], data, 1)
    gone = weakref.ref(loaded)
    del loaded
    gc.collect()
    assert gone() is None

"""Plans that break off: memory that runs out, and Ctrl-C between steps. Nothing leaks, hangs, or is left half done."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import DeviceError
from memlane.launch import DeviceArray, LoadedModule, Target
from memlane.plan import Plan, PlanBuilder
from memlane.targets import BoundPlan, run
from tests.launch.fake_target import FakeTarget
from tests.targets.graphing import GraphingEmulator
from tests.targets.test_graphs import ADD, FIRST, N


def many_buffers() -> Plan:
    """Three on the device and one pinned, none of which is bound."""
    b = PlanBuilder()
    given, back = b.array("given", N, "u4", "host"), b.array("back", N, "u4", "pinned")
    first, second, third = (b.array(name, N, "u4", 0) for name in ("first", "second", "third"))
    for to, of in ((first, given), (second, first), (third, second), (back, third)):
        b.copy(to, of)
    return b.plan()


@pytest.mark.parametrize("allocation", [0, 1, 2])
def test_memory_that_runs_out_while_binding_is_given_back(allocation: int) -> None:
    target = FakeTarget()
    target.allocations_left = allocation
    with pytest.raises(DeviceError) as caught:
        run(many_buffers(), {"given": FIRST}, targets=[target])
    name = ("first", "second", "third")[allocation]
    assert str(caught.value) == f"not enough memory on fake for buffer {name!r} of 256 bytes: fake has no 256 bytes of memory left"
    del caught
    gc.collect()
    assert target.memory == {}
    target.allocations_left = 3
    assert np.array_equal(run(many_buffers(), {"given": FIRST}, targets=[target])["back"], FIRST)
    gc.collect()
    assert target.memory == {}


class Scarce(Emulator):
    """It has no memory left after so many allocations."""

    def __init__(self) -> None:
        super().__init__(load("h200"))
        self.allocations_left = -1
        self.held: list[weakref.ref[object]] = []

    def allocate(self, nbytes: int) -> tuple[int, object]:
        if self.allocations_left == 0:
            raise DeviceError(f"{self.name} has no {nbytes} bytes of memory left")
        self.allocations_left -= 1
        address, owner = super().allocate(nbytes)
        self.held.append(weakref.ref(owner))
        return address, owner

    @property
    def living(self) -> int:
        gc.collect()
        return sum(one() is not None for one in self.held)


KEPT: list[DeviceArray] = []
TARGETS: list[Target] = []


def take_memory(values: Any) -> None:
    """Of the device, as a host function may while a plan runs."""
    KEPT.append(TARGETS[0].array(values))


@pytest.mark.parametrize("allocation", range(6))
def test_memory_that_runs_out_while_running_is_given_back(allocation: int) -> None:
    """Steps that had run stay done; the plan runs again when there is memory."""
    target = Scarce()
    kernels = target.load(ADD)
    b = PlanBuilder()
    given, here, there = b.array("given", N, "u4", "pinned"), b.array("here", N, "u4", 0), b.array("there", N, "u4", 0)
    back = b.array("back", N, "u4", "pinned")
    last = b.copy(here, given)
    for _ in range(2):
        last = b.call("tests.targets.test_breaking_off:take_memory", given, after=[last], reads=[given], writes=())
        last = b.launch(kernels["add"], 1, N, there, here, 1, after=[last], reads=[here], writes=[there])
        last = b.copy(here, there, after=[last])
    b.copy(back, here, after=[last])
    TARGETS[:] = [target]
    target.allocations_left = allocation
    try:
        if allocation < 4:
            with pytest.raises(DeviceError, match=r"emulator:h200 has no 256 bytes of memory left$"):
                run(b.plan(), {"given": FIRST}, targets=[target], modules=[kernels])
        else:
            assert np.array_equal(run(b.plan(), {"given": FIRST}, targets=[target], modules=[kernels])["back"], FIRST + 2)
        KEPT.clear()
        assert target.living == 0
        target.allocations_left = -1
        assert np.array_equal(run(b.plan(), {"given": FIRST}, targets=[target], modules=[kernels])["back"], FIRST + 2)
    finally:
        KEPT.clear()
        TARGETS.clear()
    assert target.living == 0


def interrupt() -> None:
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def adding(kernels: LoadedModule, turns: int, interrupted: bool) -> Plan:
    """Add one so many times, on the device; Ctrl-C comes behind the second time."""
    b = PlanBuilder()
    values, back = b.array("values", N, "u4", 0), b.array("back", N, "u4", "pinned")
    last = b.copy(back, values)
    for turn in range(turns):
        last = b.launch(kernels["add"], 1, N, values, values, 1, after=[last], reads=[values], writes=[values])
        last = b.copy(back, values, after=[last])
        if turn == 1 and interrupted:
            last = b.call("tests.targets.test_breaking_off:interrupt", reads=(), writes=(), after=[last])
    return b.plan()


@pytest.mark.parametrize("way", ["run", "time", "graph"])
def test_ctrl_c_between_steps_leaves_the_last_complete_step(way: str) -> None:
    target = Emulator(load("h200"))
    kernels, values = target.load(ADD), target.array(FIRST)
    bound = BoundPlan(adding(kernels, 4, interrupted=True), {"values": values}, targets=[target], modules=[kernels])
    start: Callable[[], object] = bound.graph().replay if way == "graph" else getattr(bound, way)
    with pytest.raises(KeyboardInterrupt):
        start()
    back = bound.memory[next(buffer for buffer in bound.plan.buffers if buffer.name == "back")]
    assert np.array_equal(values.numpy(), FIRST + 2)
    assert np.array_equal(np.asarray(back), FIRST + 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = BoundPlan(adding(kernels, 4, interrupted=False), {"values": values}, targets=[target], modules=[kernels])
    assert np.array_equal(again.run()["back"], FIRST + 6)


def test_ctrl_c_in_a_copy_takes_effect_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four rows with gaps between them, none is missing."""
    target = FakeTarget()
    b = PlanBuilder()
    given, here = b.array("given", (4, 8), "u4", "host"), b.array("here", (4, 16), "u4", 0)
    b.copy(here[:, :8], given)
    array, calls = target.zeros((4, 16), "u4"), []
    write = target.write

    def writing(address: int, host: Any) -> None:
        calls.append(address)
        if len(calls) == 2:
            interrupt()
        write(address, host)

    monkeypatch.setattr(target, "write", writing)
    with pytest.raises(KeyboardInterrupt):
        run(b.plan(), {"given": np.arange(32, dtype="u4").reshape(4, 8), "here": array}, targets=[target])
    assert len(calls) == 4
    assert np.array_equal(array.numpy()[:, :8], np.arange(32).reshape(4, 8))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("target", [Emulator(load("h200")), GraphingEmulator()], ids=["emulator", "graphing"])
def test_what_a_host_function_raises_ends_the_plan(target: Target) -> None:
    b = PlanBuilder()
    values = b.array("values", N, "u4", 0)
    asked = b.call("tests.targets.test_breaking_off:interrupt", reads=(), writes=())
    b.copy(values, b.array("given", N, "u4", "pinned"), after=[asked])
    given, array = target.pinned(N, "u4"), target.zeros(N, "u4")
    given[...] = FIRST
    with pytest.raises(KeyboardInterrupt):
        run(b.plan(), {"given": given, "values": array}, targets=[target])
    assert not array.numpy().any()

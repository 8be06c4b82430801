"""Who wishes that launches are checked, and what becomes of that."""

from __future__ import annotations

import re

import pytest

from memlane.checks import Check, checking
from memlane.errors import MemlaneError
from memlane.launch import Launch, Layers, LoadedModule, Observation, apply_observers, suspend_observers
from tests.launch.fake_target import FakeTarget


@pytest.fixture
def launch(kernels: LoadedModule) -> Launch:
    return kernels["plain"][1, 1].bind()


def test_a_target_without_a_checker_is_left_alone_unless_the_wish_is_firm(launch: Launch) -> None:
    with checking(Check()):
        assert apply_observers(launch) is launch
    message = "fake cannot check a launch; only the emulator can: use the target emulator:h200"
    with checking(Check(insist=True)), pytest.raises(MemlaneError, match=f"^{re.escape(message)}$"):
        apply_observers(launch)


def test_the_last_wish_counts_also_for_launches_that_nobody_observes(launch: Launch, target: FakeTarget) -> None:
    target.observes = True
    with checking(Check(3)), checking(None), checking(Check(4)), suspend_observers():
        layers = apply_observers(launch).layers
    assert (layers.check, layers.seed) == (True, 4)
    assert apply_observers(launch) is launch


def test_those_who_watch_already_get_their_observation(launch: Launch, target: FakeTarget) -> None:
    target.observes = True
    seen: list[Observation] = []
    object.__setattr__(launch, "layers", Layers(counts=True, report=seen.append))
    with checking(Check()):
        both = apply_observers(launch)
    observation = Observation(launch, {}, reports=())
    assert both.layers.counts
    assert both.layers.report is not None
    both.layers.report(observation)
    assert seen == [observation]

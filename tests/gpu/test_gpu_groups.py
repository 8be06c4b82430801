"""Lanes with other masks, exited lanes, and barriers in shared memory: what the emulator's tests expect holds on a GPU too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memlane.driver import Device
from tests.emulate import test_mbarriers as barriers
from tests.emulate import test_warp_groups as groups

pytestmark = pytest.mark.gpu


@pytest.fixture
def instead(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the emulator get the device."""
    for module in (barriers, groups):
        monkeypatch.setattr(module, "emulator", lambda: gpu)


@pytest.mark.usefixtures("instead")
@pytest.mark.parametrize("operation", groups.FOLDS)
def test_reductions(operation: str) -> None:
    groups.test_each_group_is_reduced_on_its_own(operation)


@pytest.mark.usefixtures("instead")
@pytest.mark.parametrize("bits", [32, 64])
def test_matches(bits: int) -> None:
    groups.test_each_group_is_matched_on_its_own(bits)


@pytest.mark.usefixtures("instead")
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str) -> None:
    groups.test_tiles_shuffle_within_themselves(mode)


@pytest.mark.usefixtures("instead")
@pytest.mark.parametrize("instruction", ["bar.warp.sync m;", "vote.sync.ballot.b32 d, odd, m;"])
def test_a_complete_group_goes_on(instruction: str) -> None:
    groups.test_a_group_that_is_complete_lets_another_one_come(instruction)


@pytest.mark.usefixtures("instead")
@pytest.mark.parametrize(
    "expectation",
    [
        groups.test_each_group_votes_and_elects_on_its_own,
        groups.test_groups_that_come_at_different_times_do_not_wait_for_each_other,
        groups.test_exited_lanes_hold_nobody_back_and_give_nothing,
        groups.test_lanes_that_leave_later_complete_what_waits_for_them,
        groups.test_a_barrier_of_the_warp_behind_a_false_guard_is_not_reached,
        barriers.test_one_thread_walks_through_phases_as_the_manual_says,
        barriers.test_one_warp_hands_to_another_through_two_barriers,
        barriers.test_bulk_copies_come_and_go,
    ],
    ids=lambda expectation: expectation.__name__.removeprefix("test_"),
)
def test_expectations(expectation: Callable[[], None]) -> None:
    expectation()

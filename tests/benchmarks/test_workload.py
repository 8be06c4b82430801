"""The launches that the counts benchmark makes."""

from __future__ import annotations

from counts import Log
from running import EXAMPLES
from workload import ABOUT, GROUPS, NAMES, launch_all

from memlane.measure import Counter


def test_every_kernel_of_a_group_is_launched_once_in_order() -> None:
    log = Log()
    launch_all("kernels/atomics", "emulator:h200", log, quick=True)
    assert log.kernels == [case.kernel for case in GROUPS["kernels/atomics"].cases]


def test_an_example_is_watched_as_a_script() -> None:
    log = Log()
    launch_all("histogram", "emulator:h200", log, quick=True)
    assert [kernel.partition("(")[0] for kernel in log.kernels] == ["global_atomics", "shared_atomics"]


def test_names_are_those_of_the_examples_and_of_the_groups() -> None:
    assert (*EXAMPLES, *GROUPS) == NAMES
    assert sum(len(group.cases) for group in GROUPS.values()) == len(ABOUT) >= 30


def test_what_is_said_of_a_kernel_is_what_is_counted() -> None:
    """Good ones have no sector too many, bad ones have, or go to local memory."""
    counter, group = Counter(), GROUPS["kernels/copies"]
    launch_all("kernels/copies", "emulator:h200", counter, quick=True)
    for case, counts in zip(group.cases, counter.finish(), strict=True):
        total = counts.total()
        excess = total.sectors - total.ideal_sectors
        if case.about.startswith("bad"):
            assert excess > 0 or total.local_requests, case.kernel
        elif case.about.startswith("good"):
            assert excess == 0, case.kernel

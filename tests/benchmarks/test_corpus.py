"""The kernels whose accesses the counts benchmark counts compute what they say, on the emulator."""

from __future__ import annotations

import pytest
from corpus import Case, Group, run
from workload import GROUPS as LAUNCHED

from memlane.launch import LoadedModule
from memlane.targets import target

pytestmark = pytest.mark.slow

GROUPS = {group.name: group for group in LAUNCHED.values()}
CASES = [(group, case) for group in GROUPS.values() for case in group.cases]


@pytest.fixture(scope="module")
def loaded() -> dict[str, LoadedModule]:
    emulator = target("emulator:h200")
    return {name: group.load(emulator) for name, group in GROUPS.items()}


@pytest.mark.parametrize(("group", "case"), CASES, ids=[case.kernel for _, case in CASES])
def test_results_are_those_of_numpy(loaded: dict[str, LoadedModule], group: Group, case: Case) -> None:
    assert run(case, loaded[group.name], quick=True)


def test_every_kernel_has_a_case(loaded: dict[str, LoadedModule]) -> None:
    for name, group in GROUPS.items():
        assert sorted(case.kernel for case in group.cases) == sorted(loaded[name])
    assert len(CASES) >= 30

"""Programs as people write them, with their shared memory in a random order, give what NumPy and plain Python say: all on a GPU
(`tests.gpu`), some here."""

from __future__ import annotations

import pytest

from tests.emulate.running import emulator
from tests.emulate.test_programs import CASES
from tests.rewrite.programs import agrees


@pytest.mark.parametrize("name", ["copies__grouped", "look_back__scan"])
def test_results_stay(name: str) -> None:
    assert agrees(CASES[name](), name, emulator())

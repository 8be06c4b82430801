"""Every example with arrays in shared memory leaves the same bytes with these laid out otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.cli.programs import run_script
from memlane.layout import RandomShift, XorSwizzle
from tests.rewrite.examples import EXAMPLES_WITH_ARRAYS, EachArray

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("name", "size", "columns"), EXAMPLES_WITH_ARRAYS)
def test_examples_leave_the_same_bytes(name: str, size: int, columns: int) -> None:
    """Two layouts: one of arithmetic alone and one with a table; those of `kernels` are all tried elsewhere."""
    observer = EachArray(columns, lambda rows, columns: [XorSwizzle(rows, columns), RandomShift(rows, columns, 1)])
    run_script(EXAMPLES / f"{name}.py", [str(size)], "emulator:h200", observer)
    assert observer.tried >= 2

"""The rule for few warps on a multiprocessor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.diagnose.made import accesses, found, site, trace


def test_eight_warps_that_wait_nine_tenths_of_their_time() -> None:
    """Two warps a scheduler wait at once for 0.9^2 of the time, eight for 0.9^8."""
    made = trace([accesses(site(0), 900, (1, 2, 100))], grid=(132 * 5, 1, 1), resident_blocks=4)
    (one,) = found(made, "low-occupancy")
    assert np.isclose(one.cost_share or 0, 0.9**2 - 0.9**8)
    assert "8 of 64 possible warps are resident on a multiprocessor" in str(one)
    assert "no more than 4 blocks of 64 threads fit" in str(one)


@pytest.mark.parametrize(
    ("cycles", "grid", "resident"),
    [
        pytest.param(900, 132 * 4, 4, id="no block waits"),
        pytest.param(900, 132 * 20, 16, id="half of the warps fit"),
        pytest.param(100, 132 * 5, 4, id="hardly any waiting"),
    ],
)
def test_no_finding(cycles: int, grid: int, resident: int) -> None:
    made = trace([accesses(site(0), cycles, (1, 2, 100))], grid=(grid, 1, 1), resident_blocks=resident)
    assert found(made, "low-occupancy") == []

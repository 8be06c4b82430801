"""The rule for chains of accesses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.diagnose.made import accesses, found, site, trace

CHAINED = site(0, address_loads=(0,))


def test_a_chain_of_one_warp_costs_all_but_one_access() -> None:
    """One warp on a multiprocessor: nobody else fills the wait."""
    (one,) = found(trace([accesses(CHAINED, 700, (4, 1, 100))]), "dependent-chain")
    assert np.isclose(one.cost_cycles, 4 * 99 * 700)
    assert "a chain of 100 accesses per warp, 700 cycles each, with 1 warp per multiprocessor" in str(one)


def test_many_warps_fill_the_wait() -> None:
    """64 warps, 16 for each scheduler, that wait for 70 % of their time: all of them at once hardly ever (0.7^15)."""
    made = trace([accesses(CHAINED, 700, (1, 1, 100))], grid=(132 * 8, 1, 1), block=(256, 1, 1))
    assert found(made, "dependent-chain") == []


def test_a_chain_through_two_accesses_is_one() -> None:
    first, second = site(0, address_loads=(1,)), site(1, line=8, address_loads=(0,))
    made = trace([accesses(first, 700, (1, 1, 50)), accesses(second, 300, (1, 1, 50))])
    assert [(one.line, one.rank) for one in found(made, "dependent-chain")] == [(4, 1), (8, 2)]


def test_an_index_that_is_loaded_is_no_chain() -> None:
    index, value = site(0), site(1, line=8, address_loads=(0,))
    made = trace([accesses(index, 700, (1, 1, 50)), accesses(value, 700, (1, 1, 50))])
    assert found(made, "dependent-chain") == []


def test_a_short_chain_is_none() -> None:
    made = trace([accesses(CHAINED, 700, (4, 1, 3)), accesses(replace(site(1, line=8), id=1), 700, (4, 1, 100))])
    assert found(made, "dependent-chain") == []

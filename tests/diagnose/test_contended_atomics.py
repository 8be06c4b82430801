"""The rule for atomics on one address."""

from __future__ import annotations

import numpy as np

from memlane.diagnose import explain
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import counts

ATOMIC = site(0, "atom.global.add.u32")


def test_lanes_that_wait_for_each_other() -> None:
    (one,) = explain(counts(counted(ATOMIC, 10, addresses=1, most_lanes_at_address=3.2)))
    assert (one.rule, one.unit, one.transactions, one.ideal_transactions) == ("contended-atomics", "lanes", 320, 10)
    assert "32 lanes of a request update one address" in str(one)
    assert (one.cost_cycles, one.cost_measured) == (310, False)  # one cycle for each beyond the first


def test_the_measured_wait_beyond_one_update_is_the_cost() -> None:
    """The chip's atomic takes 394 cycles."""
    made = trace([accesses(ATOMIC, 594, (2, 1, 5))], [counted(ATOMIC, 10, addresses=1)])
    (one,) = found(made, "contended-atomics")
    assert np.isclose(one.cost_cycles, 10 * (594 - 394))
    assert one.cost_share == one.cost_cycles / 200_000


def test_shared_memory_is_this_finding_and_no_bank_conflict() -> None:
    shared = counted(site(0, "atom.shared.add.u32"), 10, addresses=1, wavefronts=32, ideal_wavefronts=1)
    assert [one.rule for one in explain(counts(shared))] == ["contended-atomics"]


def test_addresses_of_their_own_are_no_finding() -> None:
    assert explain(counts(counted(ATOMIC, 10, addresses=32))) == []
    assert explain(counts(counted(ATOMIC, 10, addresses=10.7))) == []  # three lanes at an address

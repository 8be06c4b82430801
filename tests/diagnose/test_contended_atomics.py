"""The rule for atomics on one address."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from memlane.diagnose import explain
from memlane.record import Trace
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import counts

ATOMIC = site(0, "atom.global.add.u32")


def test_lanes_that_wait_for_each_other() -> None:
    (one,) = explain(counts(counted(ATOMIC, 10, addresses=1, most_lanes_at_address=3.2)))
    assert (one.rule, one.unit, one.transactions, one.ideal_transactions) == ("contended-atomics", "lanes", 320, 10)
    assert "32 lanes of a request update the same address" in str(one)
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


def one_lane_each(updates: int, lives: int, array: str = "u4[1]", op: str = "red.global.add.u32") -> Trace:
    """One lane of each request updates the only argument's array, in two blocks of a warp."""
    where = site(0, op, address_parameters=(0,))
    entry = counted(where, updates, lanes=1, addresses=1, sectors=1, ideal_sectors=1)
    each = min(updates // 2, 50)
    return trace([accesses(where, 10, (2, 1, each), mask=1)], [entry], arguments=(array,), lives=lives)


def test_an_address_that_many_warps_update_with_a_lane_each() -> None:
    """By hand: 2000 updates of one address in a launch of 4000 cycles keep it busy for half of the time; each but one waits for another."""
    (one,) = found(one_lane_each(2000, 4000), "contended-atomics")
    assert (
        "the updates of one address take 50 % of the launch's time (2,000 updates or more of each address of its array, one per cycle)"
        in str(one)
    )
    assert (one.transactions, one.ideal_transactions) == (2000, 1)
    assert (one.cost_low, one.cost_cycles, one.cost_high) == (1999, 2 * 4000 / 2, 2 * 4000)  # the two warps live for half of it


def test_updates_of_whole_warps_keep_a_line_busy_too() -> None:
    """By hand: 200 requests to four words of one line, of a sector each, are 234 of 400 cycles, in which 64 warps live."""
    where = site(0, "red.global.add.u32", address_parameters=(0,))
    entry = counted(where, 200, addresses=4, most_lanes_at_address=8, sectors=1, ideal_sectors=1)
    made = trace([accesses(where, 10, (64, 1, 3))], [entry], arguments=("u4[32]",), lives=400)
    (one,) = found(made, "contended-atomics")
    assert "8 lanes of a request update the same address" in str(one)
    assert (one.cost_low, one.cost_high) == (200 * 28, 64 * 400)
    assert np.isclose(one.cost_cycles, 64 * 200 / 0.853)


def test_a_line_that_many_warps_update_with_a_lane_each() -> None:
    """By hand: 32 words are one line, which takes 0.853 sectors of updates in a cycle; 2000 keep it busy for 2345 of 4000 cycles."""
    (one,) = found(one_lane_each(2000, 4000, "u4[32]"), "contended-atomics")
    assert "updates of one 128-byte line keep it busy for 59 % of the launch's time (2,000 sectors at 0.853 per cycle)" in str(one)
    assert (one.transactions, one.ideal_transactions) == (2000, 32)
    assert (one.cost_low, one.cost_measured) == (2000 - 32, True)
    assert np.isclose(one.cost_cycles, 2 * 4000 * (2000 / 0.853) / 4000)


def test_what_warps_wait_for_one_address_beyond_one_update() -> None:
    made = one_lane_each(100, 200, op="atom.global.add.u32")
    slow = replace(made, table=made.table.set_column(*_later(made, 484)))
    (one,) = found(slow, "contended-atomics")
    assert np.isclose(one.cost_cycles, 100 * (10 + 484 - 394))


def _later(made: Trace, cycles: int) -> tuple[int, str, pa.Array]:
    """The column of ends, that much later."""
    position = made.table.schema.get_field_index("end")
    return position, "end", pa.array(made.table["end"].to_numpy() + cycles, made.table.schema.field("end").type)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(one_lane_each(2000, 10_000), id="now and then"),
        pytest.param(one_lane_each(2000, 4000, "u4[64]"), id="on many addresses"),
        pytest.param(one_lane_each(2000, 4000, "0x7f0000000000"), id="on who knows how many"),
        pytest.param(one_lane_each(2000, 4000, op="red.shared.add.u32"), id="in shared memory"),
    ],
)
def test_an_address_that_is_not_busy(made: Trace) -> None:
    assert found(made, "contended-atomics") == []

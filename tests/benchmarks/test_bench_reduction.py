"""Tables of the reduction ladder, of rows as the lab makes them."""

from __future__ import annotations

import docs_reduction

from memlane.chip import load
from memlane.lab.reduction.ladder import STEPS
from memlane.lab.reduction.measure import Floors, Gain, PeerComparison, Timed
from memlane.lab.reduction.tables import Measurements, rows, tables
from memlane.lab.result import Machine, document, problems


def found() -> Measurements:
    """A GPU that copies 4,000 GB/s and reads 4,500; step 2 takes half of step 1."""
    timed = [Timed(step, 1 << 28, 128, us, 2) for step, us in zip(STEPS[:2], (1000.0, 500.0), strict=True)]
    big = {"memlane": [100.0, 101.0, 99.0], "PyTorch": [110.0, 105.0, 108.9], "CuPy": [120.0] * 3, "only read": [98.0] * 3}
    slow = {"memlane": [5.0] * 3, "PyTorch": [7.0] * 3, "only read": [4.0] * 3}
    called = PeerComparison("2^16, one call from Python", 1 << 18, {"memlane": [9.0], "only the events": [3.0], "PyTorch": [15.0]})
    beside = [PeerComparison("2^28", 1 << 30, big), PeerComparison("2^20", 1 << 22, slow, ("CuPy is not installed here",))]
    gains = [Gain("one word instead of a ticket", 1 << 16, 3.0, 2.0, 1.5)]
    return Measurements(load("h200"), Floors(4000.0, 4500.0, 1.5), timed, {}, [], beside, called, gains)


def made() -> dict[str, object]:
    return document("reduction", rows(found()), Machine("h200", "580", "13.0"), ["memlane", "lab", "reduction"], "0" * 40)


def test_rows_fit_the_schema_and_judge_themselves() -> None:
    assert problems(made()) == []
    verdicts = {(row.case, row.metric): (row.value, row.holds) for row in rows(found()) if row.reach is not None}
    assert verdicts == {
        ("2^28", "times as quick as the better peer"): (1.1, True),  # the median of 1.1, 1.0396 and 1.1
        ("2^20", "time in a replayed graph"): (5.0, False),
        ("2^16, one call from Python", "time between events"): (9.0, False),
    }


def test_a_peer_that_is_missing_is_named() -> None:
    alone = Measurements(load("h200"), Floors(4000.0, 4500.0, 1.5))
    alone.beside.append(PeerComparison("2^30", 1 << 32, {"memlane": [900.0], "only read": [890.0]}, ("PyTorch is not installed here",)))
    (row,) = [row for row in rows(alone) if row.reach is not None]
    assert (row.value, row.holds) == (None, False)
    assert "PyTorch is not installed here" in row.note


def test_shares_and_gains() -> None:
    """2^28 int32 in 500 us are 2,147 GB/s, 53.69 % of the copy and 44.74 % of the datasheet's 4,800."""
    text = docs_reduction.ladder("2^28")(made())
    assert "| 2: interleaved, strided | 500 | 2147 | 53.69 | 44.74 | 2.00 | 2.0 | 2 |" in text


def test_the_other_tables() -> None:
    document = made()
    beside = docs_reduction.beside(document)
    assert "| 2^28 | 100 | 10.74 | 108.9 | 120 | 1.100 | 98 | at least 0.99: yes |" in beside
    assert "| 2^20 | 5 | 0.8389 | 7 | - | 1.400 | 4 | at most 4 us: **no** |" in beside
    assert "| memlane | 9 |" in docs_reduction.call(document)
    assert "| one word instead of a ticket | 2^16 | 3 | 2 | 1.50 |" in docs_reduction.beyond(document)
    assert "| copy of 1 GiB, read and written | 4,000 GB/s |" in docs_reduction.floors(document)
    assert set(tables(found())) == {"ladder-2^28-128", "removed", "beside", "beyond"}

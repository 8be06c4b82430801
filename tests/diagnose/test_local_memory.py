"""The rule for local memory."""

from __future__ import annotations

from memlane.diagnose import explain
from tests.diagnose.made import accesses, counted, found, site, trace
from tests.synthetic import counts

LOCAL = site(0, "ld.local.u32")


def test_all_of_its_time_is_the_cost() -> None:
    (one,) = found(trace([accesses(LOCAL, 40, (1, 2, 8))], [counted(LOCAL, 16, sectors=4, ideal_sectors=4)]), "local-memory")
    assert one.cost_cycles == 16 * 40
    assert "16 requests to local memory" in str(one)


def test_without_times_it_is_the_latency_of_l1() -> None:
    (one,) = explain(counts(counted(LOCAL, 16, sectors=4, ideal_sectors=4), chip="h200"))
    assert (one.rule, round(one.cost_cycles, 1), one.cost_measured) == ("local-memory", round(16 * 34.3, 1), False)


def test_a_little_of_it_is_no_finding() -> None:
    rest = counted(site(1, line=8), 10_000, sectors=4, ideal_sectors=4)
    assert explain(counts(counted(LOCAL, 16, sectors=4, ideal_sectors=4), rest)) == []


def test_one_of_a_kind_is_not_several() -> None:
    (one,) = found(trace([accesses(LOCAL, 40, (1, 1, 1))], [counted(LOCAL, 1, sectors=4, ideal_sectors=4)]), "local-memory")
    assert "1 request to local memory" in str(one)
    atomic = counted(site(0, "atom.global.add.u32"), 1, addresses=1)
    assert "lanes of a request update the same address one after the other (on average over 1 request), because the lanes" in str(
        explain(counts(atomic))[0]
    )
    row_of_one = trace(
        [accesses(site(0, "ld.global.u8"), 400, (1, 1, 40))],
        [counted(site(0, "ld.global.u8"), 40, sectors=16, ideal_sectors=1)],
        block=(1, 32, 1),
    )
    assert any("a row of its block has at most 1 contiguous byte," in str(one) for one in explain(row_of_one))

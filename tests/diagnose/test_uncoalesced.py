"""The rule for uncoalesced global access: what it says, and where it is silent."""

from __future__ import annotations

import pytest

from memlane.diagnose import Finding, explain
from memlane.record import SiteCounts
from tests.diagnose import made
from tests.synthetic import SOURCE, counted, counts, site


def findings(*entries: SiteCounts) -> list[Finding]:
    return [finding for finding in explain(counts(*entries), {"transpose.cu": SOURCE}) if finding.rule == "uncoalesced-global"]


ELSE = "for example through a shared-memory tile, or by another layout of the array: `memlane fix` tries some."


def test_the_naive_store_in_one_paragraph() -> None:
    (found,) = findings(counted(site(1, "st.global.f32", 4), 32_768, sectors=32, ideal_sectors=4))
    assert str(found) == (
        "transpose.cu:4  st.global.f32 in naive: each request touches 32 sectors where 4 would do (8 times the traffic), because each "
        "lane touches a different sector. 917,504 of 1,048,576 sectors are excess (28 MiB). Let neighbouring threads store to "
        "neighbouring addresses, for example through a shared-memory tile, or by another layout of the array: `memlane fix` tries some."
    )


def test_the_evidence_as_numbers() -> None:
    (found,) = findings(counted(site(1, "st.global.f32", 4), 32_768, sectors=32, ideal_sectors=4))
    assert (found.requests, found.unit, found.per_request, found.ideal_per_request, found.ratio) == (32_768, "sectors", 32, 4, 8)
    assert (found.excess_transactions, found.excess_bytes, found.bytes_requested) == (28 * 32_768, 28 * 32_768 * 32, 128 * 32_768)
    assert found.source == "out[x * n + y] = in[y * n + x];"
    assert (found.chip, found.how) == ("NVIDIA H200", "emulated")


@pytest.mark.parametrize(
    ("op", "per_request", "cause"),
    [
        ("ld.global.f32", {"sectors": 32, "ideal_sectors": 4}, "each lane touches a different sector"),
        ("ld.global.f32", {"sectors": 17, "ideal_sectors": 4}, "the addresses of its lanes are not contiguous"),
    ],
)
def test_the_cause_says_no_more_than_was_counted(op: str, per_request: dict[str, float], cause: str) -> None:
    (found,) = findings(counted(site(0, op, 4), 10, **per_request))
    assert found.cause == cause
    assert f"because {cause}." in str(found)


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("ld.global.f32", f"Let neighbouring threads read neighbouring addresses, {ELSE}"),
        ("red.global.u32", "Let neighbouring threads update neighbouring addresses, or collect the updates in shared memory first."),
    ],
)
def test_the_remedy_fits_the_access(op: str, advice: str) -> None:
    (found,) = findings(counted(site(0, op, 4), 10, sectors=24, ideal_sectors=4))
    assert advice in found.remedy


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(counted(site(0, "ld.global.f32", 4), 100, sectors=4, ideal_sectors=4), id="coalesced"),
        pytest.param(counted(site(0, "ld.global.f64", 4), 100, sectors=8, ideal_sectors=8), id="coalesced doubles"),
        pytest.param(counted(site(0, "ld.global.f32", 4), 100, sectors=5, ideal_sectors=4), id="misaligned"),
        pytest.param(counted(site(0, "ld.global.u8", 4), 100, sectors=2, ideal_sectors=1), id="misaligned bytes"),
        pytest.param(counted(site(0, "ld.global.f32", 4), 100, sectors=1, ideal_sectors=1), id="broadcast"),
        pytest.param(counted(site(0, "ld.shared.f32", 4), 100, wavefronts=1, ideal_wavefronts=1), id="shared"),
        pytest.param(counted(site(0, "ld.local.f32", 4), 100, sectors=32, ideal_sectors=4), id="local"),
        pytest.param(counted(site(0, "ld.global.f32", 4), 100), id="not counted"),
        pytest.param(counted(site(0, "ld.global.f32", 4), 0, sectors=0, ideal_sectors=0), id="never executed"),
    ],
)
def test_no_finding(entry: SiteCounts) -> None:
    assert findings(entry) == []


def test_what_is_nothing_within_its_kernel_is_no_finding() -> None:
    main = counted(site(0, "ld.global.f32", 2), 100_000, sectors=4, ideal_sectors=4)
    rare = counted(site(1, "st.global.f32", 4), 100, sectors=32, ideal_sectors=4)
    assert findings(main, rare) == []
    often = counted(site(1, "st.global.f32", 4), 200, sectors=32, ideal_sectors=4)
    assert len(findings(main, often)) == 1


def test_unrolled_copies_of_a_line_are_one_finding() -> None:
    copies = [counted(site(number, "ld.global.f32", 4), 10, sectors=32, ideal_sectors=4) for number in range(16)]
    (found,) = findings(*copies)
    assert (found.requests, found.transactions) == (160, 5120)


def test_means_that_are_not_whole() -> None:
    ragged = SiteCounts(site(0, "ld.global.f32", 4), requests=3, lanes=90, bytes=360, sectors=70, ideal_sectors=13)
    (found,) = findings(ragged)
    assert "each request touches 23.3 sectors where 4.33 would do (5.38 times the traffic)" in str(found)


@pytest.mark.parametrize(
    ("sectors", "block", "rule"),
    [
        pytest.param(16, (16, 16, 1), "uncoalesced-global", id="both rows of the warp in each sector, and nobody else"),
        pytest.param(16, (256, 1, 1), "partial-sectors", id="every second pair of words"),
        pytest.param(8, (16, 16, 1), "partial-sectors", id="four lanes of a row in a sector"),
    ],
)
def test_whether_lanes_skip_data_or_go_down_columns_is_told_by_the_block(sectors: int, block: tuple[int, int, int], rule: str) -> None:
    """Where nobody saw the addresses, as on a GPU."""
    load = made.site(0)
    traced = made.trace(
        [made.accesses(load, 800, (1, 1, 10))], [made.counted(load, 10, sectors=sectors, ideal_sectors=4)], lives=10_000, block=block
    )
    assert [one.rule for one in explain(traced) if one.unit == "sectors"] == [rule]

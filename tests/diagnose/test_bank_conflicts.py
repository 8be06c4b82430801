"""The rule for bank conflicts: what it says, and where it is silent."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from memlane.diagnose import Finding, explain
from memlane.record import SiteCounts
from tests.diagnose import made
from tests.synthetic import PADDED, TILED, counted, counts, site


def findings(*entries: SiteCounts) -> list[Finding]:
    return [finding for finding in explain(counts(*entries)) if finding.rule == "bank-conflict"]


def test_the_tiled_column_in_one_paragraph() -> None:
    (found,) = findings(counted(site(4, "ld.shared.f32", 10, TILED), 32_768, wavefronts=32, ideal_wavefronts=1))
    assert str(found) == (
        "transpose.cu:10  ld.shared.f32 in tiled: 32-way bank conflict: each request takes 32 wavefronts where 1 would do, because "
        "lanes access different words of the same bank. 1,015,808 of 1,048,576 wavefronts are excess. Pad each row "
        "of the shared array by one element, or swizzle the index, so that the lanes fall in different banks."
    )
    assert found.excess_bytes is None


def test_a_padding_leaves_wider_accesses_of_the_array_aligned() -> None:
    """As where a tile is filled by `float4`, and read by columns of floats."""
    column = replace(site(4, "ld.shared.f32", 10, TILED), array="tile")
    wide = replace(site(5, "st.shared.v4.f32", 8, TILED), array="tile", nbytes=16)
    other = replace(wide, array="tail")
    remedy = "array by 4 elements, so that the lanes fall in different banks and its accesses of 16 bytes stay aligned"
    for beside, said in ((wide, remedy), (other, "Pad each row of the shared array by one element")):
        entries = counted(column, 32_768, wavefronts=4, ideal_wavefronts=1), counted(beside, 100, wavefronts=4, ideal_wavefronts=4)
        (found,) = findings(*entries)
        assert said in found.remedy


@pytest.mark.parametrize(
    ("wavefronts", "ideal", "words"),
    [
        (32, 1, "32-way bank conflict:"),
        (2, 1, "2-way bank conflict:"),
        (32, 4, "8-way bank conflict:"),
        (3.4, 1, "bank conflicts, 3.4-way on average:"),
        (1.5, 1, "bank conflicts, 1.5-way on average:"),
    ],
)
def test_the_ways_of_a_conflict(wavefronts: float, ideal: int, words: str) -> None:
    (found,) = findings(counted(site(0, "ld.shared.f32", 4), 1000, wavefronts=wavefronts, ideal_wavefronts=ideal))
    assert words in str(found)
    assert "lanes access different words of the same bank" in str(found)


def test_atomics_conflict_in_a_bank_or_at_one_word() -> None:
    alone = replace(counted(site(0, "atom.shared.u32", 4), 10, wavefronts=8, ideal_wavefronts=1), addresses=320, most_lanes_at_address=1)
    (found,) = findings(replace(alone, addresses=160, most_lanes_at_address=8))
    expected = "lanes update different words of the same bank, or the same word one after another (2 lanes per address on average)."
    assert f"because {expected}" in str(found)
    (found,) = findings(alone)
    assert "because lanes update different words of the same bank." in str(found)
    assert "same word" not in str(found)
    assert found.remedy.startswith("Pad or permute the array so that elements updated together lie in different banks")


def test_lanes_that_update_one_word_meet_in_no_bank() -> None:
    alone = replace(counted(site(0, "atom.shared.u32", 4), 10, wavefronts=3, ideal_wavefronts=1), lanes=30, most_lanes_at_address=3)
    assert findings(replace(alone, addresses=10)) == []
    assert len(findings(replace(alone, addresses=20))) == 1


def test_a_conflict_that_warps_hardly_live_through_is_none() -> None:
    """By hand: 10 accesses of 40 cycles; at most 40 minus the 23.7 of shared memory can be saved by each, 163 cycles of 0.2 %."""
    load = made.site(0, "ld.shared.f32")
    for lives, amount in ((80_000, 1), (90_000, 0)):
        traced = made.trace([made.accesses(load, 40, (1, 1, 10))], [made.counted(load, 10, wavefronts=8, ideal_wavefronts=1)], lives=lives)
        assert len(made.found(traced, "bank-conflict")) == amount


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(counted(site(0, "ld.shared.f32", 10, PADDED), 100, wavefronts=1, ideal_wavefronts=1), id="padded"),
        pytest.param(counted(site(0, "ld.shared.f64", 10, PADDED), 100, wavefronts=2, ideal_wavefronts=2), id="wide"),
        pytest.param(counted(site(0, "ld.shared.f32", 10), 100, wavefronts=1.2, ideal_wavefronts=1), id="hardly any"),
        pytest.param(counted(site(0, "ld.global.f32", 10), 100, sectors=32, ideal_sectors=4), id="global"),
        pytest.param(counted(site(0, "ld.shared.f32", 10), 100), id="not counted"),
        pytest.param(counted(site(0, "ld.shared.f32", 10), 0, wavefronts=0, ideal_wavefronts=0), id="never executed"),
    ],
)
def test_no_finding(entry: SiteCounts) -> None:
    assert findings(entry) == []


def test_what_is_nothing_within_its_kernel_is_no_finding() -> None:
    main = counted(site(0, "ld.shared.f32", 2), 100_000, wavefronts=1, ideal_wavefronts=1)
    rare = counted(site(1, "st.shared.f32", 4), 100, wavefronts=8, ideal_wavefronts=1)
    assert findings(main, rare) == []


def test_one_element_more_in_a_row_need_not_end_a_conflict_of_narrow_blocks() -> None:
    """A warp of 16 x 2 threads reads two rows of 16: by hand, in rows of 18 or 19 words two lanes meet in a bank, in rows of 48 none."""
    load = made.site(0, "ld.shared.f32")
    fullest = [max(Counter((row * pitch + lane) % 32 for row in (0, 1) for lane in range(16)).values()) for pitch in (18, 19, 48)]
    assert fullest == [2, 2, 1]
    said = {}
    for block in ((16, 16, 1), (32, 8, 1), (256, 1, 1)):
        rows, entries = [made.accesses(load, 40, (1, 1, 10))], [made.counted(load, 10, wavefronts=2, ideal_wavefronts=1)]
        (found,) = made.found(made.trace(rows, entries, lives=1_000, block=block), "bank-conflict")
        said[block] = found.remedy
    assert "so that the rows of one warp fall in different banks (padding by one element may not be enough)" in said[16, 16, 1]
    assert said[32, 8, 1] == said[256, 1, 1]
    assert said[32, 8, 1].startswith("Pad each row of the shared array by one element")


def test_a_copy_may_wait_on_either_side() -> None:
    """Its wavefronts follow from where it reads and from where it writes: padding the shared array alone may change nothing."""
    where = replace(site(0, "ld.global.b128", 4), op="cp.async.ca.shared.global", kind="copy")
    (found,) = findings(counted(where, 1000, wavefronts=8, ideal_wavefronts=4))
    assert "lanes of a copy wait for each other: each request takes 8 wavefronts where 4 would do" in str(found)
    assert "because lanes use the same bank where they read or where they write" in str(found)
    assert found.remedy.startswith("Let neighbouring lanes copy whole 128-byte lines")


def test_one_warp_of_many_delays_its_whole_block() -> None:
    """By hand: warp 0 of 32 makes 2 accesses of 55 cycles, at most 55 - 23.7 of which a conflict costs: 0.03 % of all lives, but 1 % of a
    block's. The other warps live on without an access, so they wait."""
    load = made.site(0, "ld.shared.f32", array="tile")
    first, idle = made.site(1, "ld.global.f32"), 31
    one_warp = made.accesses(load, 55, (1, 1, 2))
    everyone = made.accesses(first, 600, (1, 32, 1))
    counts = [made.counted(load, 2, wavefronts=32, ideal_wavefronts=1), made.counted(first, 32, sectors=4, ideal_sectors=4)]
    (found,) = made.found(made.trace([one_warp, everyone], counts, lives=6000), "bank-conflict")
    alone = 55 - 23.7
    assert found.cost_low == 2 * 31
    assert found.cost_high == pytest.approx(2 * alone * 32, rel=0.02)
    # Each of the other warps waits for nine tenths of its life: 600 of 6000 cycles are its own access.
    assert found.cost_cycles == pytest.approx(2 * 31 * (1 + 0.9 * idle), rel=0.02)
    assert "1 of the 32 warps in these blocks make the access, and an estimated 28 warps wait meanwhile" in found.method


def test_warps_that_exit_early_do_not_wait() -> None:
    """They may hold up the end of their block, which the upper bound says."""
    load, first = made.site(0, "ld.shared.f32", array="tile"), made.site(1, "ld.global.f32")
    counts = [made.counted(load, 2, wavefronts=32, ideal_wavefronts=1), made.counted(first, 32, sectors=4, ideal_sectors=4)]
    lives = [6000] + [700] * 31
    both = [made.accesses(load, 55, (1, 1, 2)), made.accesses(first, 600, (1, 32, 1))]
    (found,) = made.found(made.trace(both, counts, lives=lives), "bank-conflict")
    assert found.cost_cycles == pytest.approx(62, rel=0.02)
    assert found.cost_high == pytest.approx(2 * (55 - 23.7) * 32, rel=0.02)


def test_a_costly_conflict_is_told_among_many_accesses_without_one() -> None:
    """62 of 9,664 wavefronts are excess, 0.6 %, but the block waits: about 1,800 of 160,000 warp cycles. Longer lives hide it."""
    load, plain = made.site(0, "ld.shared.f32", array="tile"), made.site(1, "ld.shared.f32", line=8)
    totals = [
        made.counted(load, 2, wavefronts=32, ideal_wavefronts=1),
        made.counted(plain, 9600, wavefronts=1, ideal_wavefronts=1),
    ]
    accesses = [made.accesses(load, 55, (1, 1, 2)), made.accesses(plain, 24, (1, 32, 1))]
    for lives, amount in ((5000, 1), (30_000, 0)):
        assert len(made.found(made.trace(accesses, totals, lives=lives), "bank-conflict")) == amount
    # Without times, the share of the transactions alone decides.
    assert [one for one in explain(counts(*totals)) if one.rule == "bank-conflict"] == []

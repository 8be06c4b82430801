"""The rules for sectors that are loaded again: from L1, or from beyond it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memlane.diagnose import explain
from memlane.record import Site, Trace
from tests.diagnose.made import accesses, counted, found, site, trace

LOAD = site(0)
SMALL, LARGE = "f4[1024]", "f4[131072]"
"""4 KiB and 512 KiB; the chip has 256 KiB of L1."""


def loads(cycles: int, requests: int, array: str, blocks: int = 1) -> Trace:
    """Each request loads 4 sectors; an array of n floats has n / 8."""
    each = requests // blocks
    return trace(
        [accesses(LOAD, cycles, (blocks, 1, min(each, 1000)))],
        [counted(LOAD, requests, sectors=4, ideal_sectors=4)],
        arguments=(SMALL, array, "64"),
        lives=1000 * cycles,
    )


def test_a_small_array_is_loaded_ten_times_from_l1() -> None:
    """By hand: 320 requests of 4 sectors, 128 sectors: 10 times; nine tenths of them could come from shared memory, 23.7 cycles."""
    (one,) = found(loads(60, 320, SMALL), "sectors-reloaded")
    assert np.isclose(one.cost_cycles, (60 - 23.7) * 320 * 0.9)
    assert "each sector of its array is loaded 10 times or more, and L1 serves 100 % of the loads" in str(one)
    assert found(loads(60, 320, SMALL), "cache-thrashing") == []


def test_what_is_certain_of_several_multiprocessors_is_what_l1_serves() -> None:
    """80 requests by each of four, 640 cycles for every tenth: 10 loads of each sector in total, 2.5 by each if all of them load the whole
    array. Likely are 1 - 1 / sqrt(25) of the loads, and the quickest nine tenths are those of L1."""
    cycles = np.where(np.arange(80) % 10 == 0, 640, 60)
    made = replace(
        loads(60, 320, SMALL, blocks=4),
        table=trace([accesses(LOAD, cycles, (4, 1, 80))], arguments=(SMALL, SMALL, "64")).table,
    )
    (one,) = found(made, "sectors-reloaded")
    assert np.isclose(one.cost_cycles, (60 - 23.7) * 320 * 0.9)
    assert one.cost_low == one.cost_cycles
    (other,) = found(loads(60, 320, SMALL, blocks=4), "sectors-reloaded")
    assert np.isclose(other.cost_cycles, (60 - 23.7) * 320 * 0.9)


def test_a_large_array_is_loaded_three_times_from_beyond_l1() -> None:
    """By hand: 3 x 4096 requests of 4 sectors, 16384 sectors."""
    (one,) = found(loads(283, 3 * 4096, LARGE), "cache-thrashing")
    assert np.isclose(one.cost_cycles, (283 - 34.3) * 3 * 4096 * 2 / 3)
    assert "a multiprocessor loads each sector 3 times or more" in str(one)
    assert "points to L2" in str(one)


def test_what_lanes_that_lie_apart_bring_into_the_cache_is_another_finding() -> None:
    """By hand: of 32 sectors 4 would do, so an eighth of the waiting is left for the loads that come again."""
    made = trace(
        [accesses(LOAD, 283, (1, 1, 1000))],
        [counted(LOAD, 3 * 4096, sectors=32, ideal_sectors=4)],
        arguments=(SMALL, LARGE, "64"),
        lives=283_000,
    )
    (one,) = found(made, "cache-thrashing")
    assert np.isclose(one.cost_cycles, (283 - 34.3) * 3 * 4096 * 2 / 3 / 8)
    assert "times the 12 % of the sectors that contiguous lanes would touch" in one.time
    assert explain(made)[0].rule == "uncoalesced-global"


def test_what_several_multiprocessors_load_is_not_loaded_again() -> None:
    assert found(loads(283, 3 * 4096, LARGE, blocks=4), "cache-thrashing") == []


def test_what_an_outer_loop_repeats_is_loaded_twice_or_more() -> None:
    """Four multiprocessors, three loads of each sector: without the text of the kernel each may have read the array once."""
    made = loads(283, 3 * 4096, LARGE, blocks=4)
    again = replace(LOAD, address_repeats=True)
    launched = replace(made.launches[0], counts=(replace(made.launches[0].counts[0], site=again),))
    (one,) = found(replace(made, sites=(again,), launches=(launched,)), "cache-thrashing")
    assert np.isclose(one.cost_cycles, (283 - 34.3) * 3 * 4096 / 2)
    assert "a multiprocessor loads each sector 2 times or more" in str(one)


def test_what_one_multiprocessor_moves_must_be_more_than_l1_holds_to_drive_anything_out() -> None:
    """320 requests of 4 sectors are 40 KiB, and of different sectors no more than the 4 KiB of their array."""
    small = trace(
        [accesses(LOAD, 283, (1, 1, 320))],
        [counted(LOAD, 320, sectors=4, ideal_sectors=4)],
        arguments=(LARGE, SMALL, "64"),
        lives=100_000,
    )
    assert found(small, "cache-thrashing") == []
    other = counted(site(1, line=8, address_parameters=(0,)), 4096, sectors=4, ideal_sectors=4)  # 512 KiB of the other array
    moved = replace(small, launches=(replace(small.launches[0], counts=(*small.launches[0].counts, other)),))
    assert len(found(moved, "cache-thrashing")) == 1


def test_an_array_that_l1_holds_cannot_be_driven_out() -> None:
    assert found(loads(283, 320, SMALL), "cache-thrashing") == []


def test_arrays_that_are_loaded_once_are_no_finding() -> None:
    made = loads(60, 32, SMALL)
    assert found(made, "sectors-reloaded") == found(made, "cache-thrashing") == []


def test_a_pointer_without_a_size_says_nothing() -> None:
    made = loads(60, 320, SMALL)
    bare = replace(made, launches=(replace(made.launches[0], arrays=()),))
    assert [one.rule for one in explain(bare)] == []


def test_waiting_behind_others_goes_on_without_the_repeated_loads() -> None:
    """By hand: 320 requests of 4 sectors, and 40 of 32 sectors that load their array once. Of the sectors that all touch, 2560, half are
    those of the repeated loads, so of the cycles beyond the 34.3 of L1 half is saved, and all of those from there down to shared memory."""
    other = site(1, address_parameters=(0,), argument=0)
    made = trace(
        [accesses(LOAD, 60, (1, 1, 320)), accesses(other, 700, (1, 1, 40))],
        [counted(LOAD, 320, sectors=4, ideal_sectors=4), counted(other, 40, sectors=32, ideal_sectors=4)],
        arguments=("f4[8192]", SMALL, "64"),
        lives=100_000,
    )
    (one,) = found(made, "sectors-reloaded")
    assert np.isclose(one.cost_cycles, (34.3 - 23.7 + (60 - 34.3) / 2) * 320 * 0.9)


def test_neighbours_are_loaded_again_from_eight_on() -> None:
    """Five instructions of a line that load each sector once, as those of a stencil, and one that loads it five times, as a loop does."""
    five, nine = ([site(number) for number in range(count)] for count in (5, 9))

    def of(sites: list[Site], requests: int) -> Trace:
        return trace(
            [accesses(one, 60, (1, 1, requests)) for one in sites],
            [counted(one, requests, sectors=4, ideal_sectors=4) for one in sites],
            arguments=(SMALL, SMALL, "64"),
            lives=50_000,
        )

    assert found(of(five, 32), "sectors-reloaded") == []
    assert len(found(of(nine, 32), "sectors-reloaded")) == 1
    assert len(found(of([LOAD], 160), "sectors-reloaded")) == 1

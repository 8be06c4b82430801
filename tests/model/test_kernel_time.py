"""The time of a launch from what was counted, against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import Events, Traffic, load
from memlane.model.kernel import Sampled, predicted, whole_cycles
from memlane.model.kernel.prediction import LATENCY

H200 = load("h200")
NAMES = ("read", "read_lines", "written", "written_lines", "partly_written", "partly_written_lines", "partly_written_bytes", "atomic")


def events(finishes: list[int], sms: int = 132, blocks: int | None = None, **moved: int) -> Events:
    """A launch whose blocks end in these cycles; `moved`: by each multiprocessor, and of DRAM."""
    traffic = Traffic({name: [moved.get(name, 0)] * sms for name in (*NAMES, "wavefronts")}, moved.get("fetched", 0), 0)
    traffic = replace(traffic, fetched_pairs=moved.get("fetched", 0) // 2)
    idle = np.zeros((sms, 4), np.int64)
    return Events(
        len(finishes) if blocks is None else blocks,
        256,
        8,
        sms,
        np.array(finishes, np.int64),
        idle + moved.get("issued", 0),
        {"alu": idle},
        traffic,
        0,
        (0.0, 0.0),
        np.zeros(sms, np.int64),
        1,
    )


def test_a_launch_ends_with_its_last_block_and_no_earlier_than_what_it_moved_allows() -> None:
    sectors = 1 << 24
    moved = {"read": sectors // 132, "read_lines": sectors // 528}
    bound = sectors / (H200.bandwidth.l2_read or 0)
    for last, by_hand in ((10 * bound, 10 * bound), (bound / 10, bound)):
        assert predicted(H200, Sampled(events([int(last)], **moved))).cycles == pytest.approx(by_hand, rel=0.01)


def test_a_launch_of_nothing_takes_what_lies_between_two_events() -> None:
    one = predicted(H200, Sampled(events([1])))
    assert one.us == pytest.approx(H200.links.event_us, abs=0.01)
    assert predicted(H200, Sampled(events([5000]))).limiting == LATENCY


def test_a_stream_from_dram_takes_its_bytes_over_the_bandwidth() -> None:
    sectors = 1 << 24
    stream = events([1000], read=sectors // 132, read_lines=sectors // 528, fetched=sectors)
    one = predicted(H200, Sampled(stream))
    rates = H200.bandwidth
    to_sms, in_dram = sectors / (rates.l2_read * H200.clock_mhz), sectors * 32 / (rates.dram_read * 1e3)
    by_hand = max(2 * to_sms, in_dram)  # L2 gets each sector, and gives it away
    assert one.us - one.launch_us == pytest.approx(by_hand, rel=0.02)
    assert one.limiting in ("DRAM", "L2")


def test_dram_that_reads_and_writes_in_turn_is_slower_than_dram_that_reads() -> None:
    sectors = 1 << 24
    both = events([1000], fetched=sectors)
    one = predicted(H200, Sampled(replace(both, traffic=replace(both.traffic, written_back=sectors))))
    assert one.us - one.launch_us == pytest.approx(2 * sectors * 32 / (H200.bandwidth.dram_mixed * 1e3), rel=0.02)
    assert one.limiting == "DRAM"


def test_atomics_at_one_word_go_one_behind_the_other_and_spread_ones_side_by_side() -> None:
    rate, parts = H200.bandwidth.atomic_packets, H200.bandwidth.atomic_parts
    assert rate is not None
    assert parts is not None
    cycles = 32 * 16384 / rate  # each lane of 16384 warps is a packet of its own
    for busiest, by_hand in ((cycles, cycles), (0.0, cycles / parts)):
        one = predicted(H200, Sampled(replace(events([1000] * 132), atomic_cycles=(busiest, cycles))))
        assert (one.us - one.launch_us) * H200.clock_mhz == pytest.approx(by_hand, rel=0.03)


def test_blocks_that_did_not_run_follow_at_the_pace_of_the_others() -> None:
    steady = [100 * (1 + number // 16) for number in range(16 * 40)]
    sample = events(steady, sms=16, blocks=132 * 400)
    cycles, spread = whole_cycles(H200, sample)
    assert cycles == pytest.approx(100 * 400, rel=0.01)
    assert spread < 0.01 * cycles
    assert whole_cycles(H200, events([7, 9])) == (9.0, 0.0)


def test_amounts_of_a_sample_stand_for_all_blocks() -> None:
    whole = predicted(H200, Sampled(events([5000] * 1320, read=8000, read_lines=2000, issued=900)))
    part = predicted(H200, Sampled(events([5000] * 160, sms=16, blocks=1320, read=8000, read_lines=2000, issued=900)))
    assert part.us == pytest.approx(whole.us, rel=0.01)
    assert {one.name: round(one.cycles) for one in part.parts} == {one.name: round(one.cycles) for one in whole.parts}


def test_what_the_file_of_a_chip_lacks_is_said() -> None:
    lacking = replace(H200, bandwidth=replace(H200.bandwidth, blocks=None), links=replace(H200.links, event_us=None))
    assert predicted(lacking, Sampled(events([1]))).missing == ("blocks that begin", "what a launch takes between events")
    assert "blocks that begin" in str(predicted(lacking, Sampled(events([1]))))


def test_how_many_rates_of_a_chip_are_assumed_is_said() -> None:
    b200 = load("b200")
    found = predicted(b200, Sampled(events([1])))
    assert "bandwidth.l2_read" in found.assumed
    assert "bandwidth.dram_read" not in found.assumed  # derived
    given = [name for name in b200.facts if name.startswith("bandwidth.")]
    assert f"{len(found.assumed)} of the {len(given) + 1} rates in the file of b200 are assumed, not measured" in str(found)
    assert "assumed" not in str(predicted(H200, Sampled(events([1]))))

"""Kernels at which `explain` was once wrong, on the emulator: what is first now, and what is not said any more."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.diagnose import Findings, explain
from memlane.launch import LoadedModule, Target
from memlane.measure import trace


def said(
    kernels: LoadedModule, name: str, grid: tuple[int, ...], block: tuple[int, ...], *arguments: object, shared_bytes: int = 0
) -> Findings:
    """Of one launch, traced and counted. The line of a finding is told by the text, so nothing here depends on its number."""
    return explain(trace(kernels[name][grid, block, None, shared_bytes], *arguments, counts=True))


def rules(found: Findings) -> list[str]:
    return [one.rule for one in found]


def test_gathered_rows_are_apart_before_they_are_loaded_again(target: Target, kernels: LoadedModule) -> None:
    """A row is read by all eight warps of its block: most loads come from L1 at 60 cycles, of which shared memory would save a half."""
    found = said(kernels, "gathered_rows", (4,), (256,), target.zeros((8, 256)), target.zeros((4, 8, 256)), 8)
    assert found[0].rule == "uncoalesced-global"
    assert "rows[(blockIdx.x" in found[0].source


def test_half_of_the_lanes_are_no_row(target: Target, kernels: LoadedModule) -> None:
    flags = target.array((np.arange(2048) * 2654435761 >> 7 & 1).astype(np.int32))
    found = said(kernels, "interleaved_bytes", (8,), (256,), *(target.zeros(2304, "u1") for _ in range(2)), flags)
    assert "misaligned-base" not in rules(found)


def test_a_missing_lane_does_not_make_them_lie_apart(target: Target, kernels: LoadedModule) -> None:
    found = said(kernels, "all_but_one", (8,), (256,), target.zeros(2048), target.zeros((2048, 4)))
    assert rules(found) == ["partial-sectors"]


def test_what_all_lanes_read_does_not_make_a_column_share_sectors(target: Target, kernels: LoadedModule) -> None:
    found = said(kernels, "scaled_column", (8,), (256,), target.zeros(2048), target.zeros((2048, 16)), 16)
    assert [one.rule for one in found if one.unit == "sectors"] == ["uncoalesced-global"]


def test_equal_blocks_in_a_last_wave_are_no_imbalance(target: Target, kernels: LoadedModule) -> None:
    """A multiprocessor holds one block of so much shared memory: 28 of 132 get a second one, 2 / 1.21 times the mean."""
    blocks = 160
    found = said(kernels, "a_few_blocks_more", (blocks,), (32,), target.zeros(32 * blocks), target.zeros(32 * blocks), shared_bytes=200_000)
    assert "imbalance" not in rules(found)


def test_a_chain_among_many_warps_costs_what_they_do_not_fill(target: Target, kernels: LoadedModule) -> None:
    order = np.random.default_rng(2).permutation(2048).astype(np.int32)
    follow = np.empty(2048, np.int32)
    follow[order] = np.roll(order, -1)
    found = said(kernels, "crowded_walk", (2,), (1024,), target.zeros(2048, "i4"), target.array(np.repeat(follow, 32)), 8)
    chain = next(one for one in found if one.rule == "dependent-chain")
    assert "next[at * 32 + lane]" in chain.source
    assert 0.02 <= (chain.cost_share or 0) < 0.1


def test_rows_of_a_narrow_block_are_to_be_made_wider(target: Target, kernels: LoadedModule) -> None:
    found = said(kernels, "narrow_rows", (16, 16), (4, 4), target.zeros((64, 64)), target.zeros((64, 64)), 64)
    assert rules(found) == ["partial-warps", "partial-sectors", "partial-sectors"]  # 16 threads are half a warp
    assert found[1].cause == "a row of its block has at most 16 contiguous bytes, and a sector has 32"
    assert found[1].remedy == "Make the block wider and lower, so that its rows fill sectors."


def test_elements_that_each_thread_stores_one_by_one_are_to_be_a_vector(target: Target, kernels: LoadedModule) -> None:
    """A row of the block has 16 pixels of 4 bytes: two whole sectors, so no other shape of the block helps."""
    found = said(kernels, "pixels", (4, 4), (16, 16), target.zeros(64 * 64 * 4, "u1"), 64)
    assert rules(found) == ["partial-sectors"]
    assert len(found[0].lines) == 4
    assert {one.cause for one in found} == {
        "each thread stores 4 neighbouring elements one by one, so the lanes of one request lie 4 bytes apart"
    }
    assert {one.remedy for one in found} == {"Let each thread store the 4 elements at once, as `uchar4`."}
    for one in said(kernels, "opaque_pixels", (4, 4), (16, 16), target.zeros(64 * 64 * 4, "u1"), 64):
        assert one.cause == "the lanes skip the data between the elements that they access"


def test_a_byte_for_all_lanes_is_not_narrow(target: Target, kernels: LoadedModule) -> None:
    found = said(kernels, "looked_up", (8,), (256,), target.zeros(2048, "i4"), target.zeros(64, "u1"), 64)
    assert "narrow-access" not in rules(found)


def test_a_vector_that_waits_behind_a_matrix_is_not_first(target: Target, kernels: LoadedModule) -> None:
    """Each load of the vector waits for the 32 sectors of a row's; in shared memory it would wait for them too."""
    arrays = target.zeros(512), target.zeros((512, 256)), target.zeros(256)
    found = said(kernels, "row_times_vector", (2,), (256,), *arrays, 256)
    assert found[0].rule == "uncoalesced-global"
    assert found[0].arrays == ("matrix",)
    matrix = found[0].cost_cycles
    assert all(one.cost_cycles < matrix / 2 for one in found if one.arrays == ("vector",))


def test_five_neighbours_of_one_line_are_not_loaded_again(target: Target, kernels: LoadedModule) -> None:
    assert rules(said(kernels, "cross_of_five", (8, 32), (32, 8), target.zeros((256, 256)), target.zeros((256, 256)), 256)) == []


def test_two_rows_of_a_block_that_go_down_columns_skip_nothing(target: Target, kernels: LoadedModule) -> None:
    """By hand: 16 lanes of each row are 1 KiB apart, and the other row lies in the same 16 sectors, beside it."""
    found = said(kernels, "down_the_columns", (16, 16), (16, 16), target.zeros((256, 256)), target.zeros((256, 256)), 256)
    (one,) = [one for one in found if one.arrays == ("in",)]
    assert (one.rule, one.per_request) == ("uncoalesced-global", 16)


def test_a_line_that_all_warps_update(target: Target, kernels: LoadedModule) -> None:
    """16 bins are 64 bytes of one line: 65,536 keys make 4,096 sectors of updates there, of which it takes 0.853 in a cycle."""
    keys = target.array(np.random.default_rng(1).integers(0, 16, 65536, np.int32))
    found = said(kernels, "few_bins", (64,), (256,), target.zeros(256, "i4"), keys, 65536)
    (one,) = [one for one in found if one.rule == "contended-atomics"]
    assert "(4,096 sectors at 0.853 per cycle)" in str(one)
    assert 0.3 < one.evidence["share of the time that it is busy"] <= 1
    spread = target.array(np.arange(65536, dtype=np.int32))
    assert "contended-atomics" not in rules(said(kernels, "few_bins", (64,), (256,), target.zeros(65536, "i4"), spread, 65536))


def test_lanes_with_the_same_element_are_counted(target: Target, kernels: LoadedModule) -> None:
    found = said(kernels, "eight_rows_for_a_warp", (64,), (32,), target.zeros(2048), target.zeros((8, 1024)), 1024)
    (one,) = [one for one in found if one.arrays == ("in",)]
    assert one.cause == "its lanes access few different elements, one per 4 lanes, which are not contiguous"


def conflict(found: Findings, op: str) -> str:
    """What to do about the bank conflicts of the loads, or of the stores."""
    return next(one.remedy for one in found if one.rule == "bank-conflict" and one.op.startswith(op))


def test_the_padding_that_helps_is_named(target: Target, kernels: LoadedModule) -> None:
    """By hand: two rows of 16 lanes fall in 32 banks where rows are 16 banks apart, as those of 48 words are; a word more does little."""
    found = said(kernels, "two_rows_of_a_window", (8,), (16, 16), target.zeros(256), target.zeros((32, 32)))
    expected = (
        "Pad each row of `window` by 28 elements, from 20 to 48, so that its lanes use different banks. `memlane fix` tries that, and "
        "swizzles."
    )
    assert conflict(found, "ld.") == expected


def test_a_padding_that_does_not_help_is_not_advised(target: Target, kernels: LoadedModule) -> None:
    """By hand: lanes of a warp read rows 0, 4, 8 and 12, 144 words apart, so in banks 0 and 16 in turn; vectors of 4 words leave only pads
    of 4 words, with which they are 160 words apart, all in one bank, or as before."""
    found = said(kernels, "rows_of_vectors", (8,), (256,), target.zeros(1024), target.zeros(1024))
    assert conflict(found, "ld.").endswith(
        "no padding of the rows of `tile` that keeps its accesses of 16 bytes aligned reduces the wavefronts."
    )


def test_an_array_of_one_dimension_is_padded_behind_all_banks(target: Target, kernels: LoadedModule) -> None:
    found = said(kernels, "every_second_word", (8,), (256,), target.zeros(256), target.zeros(256))
    expected = "Leave 1 element of `words` unused after every 32 (index i + (i / 32)), so that its lanes use different banks."
    assert conflict(found, "ld.").startswith(expected)
    assert max(np.bincount([(i + i // 32) % 32 for i in range(0, 64, 2)])) == 1


def test_what_all_warps_load_while_it_is_on_its_way_was_not_driven_out(target: Target, kernels: LoadedModule) -> None:
    """Each block reads 32 KiB of a table of 256 KiB, all of its warps the same row at a time: as slow as DRAM, and 31 of 32 from L1."""
    found = said(kernels, "rows_in_step", (64,), (1024,), target.zeros(65536), target.zeros((256, 256)), 256, 256)
    assert "cache-thrashing" not in rules(found)


def test_rows_that_are_shorter_than_a_sector_begin_where_they_like(target: Target, kernels: LoadedModule) -> None:
    images = [target.zeros((256, 256), "u1") for _ in range(3)]
    assert set(rules(said(kernels, "mixed_bytes", (16, 16), (16, 16), *images, 256))) == {"narrow-access"}


def test_waiting_for_a_line_on_its_way_is_not_saved_by_shared_memory(target: Target, kernels: LoadedModule) -> None:
    """The words of the second matrix come with a line for all warps of a block, which wait for it together."""
    one, other, out = target.zeros((128, 128)), target.zeros((128, 128)), target.zeros((128, 128))
    found = said(kernels, "product_by_columns", (4, 4), (32, 32), out, one, other, 128, 128)
    assert found[0].rule == "uncoalesced-global"


def test_a_conflict_of_one_warp_holds_up_its_block(target: Target, kernels: LoadedModule) -> None:
    """A warp loses 31 cycles or more of about 2,000, and 31 warps wait for it: more than 1 %, but less than 0.1 % if nobody waited."""
    found = said(kernels, "one_warp_of_a_block", (4,), (1024,), target.zeros(4096), target.zeros(4096))
    (one,) = (one for one in found if one.rule == "bank-conflict")
    assert "tile[threadIdx.x * 32]" in one.source
    assert one.cost_share is not None
    assert one.cost_share > 0.005
    assert one.cost_low == 4 * 31 * 32
    assert "before a barrier (4 openings), instead the time by which it would open earlier" in one.method


@pytest.mark.parametrize("work", [0, 60, 100, 200])
def test_the_cost_of_a_conflict_before_a_barrier_is_what_the_launch_saves(target: Target, kernels: LoadedModule, work: int) -> None:
    """The same kernel with another stride has no conflicts. With little work the other warps wait for the one that has them; with more
    they come last themselves, and a conflict costs little or nothing, though its warp waits as long at each access."""
    traces = [trace(kernels["met_at_a_barrier"][(4,), (256,)], target.zeros(1024), stride, 16, work, counts=True) for stride in (32, 33)]
    with_conflicts, without = (int((one.warps["end_cycles"] - one.warps["begin_cycles"]).sum()) for one in traces)
    told = sum(one.cost_cycles for one in explain(traces[0]) if one.rule == "bank-conflict")
    assert told == pytest.approx(with_conflicts - without, rel=0.1, abs=0.005 * with_conflicts)

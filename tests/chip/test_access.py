"""One warp access: the measured table of shared-memory patterns, Nsight Compute's known sector counts, the rules of old chips as data,
and many accesses at once against one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane import chip
from memlane.chip import AccessKind, Chip, access, batch
from memlane.chip.model import WIDTHS

H200 = chip.load("h200")
ALL = 0xFFFFFFFF
LANE = np.arange(32, dtype=np.uint64)

S1070, GTX480, GTX680, EIGHT = (chip.load(name) for name in ("s1070", "gtx480", "gtx680", "gtx680-8byte"))
CHIPS = {name: chip.load(name) for name in chip.names()}
KINDS: tuple[AccessKind, ...] = get_args(AccessKind)


def at(pattern: Callable[[int], int], nbytes: int) -> list[int]:
    """Addresses of elements of `nbytes`, by lane."""
    return [pattern(lane) * nbytes for lane in range(32)]


def stride(step: int) -> Callable[[int], int]:
    return lambda lane: lane * step


def mask(*lanes: int) -> int:
    return sum(1 << lane for lane in lanes)


Measured = tuple[int, float] | None
"""Full passes, and the cycles per access that an H200 took; the few per cent between them are overhead."""

DENSE = stride(1)
# Per pattern: the active lanes, then what was measured for 4, 8 and 16 bytes a lane.
MEASURED: list[tuple[str, Callable[[int], int], int, tuple[Measured, Measured, Measured]]] = [
    ("stride 1", stride(1), ALL, ((1, 1.09), (2, 2.09), (4, 4.26))),
    ("stride 2", stride(2), ALL, ((2, 2.25), (4, 4.19), (8, 8.44))),
    ("stride 4", stride(4), ALL, ((4, 4.54), (8, 8.55), (16, 16.8))),
    ("stride 8", stride(8), ALL, ((8, 9.09), (16, 17.2), (32, 33.7))),
    ("stride 32", stride(32), ALL, ((32, 36.2), (32, 34.8), (32, 33.7))),
    ("stride 3", stride(3), ALL, ((1, 1.09), (2, 2.09), (4, 4.26))),
    ("all the same", stride(0), ALL, (None, (1, 1.13), (2, 2.19))),
    ("lane / 2", lambda lane: lane // 2, ALL, (None, (1, 1.13), (2, 2.19))),
    ("lane / 4", lambda lane: lane // 4, ALL, (None, (1, 1.13), (2, 2.19))),
    ("lane % 4", lambda lane: lane % 4, ALL, (None, (2, 2.09), (4, 4.23))),
    ("lane % 8", lambda lane: lane % 8, ALL, (None, (2, 2.09), (4, 4.23))),
    ("lane % 16", lambda lane: lane % 16, ALL, (None, (2, 2.09), (4, 4.23))),
    ("lanes 0 and 31", DENSE, mask(0, 31), (None, (1, 1.13), (2, 2.19))),
    ("lanes 15 and 16", DENSE, mask(15, 16), (None, (1, 1.13), (2, 2.19))),
    ("lanes 0 to 15", DENSE, mask(*range(16)), (None, (2, 2.09), (4, 4.44))),
    ("even lanes", DENSE, mask(*range(0, 32, 2)), (None, (2, 2.07), (4, 4.23))),
]


@pytest.mark.parametrize(("pattern", "active", "measured"), [row[1:] for row in MEASURED], ids=[row[0] for row in MEASURED])
def test_cycles_as_measured(pattern: Callable[[int], int], active: int, measured: tuple[Measured, ...]) -> None:
    for nbytes, one in zip((4, 8, 16), measured, strict=True):
        if one is not None:
            passes, cycles = one
            assert access.bank_cycles(H200, at(pattern, nbytes), active, nbytes) == passes
            assert passes <= cycles < 1.14 * passes


def own_banks(lane: int) -> int:
    """Pairs of neighbours; each eight lanes meet in banks of their own, four rows deep."""
    return lane // 8 % 2 + (lane & ~1) % 8 * 8


JOINED: list[tuple[str, Callable[[int], int], int, int]] = [
    ("in pairs", lambda lane: lane // 2, 2, 2),
    ("all the same but lane 17", lambda lane: int(lane == 17), 3, 4),
    ("lanes 0 to 15 in pairs", lambda lane: lane // 2 if lane < 16 else lane + 64, 3, 4),
    ("passes in banks of their own", own_banks, 16, 8),
    ("lanes 0 to 15 in banks of their own", lambda lane: own_banks(lane) if lane < 16 else lane + 320, 10, 10),
]
"""Loads of 16 bytes: what Nsight Compute counts, and the cycles that were measured."""


@pytest.mark.parametrize(("pattern", "counted", "cycles"), [row[1:] for row in JOINED], ids=[row[0] for row in JOINED])
def test_passes_with_conflicts_are_joined_in_time_and_not_in_counts(pattern: Callable[[int], int], counted: int, cycles: int) -> None:
    assert access.wavefronts(H200, at(pattern, 16), ALL, 16) == counted
    assert access.bank_cycles(H200, at(pattern, 16), ALL, 16) == cycles


COUNTED_OPERATIONS: tuple[tuple[AccessKind, int], ...] = (
    ("load", 8),
    ("load", 16),
    ("store", 8),
    ("store", 16),
    ("increment", 4),
    ("atomic", 4),
    ("compare_swap", 4),
    ("atomic", 8),
    ("compare_swap", 8),
)
# Per pattern: the wavefronts that Nsight Compute counted on an H200 (memory_l1_wavefronts_shared), one number for each of these operations.
COUNTED: list[tuple[str, Callable[[int], int], int, tuple[int, ...]]] = [
    ("stride 2", stride(2), ALL, (4, 8, 4, 8, 2, 2, 4, 4, 8)),
    ("stride 3", stride(3), ALL, (2, 4, 2, 4, 1, 1, 2, 2, 4)),
    ("stride 32", stride(32), ALL, (32, 32, 32, 32, 32, 32, 64, 32, 64)),
    ("all the same", stride(0), ALL, (1, 2, 2, 4, 1, 32, 64, 32, 64)),
    ("lane/2", lambda lane: lane // 2, ALL, (1, 2, 2, 4, 1, 2, 4, 4, 8)),
    ("lane%4", lambda lane: lane % 4, ALL, (2, 4, 2, 4, 1, 8, 16, 8, 16)),
    ("as lane^2: lane/4*2+lane%2", lambda lane: lane // 4 * 2 + lane % 2, ALL, (1, 2, 2, 4, 1, 2, 4, 4, 8)),
    ("all the same, but lane 17", lambda lane: int(lane == 17), ALL, (2, 3, 2, 4, 1, 31, 62, 31, 62)),
    ("lane/2, but lane 31 alone", lambda lane: 40 if lane == 31 else lane // 2, ALL, (3, 3, 3, 4, 2, 3, 6, 5, 10)),
    ("lanes 0-15", DENSE, mask(*range(16)), (1, 2, 1, 2, 1, 1, 2, 1, 2)),
    ("lanes 8-23", DENSE, mask(*range(8, 24)), (2, 2, 2, 2, 1, 1, 2, 2, 4)),
    ("lanes 0 and 31", DENSE, mask(0, 31), (1, 2, 2, 2, 1, 1, 2, 2, 4)),
    ("lane 5", DENSE, mask(5), (1, 1, 1, 1, 1, 1, 2, 1, 2)),
    ("lanes 0-15, stride 32", stride(32), mask(*range(16)), (16, 16, 16, 16, 16, 16, 32, 16, 32)),
]


@pytest.mark.parametrize(("pattern", "active", "counted"), [row[1:] for row in COUNTED], ids=[row[0] for row in COUNTED])
def test_wavefronts_as_nsight_compute_counts_them(pattern: Callable[[int], int], active: int, counted: tuple[int, ...]) -> None:
    for (kind, nbytes), expected in zip(COUNTED_OPERATIONS, counted, strict=True):
        found = access.wavefronts(H200, at(pattern, nbytes), active, nbytes, kind)
        assert found == expected, (kind, nbytes)


@pytest.mark.parametrize(("nbytes", "measured"), [(8, 4.19), (16, 16.84)])
def test_wavefronts_of_rows_of_33_words_as_measured(nbytes: int, measured: float) -> None:
    rows = [lane * 33 * 4 // nbytes * nbytes for lane in range(32)]
    assert access.wavefronts(H200, rows, ALL, nbytes) == int(measured)


@pytest.mark.parametrize("nbytes", [1, 2, 4])
def test_narrow_lanes_that_share_a_word_do_not_conflict(nbytes: int) -> None:
    assert access.wavefronts(H200, at(DENSE, nbytes), ALL, nbytes) == 1


@pytest.mark.parametrize(
    ("step", "wavefronts", "ideal"),
    [(1, 1, 1), (2, 2, 1), (32, 32, 1), (33, 1, 1)],
)
def test_conflicts_are_wavefronts_beyond_the_ideal(step: int, wavefronts: int, ideal: int) -> None:
    addresses = at(stride(step), 4)
    assert access.wavefronts(H200, addresses, ALL, 4) == wavefronts
    assert access.ideal_wavefronts(H200, addresses, ALL, 4) == ideal
    assert access.conflicts(H200, addresses, ALL, 4) == wavefronts - ideal


def test_wide_lanes_need_their_passes_even_without_conflicts() -> None:
    assert [access.ideal_wavefronts(H200, at(DENSE, nbytes), ALL, nbytes) for nbytes in (4, 8, 16)] == [1, 2, 4]
    assert access.conflicts(H200, at(lambda lane: lane % 8, 8), ALL, 8) == 0


# Counts that Nsight Compute shows for these patterns.
@pytest.mark.parametrize(
    ("addresses", "active", "nbytes", "sectors", "ideal"),
    [
        (at(DENSE, 4), ALL, 4, 4, 4),
        (at(DENSE, 8), ALL, 8, 8, 8),
        (at(DENSE, 16), ALL, 16, 16, 16),
        (at(stride(1024), 4), ALL, 4, 32, 4),
        ([4 * lane + 16 for lane in range(32)], ALL, 4, 5, 4),
        (at(stride(0), 4), ALL, 4, 1, 1),
        (at(DENSE, 4), mask(7), 4, 1, 1),
        (at(DENSE, 16), mask(7), 16, 1, 1),
        (at(DENSE, 1), ALL, 1, 1, 1),
        (list(reversed(at(DENSE, 4))), ALL, 4, 4, 4),
    ],
)
def test_sectors(addresses: list[int], active: int, nbytes: int, sectors: int, ideal: int) -> None:
    assert access.sectors(H200, addresses, active, nbytes) == sectors
    assert access.transactions(H200, addresses, active, nbytes) == sectors
    assert access.ideal_sectors(H200, addresses, active, nbytes) == ideal


def test_tags_of_four_lines_are_looked_up_at_once() -> None:
    assert access.tag_wavefronts(H200, at(DENSE, 16), ALL, 16) == 1
    assert access.tag_wavefronts(H200, at(stride(32), 4), ALL, 4) == 8
    assert access.tag_wavefronts(H200, at(stride(32), 4), mask(0, 1, 2, 3, 4), 4) == 2


COUNTS = ("transactions", "sectors", "ideal_sectors", "tag_wavefronts", "wavefronts", "ideal_wavefronts", "conflicts")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("which", CHIPS)
def test_no_active_lane_costs_nothing(which: str, count: str) -> None:
    for nbytes in WIDTHS:
        assert getattr(access, count)(CHIPS[which], LANE, 0, nbytes) == 0
        assert getattr(batch, count)(CHIPS[which], LANE[None, :], np.zeros(1, np.uint32), nbytes).tolist() == [0]


def test_a_mask_is_a_number_or_flags() -> None:
    flags = np.zeros(32, np.bool_)
    flags[[1, 5]] = True
    for active in (flags, flags.tolist(), 0b100010, np.uint32(0b100010)):
        assert access.sectors(H200, at(stride(8), 4), active, 4) == 2


@pytest.mark.parametrize("nbytes", [0, 3, 32])
def test_a_width_that_ptx_has_not_is_refused(nbytes: int) -> None:
    with pytest.raises(ValueError, match=f"cannot access {nbytes} bytes"):
        access.sectors(H200, LANE, ALL, nbytes)
    with pytest.raises(ValueError, match=f"cannot access {nbytes} bytes"):
        batch.sectors(H200, LANE[None, :], np.array([ALL], np.uint32), nbytes)


class TestOldChips:
    """Examples of the CUDA C Programming Guide 4.2, appendix F."""

    def test_half_warps_over_16_banks(self) -> None:
        assert access.wavefronts(S1070, at(DENSE, 4), ALL, 4) == 2
        assert access.wavefronts(S1070, at(stride(2), 4), ALL, 4) == 4
        assert access.wavefronts(S1070, at(stride(3), 4), ALL, 4) == 2
        assert access.wavefronts(S1070, at(stride(16), 4), ALL, 4) == 32
        assert access.wavefronts(S1070, at(DENSE, 4), mask(*range(16)), 4) == 1

    def test_one_word_is_broadcast_in_a_step(self) -> None:
        assert access.wavefronts(S1070, at(stride(0), 4), ALL, 4) == 2
        # Two words, each for eight lanes of the half warp, in different banks: broadcasting one leaves seven lanes with the other.
        assert access.wavefronts(S1070, at(lambda lane: lane % 2, 4), ALL, 4) == 4
        # The same two words in one bank cost two steps as well, one broadcast each.
        assert access.wavefronts(S1070, at(lambda lane: 16 * (lane % 2), 4), ALL, 4) == 4

    def test_characters_side_by_side_conflict_on_the_oldest_only(self) -> None:
        side_by_side, a_word_each = at(DENSE, 1), at(stride(4), 1)
        assert access.conflicts(S1070, side_by_side, ALL, 1) > 0
        assert access.conflicts(S1070, a_word_each, ALL, 1) == 0
        assert access.conflicts(GTX480, side_by_side, ALL, 1) == 0

    def test_doubles_are_two_requests_of_stride_two_on_the_oldest(self) -> None:
        # Four half-warp requests, each with 2-way conflicts.
        assert access.wavefronts(S1070, at(DENSE, 8), ALL, 8) == 8
        assert access.ideal_wavefronts(S1070, at(DENSE, 8), ALL, 8) == 4
        assert access.conflicts(GTX480, at(DENSE, 8), ALL, 8) == 0
        assert access.conflicts(GTX480, at(stride(2), 8), ALL, 8) == 2

    def test_16_bytes_take_a_wavefront_more_on_fermi(self) -> None:
        """One more than the most lanes of a quarter warp at one bank: contiguous ones conflict in two ways."""
        assert access.wavefronts(GTX480, at(DENSE, 16), ALL, 16) == 4 * 2
        assert access.wavefronts(GTX480, at(stride(2), 16), ALL, 16) == 4 * 3
        assert access.conflicts(GTX480, at(DENSE, 16), ALL, 16) == 4

    @pytest.mark.parametrize(("step", "fermi", "kepler"), [(1, 1, 1), (2, 2, 1), (3, 1, 1)])
    def test_strided_words(self, step: int, fermi: int, kepler: int) -> None:
        """Figure F-2."""
        assert [access.wavefronts(one, at(stride(step), 4), ALL, 4) for one in (GTX480, GTX680)] == [fermi, kepler]

    def test_the_conflicts_of_the_second_reduction_are_gone_in_the_third(self) -> None:
        """The course's steps for a block of 128 on 16 banks: `index = 2 * s * tid`, then the lower half adds the upper one."""
        strided = [2**power for power in range(7)]
        second = [access.conflicts(S1070, at(stride(2 * s), 4), mask(*range(min(32, 64 // s))), 4) for s in strided]
        assert second == [2, 6, 7, 7, 3, 1, 0]
        third = [access.conflicts(S1070, at(DENSE, 4), mask(*range(min(32, s))), 4) for s in reversed(strided)]
        assert third == [0] * 7

    def test_segments_shrink_while_half_of_them_suffices(self) -> None:
        aligned, half = at(DENSE, 4), mask(*range(16))
        assert access.transactions(S1070, aligned, ALL, 4) == 2
        assert access.sectors(S1070, aligned, ALL, 4) == 4
        # Off by one element within a 128-byte segment: one transaction of 128 bytes instead of 64.
        assert access.transactions(S1070, [a + 4 for a in aligned], half, 4) == 1
        assert access.sectors(S1070, [a + 4 for a in aligned], half, 4) == 4
        # Across two segments: 96 bytes as 32 + 64.
        across = [128 - 32 + 4 * lane for lane in range(32)]
        assert access.transactions(S1070, across, half, 4) == 2
        assert access.sectors(S1070, across, half, 4) == 2
        assert access.transactions(S1070, at(stride(32), 4), ALL, 4) == 32
        # 1-byte words: segments of 32 bytes, of 2-byte words of 64.
        assert access.sectors(S1070, at(DENSE, 1), ALL, 1) == 2
        assert access.sectors(S1070, at(DENSE, 2), ALL, 2) == 2

    def test_banks_of_8_bytes(self) -> None:
        assert access.wavefronts(EIGHT, at(DENSE, 8), ALL, 8) == 1
        assert access.wavefronts(EIGHT, at(stride(4), 4), ALL, 4) == 2
        assert access.wavefronts(EIGHT, at(DENSE, 16), ALL, 16) == 2

    def test_words_32_apart_in_one_pair_of_rows(self) -> None:
        assert access.wavefronts(GTX680, at(lambda lane: 32 * (lane % 2), 4), ALL, 4) == 1
        assert access.wavefronts(GTX680, at(lambda lane: 64 * (lane % 2), 4), ALL, 4) == 2

    def test_lines_of_fermi(self) -> None:
        assert access.transactions(GTX480, at(DENSE, 4), ALL, 4) == 1
        assert access.transactions(GTX480, at(DENSE, 8), ALL, 8) == 2
        assert access.transactions(GTX480, at(DENSE, 16), ALL, 16) == 4
        assert access.transactions(GTX480, at(stride(0), 8), ALL, 8) == 2
        scattered = at(stride(64), 4)
        assert [access.sectors(GTX480, scattered, ALL, 4, kind) for kind in KINDS[:3]] == [128, 32, 32]
        assert access.sectors(GTX680, scattered, ALL, 4) == 32


@pytest.mark.parametrize(
    ("places", "nbytes", "sectors", "ideal"),
    [
        ([8] * 32, 4, 4, 4),
        ([8] * 32, 8, 8, 8),
        ([16] * 32, 16, 16, 16),
        ([8] * 32, 1, 4, 4),
        ([4 * lane for lane in range(32)], 4, 32, 4),
        ([4 * (lane // 8) for lane in range(32)], 4, 4, 4),
        ([lane % 4 for lane in range(32)], 1, 4, 4),
    ],
)
def test_local_memory_is_interleaved_by_words(places: list[int], nbytes: int, sectors: int, ideal: int) -> None:
    assert access.local_sectors(H200, places, ALL, nbytes) == sectors
    assert access.ideal_local_sectors(H200, ALL, nbytes) == ideal
    assert access.local_sectors(H200, places, mask(3), nbytes) == max(1, nbytes // 4)


@st.composite
def accesses(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    """Addresses, mask and width: random, clustered so that lanes meet in words and sectors, or strided."""
    nbytes = draw(st.sampled_from(WIDTHS))
    base = draw(st.integers(0, 1 << 20)) * 16
    shape = draw(st.sampled_from(["scattered", "close", "strided", "paired"]))
    if shape == "strided":
        step = draw(st.integers(0, 80))
        elements = [step * lane for lane in range(32)]
    else:
        few = st.integers(0, {"scattered": 1 << 16, "close": 70, "paired": 300}[shape])
        elements = draw(st.lists(few, min_size=32, max_size=32))
        if shape == "paired":
            step = draw(st.sampled_from([1, 2]))
            elements = [elements[lane & ~step] for lane in range(32)]
    active = draw(st.one_of(st.just(ALL), st.integers(0, ALL), st.sampled_from([1, 1 << 31, 0xFFFF, 0x55555555])))
    return np.array([base + element * nbytes for element in elements], np.uint64), active, nbytes


@pytest.mark.parametrize("name", CHIPS)
def test_where_lanes_without_an_access_point_does_not_matter(name: str) -> None:
    """Few places, so that passes merge, and lanes that stand beside none of their own address."""
    rng = np.random.default_rng(5)
    active = rng.integers(0, 1 << 32, 400) & rng.choice([ALL, 0xAAAAAAAA, 0x55555555, 0xCCCCCCCC], 400)
    some = (active[:, None] >> np.arange(32) & 1).astype(bool)
    for nbytes in WIDTHS:
        places = (nbytes * rng.integers(0, 2, (400, 32))).astype(np.uint64)
        others = np.where(some, places, nbytes * rng.integers(0, 64, (400, 32))).astype(np.uint64)
        for count in (batch.wavefronts, batch.sectors):
            assert np.array_equal(*(count(CHIPS[name], one, active, np.full(400, nbytes)) for one in (places, others)))


@settings(max_examples=60, deadline=None)
@given(st.lists(accesses(), min_size=1, max_size=12), st.sampled_from(sorted(CHIPS)), st.sampled_from(KINDS))
def test_many_at_once_equal_one_at_a_time(some: list[tuple[np.ndarray, int, int]], which: str, kind: AccessKind) -> None:
    addresses = np.stack([one[0] for one in some])
    active = np.array([one[1] for one in some], np.uint32)
    widths = np.array([one[2] for one in some])
    for count in COUNTS:
        kinds = () if count in ("ideal_sectors", "tag_wavefronts") else (kind,)
        expected = [getattr(access, count)(CHIPS[which], *one, *kinds) for one in some]
        assert getattr(batch, count)(CHIPS[which], addresses, active, widths, *kinds).tolist() == expected


@settings(max_examples=200, deadline=None)
@given(accesses())
def test_sectors_are_the_32_byte_pieces_that_hold_a_byte(one: tuple[np.ndarray, int, int]) -> None:
    addresses, active, nbytes = one
    touched = {int(addresses[lane]) + offset for lane in range(32) if active >> lane & 1 for offset in range(nbytes)}
    assert access.sectors(H200, addresses, active, nbytes) == len({byte >> 5 for byte in touched})
    assert access.ideal_sectors(H200, addresses, active, nbytes) == -(-len(touched) // 32)


@settings(max_examples=200, deadline=None)
@given(accesses(), st.sampled_from(sorted(CHIPS)))
def test_no_access_beats_the_ideal(one: tuple[np.ndarray, int, int], which: str) -> None:
    spec: Chip = CHIPS[which]
    assert access.sectors(spec, *one) >= access.ideal_sectors(spec, *one)
    assert access.conflicts(spec, *one) >= 0
    assert access.bank_cycles(spec, *one) >= access.ideal_wavefronts(spec, *one) / 2
    assert access.local_sectors(spec, *one) >= access.ideal_local_sectors(spec, one[1], one[2])
    assert (access.wavefronts(spec, *one) == 0) == (one[1] == 0)


def test_more_accesses_than_one_chunk() -> None:
    rng = np.random.default_rng(5)
    addresses = rng.integers(0, 512, (10_000, 32)).astype(np.uint64) * np.uint64(4)
    active = rng.integers(0, 1 << 32, 10_000, dtype=np.uint64).astype(np.uint32)
    found = batch.wavefronts(H200, addresses, active, 4)
    for row in (0, 4095, 4096, 9999):
        assert found[row] == access.wavefronts(H200, addresses[row], int(active[row]), 4)
    assert batch.wavefronts(H200, addresses[:0], active[:0], 4).shape == (0,)

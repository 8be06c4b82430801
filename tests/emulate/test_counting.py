"""The generated counting code against the plain definitions in `memlane.chip.access`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import AccessKind, BankRule, Chip, CoalescingRule, access, load, names
from memlane.chip.copies import copy_cost
from memlane.chip.lanes import WIDTHS
from memlane.emulate.count.banks import bank_period
from memlane.emulate.count.copies import copy_helper
from memlane.emulate.count.counting import counting, equal_lanes
from tests.emulate.machine import callable_of

FULL = 0xFFFFFFFF
H200 = load("h200")
FIRST = CoalescingRule("segments", 16, 16, 8, 1)
"""The protocol of compute capability 1.3; the split of wide accesses is made up."""
SYNTHETIC = {
    "half-warps over 16 banks": BankRule(16, 4, 1, 16, 16, 16, "never", "one word"),
    "word by word": BankRule(16, 4, 1, 16, 16, 16, "never", "one word", wide="word by word"),
    "8-byte banks": BankRule(32, 8, 1, 32, 32, 16, "never", "every word"),
    "two words a row": BankRule(32, 4, 2, 32, 32, 16, "never", "every word"),
    "whole warps at any width": BankRule(32, 4, 1, 32, 32, 32, "never", "every word"),
    "64 banks": BankRule(64, 4, 1, 32, 16, 8, "neighbours", "every word"),
    "one by one": BankRule(32, 4, 1, 32, 16, 8, "neighbours", "every word", same_word="one by one"),
    "a wavefront more": BankRule(32, 4, 1, 32, 16, 8, "neighbours", "every word", extra_16=1),
    "twice": BankRule(32, 4, 1, 32, 16, 8, "neighbours", "every word", times=2),
}
KINDS: tuple[AccessKind, ...] = get_args(AccessKind)


@cache
def chips() -> dict[str, Chip]:
    shipped = {name: load(name) for name in names()}
    return shipped | {
        name: replace(H200, banks=rule, store_banks=None, atomic_banks=None, coalescing=FIRST) for name, rule in SYNTHETIC.items()
    }


def pair(number: int) -> tuple[int, int]:
    return number & FULL, number >> 32


@cache
def compiled(chip: Chip, kind: AccessKind) -> tuple[Callable[..., int], ...]:
    costs = counting(chip, kind)
    return callable_of(costs.sectors), callable_of(costs.wavefronts), callable_of(costs.local)


def check(chip: Chip, addresses: np.ndarray, mask: int, nbytes: int, kind: AccessKind = "load", distance: int = 0) -> None:
    given = (addresses - np.uint64(distance % 2**64)).astype(np.uint64)
    one = (addresses, mask, nbytes)
    moved, passes, local = (pair(cost(given.ctypes.data, distance, mask, nbytes)) for cost in compiled(chip, kind))
    assert moved == (access.sectors(chip, *one, kind), access.ideal_sectors(chip, *one))
    expected = access.wavefronts(chip, *one, kind) | access.bank_cycles(chip, *one, kind) << 16
    assert passes == (expected, access.ideal_wavefronts(chip, *one, kind))
    assert local == (access.local_sectors(chip, *one), access.ideal_local_sectors(chip, mask, nbytes))


lane = np.arange(32, dtype=np.uint64)
orders = st.one_of(
    st.lists(st.integers(0, 3000), min_size=32, max_size=32).map(lambda v: np.array(v, np.uint64)),
    st.lists(st.integers(0, 40), min_size=32, max_size=32).map(lambda v: np.array(v, np.uint64)),
    st.builds(lambda start, step: start + lane * np.uint64(step), st.integers(0, 64), st.integers(0, 70)),
    st.builds(lambda start, step: start + (31 - lane) * np.uint64(step), st.integers(0, 64), st.integers(0, 70)),
    st.builds(lambda across, pitch: lane % across + lane // across * pitch, st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 600)),
    st.builds(lambda across, pitch: lane // across + lane % across * pitch, st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 600)),
    st.builds(lambda swizzle: lane ^ swizzle, st.integers(0, 31)),
    st.lists(st.integers(0, 9), min_size=16, max_size=16).map(lambda v: np.repeat(np.array(v, np.uint64), 2)),
    st.lists(st.integers(0, 9), min_size=16, max_size=16).map(lambda v: np.array(v, np.uint64)[lane // 4 * 2 + lane % 2]),
    st.builds(lambda start, slow, fast: start + lane % 16 * fast + lane // 16 * slow, *[st.integers(0, 70)] * 3),
)
masks = st.one_of(
    st.just(FULL),
    st.integers(0, FULL),
    st.builds(lambda low, high: FULL >> low << high & FULL, st.integers(0, 31), st.integers(0, 31)),
    st.sampled_from([0, 1, 1 << 31, 0xFFFF, 0xFFFF0000, 0x55555555, 0x80000001, 0x00018000]),
)


@pytest.mark.parametrize("name", sorted(names() + tuple(SYNTHETIC)))
@settings(max_examples=45, deadline=None)
@given(order=orders, mask=masks, width=st.sampled_from(WIDTHS), kind=st.sampled_from(KINDS), distance=st.integers(-100, 100))
def test_generated_counts_equal_the_definition(
    name: str, order: np.ndarray, mask: int, width: int, kind: AccessKind, distance: int
) -> None:
    base = np.uint64(1 << 46)
    check(chips()[name], base + order.astype(np.uint64) * np.uint64(width), mask, width, kind, distance)


@settings(max_examples=60, deadline=None)
@given(
    lanes=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from([0, 1 << 29, 1 << 30, 1 << 31, 1 << 33, 1 << 46])), min_size=32, max_size=32
    ),
    mask=masks,
    width=st.sampled_from(WIDTHS),
)
def test_lanes_far_apart(lanes: list[tuple[int, int]], mask: int, width: int) -> None:
    addresses = np.array([far + near * width for near, far in lanes], np.uint64)
    moved = callable_of(counting(H200).sectors)(addresses.ctypes.data, 0, mask, width)
    assert pair(moved) == (access.sectors(H200, addresses, mask, width), access.ideal_sectors(H200, addresses, mask, width))


@settings(max_examples=60, deadline=None)
@given(starts=st.lists(st.integers(0, 300), min_size=32, max_size=32), mask=masks, width=st.integers(1, 32))
def test_misaligned_lanes_count_every_sector_that_they_touch(starts: list[int], mask: int, width: int) -> None:
    addresses = np.array(starts, np.uint64)
    touched = {start + offset for number, start in enumerate(starts) if mask >> number & 1 for offset in range(width)}
    moved = callable_of(counting(H200).sectors)(addresses.ctypes.data, 0, mask, width)
    assert pair(moved) == (len({byte // 32 for byte in touched}), -(-len(touched) // 32))


@pytest.mark.parametrize(
    ("words", "width", "expected"),
    [
        (lane, 4, 1),
        (lane * 2, 4, 2),
        (lane * 32, 4, 32),
        (lane * 33, 4, 1),
        (lane * 0, 4, 1),
        (lane * 0, 8, 1),
        (lane * 0, 16, 2),
        (lane * 0 + 5, 16, 2),
        (lane, 8, 2),
        (lane, 16, 4),
        (lane // 2, 8, 1),
    ],
)
def test_wavefronts_of_well_known_patterns(words: np.ndarray, width: int, expected: int) -> None:
    addresses = words * np.uint64(width)
    assert callable_of(counting(H200).wavefronts)(addresses.ctypes.data, 0, FULL, width) & 0xFFFF == expected


@pytest.mark.parametrize("name", sorted(names() + tuple(SYNTHETIC)))
@settings(max_examples=30, deadline=None)
@given(order=orders, mask=masks, width=st.sampled_from(WIDTHS), kind=st.sampled_from(KINDS), periods=st.integers(1, 70))
def test_wavefronts_stay_as_they_are_where_all_lanes_move_by_periods_of_the_banks(
    name: str, order: np.ndarray, mask: int, width: int, kind: AccessKind, periods: int
) -> None:
    chip, addresses = chips()[name], order.astype(np.uint64) * np.uint64(width)
    moved = addresses + np.uint64(periods * bank_period(chip.bank_rule(kind)))
    for rule in (access.wavefronts, access.bank_cycles, access.ideal_wavefronts):
        assert rule(chip, addresses, mask, width, kind) == rule(chip, moved, mask, width, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(names() + tuple(SYNTHETIC)))
def test_accesses_of_equal_distances_by_full_warps(name: str, width: int, kind: AccessKind) -> None:
    """All lanes at one place, or each so many elements behind the last: what is counted without looking at each lane."""
    for step in (0, 1, 2, 3, 8, 16, 31, 32, 33, 64, -1):
        addresses = np.uint64(1 << 46) + (np.int64(64) + lane.astype(np.int64) * step).astype(np.uint64) * np.uint64(width)
        check(chips()[name], addresses, FULL, width, kind)


@settings(max_examples=120, deadline=None)
@given(order=orders, mask=masks, far=st.sampled_from([0, 1 << 28, 1 << 29, 1 << 40]))
def test_lanes_that_meet_at_an_address(order: np.ndarray, mask: int, far: int) -> None:
    addresses = np.uint64(1 << 46) + order.astype(np.uint64) * np.uint64(4) + order.astype(np.uint64) % 3 * np.uint64(far)
    assert pair(callable_of(equal_lanes)(addresses.ctypes.data, mask)) == access.distinct_addresses(addresses, mask, 4)


def test_chips_with_equal_rules_share_the_code() -> None:
    assert counting(load("h100")).wavefronts is counting(H200).wavefronts
    assert counting(chips()["64 banks"]).wavefronts is not counting(H200).wavefronts


@pytest.mark.parametrize(("nbytes", "past_l1"), [(4, False), (8, False), (16, False), (16, True)])
def test_generated_counts_of_copies_equal_the_definition(nbytes: int, past_l1: bool) -> None:
    """Patterns of both memories, with lanes that read nothing or less than they write."""
    cost, random = callable_of(copy_helper(nbytes, past_l1)), np.random.default_rng(nbytes)
    ways = [lane, lane * 0, lane * 2, lane * 32, lane[::-1].copy(), lane ^ 5, lane // 4, random.integers(0, 90, 32).astype(np.uint64)]
    for source in ways:
        for target in ways:
            far, near = ((1 << 46) + source * nbytes).astype(np.uint64), (4096 + target * nbytes).astype(np.uint64)
            for mask, reads, whole in ((FULL, FULL, FULL), (FULL, FULL, 0xFFFF), (FULL, 0x0F0F00FF, FULL), (0x80FF3001, 0x80003001, 1)):
                expected = copy_cost(H200, far, near, mask, nbytes, reads, past_l1, whole)
                found = cost(far.ctypes.data, 0, near.ctypes.data, 0, mask, reads, reads & whole) & (1 << 64) - 1
                assert found & 0xFFFFFFFF == expected.wavefronts
                assert found >> 32 & 0xFFFF == expected.ideal_wavefronts


@pytest.mark.parametrize("step", [4, 32, 64])
@pytest.mark.parametrize("missing", [0, 1, 31])
def test_accesses_of_equal_distances_without_one_lane(step: int, missing: int) -> None:
    """What is counted without looking at each lane is for full warps alone."""
    addresses = np.uint64(1 << 46) + lane * np.uint64(step)
    for name in ("h200", "v100", "gtx480"):
        check(chips()[name], addresses, FULL & ~(1 << missing), 4)

"""The cache model against a slow one in Python, and what it says of well-known patterns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlane.chip import Chip, load, names
from memlane.emulate.clock.caches import access_helper
from memlane.emulate.clock.levels import FAR, TRAFFIC, Caches, Level, l1_bytes, set_numbers
from memlane.emulate.clock.sectors import ATOMIC, DRAM, L1, L2, LOAD, LOAD_PAST_L1, STORE
from tests.emulate.machine import callable_of

FULL = 0xFFFFFFFF
BASE = 1 << 46
H200 = load("h200")
TINY = replace(H200, l1_bytes=4096, shared_bytes_per_sm=1024, l2_bytes=4096 + 128 * 20)
"""32 lines of L1, 52 of L2."""
lane = np.arange(32, dtype=np.uint64)


class SlowLevel:
    """Sets of {line: {sector: arrival}}, the line used longest ago first."""

    def __init__(self, sets: int, ways: npt.NDArray[np.uint64], is_far: bool = False) -> None:
        self.bits, self.sets, self.ways, self.is_far = max(1, sets.bit_length() - 1), sets, ways, is_far
        self.lines: list[dict[int, dict[int, int]]] = [{} for _ in range(sets)]
        self.dirty: set[tuple[int, int]] = set()
        """Lines and sectors that were stored to."""
        self.atomics: Counter[int] = Counter()
        """By line: sectors of requests with atomic operations."""
        self.written_back = 0

    def set_of(self, line: int) -> int:
        if self.is_far:
            product = (line >> self.bits) * 0x9E3779B97F4A7C15 % (1 << 64)
            return (line ^ product >> 64 - self.bits) % self.sets
        fold = line ^ line >> self.bits
        return (fold ^ fold >> 2 * self.bits) % self.sets

    def find(self, line: int, allocate: bool) -> dict[int, int] | None:
        number = self.set_of(line)
        lines = self.lines[number]
        if line not in lines and not allocate:
            return None
        sectors = lines.pop(line, {})
        if len(lines) == self.ways[number]:
            gone = next(iter(lines))
            del lines[gone], self.atomics[gone]
            back = {one for one in self.dirty if one[0] == gone}
            self.written_back += len(back)
            self.dirty -= back
        lines[line] = sectors
        return sectors


class SlowCaches:
    def __init__(self, chip: Chip, fast: Caches) -> None:
        assert fast.l2 is not None
        self.l1 = [SlowLevel(fast.l1.sets, fast.l1.ways) for _ in range(fast.sm_count)]
        self.l2 = SlowLevel(fast.l2.sets, fast.l2.ways, is_far=True)
        latency = chip.latency
        self.lines_per_pass = chip.coalescing.lines_per_wavefront
        self.moved: Counter[tuple[str, int]] = Counter()
        """By name and multiprocessor; of L2 by name and -1."""
        self.hit, self.far, self.dram, self.atomic = (round(n) for n in (latency.l1, latency.l2, latency.dram, latency.global_atomic))

    def access(self, kind: str, sm: int, addresses: list[int], nbytes: int, time: int) -> tuple[int, int, int]:
        lines: dict[int, dict[int, None]] = {}
        lanes: Counter[int] = Counter()
        for address in addresses:
            lanes[address // 128] += 1
            for sector in range(address // 32, (address + nbytes - 1) // 32 + 1):
                lines.setdefault(sector // 4, {})[sector % 4] = None
        served = [one for line, sectors in lines.items() for one in self.line(kind, sm, line, sorted(sectors), time)]
        if not served:
            return 0, 0, 0
        if kind == STORE:
            for line, sectors in lines.items():
                self.stored(sm, len(sectors), min(len(sectors), lanes[line] * nbytes // 32), lanes[line] * nbytes)
        passes = max(-(-len(lines) // self.lines_per_pass), -(-sum(map(len, lines.values())) // 4))
        levels = 0
        for _, level in served:
            levels |= level
        return max(latency for latency, _ in served) + passes - 1, levels, passes

    def stored(self, sm: int, sectors: int, whole: int, nbytes: int) -> None:
        self.moved["partly_written_bytes", sm] += 0 if whole == sectors else nbytes
        self.moved["written", sm] += whole
        self.moved["partly_written", sm] += sectors - whole
        self.moved["written_lines" if whole == sectors else "partly_written_lines", sm] += 1

    def line(self, kind: str, sm: int, line: int, sectors: list[int], time: int) -> list[tuple[int, int]]:
        near = None if kind == LOAD_PAST_L1 else self.l1[sm].find(line, kind == LOAD)
        served = []
        for sector in sectors:
            if kind == LOAD and near is not None and sector in near:
                served.append((min(max(near[sector] - time, self.hit), self.dram), L1))
                continue
            far = self.l2.find(line, True)
            assert far is not None
            if sector not in far:
                name = "allocated" if kind == STORE else "fetched"
                self.moved[name, -1] += 1
                self.moved[f"{name}_pairs", -1] += sector ^ 1 not in far
            latency, level = self.beyond(kind, far, sector, time)
            if kind in (LOAD, LOAD_PAST_L1):
                self.moved["read", sm] += 1
            if kind == ATOMIC:
                self.moved["atomic", sm] += 1
            if kind in (STORE, ATOMIC):
                self.l2.dirty.add((line, sector))
            if near is not None and kind == LOAD:
                near[sector] = time + latency
            if near is not None and kind == ATOMIC:
                near.pop(sector, None)
            served.append((latency, level))
        if kind in (LOAD, LOAD_PAST_L1) and any(level != L1 for _, level in served):
            self.moved["read_lines", sm] += 1
        if kind == ATOMIC:
            self.l2.atomics[line] += len(sectors)
            self.moved["hottest", -1] = max(self.moved["hottest", -1], self.l2.atomics[line])
        return served

    def beyond(self, kind: str, far: dict[int, int], sector: int, time: int) -> tuple[int, int]:
        if kind == STORE:
            far.setdefault(sector, time + self.far)
            return self.far, L2
        extra = self.atomic - self.far if kind == ATOMIC else 0
        if sector in far:
            return min(max(far[sector] - time, self.far), self.dram) + extra, L2
        far[sector] = time + self.dram
        return self.dram + extra, DRAM


def run(
    chip: Chip, caches: Caches, kind: str, addresses: np.ndarray, *, sm: int = 0, mask: int = FULL, nbytes: int = 4, time: int = 0
) -> tuple[int, int, int]:
    """Latency, levels, passes."""
    result = callable_of(access_helper(chip, kind))(caches.address, sm, addresses.ctypes.data, 0, mask, nbytes, time)
    return result & FULL, result >> 32 & 0xFF, result >> 40


accesses = st.tuples(
    st.sampled_from([LOAD, LOAD, LOAD, LOAD_PAST_L1, STORE, ATOMIC]),
    st.integers(0, 1),
    st.sampled_from([1, 4, 16]),
    st.one_of(st.just(FULL), st.integers(0, FULL)),
    st.integers(0, 3000),
    st.one_of(
        st.builds(lambda start, step: [start + step * i for i in range(32)], st.integers(0, 2000), st.integers(0, 40)),
        st.lists(st.integers(0, 6000), min_size=32, max_size=32),
    ),
)


@settings(max_examples=150, deadline=None)
@given(given_accesses=st.lists(accesses, max_size=25), atomic=st.sampled_from([283, 320]))
def test_accesses_equal_the_slow_model(given_accesses: list[tuple], atomic: int) -> None:  # type: ignore[type-arg]
    chip = replace(TINY, latency=replace(TINY.latency, global_atomic=atomic))
    caches = Caches(chip, sm_count=2)
    slow = SlowCaches(chip, caches)
    for kind, sm, nbytes, mask, time, units in given_accesses:
        addresses = np.array(units, np.uint64) * np.uint64(nbytes) + np.uint64(BASE)
        active = [int(addresses[i]) for i in range(32) if mask >> i & 1]
        assert run(chip, caches, kind, addresses, sm=sm, mask=mask, nbytes=nbytes, time=time) == slow.access(kind, sm, active, nbytes, time)
    slow.moved["written_back", -1] = slow.l2.written_back
    assert caches.l2 is not None
    found = {(name, sm): int(caches.l1.records[name][sm]) for name in TRAFFIC for sm in (0, 1)}
    found |= {(name, -1): int(caches.l2.records[name][0]) for name in FAR}
    assert found == {one: slow.moved[one] for one in found}


def test_a_chase_sees_the_latency_of_each_level() -> None:
    latency = H200.latency
    caches = Caches(H200, sm_count=2)
    one = np.full(32, BASE, np.uint64)
    assert run(H200, caches, LOAD, one, mask=1) == (round(latency.dram), DRAM, 1)
    assert run(H200, caches, LOAD, one, mask=1, time=10_000) == (round(latency.l1), L1, 1)
    assert run(H200, caches, LOAD, one, mask=1, sm=1, time=20_000) == (round(latency.l2), L2, 1)
    assert run(H200, caches, LOAD_PAST_L1, one, mask=1, time=30_000) == (round(latency.l2), L2, 1)


def test_who_asks_for_a_sector_on_its_way_waits_for_it() -> None:
    dram = round(H200.latency.dram)
    caches = Caches(H200, sm_count=1)
    line = BASE + lane * np.uint64(4)
    assert run(H200, caches, LOAD, line, time=1000)[0] == dram
    assert run(H200, caches, LOAD, line, time=1100)[0] == dram - 100
    assert run(H200, caches, LOAD, line, time=900)[0] == dram  # earlier than the one that missed: it would have missed itself


@pytest.mark.parametrize(("step", "nbytes", "passes"), [(4, 4, 1), (0, 4, 1), (16, 16, 4), (128, 4, 8), (32, 4, 8)])
def test_passes(step: int, nbytes: int, passes: int) -> None:
    addresses = BASE + lane * np.uint64(step)
    latency, _, found = run(H200, Caches(H200, sm_count=1), LOAD, addresses, nbytes=nbytes)
    assert (latency, found) == (round(H200.latency.dram) + passes - 1, passes)


def test_a_working_set_as_large_as_the_cache_stays_in_it_and_a_larger_one_does_not() -> None:
    for lines, level in ((TINY.l1_bytes // 128, L1), (TINY.l1_bytes // 128 * 2, L2)):
        chip = replace(TINY, l2_bytes=1 << 20)
        caches = Caches(chip, sm_count=1)
        rounds = [[run(chip, caches, LOAD, BASE + 128 * i + lane * np.uint64(4), time=10_000 * n)[1] for i in range(lines)] for n in (1, 2)]
        assert set(rounds[1]) == {level}


def test_stores_keep_what_l1_holds_and_bring_nothing_in() -> None:
    caches = Caches(H200, sm_count=1)
    held, other = BASE + lane * np.uint64(4), BASE + 4096 + lane * np.uint64(4)
    run(H200, caches, LOAD, held)
    assert {run(H200, caches, STORE, line, time=5000)[1] for line in (held, other)} == {L2}
    assert run(H200, caches, LOAD, held, time=9000)[1] == L1
    assert run(H200, caches, LOAD, other, time=9000)[1] == L2


def test_lines_with_the_same_mark_in_one_set_are_told_apart() -> None:
    level = Level(H200, H200.l1_bytes)
    slow, first = SlowLevel(level.sets, level.ways), BASE // 128
    apart = (slow.sets * 256 * n for n in range(1, 200_000))  # the byte of its number that marks a line is the same
    second = next(first + n for n in apart if slow.set_of(first + n) == slow.set_of(first))
    caches = Caches(H200, sm_count=1)
    for time, served in ((0, DRAM), (10_000, L1)):
        for line in (first, second):
            assert run(H200, caches, LOAD, np.full(32, 128 * line, np.uint64), mask=1, time=time)[1] == served


def test_launches_share_l2_and_begin_with_an_empty_l1() -> None:
    first = Caches(H200, sm_count=1)
    line = BASE + lane * np.uint64(4)
    run(H200, first, LOAD, line)
    second = Caches(H200, sm_count=1, l2=first.l2)
    assert run(H200, second, LOAD, line, time=5000)[1] == L2


def test_shared_memory_is_taken_from_l1() -> None:
    assert l1_bytes(H200, 100 * 1024) == H200.l1_bytes - 100 * 1024
    apart = replace(H200, l1_bytes=16384, shared_bytes_per_sm=49152)
    assert l1_bytes(apart, 49152) == 16384


@pytest.mark.parametrize("name", names())
def test_levels_use_nearly_all_of_each_chip(name: str) -> None:
    chip = load(name)
    for nbytes in (chip.l2_bytes, chip.l1_bytes, l1_bytes(chip, chip.shared_bytes_per_sm)):
        if nbytes == 0:
            continue  # a chip without that cache
        level = Level(chip, nbytes)
        assert 0.94 * nbytes < int(level.ways.sum()) * chip.line_bytes <= nbytes


def test_sets_of_l2_hold_little_less_than_the_average_and_some_hold_more() -> None:
    level = Level(H200, H200.l2_bytes, is_far=True)
    mean = level.ways.mean()
    assert int(level.ways.sum()) * H200.line_bytes == pytest.approx(H200.l2_bytes, rel=0.01)
    assert 0.9 * mean - 1 <= level.ways.min() < mean - 0.5
    assert mean + 2 < level.ways.max() <= 32
    assert level.ways.max() - mean > 2 * (mean - level.ways.min())


def read_columns(caches: Caches, rows: int = 256, lines: int = 96) -> int:
    """Read columns of a matrix whose rows take 1024 lines; return the number of sectors from DRAM."""
    assert caches.l2 is not None
    before = int(caches.l2.records["fetched"][0])
    for row in range(rows):
        for first in range(0, lines, 32):
            run(H200, caches, LOAD_PAST_L1, BASE + 128 * (row * 1024 + first + lane), time=100_000)
    return int(caches.l2.records["fetched"][0]) - before


@pytest.mark.parametrize(("size", "lost"), [(1.1, 0.0), (0.9, 0.5)])
def test_an_l2_for_a_sample_keeps_columns_that_fit(size: float, lost: float) -> None:
    """As those of all blocks fit: the lines of a sample need some sets more than others."""
    rows, lines = 256, 96
    whole = Caches(H200, sm_count=1)
    assert read_columns(whole) == rows * lines
    assert whole.l2 is not None
    scaled = Level(H200, int(size * rows * lines * 128), is_far=True, sample=whole.l2)
    caches = Caches(H200, sm_count=1, l2=scaled)
    read_columns(caches)
    again = read_columns(caches)
    assert again == 0 if not lost else again > lost * rows * lines


def test_lines_of_an_l2_are_in_the_sets_that_are_computed_for_them() -> None:
    caches = Caches(H200, sm_count=1)
    read_columns(caches)
    assert caches.l2 is not None
    lines = caches.l2.present
    wanted = {(BASE // 128 + row * 1024 + line) for row in range(256) for line in range(96)}
    assert set(lines.tolist()) == wanted
    held = np.count_nonzero(caches.l2._sets["marks"][0], axis=-1)
    assert (np.bincount(set_numbers(lines, caches.l2.sets), minlength=caches.l2.sets) == held).all()


def test_an_l2_for_a_sample_that_writes_has_more_unequal_sets() -> None:
    spread = []
    for kind in (LOAD_PAST_L1, STORE):
        whole = Caches(H200, sm_count=1)
        for first in range(0, 32_768, 32):
            run(H200, whole, kind, BASE + 128 * (first + lane), time=100_000)
        assert whole.l2 is not None
        spread.append(Level(H200, 32_768 * 128, is_far=True, sample=whole.l2).ways.std())
    assert spread[1] > 2 * spread[0]

"""The trace buffer: its layout, and reading it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from memlane.errors import BadLaunch, RecordError
from memlane.instrument import (
    HEADER_BYTES,
    HEADER_DTYPE,
    NO_ENTRY,
    RECORD_DTYPE,
    SLICE_DTYPE,
    BufferLayout,
    buffer_layout,
    decode,
    entry,
    initial_header,
    taken_slices,
    warps_without_slice,
)
from memlane.instrument.warp import record

Bytes = npt.NDArray[np.uint8]
SLICE_FIELDS = SLICE_DTYPE.names or ()


def fresh(layout: BufferLayout, asked: int = 0) -> Bytes:
    """A buffer as its header says, in which `asked` warps have asked for a slice."""
    buffer = np.zeros(layout.nbytes, np.uint8)
    buffer[:HEADER_BYTES] = initial_header(layout, asked)
    return buffer


def fill(buffer: Bytes, layout: BufferLayout, number: int, records: dict[int, tuple[int, ...]], **header: int) -> None:
    """Write slice `number`: fields of its header, and records (start, end, site, mask) by place."""
    start = HEADER_BYTES + number * layout.slice_bytes
    head = buffer[start : start + SLICE_DTYPE.itemsize].view(SLICE_DTYPE)
    for name, value in header.items():
        head[name] = value
    for place, (begin, end, site, mask) in records.items():
        at = start + SLICE_DTYPE.itemsize + place * RECORD_DTYPE.itemsize
        one = buffer[at : at + RECORD_DTYPE.itemsize].view(RECORD_DTYPE)
        if place % 2 and site < 1 << 16:  # One that has no more to say is packed.
            words = (begin & 0xFFFFFFFF, site, begin >> 32 & 0xFFFF, end & 0xFFFFFFFF, mask)
            for name, word in zip(("start_low", "site", "start_high", "end_low", "packed_mask"), words, strict=True):
                one[name] = word
        else:
            for name, word in zip(("start", "end", "number", "active_mask", "exposed"), (begin, end, site + 1, mask, place), strict=True):
                one[name] = word


def test_layout() -> None:
    layout = buffer_layout(warps=10, records_per_warp=5, overflow_per_warp=2)
    assert layout.slice_bytes == 384  # 128 of header, 7 records of 32, to the next multiple of 128
    assert layout.nbytes == 34 * 128 + 11 * 384
    assert buffer_layout(1, 5).overflow == 5
    header: Any = initial_header(layout).view(HEADER_DTYPE)[0]
    assert bytes(initial_header(layout)[:8]) == b"memlane\0"
    assert (header["slices"], header["capacity"], header["overflow"], header["slice_bytes"]) == (10, 5, 2, 384)
    assert (header["without_slice"], header["heads"].any()) == (0, False)


def test_each_counter_is_alone_in_its_line() -> None:
    assert HEADER_DTYPE.fields is not None
    lines = {name: place[1] // 128 for name, place in HEADER_DTYPE.fields.items()}
    assert [name for name, line in lines.items() if line == lines["without_slice"]] == ["without_slice"]
    heads = np.zeros(1, HEADER_DTYPE)["heads"]
    assert lines["heads"] == max(lines.values())
    assert (heads.strides[1], heads.shape[1]) == (128, 32)
    assert HEADER_DTYPE.itemsize == 128 * (lines["heads"] + 32)


@pytest.mark.parametrize(("slices", "asked"), [(5, 0), (5, 3), (5, 5), (5, 9), (100, 33), (100, 100), (100, 163)])
def test_the_counters_of_warps_that_came_in_turn(slices: int, asked: int) -> None:
    header = initial_header(buffer_layout(slices, 1), asked)
    assert taken_slices(header).tolist() == list(range(1, 1 + min(slices, asked)))
    assert warps_without_slice(header) == max(0, asked - slices)


def test_counters_hand_out_every_32nd_slice_and_no_more_than_there_are() -> None:
    header = initial_header(buffer_layout(70, 1))
    heads = header.view(HEADER_DTYPE)["heads"]
    heads[0, 3, 0], heads[0, 6, 0], heads[0, 31, 0] = 2, 90, 1
    assert taken_slices(header).tolist() == [4, 7, 32, 36, 39]  # 1 + 6 + 64 would be slice 71


def test_what_a_kernel_is_told_of_its_buffer() -> None:
    words: Any = entry(1 << 40, buffer_layout(10, 5, 2)).view(np.uint32).tolist()
    assert words == [0, 1 << 8, 10, 384, 5, 7, 32, 0]
    assert not NO_ENTRY.any()
    assert len(NO_ENTRY) == 32


def test_extents_that_no_buffer_has() -> None:
    with pytest.raises(BadLaunch, match="needs at least one warp and no negative number of records, got 0 warps, 4 records per warp"):
        buffer_layout(0, 4)
    with pytest.raises(BadLaunch, match="2 warps with 80,000,000 records each is too large; trace one warp in N"):
        buffer_layout(2, 40_000_000)


def test_what_lane_0_led_and_what_others_led_become_one_sequence() -> None:
    layout = buffer_layout(3, 3, 2)
    buffer = fresh(layout, asked=2)
    fill(
        buffer,
        layout,
        1,
        {0: (100, 110, 7, 0xFF), 1: (130, 150, 7, 0xFF), 3: (120, 125, 7, 0xF0)},
        **dict(zip(SLICE_FIELDS, (42, 5, 1, 17, 1, 0xFF, 0, 90, 1000, 200, 1100, 2, 1, 0, 3, 9), strict=True)),
    )
    fill(buffer, layout, 2, {0: (300, 301, 8, 1)}, gridid=43, block=6, end_cycles=400, attempted=1)
    decoded = decode(buffer)
    rows = decoded.records
    assert rows["start"].tolist() == [100, 120, 130, 300]
    assert rows["end"].tolist() == [110, 125, 150, 301]
    assert rows["active_mask"].tolist() == [0xFF, 0xF0, 0xFF, 1]
    assert rows["execution"].tolist() == [0, 1, 2, 0]
    assert rows["slice"].tolist() == [0, 0, 0, 1]
    assert rows["gridid"].tolist() == [42, 42, 42, 43]
    assert rows["block"].tolist() == [5, 5, 5, 6]
    assert rows["sm"].tolist() == [17, 17, 17, 0]
    assert decoded.warps["tag"].tolist() == [9, 0]
    first = decoded.warps[0]
    assert [
        int(first[name]) for name in ("kernel", "warp", "lanes", "begin_cycles", "end_cycles", "begin_ns", "end_ns", "kept", "lost")
    ] == [*(1, 1, 0xFF, 90, 200, 1000, 1100, 3, 0)]
    assert (decoded.lost, decoded.warps_without_slice, decoded.unfinished) == (0, 0, 0)


def test_times_are_counted_on_from_the_entry_of_the_warp() -> None:
    """A record has 48 bits of its start and 32 of its end; the clock has 64."""
    layout, begin = buffer_layout(1, 4, 0), (7 << 48) - 1000
    buffer = fresh(layout, asked=1)
    starts = [begin, begin + 999, begin + 1000, begin + (1 << 40)]
    lengths = [0, 5, (1 << 32) - 1, 33]
    fill(
        buffer,
        layout,
        1,
        {place: (start, start + length, 3, 1) for place, (start, length) in enumerate(zip(starts, lengths, strict=True))},
        begin_cycles=begin,
        attempted=4,
        end_cycles=begin + (1 << 41),
    )
    rows = decode(buffer).records
    assert rows["start"].tolist() == starts
    assert (rows["end"] - rows["start"]).tolist() == lengths


def test_a_site_beyond_those_that_are_packed() -> None:
    layout = buffer_layout(1, 2, 0)
    buffer = fresh(layout, asked=1)
    fill(buffer, layout, 1, {0: (1, 2, 70_000, 1), 1: (3, 4, 9, 1)}, attempted=2, end_cycles=9)
    assert decode(buffer).records["site"].tolist() == [70_000, 9]
    assert record("ml_", 70_000).labels.count("st.global") == 1
    assert record("ml_", 65_535).labels == record("ml_", 0).labels == ""


def test_executions_are_numbered_for_each_site() -> None:
    layout = buffer_layout(1, 6, 0)
    buffer = fresh(layout, asked=1)
    fill(
        buffer, layout, 1, {place: (place, place + 1, site, 1) for place, site in enumerate((4, 9, 4, 4, 9, 2))}, attempted=6, end_cycles=9
    )
    assert decode(buffer).records["execution"].tolist() == [0, 0, 1, 2, 1, 0]


def test_losses_are_counted_wherever_they_happen() -> None:
    layout = buffer_layout(2, 2, 1)
    buffer = fresh(layout, asked=9)
    fill(buffer, layout, 0, {}, attempted=70, lost=30)
    fill(buffer, layout, 1, {0: (1, 2, 0, 1), 1: (3, 4, 0, 1), 2: (5, 6, 0, 2)}, attempted=12, overflow=4, lost=3, end_cycles=9)
    fill(buffer, layout, 2, {0: (1, 2, 0, 1)}, attempted=1, end_cycles=9)
    decoded = decode(buffer)
    assert decoded.warps["kept"].tolist() == [3, 1]
    assert decoded.warps["lost"].tolist() == [13, 0]
    assert (decoded.warps_without_slice, decoded.dropped_without_slice, decoded.lost) == (7, 100, 113)
    assert len(decoded.records) == 4


def test_places_that_were_handed_out_and_not_filled_are_no_records() -> None:
    layout = buffer_layout(2, 1, 7)
    buffer = fresh(layout, asked=2)
    fill(buffer, layout, 1, {0: (9, 10, 0, 1), 1: (1, 2, 0, 2), 3: (5, 6, 0, 4)}, attempted=1, overflow=3, end_cycles=20)
    fill(buffer, layout, 2, {7: (3, 4, 0, 8)}, overflow=40, lost=2, end_cycles=20)
    decoded = decode(buffer)
    assert decoded.records["start"].tolist() == [1, 5, 9, 3]
    assert decoded.records["slice"].tolist() == [0, 0, 0, 1]
    assert (decoded.warps["kept"].tolist(), decoded.warps["lost"].tolist()) == ([3, 1], [0, 2])


def test_a_warp_that_has_not_ended_is_reported() -> None:
    layout = buffer_layout(2, 1, 1)
    buffer = fresh(layout, asked=2)
    fill(buffer, layout, 1, {0: (1, 2, 0, 1)}, attempted=1, end_cycles=5)
    assert decode(buffer).unfinished == 1


def test_what_a_warp_recorded_that_never_ended_is_counted_in_its_slice() -> None:
    """Lane 0 keeps the number of its records in a register until it leaves; other lanes count theirs in the slice."""
    layout = buffer_layout(3, 4, 2)
    buffer = fresh(layout, asked=3)
    fill(buffer, layout, 1, {0: (1, 2, 0, 1), 1: (3, 4, 0, 1), 4: (5, 6, 1, 2)}, overflow=1)
    fill(buffer, layout, 2, {place: (place, 9, 0, 1) for place in range(4)})
    fill(buffer, layout, 3, {})
    decoded = decode(buffer)
    assert decoded.unfinished == 3
    assert decoded.warps["kept"].tolist() == [3, 4, 0]
    assert decoded.warps["lost"].tolist() == [0, 0, 0]
    assert decoded.records["start"].tolist() == [1, 3, 5, 0, 1, 2, 3]


def test_an_empty_buffer_and_one_without_room() -> None:
    decoded = decode(fresh(buffer_layout(4, 4)))
    assert len(decoded.records) == len(decoded.warps) == decoded.lost == 0
    layout = buffer_layout(1, 0, 0)
    buffer = fresh(layout, asked=1)
    fill(buffer, layout, 1, {}, attempted=3, end_cycles=1)
    assert decode(buffer).lost == 3


def test_what_a_consumer_waited_comes_with_its_record() -> None:
    layout = buffer_layout(1, 3, 0)
    buffer = fresh(layout, asked=1)
    fill(buffer, layout, 1, {place: (10 * place, 10 * place + 5, 0, 1) for place in range(3)}, attempted=3, end_cycles=1)
    assert decode(buffer).records["exposed"].tolist() == [0, 0, 2]  # `fill` writes the number of the place, but into packed records


def test_foreign_and_damaged_data() -> None:
    layout = buffer_layout(2, 2)
    with pytest.raises(RecordError, match="100 bytes are not a trace buffer: its header alone has 4352"):
        decode(np.zeros(100, np.uint8))
    with pytest.raises(RecordError, match="this is not a trace buffer: it begins with 0x0000000000000000, not 0x00656e616c6d656d"):
        decode(np.zeros(8192, np.uint8))
    newer = fresh(layout)
    newer[:HEADER_BYTES].view(HEADER_DTYPE)["version"] = 9
    with pytest.raises(RecordError, match="this trace buffer has version 9; this memlane reads version 7"):
        decode(newer)
    with pytest.raises(
        RecordError,
        match="this trace buffer is damaged: its header describes 2 slices of 2 \\+ 2 records, which take 5,120 bytes, but it has 5119",
    ):
        decode(fresh(layout)[:-1])
    scrambled = fresh(layout)
    scrambled[:HEADER_BYTES].view(HEADER_DTYPE)["slice_bytes"] = 64
    with pytest.raises(RecordError, match="its slices have 64 bytes instead of 256"):
        decode(scrambled)
    crowded = fresh(layout, asked=1)
    fill(crowded, layout, 1, {}, block=1 << 32)
    with pytest.raises(RecordError, match="more than 2\\^32 blocks"):
        decode(crowded)


def test_random_buffers_agree_with_a_loop() -> None:
    rng = np.random.default_rng(7)
    layout = buffer_layout(20, 6, 4)
    buffer = fresh(layout, asked=18)
    expected = []
    for number in range(1, 19):
        led, other = int(rng.integers(0, 9)), int(rng.integers(0, 6))
        starts = np.sort(rng.integers(0, 10_000, led + other))
        rng.shuffle(starts)
        mine, theirs = sorted(map(int, starts[:led])), sorted(map(int, starts[led:]))
        kept = [*enumerate(mine[:6]), *enumerate(theirs[:4], 6)]
        fill(
            buffer,
            layout,
            number,
            {p: (s, s + 5, s % 3, 1) for p, s in kept},
            attempted=led,
            overflow=other,
            lost=max(0, other - 4),
            end_cycles=1,
        )
        seen: dict[int, int] = {}
        for start in sorted(start for _, start in kept):
            expected.append((number - 1, start, start % 3, seen.get(start % 3, 0)))
            seen[start % 3] = seen.get(start % 3, 0) + 1
    rows = decode(buffer).records
    found = list(zip(rows["slice"].tolist(), rows["start"].tolist(), rows["site"].tolist(), rows["execution"].tolist(), strict=True))
    assert found == expected


def test_assigned_slices_hold_warps_where_one_has_begun() -> None:
    """They lie behind those that are asked for; each is one warp, whichever of them were used."""
    layout = buffer_layout(3, 2, 0, assigned=4)
    assert layout.nbytes == HEADER_BYTES + (1 + 3 + 4) * layout.slice_bytes
    buffer = fresh(layout, asked=2)
    for number, warp in ((1, 10), (2, 11), (5, 20), (7, 21)):
        fill(buffer, layout, number, {0: (100 + number, 200, 0, 1)}, warp=warp, lanes=0xF, attempted=1, begin_cycles=50, end_cycles=300)
    decoded = decode(buffer)
    assert decoded.warps["warp"].tolist() == [10, 11, 20, 21]
    assert decoded.records["start"].tolist() == [101, 102, 105, 107]
    assert decoded.lost == decoded.warps_without_slice == 0

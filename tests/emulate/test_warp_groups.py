"""Lanes that exchange with different masks in one execution of an instruction, as the tiles of cooperative groups do.

The second road is plain Python: what the manual says of one group of lanes, asked for each lane.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from memlane.ptx import parse
from tests.emulate.checking import check
from tests.emulate.running import HEAD, emulator

LANES = range(32)
Words = list[int]


def partitions() -> list[Words]:
    """Masks of the lanes: tiles of several sizes, and groups at random, also with gaps and of one lane."""
    rng = np.random.default_rng(7)
    found = [[((1 << size) - 1) << (lane // size * size) for lane in LANES] for size in (1, 4, 8, 16, 32)]
    for count in (2, 3, 7, 12):
        group = rng.integers(0, count, 32)
        found.append([sum(1 << other for other in LANES if group[other] == group[lane]) for lane in LANES])
    return found


def exchange(code: str, masks: Words, values: Words, *, bits: int = 32, before: str = "") -> npt.NDArray[np.uint64]:
    """What `code` leaves in d for each lane: mask in m, value in v, and 1 or 0 for the predicate p in the upper word."""
    text = f"""{HEAD}
.visible .entry k(.param .u64 out, .param .u64 masks, .param .u64 values) {{
    .reg .b32 m, t, d; .reg .b{bits} v; .reg .b64 at, o, high; .reg .pred p, odd;
    mov.u32 t, %tid.x; mov.b32 d, 0; setp.ne.u32 p, t, t;
    ld.param.u64 at, [masks]; mad.wide.u32 at, t, 4, at; ld.global.u32 m, [at];
    ld.param.u64 at, [values]; mad.wide.u32 at, t, {bits // 8}, at; ld.global.u{bits} v, [at];
    ld.param.u64 o, [out]; mad.wide.u32 o, t, 8, o;
    {{ .reg .b{bits} low; and.b{bits} low, v, 1; setp.ne.u{bits} odd, low, 0; }}
    {before}
    {code}
    selp.u64 high, 0x100000000, 0, p; cvt.u64.u32 at, d; or.b64 at, at, high;
    st.global.u64 [o], at;
    ret;
}}
"""
    target = emulator()
    out = target.zeros(32, np.uint64)
    arrays = [target.array(np.array(masks, np.uint32)), target.array(np.array(values, f"u{bits // 8}"))]
    target.load(parse(text, "groups.ptx"))["k"][1, 32](out, *arrays)
    return out.numpy()


def members(masks: Words, lane: int) -> Words:
    return [other for other in LANES if masks[lane] >> other & 1]


def signed(value: int) -> int:
    return value - (value >> 31 << 32)


FOLDS: dict[str, Callable[[Words], int]] = {
    "add.u32": sum,
    "add.s32": sum,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda values: min(values, key=signed),
    "max.s32": lambda values: max(values, key=signed),
    "and.b32": lambda values: functools.reduce(operator.and_, values),
    "or.b32": lambda values: functools.reduce(operator.or_, values),
    "xor.b32": lambda values: functools.reduce(operator.xor, values),
}


def words(seed: int) -> Words:
    return [int(value) for value in np.random.default_rng(seed).integers(0, 1 << 32, 32)]


@pytest.mark.parametrize("operation", FOLDS)
def test_each_group_is_reduced_on_its_own(operation: str) -> None:
    for seed, masks in enumerate(partitions()[1::3]):
        values = words(seed)
        wanted = [FOLDS[operation]([values[other] for other in members(masks, lane)]) & 0xFFFFFFFF for lane in LANES]
        assert exchange(f"redux.sync.{operation} d, v, m;", masks, values).tolist() == wanted


@pytest.mark.parametrize("bits", [32, 64])
def test_each_group_is_matched_on_its_own(bits: int) -> None:
    for seed, masks in enumerate(partitions()):
        few = [value % 3 << (bits - 8) | value % 2 for value in words(seed)]
        same = [sum(1 << other for other in members(masks, lane) if few[other] == few[lane]) for lane in LANES]
        assert exchange(f"match.any.sync.b{bits} d, v, m;", masks, few, bits=bits).tolist() == same
        all_of_them = [masks[lane] | 1 << 32 if same[lane] == masks[lane] else 0 for lane in LANES]
        assert exchange(f"match.all.sync.b{bits} d|p, v, m;", masks, few, bits=bits).tolist() == all_of_them


def test_each_group_votes_and_elects_on_its_own() -> None:
    for seed, masks in enumerate(partitions()):
        values = [value if seed % 2 else value | 1 for value in words(seed)] if seed % 3 else [value & ~1 for value in words(seed)]
        odd = [[values[other] & 1 for other in members(masks, lane)] for lane in LANES]
        ballot = [sum(1 << other for other in members(masks, lane) if values[other] & 1) for lane in LANES]
        assert exchange("vote.sync.ballot.b32 d, odd, m;", masks, values).tolist() == ballot
        for mode, holds in (("all", all), ("any", any), ("uni", lambda bits: len(set(bits)) == 1)):
            wanted = [int(holds(bits)) << 32 for bits in odd]
            assert exchange(f"vote.sync.{mode}.pred p, odd, m;", masks, values).tolist() == wanted
        first = [min(members(masks, lane)) for lane in LANES]
        wanted = [low | (1 << 32 if lane == low else 0) for lane, low in zip(LANES, first, strict=True)]
        assert exchange("elect.sync d|p, m;", masks, values).tolist() == wanted


def shuffled(mode: str, lane: int, distance: int, c: int) -> tuple[int, bool]:
    """The manual's pseudocode of shfl.sync: the lane that is read, and whether it lies inside the segment."""
    clamp, segment = c & 31, c >> 8 & 31
    last, first = (lane & segment) | (clamp & ~segment), lane & segment
    source = {"up": lane - distance, "down": lane + distance, "bfly": lane ^ distance, "idx": first | (distance & ~segment)}[mode]
    inside = source >= last if mode == "up" else source <= last
    return (source if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_tiles_shuffle_within_themselves(mode: str) -> None:
    for size in (4, 8, 16):
        masks = partitions()[{4: 1, 8: 2, 16: 3}[size]]
        values, c = words(size), (32 - size) << 8 | (0 if mode == "up" else size - 1)
        for distance in (1, 3, size - 1):
            found = [shuffled(mode, lane, distance, c) for lane in LANES]
            wanted = [values[source] | (1 << 32 if inside else 0) for source, inside in found]
            assert exchange(f"shfl.sync.{mode}.b32 d|p, v, {distance}, {c}, m;", masks, values).tolist() == wanted
            turned = exchange(f"mov.b32 d, {distance}; shfl.sync.{mode}.b32 d|p, v, d, {c}, m;", masks, values)
            assert turned.tolist() == wanted


def test_groups_that_come_at_different_times_do_not_wait_for_each_other() -> None:
    """Lane group g goes g + 1 times around a loop with a reduction: the short loops end while the long ones still exchange."""
    group = [lane % 5 for lane in LANES]
    masks = [sum(1 << other for other in LANES if group[other] == group[lane]) for lane in LANES]
    code = """
        rem.u32 t, t, 5;
    again:
        redux.sync.add.u32 d, v, m;
        add.u32 v, d, 1;
        sub.u32 t, t, 1;
        setp.ge.s32 odd, t, 0;
        @odd bra again;
        bar.warp.sync m;
    """
    values = [value % 100 for value in words(3)]
    wanted = list(values)
    for number in range(5):
        mine = [lane for lane in LANES if group[lane] == number]
        for turn in range(number + 1):
            total = sum(wanted[lane] + (turn > 0) for lane in mine)
            for lane in mine:
                wanted[lane] = total
    assert exchange(code, masks, values).tolist() == [total & 0xFFFFFFFF for total in wanted]


@pytest.mark.parametrize("instruction", ["bar.warp.sync m;", "vote.sync.ballot.b32 d, odd, m;"])
def test_a_group_that_is_complete_lets_another_one_come(instruction: str) -> None:
    """Lane 20 of the upper half waits for a flag that the lower half raises behind its own exchange; the rest of the upper half came with
    the lower half, and must not hold it back."""
    masks = [0xFFFF if lane < 16 else 0xFFFF0000 for lane in LANES]
    code = f"""
        .shared .align 4 .b32 flag;
        .reg .pred low, waits, more;
        setp.lt.u32 low, t, 16;
        setp.eq.u32 waits, t, 20;
        @!waits bra meet;
    poll:
        ld.volatile.shared.u32 d, [flag];
        setp.ne.u32 more, d, 1;
        add.u32 v, v, 1;
        setp.lt.and.u32 more, v, 10000000, more;
        @more bra poll;
    meet:
        {instruction}
        @low st.volatile.shared.u32 [flag], 1;
        mov.u32 d, t;
        setp.ge.u32 waits, v, 10000000;
        @waits mov.u32 d, 99;  // it waited in vain
    """
    assert exchange(code, masks, [0] * 32, before="").tolist() == list(LANES)


def test_exited_lanes_hold_nobody_back_and_give_nothing() -> None:
    """The masks still name the odd lanes, which have gone."""
    masks = [0xFFFF if lane < 16 else 0xFFFF0000 for lane in LANES]
    leave = "and.b32 d, t, 1; setp.ne.u32 odd, d, 0; @odd exit; setp.eq.u32 odd, d, 0;"
    even = [lane for lane in LANES if lane % 2 == 0]
    found = exchange("vote.sync.ballot.b32 d, odd, m;", masks, [0] * 32, before=leave)
    assert [found[lane] for lane in even] == [0x5555 if lane < 16 else 0x55550000 for lane in even]
    found = exchange("redux.sync.add.u32 d, v, m;", masks, [1] * 32, before=leave)
    assert [found[lane] for lane in even] == [8] * 16
    found = exchange("match.any.sync.b32 d, v, m;", masks, [5] * 32, before=leave)
    assert [found[lane] for lane in even] == [0x5555 if lane < 16 else 0x55550000 for lane in even]
    found = exchange("shfl.sync.down.b32 d, t, 2, 31, m; bar.warp.sync m;", masks, [0] * 32, before=leave)
    assert [found[lane] for lane in even[:-1]] == [lane + 2 for lane in even[:-1]]


def test_lanes_that_leave_later_complete_what_waits_for_them() -> None:
    """Lane 3 sees the flag only when lane 0 has raised it, and then leaves: those who wait at the barrier of the warp go on."""
    code = """
        .reg .pred leaves;
        setp.eq.u32 leaves, t, 3;
        @leaves bra away;
        bar.warp.sync m;
        mov.u32 d, t;
        bra done;
    away:
        nanosleep.u32 5;
        exit;
    done:
    """
    found = exchange(code, [0xFF] * 8 + [0xFFFFFF00] * 24, [0] * 32)
    assert [found[lane] for lane in LANES if lane != 3] == [lane for lane in LANES if lane != 3]


def test_a_barrier_of_the_warp_behind_a_false_guard_is_not_reached() -> None:
    code = """
        setp.lt.u32 odd, t, 16;
        @odd bar.warp.sync 0xffff;
        @odd redux.sync.add.u32 d, v, 0xffff;
    """
    assert exchange(code, [0] * 32, [2] * 32).tolist() == [32] * 16 + [0] * 16


def test_the_checker_finds_nothing_in_tiles_and_each_tile_orders_its_accesses() -> None:
    text = f"""{HEAD}
.visible .entry k(.param .u64 out) {{
    .reg .b32 t, m, a, d; .reg .b64 o; .reg .pred low;
    .shared .align 4 .b32 words[32];
    ld.param.u64 o, [out];
    mov.u32 t, %tid.x; setp.lt.u32 low, t, 16; selp.b32 m, 0xffff, 0xffff0000, low;
    shl.b32 a, t, 2; mov.u32 d, words; add.u32 a, a, d;
    st.shared.u32 [a], t;
    bar.warp.sync m;
    xor.b32 a, a, 4;
    ld.shared.u32 d, [a];
    mad.wide.u32 o, t, 4, o; st.global.u32 [o], d;
    ret;
}}
"""
    target = emulator()
    out = target.zeros(32, np.uint32)
    assert check(target.load(parse(text, "tiles.ptx"))["k"][1, 32], out) == ()
    assert out.numpy().tolist() == [lane ^ 1 for lane in LANES]

"""Where the lanes of one load or store may lie: each shape that has a way of its own, and what NumPy makes of the same places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from memlane.errors import BadAccess
from memlane.ptx import parse
from tests.emulate.running import emulator, program

Lanes = npt.NDArray[np.int64]
LANES = np.arange(32)
SHAPES: dict[str, Callable[[np.random.Generator], Lanes]] = {
    "row": lambda random: LANES + 5,
    "one place": lambda random: 0 * LANES + 9,
    "two rows of 16": lambda random: LANES % 16 + LANES // 16 * 40,
    "one row of 16 twice": lambda random: LANES % 16 + 3,
    "two places": lambda random: LANES // 16 * 11 + 2,
    "a row and a place": lambda random: np.where(LANES < 16, LANES, 50),
    "four rows of 8": lambda random: LANES % 8 + LANES // 8 * 24,
    "downwards": lambda random: 90 - LANES,
    "anywhere, each once": lambda random: random.permutation(128)[:32],
    "anywhere, some twice": lambda random: random.integers(0, 20, 32),
}
MASKS = {"all": 0xFFFFFFFF, "some": 0x5A5A_3FF1, "the last": 0x8000_0000}
WIDTHS = ("u8", "u16", "u32", "u64", "v2.u32", "v4.u32", "v2.u64")
PLACES = 128


def _elements(width: str) -> tuple[int, np.dtype[np.generic]]:
    """How many elements a lane moves, and their type."""
    vector, _, kind = width.rpartition(".")
    return int(vector[1:] or 1), np.dtype(f"u{int(kind[1:]) // 8}")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("space", ["global", "generic", "shared", "local"])
def test_loads_and_stores_of_every_shape_go_where_numpy_goes(space: str, width: str) -> None:
    """A kernel fills an array, stores to it at the places of the lanes, loads from there, and copies the array out. Where lanes store to
    one place, the last one wins."""
    count, dtype = _elements(width)
    nbytes = count * dtype.itemsize
    window = PLACES * nbytes
    registers = [f"%rd{10 + part}" for part in range(count)]
    operands = registers[0] if count == 1 else "{" + ", ".join(registers) + "}"
    where, suffix = ("", "") if space == "generic" else (f".{space}", "")
    base = "mov.u64 %rd1, room;" if space in ("shared", "local") else "ld.param.u64 %rd1, [room];"
    before = f".shared .align 16 .b8 room[{window}];" if space == "shared" else ""
    local = f".local .align 16 .b8 room[{window}];" if space == "local" else ""
    param = ", .param .u64 room" if space in ("global", "generic") else ""
    body = f"""
        .reg .b64 %in, %places; {local}
        ld.param.u64 %in, [in]; ld.param.u64 %places, [places];
        {base}
        ld.param.u32 %r9, [mask];
        shr.u32 %r1, %r9, %tid; and.b32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;
        mad.wide.u32 %rd2, %tid, 4, %places; ld.global.u32 %r2, [%rd2];
        mul.wide.u32 %rd3, %r2, {nbytes}; add.u64 %rd3, %rd3, %rd1;
        mad.wide.u32 %rd4, %tid, {nbytes}, %in;
        ld.global.{width} {operands}, [%rd4];
        @%p1 st{where}{suffix}.{width} [%rd3], {operands};
        bar.warp.sync -1;
        {" ".join(f"mov.u64 {register}, 0;" for register in registers)}
        @%p1 ld{where}{suffix}.{width} {operands}, [%rd3];
        mad.wide.u32 %rd5, %tid, {nbytes}, %out;
        st.global.{width} [%rd5], {operands};
        ret;"""
    text = program(body, params=f".param .u64 out, .param .u64 in, .param .u64 places, .param .u32 mask{param}", before=before)
    target = emulator()
    kernel = target.load(parse(text))["k"]
    random = np.random.default_rng(11)
    for shape in SHAPES.values():
        for mask in MASKS.values():
            places = shape(random)
            values = random.integers(1, 250, 32 * nbytes).astype(np.uint8).view(dtype).reshape(32, count)
            room = target.zeros(PLACES * count, dtype)
            out = target.zeros((32, count), dtype)
            more = (room,) if param else ()
            kernel[1, 32](out, target.array(values), target.array(places.astype(np.uint32)), np.uint32(mask), *more)
            active = (mask >> LANES & 1).astype(bool)
            expected = np.zeros((PLACES, count), dtype)
            for lane in LANES[active]:
                expected[places[lane]] = values[lane]
            read = values if space == "local" else expected[places]  # each lane has a copy of its own
            assert np.array_equal(out.numpy(), np.where(active[:, None], read, 0))
            if param:
                assert np.array_equal(room.numpy().reshape(PLACES, count), expected)


@pytest.mark.parametrize("stray", [0, 7, 31])
@pytest.mark.parametrize("offset", [4 * 64, -4, 2])
def test_one_lane_outside_is_named_whatever_the_others_do(stray: int, offset: int) -> None:
    """Its address is outside its array by one element, below it, or misaligned; the other lanes go anywhere inside."""
    places = np.random.default_rng(5).permutation(64)[:32] * 4
    places[stray] = offset
    body = """
        .reg .b64 %in, %places; ld.param.u64 %in, [in]; ld.param.u64 %places, [places];
        mad.wide.u32 %rd2, %tid, 4, %places; ld.global.s32 %rd3, [%rd2];
        add.u64 %rd3, %rd3, %in;
        ld.global.u32 %r1, [%rd3];
        st.global.u32 [%mine], %r1;
        ret;"""
    target = emulator()
    inside, out = target.zeros(64, np.uint32), target.zeros(32, np.uint64)
    kernel = target.load(parse(program(body, params=".param .u64 out, .param .u64 in, .param .u64 places")))["k"]
    with pytest.raises(BadAccess, match=f"thread \\({stray}, 0, 0\\)"):
        kernel[1, 32](out, inside, target.array(places.astype(np.int32)))


def test_lanes_of_one_access_may_reach_several_arrays() -> None:
    body = """
        .reg .b64 %a, %b; ld.param.u64 %a, [a]; ld.param.u64 %b, [b];
        and.b32 %r1, %tid, 1; setp.ne.u32 %p1, %r1, 0;
        selp.u64 %rd1, %a, %b, %p1;
        mad.wide.u32 %rd1, %tid, 4, %rd1;
        ld.global.u32 %r2, [%rd1];
        add.u32 %r2, %r2, 1000;
        st.global.u32 [%rd1], %r2;
        st.global.u32 [%mine], %r2;
        ret;"""
    target = emulator()
    one, other = np.arange(32, dtype=np.uint32), np.arange(100, 132, dtype=np.uint32)
    a, b, out = target.array(one), target.array(other), target.zeros((32, 2), np.uint32)
    target.load(parse(program(body, params=".param .u64 out, .param .u64 a, .param .u64 b")))["k"][1, 32](out, a, b)
    odd = LANES % 2 == 1
    assert np.array_equal(out.numpy()[:, 0], np.where(odd, one, other) + 1000)
    assert np.array_equal(a.numpy(), np.where(odd, one + 1000, one))
    assert np.array_equal(b.numpy(), np.where(odd, other, other + 1000))

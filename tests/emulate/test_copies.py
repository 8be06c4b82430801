"""Asynchronous copies from global to shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.running import emulator, program
from tests.emulate.test_layers import EVERYTHING, counted, observe

TILE = ".shared .align 16 .b8 tile[512];"


def kernel(copy: str, more: str = "") -> str:
    """Fills the tile with ones, copies 16 bytes a lane from the input, and stores the tile."""
    body = f"""
        ld.param.u64 %rd1, [source]; mul.wide.u32 %rd2, %tid, 16; add.u64 %rd1, %rd1, %rd2;
        mov.u64 %rd3, tile; add.u64 %rd3, %rd3, %rd2;
        mov.u32 %r1, -1; st.shared.v4.u32 [%rd3], {{%r1, %r1, %r1, %r1}};
        {more}
        {copy}
        cp.async.commit_group; cp.async.wait_group 0;
        bar.sync 0;
        ld.shared.v4.u32 {{%r2, %r3, %r4, %r5}}, [%rd3];
        add.u64 %rd4, %out, %rd2; st.global.v4.u32 [%rd4], {{%r2, %r3, %r4, %r5}}; ret;"""
    return program(body, params=".param .u64 out, .param .u64 source", before=TILE)


def copied(copy: str, more: str = "", layers: Layers | None = None) -> np.ndarray:
    target = emulator()
    source = np.arange(512, dtype=np.uint8)
    out = target.zeros(512, np.uint8)
    call = target.load(parse(kernel(copy, more), "test.ptx"))["k"][1, 32]
    if layers is None:
        call(out, target.array(source))
    else:
        observe(call, out, target.array(source), layers=layers)
    return out.numpy().reshape(32, 16)


SOURCE = np.arange(512, dtype=np.uint8).reshape(32, 16)


@pytest.mark.parametrize("layers", [None, EVERYTHING])
@pytest.mark.parametrize(("cop", "size"), [("ca", 4), ("ca", 8), ("cg", 16)])
def test_whole_copies(cop: str, size: int, layers: Layers | None) -> None:
    found = copied(f"cp.async.{cop}.shared.global [%rd3], [%rd1], {size};", layers=layers)
    assert np.array_equal(found[:, :size], SOURCE[:, :size])
    assert (found[:, size:] == 255).all()


def test_what_is_not_read_is_zero() -> None:
    found = copied("cp.async.cg.shared.global [%rd3], [%rd1], 16, %r6;", "rem.u32 %r6, %tid, 17;")
    for lane in range(32):
        count = lane % 17
        assert np.array_equal(found[lane], np.where(np.arange(16) < count, SOURCE[lane], 0))


def test_nothing_is_read_beyond_the_count() -> None:
    """A lane that copies no byte may name any address."""
    more = "setp.ge.u32 %p1, %tid, 8; selp.u32 %r6, 0, 16, %p1; selp.u64 %rd1, 0, %rd1, %p1;"
    found = copied("cp.async.cg.shared.global [%rd3], [%rd1], 16, %r6;", more)
    assert np.array_equal(found[:8], SOURCE[:8])
    assert not found[8:].any()


@pytest.mark.parametrize(
    ("readers", "nbytes", "sectors", "wavefronts", "ideal"),
    [(8, 16, 4, 5, 5), (9, 3, 5, 6, 6), (32, 16, 16, 4, 4), (32, 3, 16, 8, 8), (0, 16, 0, 4, 4)],
)
def test_no_sector_moves_for_lanes_that_read_nothing(readers: int, nbytes: int, sectors: int, wavefronts: int, ideal: int) -> None:
    """16 bytes a lane, side by side: two lanes share a sector. Lanes that fill with zeros send all through L1, which takes 4 wavefronts,
    besides those of what is read past it: one for each row of 8 lanes."""
    more = f"setp.ge.u32 %p1, %tid, {readers}; selp.u32 %r6, 0, {nbytes}, %p1;"
    target = emulator()
    call = target.load(parse(kernel("cp.async.cg.shared.global [%rd3], [%rd1], 16, %r6;", more), "test.ptx"))["k"][1, 32]
    seen = observe(call, target.zeros(512, np.uint8), target.zeros(512, np.uint8))
    (row,) = counted(seen, "cp.async.cg")
    expected = {
        "requests": 1,
        "lanes": 32,
        "bytes": 512,
        "sectors": sectors,
        "ideal_sectors": sectors,
        "wavefronts": wavefronts,
        "ideal_wavefronts": ideal,
    }
    assert row == {name: value for name, value in expected.items() if value}
    assert seen.accesses is not None
    names = [one.name for one in seen.launch.kernel.function.body.instructions()]  # type: ignore[union-attr]
    rows = [access for access in seen.accesses if names[access["instruction"]].startswith("cp.async.cg")]
    assert [(int(one["space"]), int(one["sectors"])) for one in rows] == [(0, sectors), (1, 0)], (
        "two accesses, also of one that reads nothing"
    )


def test_a_guard() -> None:
    found = copied("@%p1 cp.async.ca.shared.global [%rd3], [%rd1], 16;", "setp.lt.u32 %p1, %tid, 5;")
    assert np.array_equal(found[:5], SOURCE[:5])
    assert (found[5:] == 255).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("add.u64 %rd1, %rd1, 4;", r"thread \(0, 0, 0\) read 16 bytes at 0x\w+ .* not a multiple of 16"),
        ("add.u64 %rd1, %rd1, 4096;", r"thread \(0, 0, 0\) read 16 bytes at 0x\w+ .*past the end of the 512-byte allocation"),
        ("add.u64 %rd3, %rd3, 16;", r"thread \(31, 0, 0\) wrote 16 bytes at 0x200 .*outside the block's 512 bytes of shared memory"),
    ],
)
def test_bad_addresses(more: str, message: str) -> None:
    with pytest.raises(BadAccess, match=message):
        copied("cp.async.cg.shared.global [%rd3], [%rd1], 16;", more)


def test_counts_and_accesses() -> None:
    """512 bytes in a row: 16 sectors, and 4 wavefronts of 128 bytes."""
    target = emulator()
    call = target.load(parse(kernel("cp.async.cg.shared.global [%rd3], [%rd1], 16;"), "test.ptx"))["k"][1, 32]
    seen = observe(call, target.zeros(512, np.uint8), target.zeros(512, np.uint8))
    (row,) = counted(seen, "cp.async.cg")
    assert (row["requests"], row["lanes"], row["bytes"], row["sectors"], row["wavefronts"]) == (1, 32, 512, 16, 4)
    assert seen.accesses is not None
    names = [one.name for one in seen.launch.kernel.function.body.instructions()]  # type: ignore[union-attr]
    rows = [access for access in seen.accesses if names[access["instruction"]].startswith("cp.async.cg")]
    assert [(int(access["space"]), int(access["sectors"]), int(access["wavefronts"])) for access in rows] == [(0, 16, 0), (1, 0, 4)]
    store = next(access for access in seen.accesses if names[access["instruction"]].startswith("ld.shared.v4"))
    assert store["issue"] > rows[0]["complete"] - 1

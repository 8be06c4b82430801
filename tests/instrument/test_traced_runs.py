"""What traced kernels record when they run."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
import pytest

from memlane.instrument import SCHEMES, Selection, buffer_layout
from tests.instrument.kernels import EXAMPLES, example, kernel
from tests.instrument.running import Run

WITHOUT_LANE_0 = """
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    and.b32 %r2, %r1, 31;
    setp.lt.u32 %p1, %r2, 16;
    @%p1 bra LOW;
    ld.global.u32 %r3, [%rd3];
    add.u32 %r3, %r3, 100;
    bra.uni BOTH;
LOW:
    ld.global.u32 %r3, [%rd3];
    add.u32 %r3, %r3, 200;
BOTH:
    st.global.u32 [%rd3], %r3;
    ret;
"""
"""The halves of a warp load at two sites, and store together."""

LOOP = """
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 0;
    mov.u32 %r4, 0;
AGAIN:
    ld.global.u32 %r3, [%rd1];
    add.u32 %r4, %r4, %r3;
    add.u32 %r2, %r2, 1;
    setp.le.u32 %p1, %r2, %r1;
    @%p1 bra AGAIN;
    st.global.u32 [%rd3], %r4;
    ret;
"""
"""Lane i goes round i + 1 times, so lane 0 leaves the loop first."""

EARLY = """
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    setp.lt.u32 %p1, %r1, 3;
    @%p1 exit;
    setp.eq.u32 %p2, %r1, 5;
    @!%p2 st.global.u32 [%rd3], %r1;
"""
"""Lanes 0 to 2 leave; then a guarded store; and the text ends without a `ret`."""

ONE = np.arange(32, dtype=np.uint32)


@lru_cache
def run(body: str, block: int | tuple[int, ...] = 32, grid: int | tuple[int, ...] = 1, elements: int = 0) -> Run:
    threads = int(np.prod(block))
    return Run(kernel(body, ".param .u64 out"), "k", grid, block, (np.arange(elements or threads, dtype=np.uint32),))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("body", [WITHOUT_LANE_0, LOOP, EARLY], ids=["halves", "loop", "early"])
def test_the_outcome_is_that_of_the_plain_kernel(body: str, scheme: str) -> None:
    launch = run(body, block=80)
    expected = launch.plain()
    assert np.array_equal(launch.traced(scheme, buffer_layout(3, 200))[0], expected)
    assert np.array_equal(launch.traced(scheme, buffer_layout(1, 1, 0))[0], expected), "with hardly any room"
    assert np.array_equal(launch.traced(scheme, None)[0], expected), "without a buffer"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["naive", "padded", "global_atomics", "shared_atomics", "block_sum<int>"])
def test_examples_compute_what_they_did(name: str, scheme: str) -> None:
    rng = np.random.default_rng(3)
    file = "transpose" if name in ("naive", "padded") else "histogram" if "atomics" in name else "reduction"
    module = example(next(path for path in EXAMPLES if path.stem == file))
    symbol = next(kernel for kernel in module.kernels if name.partition("<")[0] in kernel)
    if file == "transpose":
        launch = Run(module, symbol, (2, 2), (32, 32), (np.zeros((50, 50), "f4"), rng.random((50, 50), "f4"), 50))
    elif file == "histogram":
        launch = Run(module, symbol, 2, 96, (np.zeros(256, "u4"), rng.integers(0, 256, 700, "u1"), 700))
    else:
        launch = Run(module, symbol, 2, 256, (np.zeros(2, "i4"), rng.integers(-9, 9, 700, "i4"), 700))
    expected = launch.plain()
    result, decoded, _ = launch.traced(scheme, buffer_layout(200, 100))
    assert np.array_equal(result, expected)
    assert decoded.lost == 0
    assert len(decoded.records) > 0


def test_both_halves_of_a_warp_record() -> None:
    _, decoded, traced = run(WITHOUT_LANE_0).traced(layout=buffer_layout(1, 8))
    masks = {traced.sites[row["site"]].instruction: int(row["active_mask"]) for row in decoded.records}
    assert sorted(masks.values()) == [0xFFFF, 0xFFFF0000, 0xFFFFFFFF]
    assert decoded.warps["kept"].tolist() == [3]
    assert decoded.records["execution"].tolist() == [0, 0, 0]


def test_every_execution_in_a_loop_is_recorded_once() -> None:
    _, decoded, traced = run(LOOP).traced(layout=buffer_layout(1, 64))
    loads = decoded.records[decoded.records["site"] == 0]
    assert traced.sites[0].kind == "load"
    assert loads["execution"].tolist() == list(range(32))
    assert loads["active_mask"].tolist() == [(0xFFFFFFFF << number) & 0xFFFFFFFF for number in range(32)]


def test_lanes_that_leave_early_and_guards() -> None:
    _, decoded, _ = run(EARLY).traced(layout=buffer_layout(1, 8))
    assert decoded.records["active_mask"].tolist() == [0xFFFFFFFF, 0xFFFFFFD8]
    assert decoded.unfinished == 0


def test_blocks_that_are_no_multiple_of_32_and_have_three_dimensions() -> None:
    body = """
        .reg .b32 %r<3>; .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [out];
        ld.global.u32 %r1, [%rd1];
        st.shared.u32 [0], %r1;
        ret;"""
    _, decoded, _ = run(".shared .b32 s[4];" + body, block=(5, 3, 3), grid=(2, 3, 2)).traced(
        layout=buffer_layout(24, 4), selection=Selection({"global"})
    )
    places = Counter(zip(decoded.records["block"].tolist(), decoded.records["warp"].tolist(), strict=True))
    assert places == {(block, warp): 1 for block in range(12) for warp in range(2)}
    assert Counter(decoded.warps["lanes"].tolist()) == {0xFFFFFFFF: 12, 0x1FFF: 12}
    assert Counter(decoded.records["active_mask"].tolist()) == {0xFFFFFFFF: 12, 0x1FFF: 12}


def test_time_goes_by() -> None:
    for scheme in SCHEMES:
        _, decoded, _ = run(LOOP).traced(scheme, buffer_layout(1, 64))
        rows, warp = decoded.records, decoded.warps[0]
        assert (rows["end"] > rows["start"]).all()
        assert (rows["start"][1:] >= rows["end"][:-1]).all()
        assert warp["begin_cycles"] < rows["start"].min()
        assert rows["end"].max() < warp["end_cycles"]
        assert warp["begin_ns"] <= warp["end_ns"]


def test_the_second_clock_of_a_complete_site_waits_for_the_value() -> None:
    def duration(scheme: str) -> float:
        _, decoded, _ = run(LOOP).traced(scheme, buffer_layout(1, 64), Selection(kinds={"load"}))
        return float(np.median(decoded.records["end"] - decoded.records["start"]))

    hit = 34
    assert duration("dependent") > hit
    assert duration("consume") > hit
    assert duration("simple") < hit
    assert duration("paper") < hit, "the fence of the block does not wait"


@pytest.mark.parametrize("warps", [1, 2, 3, 8])
@pytest.mark.parametrize(("capacity", "overflow"), [(0, 0), (0, 1), (1, 0), (2, 1), (64, 0), (0, 64), (40, 40)])
def test_losses_are_exact(warps: int, capacity: int, overflow: int) -> None:
    """Each of three warps records 33 accesses; one load and none or one of the rest is led by lane 0."""
    launch = run(LOOP, block=96)
    _, everything, _ = launch.traced(layout=buffer_layout(3, 200))
    assert everything.lost == 0
    _, decoded, _ = launch.traced(layout=buffer_layout(warps, capacity, overflow))
    assert len(decoded.records) + decoded.lost == len(everything.records)
    assert decoded.warps_without_slice == max(0, 3 - warps)
    assert len(decoded.records) == decoded.warps["kept"].sum()
    assert (decoded.warps["kept"] <= capacity + overflow).all()
    if capacity == overflow == 40 and warps >= 3:
        assert decoded.lost > 0


def test_a_warp_without_lane_0_goes_to_memory_a_few_times_only() -> None:
    """Lane 1 leads 200 records: it asks for 1, 2, 4, 8, 16, 16, ... places, and fills them in turn."""
    once_left = LOOP.replace("AGAIN:\n", "setp.eq.u32 %p2, %r1, 0;\n@%p2 exit;\nAGAIN:\n", 1).replace("%r2, %r1;", "%r2, 199;")
    held: list[int] = []
    _, decoded, traced = run(once_left).traced(layout=buffer_layout(1, 4, 300), selection=Selection(kinds={"load"}), places=held)
    places, chunk = 0, 1
    while places < 200:
        places, chunk = places + chunk, min(2 * chunk, 16)
    assert held == [places]
    assert (len(decoded.records), decoded.lost, len(traced.positions)) == (200, 0, 1)
    assert set(decoded.records["active_mask"].tolist()) == {0xFFFFFFFE}


def test_launches_into_one_buffer_stay_apart() -> None:
    _, decoded, _ = run(WITHOUT_LANE_0, block=64).traced(layout=buffer_layout(6, 8), times=3)
    assert len(decoded.warps) == 6
    assert len(np.unique(decoded.warps["gridid"])) == 3
    assert Counter(decoded.records["gridid"].tolist()).most_common(1)[0][1] == 6


def test_only_chosen_sites_record() -> None:
    _, decoded, traced = run(WITHOUT_LANE_0).traced(layout=buffer_layout(1, 8), selection=Selection(kinds={"store"}))
    assert [traced.sites[number].kind for number in decoded.records["site"]] == ["store"]

"""Predictions of launches: samples against all blocks, the memory behind them, what is refused, and where warps wait."""

from __future__ import annotations

import re

import numpy as np
import pytest

import memlane as ml
from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadLaunch, ChipError, Deadlock
from memlane.launch import KernelCall
from memlane.measure.prediction import sample_of
from tests.launch.fake_target import FakeTarget

SOURCE = """
extern "C" __global__ void turn(float* out, const float* in, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}
extern "C" __global__ void count(unsigned* out) {
    atomicAdd(out, 1u);
}
extern "C" __global__ void wait(unsigned* out) {
    if (threadIdx.x == 0) {
        atomicAdd(out, 1u);
        while (*(volatile unsigned*)out < gridDim.x || *(volatile int*)out < 0) {}
    }
}
"""


def turned(n: int) -> tuple[KernelCall, tuple[object, ...]]:
    target = Emulator(load("v100"))
    kernel = target.load(ml.cuda(SOURCE, name="p.cu"))["turn"]
    return kernel[(n // 32, n // 8), (32, 8)], (target.zeros((n, n)), target.zeros((n, n)), n)


def test_a_sample_of_the_blocks_stands_for_all() -> None:
    call, arguments = turned(512)
    part, whole = (ml.predict(call, *arguments, chip="h200", every_block=every) for every in (False, True))
    assert part.share < 0.2 < whole.share == 1.0
    assert part.us == pytest.approx(whole.us, rel=0.1)
    assert part.limiting == whole.limiting
    assert re.search(r"1\d % of the blocks ran; predictions from parts of this sample differ by \+-[\d.]+ [nu]s", str(part))
    assert "sampled" not in str(whole)


def test_a_sample_that_fills_l2_stands_for_as_much_more_traffic() -> None:
    """The chip has no L2: what a sample leaves there cannot say what the other blocks fetch."""
    target = Emulator(load("h200"))
    copy = 'extern "C" __global__ void copy(float* out, const float* in) { int i = blockIdx.x * 256 + threadIdx.x; out[i] = in[i]; }'
    n = 1 << 21
    call, arrays = target.load(ml.cuda(copy))["copy"][n // 256, 256], (target.zeros(n), target.zeros(n))
    part, whole = (ml.predict(call, *arrays, chip="s1070", every_block=every) for every in (False, True))
    assert part.share < 0.6
    assert part.us == pytest.approx(whole.us, rel=0.15)
    assert part.us > 8 * n / load("s1070").dram_gb_per_s / 1000


def test_chips_differ_and_the_line_that_waits_is_named() -> None:
    call, arguments = turned(256)
    fast, slow = (ml.predict(call, *arguments, chip=chip) for chip in ("h200", "gtx480"))
    assert fast.us < slow.us
    assert (fast.waits[0].cause, fast.waits[0].place) == ("global memory", "p.cu:4")
    assert sum(one.share for one in fast.waits) <= 1.001
    assert "predicted for gtx480" in str(slow)


def test_arrays_are_as_before() -> None:
    target = Emulator(load("h200"))
    total = target.zeros(1, np.uint32)
    ml.predict(target.load(ml.cuda(SOURCE, name="p.cu"))["count"][1000, 64], total)
    assert total.numpy()[0] == 0


def test_all_blocks_run_where_they_wait_for_each_other() -> None:
    target = Emulator(load("h200"))
    found = ml.predict(target.load(ml.cuda(SOURCE, name="p.cu"))["wait"][264, 32], target.zeros(1, np.uint32))
    assert found.share == 1.0
    assert "all blocks ran, because blocks may wait for each other: they poll memory, meet at a barrier of the grid" in str(found)


def test_a_sample_has_whole_waves_from_all_over_the_grid() -> None:
    chip = load("h200")
    call, arguments = turned(1024)
    launch = call.bind(*arguments)
    few = sample_of(chip, launch, resident=8)
    assert few is not None
    assert (few.sms, few.blocks) == (16, 31 * 16 + 4)
    call, arguments = turned(64)
    assert sample_of(chip, call.bind(*arguments), resident=8) is None


def test_a_chip_that_cannot_hold_a_block_says_so() -> None:
    target = Emulator(load("h200"))
    kernel = target.load(ml.cuda(SOURCE, name="p.cu"))["count"]
    total = target.zeros(1, np.uint32)
    with pytest.raises(
        BadLaunch, match=r"a block of 1024 x 1 x 1 has 1,024 threads; s1070 allows at most 512|block.x is 1024; s1070 allows at most 512"
    ):
        ml.predict(kernel[4, 1024], total, chip="s1070")
    with pytest.raises(BadLaunch, match=r"gtx480 cannot hold a block of count.*: 64 threads of \d+ registers, with their shared memory"):
        ml.predict(kernel[4, 64, None, 100_000], total, chip="gtx480")


def test_a_kernel_that_never_ends_is_stopped_where_it_spins() -> None:
    """By itself, beside others that go on, and behind a barrier that its block has passed."""
    target = Emulator(load("h200"))
    code = ml.cuda(
        """
extern "C" __global__ void spin(int* out, int stop) {
    int n = 0;
    while (n != stop)
        n = (n + 2) & 1023;
    out[threadIdx.x] = n;
}
""",
        name="spin.cu",
    )
    spin, out = target.load(code)["spin"], target.zeros(1024, np.int32)
    said = (
        r"kernel spin.*, .*spin\.cu:[45]: block \(\d+, 0, 0\) has been looping here for 100,000 cycles or loop iterations, the limit for "
    )
    for grid, block in ((1, 32), (264, 256)):
        with pytest.raises(
            Deadlock,
            match=said
            + r"a predicted launch \(5\.05e-05 s on this chip\); if the kernel does terminate, raise the limit with --most-cycles 1000000",
        ):
            ml.predict(spin[grid, block], out, 1, most_cycles=100_000)
    assert ml.predict(spin[1, 32], out, 512, most_cycles=100_000).cycles < 100_000
    assert out.numpy().any() == 0
    alone = target.load(ml.cuda(SOURCE, name="p.cu"))["wait"]
    with pytest.raises(Deadlock, match=r"kernel wait.*p\.cu:14: block \(\d, 0, 0\) has been looping here for 100,000 cycles"):
        ml.predict(alone[4, 32], target.array(np.full(1, -900, np.int32).view(np.uint32)), most_cycles=100_000)
    with pytest.raises(BadLaunch, match="most_cycles must be at least 1, got 0"):
        ml.predict(spin[1, 32], out, 512, most_cycles=0)


def test_a_grid_that_the_chip_cannot_hold_says_so() -> None:
    target = Emulator(load("h200"))
    kernel = target.load(ml.cuda(SOURCE, name="p.cu"))["count"]
    with pytest.raises(BadLaunch, match=r"grid\.z is 2; s1070 allows at most 1"):
        ml.predict(kernel[(1, 1, 2), 32], target.zeros(1, np.uint32), chip="s1070")
    with pytest.raises(BadLaunch, match=r"grid\.x is 70000; gtx480 allows at most 65535"):
        ml.predict(kernel[70000, 32], target.zeros(1, np.uint32), chip="gtx480")


def test_an_unknown_chip_and_another_target_are_refused() -> None:
    call, arguments = turned(64)
    with pytest.raises(ChipError, match="unknown chip 'h300'"):
        ml.predict(call, *arguments, chip="h300")
    fake = FakeTarget()
    kernel = fake.load(ml.cuda(SOURCE, name="p.cu"))["count"]
    with pytest.raises(BadLaunch, match=r"times are predicted by the emulator, and count is loaded on fake: load it on"):
        ml.predict(kernel[1, 32], fake.zeros(1, np.uint32))

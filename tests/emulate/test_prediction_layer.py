"""What the clock layer does for predictions: the blocks of a sample, what instructions become, when blocks begin, where warps wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.chip import STALL_FIELDS, Events, Traffic, load
from memlane.compile import cuda
from memlane.emulate import Emulator
from memlane.emulate.clock.assembled import weights
from memlane.launch import BlockSample, Layers
from memlane.ptx import parse

H200 = load("h200")
SOURCE = """
extern "C" __global__ void mark(int* out) {
    if (threadIdx.x == 0) out[blockIdx.x] = 1;
}
extern "C" __global__ void load(float* out, const float* in) {
    out[threadIdx.x] = in[threadIdx.x] * 2.0f;
}
extern "C" __global__ void meet(int turns) {
    for (int i = 0; i < turns; ++i) __syncthreads();
}
"""


def seen(kernel: str, grid: int, block: int, *shapes: int, layers: Layers, numbers: tuple[int, ...] = ()) -> tuple[Events, np.ndarray]:
    target = Emulator(H200)
    arrays = [target.zeros(shape, np.int32 if kernel == "mark" else np.float32) for shape in shapes]
    launch = target.load(cuda(SOURCE, name="s.cu"))[kernel][grid, block].bind(*arrays, *numbers)
    events = target.launch(replace(launch, layers=layers)).events
    assert events is not None
    return events, arrays[0].numpy() if arrays else np.zeros(0)


def test_the_blocks_of_a_sample_are_those_of_some_multiprocessors_in_windows_of_waves() -> None:
    sample = BlockSample(sms=3, waves=2, stride=1000, blocks=12)
    events, out = seen("mark", 2000, 32, 2000, layers=Layers(clock=True, sample=sample))
    by_hand = [window + wave * 132 + sm for window in (0, 1000) for wave in (0, 1) for sm in range(3)]
    assert np.flatnonzero(out).tolist() == by_hand
    assert (len(events.finishes), events.sms, events.blocks) == (12, 3, 2000)
    assert events.fraction == 12 / 2000


def test_blocks_begin_one_after_another() -> None:
    events, _ = seen("mark", 1320, 32, 1320, layers=Layers(clock=True, prediction=True))
    assert 1320 / H200.bandwidth.blocks <= events.cycles <= 1320 / H200.bandwidth.blocks + 1000
    plain, _ = seen("mark", 1320, 32, 1320, layers=Layers(clock=True))
    assert plain.cycles < events.cycles


def test_warps_wait_where_the_value_of_a_load_is_needed() -> None:
    events, _ = seen("load", 1, 32, 32, 32, layers=Layers(clock=True, prediction=True))
    assert events.stalls is not None
    dependency = events.stalls[:, STALL_FIELDS.index("dependency")]
    assert int(dependency.max()) >= H200.latency.dram * 0.95
    assert events.warp_cycles >= int(events.stalls[:, 1:].sum())


def test_warps_arrive_at_barriers_at_the_pace_of_the_chip() -> None:
    turns = 100
    few, _ = seen("meet", 1, 64, layers=Layers(clock=True, prediction=True), numbers=(turns,))
    many, _ = seen("meet", 1, 1024, layers=Layers(clock=True, prediction=True), numbers=(turns,))
    cycles = 32 / H200.throughput.barrier
    assert int(many.barrier_cycles.sum()) == 32 * turns * cycles
    assert many.cycles - few.cycles >= 0.8 * 30 * turns * cycles


def slots(*lines: str) -> list[int]:
    body = "\n".join(f"{line};" for line in lines)
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<3>;
{body}
ret;
}}"""
    return [one.slots for one in weights(list(parse(text).kernels["k"].instructions()))][:-1]


def test_what_the_assembler_folds_into_others_costs_nothing() -> None:
    assert slots("ld.param.u64 %rd1, [p]", "cvta.to.global.u64 %rd2, %rd1") == [0, 0]
    assert slots("mul.wide.s32 %rd3, %r1, 4", "add.s64 %rd4, %rd2, %rd3") == [0, 2]
    assert slots("mul.f32 %f1, %f2, %f3", "add.f32 %f4, %f1, %f5") == [0, 1]
    assert slots("mul.rn.f32 %f1, %f2, %f3", "add.f32 %f4, %f1, %f5") == [1, 1]
    assert slots("mul.f32 %f1, %f2, %f3", "add.f32 %f4, %f1, %f5", "add.f32 %f6, %f1, %f5") == [1, 1, 1]
    assert slots("xor.b32 %r1, %r2, %r3", "and.b32 %r4, %r1, %r5", "or.b32 %r6, %r4, %r5") == [0, 1, 1]


def test_divisions_and_roots_are_programs() -> None:
    divided, rest, root = slots("div.rn.f32 %f1, %f2, %f3", "rem.u32 %r1, %r2, %r3", "sqrt.rn.f32 %f4, %f5")
    assert min(divided, rest, root) > 8
    assert slots("div.approx.f32 %f1, %f2, %f3", "sqrt.approx.f32 %f4, %f5") == [2, 2]


def test_a_chip_without_l2_counts_atomics_whose_line_was_replaced() -> None:
    """Its L2 is a single line, which the array that is loaded behind the atomic operations takes."""
    target = Emulator(load("s1070"))
    code = """
extern "C" __global__ void both(unsigned* total, float* data) {
    atomicAdd(total, 1u);
    __threadfence();
    data[threadIdx.x] += 1.0f;
}
"""
    launch = target.load(cuda(code, name="b.cu"))["both"][1, 32].bind(target.zeros(64, np.uint32), target.zeros(64, np.float32))
    events = target.launch(replace(launch, layers=Layers(clock=True))).events
    assert events is not None
    assert events.traffic.hottest > 0


@pytest.mark.parametrize("operation", ["add", "cas", "float"])
def test_lanes_at_one_word_are_packets_of_their_own(operation: str) -> None:
    """By the words that random lanes meet in, counted with NumPy."""
    body = {
        "add": "atomicAdd(&words[at[i]], value)",
        "cas": "atomicCAS(&words[at[i]], value, value + 1)",
        "float": "atomicAdd((float*)&words[at[i]], 0.0f)",
    }[operation]
    code = f"""
extern "C" __global__ void spread(unsigned* words, const int* at, unsigned value) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body};
}}
"""
    at = np.random.default_rng(5).integers(0, 64, (40, 32)).astype(np.int32)
    at[0] = np.arange(32)
    at[1] = 7
    target = Emulator(load("h200"))
    launch = target.load(cuda(code, name="s.cu"))["spread"][10, 128].bind(target.zeros(64, np.uint32), target.array(at), np.uint32(3))
    events = target.launch(replace(launch, layers=Layers(clock=True))).events
    rates = target.chip.bandwidth
    each, of_whole, of_floats = (1 / (rate or 1) for rate in (rates.atomic_packets, rates.atomic_whole, rates.atomic_floats))
    packet, whole = {"add": (each, of_whole), "cas": (each, 2 * of_whole), "float": (of_floats, of_floats)}[operation]
    expected = 0.0
    for lanes in at:
        met = np.bincount(lanes, minlength=64).reshape(-1, 8)  # words of each sector
        expected += float(((met.max(1) - met.min(1)) * packet + met.min(1) * whole).sum())
    assert events is not None
    assert events.atomic_cycles[0] == pytest.approx(expected, rel=0.01)
    assert events.atomic_cycles[1] == pytest.approx(
        expected * (rates.atomic_floats / rates.atomic_packets if operation == "float" else 1), rel=0.02
    )


# -- accesses whose lanes count as lying side by side -------------------------------------------------------------------------------------

STRIDED = """
extern "C" __global__ void gather(float* out, const float* in, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * stride];
}
extern "C" __global__ void banks(float* out, int stride) {
    __shared__ float tile[1024];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x * stride % 1024];
}
extern "C" __global__ void turn(float* out, const float* in, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    out[x * n + y] = in[y * n + x];
}
"""


def traffic(kernel: str, grid: object, block: object, arrays: list[int], number: int, line: int = 0) -> tuple[Traffic, int]:
    """What a launch moves, and its cycles; `line`: whose accesses count as side by side."""
    target = Emulator(H200)
    loaded = target.load(cuda(STRIDED, name="g.cu"))
    launch = loaded[kernel][grid, block].bind(*(target.zeros(size, np.float32) for size in arrays), number)
    chosen = [index for index, one in enumerate(launch.kernel.inlined.instructions()) if one.location and one.location.line == line]
    layers = Layers(clock=True, prediction=True, side_by_side=frozenset(chosen))
    events = target.launch(replace(launch, layers=layers)).events
    assert events is not None
    return events.traffic, events.cycles


def test_a_strided_load_whose_lanes_lie_side_by_side_moves_what_the_plain_one_does() -> None:
    plain, ideal, dense = (traffic("gather", 64, 256, [1 << 14, 1 << 19], *rest)[0] for rest in ((32, 0), (32, 4), (1, 0)))
    assert plain.total("read") == 8 * dense.total("read")
    assert ideal.total("read") == dense.total("read")
    assert (ideal.fetched, ideal.total("wavefronts")) == (dense.fetched, dense.total("wavefronts"))


def test_conflicts_of_banks_are_gone_where_lanes_lie_side_by_side() -> None:
    (plain, slow), (ideal, quick), (dense, _) = (traffic("banks", 1, 256, [256], *rest) for rest in ((32, 0), (32, 10), (1, 0)))
    assert plain.total("wavefronts") > 8 * dense.total("wavefronts")
    assert ideal.total("wavefronts") == dense.total("wavefronts")
    assert quick < slow


def test_a_transposed_store_side_by_side_fills_as_many_lines() -> None:
    """Each warp of a block stores to a line of its own, so all of the array is written, as by a transpose through a tile."""
    n = 256
    plain, ideal = (traffic("turn", (n // 32, n // 32), (32, 32), [n * n, n * n], n, line)[0] for line in (0, 14))
    assert (plain.total("partly_written"), plain.total("written")) == (n * n, 0)
    assert (ideal.total("partly_written"), ideal.total("written")) == (0, n * n // 8)
    assert ideal.allocated == plain.allocated == n * n // 8

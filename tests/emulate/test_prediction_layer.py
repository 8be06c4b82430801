"""What the clock layer does for predictions: the blocks of a sample, what instructions become, when blocks begin, where warps wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memlane.chip import STALL_FIELDS, Events, load
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

"""What the assembler made of each PTX instruction, held against what can be counted by hand in the code that it is given."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.audit.assembled_module import AssembledModule
from memlane.audit.attribution import Attribution, attribute
from memlane.chip import load
from memlane.compile import assemble, cuda
from memlane.emulate import Emulator
from memlane.launch import Made
from memlane.measure.prediction import Predictor
from memlane.model.kernel.memory import CONTENDED_ATOMICS
from memlane.model.scheduling import scheduled
from memlane.ptx import Module
from memlane.sass import disassemble

SOURCE = """
extern "C" __global__ void greatest(int* out, const int* in, int n, int stride) {
    int most = 0, first = threadIdx.x;
    for (int i = 0; i < n; ++i) most = max(most, in[i * stride + first]);
    out[threadIdx.x] = most;
}
extern "C" __global__ void one_by_one(float* out, const float* in, int n, int stride) {
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < n; ++i) sum += in[threadIdx.x + i * stride];
    out[threadIdx.x] = sum;
}
extern "C" __global__ void chased(int* out, const int* in, int n) {
    int at = threadIdx.x;
    for (int i = 0; i < n; ++i) at = in[at];
    out[threadIdx.x] = at;
}
extern "C" __global__ void halves(float* out) {
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = t;
    __syncthreads();
    if (t < 128) part[t] += part[t + 128];
    __syncthreads();
    if (t < 64) part[t] += part[t + 64];
    __syncthreads();
    out[t] = part[t];
}
extern "C" __global__ void counted(unsigned* count, int n) { atomicAdd(count, 1u); }
extern "C" __global__ void binned(unsigned* bins, int n) { atomicAdd(bins + threadIdx.x % n, 1u); }
extern "C" __global__ void divided(float* out, const float* in) { out[threadIdx.x] = in[threadIdx.x] / in[threadIdx.x + 32]; }
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return cuda(SOURCE, name="machine.cu")


def found(module: Module, kernel: str) -> Attribution:
    one = attribute(AssembledModule(module, disassemble(assemble(module).data)), kernel)
    assert one is not None
    return one


def of_loop(one: Attribution, opcode: str) -> list[Made]:
    return [
        made
        for made, instruction, loop in zip(one.made, one.instructions, one.loop_of, strict=True)
        if instruction.name.startswith(opcode) and loop >= 0
    ]


def test_a_loop_that_is_not_copied_costs_what_stands_in_it(module: Module) -> None:
    one = found(module, "one_by_one")
    assert [made.pipes for made in of_loop(one, "ld.global")] == [("",)]
    assert [made.pipes for made in of_loop(one, "add.f32")] == [("fma",)]
    assert not one.turns


def test_turns_of_a_copied_loop_have_loads_under_way_together(module: Module) -> None:
    one = found(module, "greatest")
    assert len(of_loop(one, "ld.global")) >= 2  # the front end copies the body, and leaves a loop for the rest
    assert max(one.turns.values()) >= 2  # the assembler copies it again
    machine = one.in_order(range(len(one.made)))
    late = {one.instructions[place].name for place, made in enumerate(machine.made) if made.is_late}
    assert late == {"max.s32"}
    assert {made.catches_up for made in machine.made if made.catches_up > 1} == set(one.turns.values())


def test_a_turn_that_needs_what_the_last_one_loaded_does_not_begin_before_that_is_there(module: Module) -> None:
    assert not found(module, "chased").turns


def test_a_branch_without_a_jump_costs_what_it_leaves_out(module: Module) -> None:
    one = found(module, "halves")
    machine = one.in_order(range(len(one.made)))
    skipped = [made.skipped for made in machine.made if made.skipped != (0, 0)]
    assert skipped == [(4, 3), (4, 3)]  # two loads, an addition, a store


def test_an_atomic_at_one_counter_is_done_by_one_lane(module: Module) -> None:
    combined = {
        kernel: [
            made.is_combined
            for made, one in zip(found(module, kernel).made, found(module, kernel).instructions, strict=True)
            if one.opcode in ("atom", "red")
        ]
        for kernel in ("counted", "binned")
    }
    assert combined == {"counted": [True], "binned": [False]}


def test_an_atomic_that_one_lane_does_takes_a_packet_for_each_warp() -> None:
    target = Emulator(load("h200"))
    kernels = target.load(cuda(SOURCE, name="machine.cu"))
    for kernel, packets in (("counted", 1), ("binned", 32)):
        launch = kernels[kernel][2048, 256].bind(target.zeros(1, np.uint32), 1)
        busy = next(part.cycles for part in Predictor(target.chip).predict(launch, target).parts if part.name == CONTENDED_ATOMICS)
        assert busy == pytest.approx(packets * 2048 * 8 / target.chip.bandwidth.atomic_packets, rel=0.05)


def test_programs_for_unusual_numbers_are_left_out(module: Module) -> None:
    one = found(module, "divided")
    (division,) = (made for made, instruction in zip(one.made, one.instructions, strict=True) if instruction.opcode == "div")
    assert division.pipes.count("sfu") == 1
    assert 8 <= len(division.pipes) <= 14  # the guide's sequence: a reciprocal, five multiplications with additions, a check, a branch


def test_instructions_take_their_places_along(module: Module) -> None:
    one = found(module, "greatest")
    ordered = scheduled(module, "greatest", one.ranks)
    assert sorted(ordered.order) == list(range(len(one.made)))
    assert [instruction.name for instruction in ordered.module.kernels["greatest"].instructions()] == [
        one.instructions[index].name for index in ordered.order
    ]
    ranks = [one.ranks[index] for index in ordered.order]
    loads = [rank for rank, index in zip(ranks, ordered.order, strict=True) if one.instructions[index].name == "ld.global.u32"]
    assert None not in loads


def test_a_kernel_without_a_table_of_lines_is_not_attributed(module: Module) -> None:
    program = disassemble(assemble(module).data)
    assert attribute(AssembledModule(cuda(SOURCE.replace("greatest", "others"), name="o.cu"), program), "others") is None

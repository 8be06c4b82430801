"""Which bytes of a warp its registers have: none that another one needs at the same time, and no more than it takes."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.emulate.layers import CompiledLayers
from memlane.emulate.lower.body import Body, LiveOut, flatten, reads
from memlane.emulate.lower.lowering import assign_registers
from memlane.ptx import SCALAR_TYPES, parse, values_written
from tests.emulate.running import EXAMPLES, emulator, example_module, program
from tests.emulate.test_layers import EVERYTHING, observe

CLOCK = CompiledLayers(counts=True, accesses=False, clock=True)


def offsets_of(body: Body) -> dict[str, int]:
    live = LiveOut(body.segments)
    return assign_registers(body.registers, live.anywhere(), live.spans(), frozenset(), CLOCK).offsets


def needed_before(body: Body) -> list[set[str]]:
    """By segment, the registers that are read from there on before they are written: instruction by instruction, until nothing changes."""
    before: list[set[str]] = [set() for _ in body.segments]
    changed = True
    while changed:
        changed = False
        for segment in reversed(body.segments):
            live = set().union(*(before[target] for target in segment.successors if target < len(before)))
            for step in reversed(segment.steps):
                live = (live - set(values_written(step.instruction))) | set(reads(step.instruction))
            changed |= live != before[segment.number]
            before[segment.number] = live
    return before


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.ptx")))
def test_registers_that_are_needed_together_have_bytes_of_their_own(name: str) -> None:
    for kernel in example_module(name).kernels.values():
        body = flatten(kernel, stop_at_memory=True)
        offsets, before = offsets_of(body), needed_before(body)
        for segment in body.segments:
            after = set().union(*(before[target] for target in segment.successors))
            named = {name for step in segment.steps for name in (*reads(step.instruction), *values_written(step.instruction))}
            taken: set[int] = set()
            for register in (before[segment.number] | after | named) & offsets.keys():
                bits = SCALAR_TYPES[body.registers[register]].bits
                mine = set(range(offsets[register], offsets[register] + (4 if bits == 1 else 4 * bits)))
                assert not mine & taken
                taken |= mine


def test_the_registers_of_an_unrolled_loop_share_their_bytes() -> None:
    (kernel,) = example_module("matmul").kernels.values()
    body = flatten(kernel, stop_at_memory=True)
    offsets = offsets_of(body)
    assert len(set(offsets.values())) < len(offsets) / 2


def test_lanes_on_two_ways_keep_what_each_of_them_needs() -> None:
    """Both ways have registers of their own, which may share bytes; warps change places in between, because each load stops one."""
    body = """
        and.b32 %r1, %tid, 1; setp.ne.u32 %p1, %r1, 0;
        @%p1 bra ODD;
        mul.lo.u32 %r10, %tid, 3; ld.volatile.global.u32 %r11, [%mine];
        ld.volatile.global.u32 %r12, [%mine]; add.u32 %r10, %r10, %r11; add.u32 %r20, %r10, %r12;
        bra MEET;
    ODD:
        mul.lo.u32 %r30, %tid, 5; ld.volatile.global.u32 %r31, [%mine];
        ld.volatile.global.u32 %r32, [%mine]; add.u32 %r30, %r30, %r31; add.u32 %r20, %r30, %r32;
    MEET:
        bar.sync 0;
        st.global.u32 [%mine], %r20;
        ret;"""
    target = emulator()
    out = target.array(np.arange(128, dtype=np.uint64))
    observe(target.load(parse(program(body)))["k"][1, 128], out, layers=EVERYTHING)
    thread = np.arange(128)
    assert out.numpy().tolist() == (thread * np.where(thread % 2, 5, 3) + 2 * thread).tolist()

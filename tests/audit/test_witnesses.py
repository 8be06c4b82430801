"""A store that is timed until others see it: what must stand behind it in the assembled code."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from memlane.audit import SiteProof, prove
from memlane.instrument import Selection, Traced, TraceOptions, trace
from memlane.record import ISSUE_ONLY
from memlane.record.site import BLOCK_VISIBLE, DEVICE_VISIBLE
from memlane.sass import Program, disassemble
from tests.instrument.kernels import kernel
from tests.sass.code import cubin_of, exchanged, inserted, instruction

BODY = """
    .reg .u32 %i, %v; .reg .u64 %a, %o;
    ld.param.u64 %a, [p]; mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; st.global.u32 [%a], %i; ret;
"""
WITNESS = {"block": ("MEMBAR", BLOCK_VISIBLE), "device": ("LDG", DEVICE_VISIBLE)}


@cache
def assembled(stores: str) -> tuple[Traced, Program]:
    traced = trace(kernel(BODY), TraceOptions("dependent", Selection(kinds={"store"}), stores=stores))
    return traced, disassemble(cubin_of(traced.module))


def proof(traced: Traced, program: Program) -> SiteProof:
    (found,) = prove(traced, program)
    return found


def witness(program: Program, opcode: str) -> int:
    code = program.functions["k"].instructions
    return next(at for at, one in enumerate(code) if one.opcode == opcode and (opcode != "LDG" or "GPU" in one.modifiers))


@pytest.mark.parametrize("stores", WITNESS)
def test_what_tells_is_found(stores: str) -> None:
    found = proof(*assembled(stores))
    assert (found.completeness, found.reason) == (WITNESS[stores][1], "")


@pytest.mark.parametrize("stores", WITNESS)
def test_a_way_around_what_tells_is_caught(stores: str) -> None:
    traced, program = assembled(stores)
    at = witness(program, WITNESS[stores][0])
    around = inserted(program, "k", at + 1, label=".L_over")
    around = inserted(around, "k", at, instruction("@P5 BRA `(.L_over)"))
    found = proof(traced, around)
    assert found.completeness == ISSUE_ONLY
    assert "can execute without the load or fence that confirms the store" in found.reason


def test_a_load_that_nobody_waits_for_tells_nothing() -> None:
    traced, program = assembled("device")
    at = witness(program, "LDG")
    one = program.functions["k"].instructions[at]
    silent = exchanged(program, "k", at, replace(one, control=replace(one.control, write_scoreboard=None)))
    assert proof(traced, silent).completeness == ISSUE_ONLY

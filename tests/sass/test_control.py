"""Control words, against what nvdisasm shows of them and against instructions whose waits are known."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlane.sass import Control, decode_control, disassemble, effects, with_control
from tests.sass.code import EXAMPLES, breadth, kernel, program

SCOREBOARD = st.none() | st.integers(0, 5)
CONTROLS = st.builds(Control, st.integers(0, 15), st.booleans(), SCOREBOARD, SCOREBOARD, st.integers(0, 63), st.integers(0, 15))


@given(CONTROLS, st.integers(0, (1 << 128) - 1))
@example(Control(0, True, 0, 0, 0, 0), (1 << 128) - 1)
@example(Control(15, False, None, None, 63, 15), 0)
def test_what_is_encoded_is_decoded(control: Control, encoding: int) -> None:
    changed = with_control(encoding, control)
    assert decode_control(changed) == control
    # The 21 bits from bit 105 on are all that changes.
    assert (changed ^ encoding) & ~(((1 << 21) - 1) << 105) == 0


def test_a_word_taken_apart_by_hand() -> None:
    # 0x004fc80003f05070: bits 41 and up are 0b 0_0000_000010_0_111_111_0_0100 (reuse, wait, read, write, yield, stall)
    control = decode_control(0x004FC80003F05070 << 64)
    assert control == Control(stall=4, yields=True, write_scoreboard=None, read_scoreboard=None, wait_mask=0b000100, reuse=0)
    assert control.waits == (2,)


def test_a_load_raises_what_its_consumer_waits_for() -> None:
    body = ".reg .u64 %a; .reg .u32 %v; ld.param.u64 %a, [p]; ld.global.u32 %v, [%a]; add.u32 %v, %v, 7; st.global.u32 [%a], %v; ret;"
    code = program(kernel(body)).functions["k"].instructions
    load = next(index for index, one in enumerate(code) if one.opcode == "LDG")
    scoreboard = code[load].control.write_scoreboard
    assert scoreboard is not None
    used = next(one for one in code[load + 1 :] if code[load].operands[0].text in one.text)
    assert scoreboard in used.control.waits


@pytest.mark.slow
def test_the_mark_of_reuse_is_the_reuse_field() -> None:
    """nvdisasm prints `.reuse` behind an operand: an independent reading of the same word."""
    found = 0
    for path in EXAMPLES:
        for _, one in program(path.read_text()).instructions():
            assert (one.control.reuse != 0) == (".reuse" in one.text), one.text
            found += one.control.reuse != 0
    assert found > 10


def test_what_has_a_variable_latency_raises_a_scoreboard() -> None:
    found: dict[str, set[bool]] = {}
    for function, one in disassemble(breadth()).instructions():
        if function.name in ("paths", "kinds") and effects(one).writes:
            found.setdefault(one.opcode, set()).add(one.control.write_scoreboard is not None)
    assert all(found[opcode] == {True} for opcode in ("LDG", "LDS", "LDL", "REDUX", "ATOMG", "I2F", "MATCH"))
    assert all(found[opcode] == {False} for opcode in ("IADD3", "FMUL", "FADD", "ISETP", "LOP3", "SHF", "ULDC"))

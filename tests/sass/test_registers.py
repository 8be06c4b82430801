"""Registers read and written, against the live ranges that nvdisasm computes for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.sass import Effects, Register, disassemble, effects
from memlane.sass.listing import parse_listing
from tests.sass.code import EXAMPLES, breadth, cubin, program
from tests.sass.live_ranges import Marks, live_ranges

CODES = [*EXAMPLES, None]

BOUNDED = {"TEX", "TLD", "TLD4", "HMMA"}
"""What they read is an upper bound."""


@pytest.mark.parametrize("path", CODES, ids=lambda path: "breadth" if path is None else path.stem)
def test_reads_and_writes_are_those_of_nvdisasm(path: Path | None) -> None:
    data = breadth() if path is None else cubin(path.read_text())
    ranges = live_ranges(data)
    compared = 0
    code = disassemble(data) if path is None else program(path.read_text())
    for function, one in code.instructions():
        marks = ranges.get((function.name, one.offset))
        if marks is None or one.opcode == "CALL":  # Of a call it lists what the callee does.
            continue
        found = effects(one)
        compared += 1
        if one.opcode in BOUNDED:
            assert marks.reads <= found.reads, one.text
            assert marks.writes == found.writes, one.text
        else:
            assert _plain(found) == marks, one.text
    assert compared > 30


def _plain(found: Effects) -> Marks:
    """Without convergence barriers, of which there are no live ranges."""
    return Marks(*(frozenset(one for one in registers if one.bank != "B") for registers in (found.reads, found.writes)))


def registers(text: str) -> tuple[list[str], list[str], bool]:
    """What is read and written by an instruction given as text."""
    listing = f"\t.section\t.text.k,\n        /*0000*/    {text} ;   /* 0x0000000000000000 */\n      /* 0x0000000000000000 */\n"
    found = effects(parse_listing(listing).functions["k"].instructions[0])
    return sorted(map(str, found.reads)), sorted(map(str, found.writes)), found.exact


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("CALL.ABS.NOINC R6", "R6 R7", ""),
        ("RET.ABS.NODEC R20 0x0", "R20 R21", ""),
        ("@!P2 LDG.E.128 R4, desc[UR6][R2.64+0x10]", "P2 R2 R3 UR6 UR7", "R4 R5 R6 R7"),
        ("STS.64 [R3+UR4+0x8], R6", "R3 R6 R7 UR4", ""),
        ("IMAD.WIDE.U32 R2, R5, 0x4, R8", "R5 R8 R9", "R2 R3"),
        ("IADD3 R6, P1, P2, -R4, UR5, RZ", "R4 UR5", "P1 P2 R6"),
        ("ISETP.GE.U32.AND.EX P0, PT, R5, R3, PT, P1", "P1 R3 R5", "P0"),
        ("CS2R R8, SR_CLOCKLO", "", "R8 R9"),
        ("VIMNMX3 R9, R8, RZ, R10, !PT", "R10 R8", "R9"),
        ("ATOMG.E.CAS.64.STRONG.GPU PT, R8, [R24+0x2d8], R8, R10", "R10 R11 R24 R25 R8 R9", "R8 R9"),
        ("ATOMG.E.MIN.S64.STRONG.GPU PT, R8, desc[UR4][R2.64], R6", "R2 R3 R6 R7 UR4 UR5", "R8 R9"),
        ("F2F.F32.F64 R2, R4", "R4 R5", "R2"),
        ("I2F.F64 R2, R4", "R4", "R2 R3"),
        ("F2I.S64.TRUNC R2, R4", "R4", "R2 R3"),
        ("VOTE.ANY R7, PT, P3", "P3", "R7"),
        ("R2P PR, R5, 0x7f", "R5", "P0 P1 P2 P3 P4 P5 P6"),
        ("R2P PR, R5, 0x5", "R5", "P0 P2"),
        ("P2R R16, PR, RZ, 0x1", "P0", "R16"),
        ("TEX.LL R14, R12, R10, R25, UR4, 0x0, 2D", "R10 R11 R25 R26 UR4 UR5", "R12 R13 R14 R15"),
        ("TLD.LZ RZ, R17, R19, UR4, 0x0, 1D, 0x4", "R19 UR4 UR5", "R17"),
        ("FCHK P0, R5, R4", "R4 R5", "P0"),
    ],
)
def test_an_instruction(text: str, reads: str, writes: str) -> None:
    assert registers(text) == (reads.split(), writes.split(), True)


def test_an_unknown_opcode_is_bounded_from_above() -> None:
    _, writes, exact = registers("FROBNICATE R8, R2")
    assert not exact
    assert (writes[0], len(writes)) == ("R10", 8)


def test_register_names() -> None:
    assert str(Register("UR", 4)) == "UR4"

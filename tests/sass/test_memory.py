"""Memory accesses of assembled instructions."""

from __future__ import annotations

import pytest

from memlane.sass import Access, accesses_by_line, disassemble, memory_access
from memlane.sass.listing import parse_listing
from tests.sass.code import BREADTH, breadth, kernel, program


def access(text: str) -> Access | None:
    listing = f"\t.section\t.text.k,\n        /*0000*/    {text} ;   /* 0x0000000000000000 */\n      /* 0x0000000000000000 */\n"
    return memory_access(parse_listing(listing).functions["k"].instructions[0])


@pytest.mark.parametrize(
    ("text", "kind", "space", "nbytes", "vector"),
    [
        ("LDG.E R2, desc[UR4][R2.64]", "load", "global", 4, 1),
        ("LDG.E.U8.CONSTANT R2, desc[UR4][R2.64]", "load", "global", 1, 1),
        ("LDG.E.128 R4, desc[UR4][R2.64]", "load", "global", 16, 4),
        ("LD.E.64 R4, desc[UR4][R2.64]", "load", "generic", 8, 2),
        ("STG.E.EF.128 desc[UR10][R16.64+0x90], R4", "store", "global", 16, 4),
        ("STS.U16 [R3], R2", "store", "shared", 2, 1),
        ("LDL.64 R2, [R1+0x8]", "load", "local", 8, 2),
        ("LDC R2, c[0x3][R4]", "load", "const", 4, 1),
        ("ULDC.64 UR4, c[0x0][0x208]", "load", "const", 8, 2),
        ("ATOMG.E.ADD.64.STRONG.GPU PT, R10, desc[UR10][R2.64+0x50], R10", "atomic", "global", 8, 2),
        ("ATOMG.E.ADD.F64.RN.STRONG.GPU PT, RZ, desc[UR36][R32.64], R6", "reduction", "global", 8, 2),
        ("ATOMG.E.MIN.S64.STRONG.GPU PT, R8, desc[UR4][R2.64], R4", "atomic", "global", 8, 2),
        ("REDG.E.MAX.64.STRONG.GPU desc[UR4][R2.64], R4", "reduction", "global", 8, 2),
        ("ATOMS.POPC.INC.32 RZ, [R2]", "reduction", "shared", 4, 1),
        ("ATOMS.CAS.64 R4, [R2], R4, R6", "atomic", "shared", 8, 2),
        ("LDSM.16.M88.4 R4, [R11]", "load", "shared", 16, 4),
        ("LDGSTS.E.128 [R11], desc[UR4][R2.64]", "copy", "global", 16, 4),
        ("TLD.LZ RZ, R17, R19, UR4, 0x0, 1D, 0x1", "load", "tex", 4, 1),
        ("TEX.LL R14, R12, R10, R25, UR4, 0x0, 2D", "load", "tex", 16, 4),
        ("SUST.D.BA.2D.128.STRONG.SM.TRAP [R18], R4, UR4, 0x0", "store", "surface", 16, 4),
    ],
)
def test_an_access(text: str, kind: str, space: str, nbytes: int, vector: int) -> None:
    assert access(text) == Access(kind, space, nbytes, vector)


@pytest.mark.parametrize("text", ["LEA R5, R4, R11, 0x5", "IMAD R0, R11, c[0x0][0x28], R0", "LDGDEPBAR", "LDGMC.E R2, R4", "BSYNC B0"])
def test_no_access(text: str) -> None:
    assert access(text) is None


def test_accesses_of_each_line() -> None:
    lines = BREADTH.split("\n")
    found = {line: accesses for (_, line), accesses in accesses_by_line(disassemble(breadth()), "kinds").items()}

    def of(text: str) -> list[str]:
        return [str(access) for access in found[next(number for number, line in enumerate(lines, 1) if text in line)]]

    assert of("wide[t] = d[t];") == ["8 B global load", "8 B shared store"]
    assert of("reinterpret_cast<float4*>(f)[t + 300]") == ["16 B global load", "16 B global store"]
    # `u[t + 1]` was loaded for an earlier line.
    assert of("u[t + 90] = atomicCAS") == ["8 B global load", "8 B global atomic", "8 B global store"]


def test_parameters_are_no_accesses() -> None:
    body = ".reg .u64 %a; .reg .u32 %v; ld.param.u64 %a, [p]; ld.global.u32 %v, [%a]; st.global.u32 [%a+8], %v; ret;"
    code = program(kernel(body))
    accesses = [access for one in accesses_by_line(code, "k").values() for access in one]
    assert [access.space for access in accesses] == ["global", "global"]

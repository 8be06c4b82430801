"""Single instructions with values worked out by hand from the PTX manual. One kernel runs all cases of a family."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

from memlane.ptx import parse
from tests.emulate.running import emulator, program

M1 = 0xFFFFFFFF


def f32(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def f64(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


NAN, INF = 0x7FFFFFFF, f32(float("inf"))

# Each case: the instruction, with d the result and a, b, c its operands; their bits; the bits expected. Widths come from the prefixes:
# w 32 bits, l 64 bits, h 16 bits, p a predicate (1 or 0).
Case = tuple[str, tuple[int, ...], int]

FAMILIES: dict[str, list[Case]] = {
    "integer": [
        ("add.s32 wd, wa, wb", (0x7FFFFFFF, 1), 0x80000000),
        ("add.sat.s32 wd, wa, wb", (0x7FFFFFFF, 1), 0x7FFFFFFF),
        ("add.sat.s32 wd, wa, wb", (0x80000000, M1), 0x80000000),
        ("add.u64 ld, la, lb", (M1, 1), 1 << 32),
        ("add.u16 hd, ha, hb", (0xFFFF, 2), 1),
        ("sub.s32 wd, wa, wb", (3, 5), M1 - 1),
        ("sub.sat.s32 wd, wa, wb", (0x80000000, 1), 0x80000000),
        ("mul.lo.s32 wd, wa, wb", (0x10001, 0x10001), 0x20001),
        ("mul.hi.u32 wd, wa, wb", (M1, M1), M1 - 1),
        ("mul.hi.s32 wd, wa, wb", (M1, M1), 0),
        ("mul.hi.u64 ld, la, lb", (1 << 63, 6), 3),
        ("mul.wide.s32 ld, wa, wb", (M1, 3), 2**64 - 3),
        ("mul.wide.u32 ld, wa, wb", (M1, 3), 3 * M1),
        ("mul.wide.s16 wd, ha, hb", (0xFFFF, 7), M1 - 6),
        ("mad.lo.s32 wd, wa, wb, wc", (5, M1, 12), 7),
        ("mad.hi.u32 wd, wa, wb, wc", (1 << 31, 4, 10), 12),
        ("mad.wide.u32 ld, wa, wb, lc", (1 << 31, 4, 10), (1 << 33) + 10),
        ("mad.hi.sat.s32 wd, wa, wb, wc", (1 << 30, 1 << 30, 0x7FFFFFFF), 0x7FFFFFFF),
        ("mul24.lo.u32 wd, wa, wb", (0xFF000003, 5), 15),
        ("mul24.hi.s32 wd, wa, wb", (0x00800000, 0x00800000), (2**46 >> 16) & M1),
        ("sad.s32 wd, wa, wb, wc", (M1, 4, 100), 105),
        ("sad.u32 wd, wa, wb, wc", (7, 4, 100), 103),
        ("div.s32 wd, wa, wb", (M1 - 6, 2), M1 - 2),
        ("div.u32 wd, wa, wb", (M1, 10), M1 // 10),
        ("div.s32 wd, wa, wb", (0x80000000, M1), 0x80000000),
        ("rem.s32 wd, wa, wb", (M1 - 6, 4), M1 - 2),
        ("rem.u32 wd, wa, wb", (M1, 10), M1 % 10),
        ("div.s64 ld, la, lb", (2**64 - 100, 7), 2**64 - 14),
        ("rem.s64 ld, la, lb", (2**64 - 100, 7), 2**64 - 2),
        ("div.u64 ld, la, lb", (2**64 - 1, 3), (2**64 - 1) // 3),
        ("div.s64 ld, la, lb", (1 << 63, 2**64 - 1), 1 << 63),
        ("rem.u16 hd, ha, hb", (65535, 256), 255),
        ("abs.s32 wd, wa", (M1 - 8,), 9),
        ("neg.s64 ld, la", (5,), 2**64 - 5),
        ("min.s32 wd, wa, wb", (M1, 1), M1),
        ("min.u32 wd, wa, wb", (M1, 1), 1),
        ("max.s64 ld, la, lb", (2**64 - 1, 0), 0),
        ("popc.b32 wd, wa", (0xF0F0,), 8),
        ("popc.b64 wd, la", (2**64 - 1,), 64),
        ("clz.b32 wd, wa", (1,), 31),
        ("clz.b64 wd, la", (0,), 64),
        ("bfind.u32 wd, wa", (0x00800000,), 23),
        ("bfind.u32 wd, wa", (0,), M1),
        ("bfind.s32 wd, wa", (M1,), M1),
        ("bfind.s32 wd, wa", (M1 - 4,), 2),
        ("bfind.shiftamt.u32 wd, wa", (0x00800000,), 8),
        ("bfind.u64 wd, la", (1 << 40,), 40),
        ("brev.b32 wd, wa", (1,), 1 << 31),
        ("brev.b64 ld, la", (6,), 3 << 61 | 0),
        ("bfe.u32 wd, wa, wb, wc", (0x12345678, 8, 12), 0x456),
        ("bfe.s32 wd, wa, wb, wc", (0x00000F00, 8, 4), M1),
        ("bfe.s32 wd, wa, wb, wc", (0x80000000, 28, 10), 0xFFFFFFF8),
        ("bfe.u32 wd, wa, wb, wc", (M1, 30, 10), 3),
        ("bfe.u32 wd, wa, wb, wc", (M1, 3, 0), 0),
        ("bfe.s64 ld, la, wb, wc", (0x8000000000000000, 60, 4), 2**64 - 8),
        ("bfi.b32 wd, wa, wb, wc, we", (0xAB, 0x12345678, 8, 8), 0x1234AB78),
        ("bfi.b64 ld, la, lb, wc, we", (0xFF, 0, 60, 8), 0xF << 60),
        ("bmsk.clamp.b32 wd, wa, wb", (4, 8), 0xFF0),
        ("bmsk.clamp.b32 wd, wa, wb", (0, 32), M1),
        ("szext.wrap.s32 wd, wa, wb", (0xFF, 8), M1),
        ("szext.clamp.u32 wd, wa, wb", (0xFFF, 8), 0xFF),
        ("dp4a.s32.s32 wd, wa, wb, wc", (0xFF020304, 0x01010101, 10), 18),
        ("dp4a.u32.u32 wd, wa, wb, wc", (0xFF020304, 0x01010101, 10), 274),
        ("dp2a.hi.u32.u32 wd, wa, wb, wc", (0x00020003, 0x05070000, 1), 1 + 3 * 7 + 2 * 5),
    ],
    "logic": [
        ("and.b32 wd, wa, wb", (0xFF00, 0x0FF0), 0x0F00),
        ("xor.b64 ld, la, lb", (0xFF << 40, 1), (0xFF << 40) | 1),
        ("not.b16 hd, ha", (0x00FF,), 0xFF00),
        ("cnot.b32 wd, wa", (0,), 1),
        ("cnot.b32 wd, wa", (7,), 0),
        ("lop3.b32 wd, wa, wb, wc, 0xE8", (0b1100, 0b1010, 0b0110), 0b1110),
        ("lop3.b32 wd, wa, wb, wc, 0x96", (0b1100, 0b1010, 0b0110), 0b0000),
        ("lop3.b32 wd, wa, wb, wc, 0xFE", (0b1100, 0b1010, 0b0110), 0b1110),
        ("shl.b32 wd, wa, wb", (1, 31), 1 << 31),
        ("shl.b32 wd, wa, wb", (1, 32), 0),
        ("shl.b64 ld, la, wb", (1, 40), 1 << 40),
        ("shl.b32 wd, wa, 33", (1,), 0),
        ("shr.u32 wd, wa, wb", (M1, 40), 0),
        ("shr.s32 wd, wa, wb", (1 << 31, 40), M1),
        ("shr.s32 wd, wa, 4", (1 << 31,), 0xF8000000),
        ("shr.u64 ld, la, wb", (1 << 63, 63), 1),
        ("shr.s16 hd, ha, wb", (0x8000, 15), 0xFFFF),
        ("shf.l.wrap.b32 wd, wa, wb, wc", (0x80000001, 0x2, 33), 5),
        ("shf.r.clamp.b32 wd, wa, wb, wc", (0x1, 0x3, 40), 3),
        ("shf.r.wrap.b32 wd, wa, wb, wc", (0x10, 0x3, 4), 0x30000001),
        ("prmt.b32 wd, wa, wb, wc", (0x33221100, 0x77665544, 0x7250), 0x77225500),
        ("prmt.b32 wd, wa, wb, wc", (0x00008000, 0, 0x0009), 0x000000FF),
        ("prmt.b32.f4e wd, wa, wb, wc", (0x33221100, 0x77665544, 1), 0x44332211),
        ("prmt.b32.rc16 wd, wa, wb, wc", (0x33221100, 0x77665544, 1), 0x33223322),
    ],
    "extended": [
        ("add.cc.u32 wd, wa, wb; addc.u32 wd, wc, we", (M1, 1, 10, 20), 31),
        ("add.cc.u32 wd, wa, wb; addc.u32 wd, wc, we", (1, 1, 10, 20), 30),
        ("sub.cc.u32 wd, wa, wb; subc.u32 wd, wc, we", (0, 1, 10, 3), 6),
        ("add.cc.u64 ld, la, lb; addc.u64 ld, lc, 0", (2**64 - 1, 1, 5), 6),
        ("mad.lo.cc.u32 wd, wa, wb, wc; madc.hi.u32 wd, wa, wb, we", (M1, M1, M1, 0), M1 - 1 + 1),
    ],
    "compare": [
        ("setp.lt.s32 pd, wa, wb", (M1, 0), 1),
        ("setp.lt.u32 pd, wa, wb", (M1, 0), 0),
        ("setp.lo.s32 pd, wa, wb", (M1, 0), 0),
        ("setp.eq.f32 pd, wa, wb", (NAN, NAN), 0),
        ("setp.equ.f32 pd, wa, wb", (NAN, NAN), 1),
        ("setp.ne.f32 pd, wa, wb", (NAN, 0), 0),
        ("setp.neu.f32 pd, wa, wb", (NAN, 0), 1),
        ("setp.num.f32 pd, wa, wb", (f32(1), f32(2)), 1),
        ("setp.nan.f64 pd, la, lb", (f64(float("nan")), 0), 1),
        ("setp.eq.f32 pd, wa, wb", (0x80000000, 0), 1),
        ("setp.eq.ftz.f32 pd, wa, wb", (1, 0), 1),
        ("setp.gt.s64 pd, la, lb", (0, 2**64 - 1), 1),
        ("set.lt.u32.s32 wd, wa, wb", (1, 2), M1),
        ("set.lt.f32.f32 wd, wa, wb", (f32(1), f32(2)), f32(1)),
        ("slct.u32.s32 wd, wa, wb, wc", (5, 6, M1), 6),
        ("slct.u32.f32 wd, wa, wb, wc", (5, 6, 0x80000000), 5),
        ("testp.subnormal.f32 pd, wa", (5,), 1),
        ("testp.normal.f32 pd, wa", (f32(2.5),), 1),
        ("testp.infinite.f32 pd, wa", (INF,), 1),
        ("testp.finite.f64 pd, la", (f64(float("inf")),), 0),
    ],
    "floating": [
        ("add.f32 wd, wa, wb", (f32(0.1), f32(0.2)), f32(np.float32(0.1) + np.float32(0.2))),
        ("add.f32 wd, wa, wb", (INF, f32(float("-inf"))), NAN),
        ("add.f32 wd, wa, wb", (0xFFC12345, f32(1)), NAN),
        ("add.sat.f32 wd, wa, wb", (f32(0.75), f32(0.75)), f32(1)),
        ("add.sat.f32 wd, wa, wb", (NAN, f32(0.75)), 0),
        ("mul.f32 wd, wa, wb", (f32(2.0**-100), f32(2.0**-40)), f32(2.0**-140)),
        ("mul.ftz.f32 wd, wa, wb", (f32(-(2.0**-100)), f32(2.0**-40)), 0x80000000),
        ("add.ftz.f32 wd, wa, wb", (1, 1), 0),
        ("sub.f32 wd, wa, wb", (f32(1), f32(1)), 0),
        # 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: only a fused operation keeps the last term.
        ("fma.rn.f32 wd, wa, wb, wc", (f32(1 + 2.0**-12), f32(1 + 2.0**-12), f32(-(1 + 2.0**-11))), f32(2.0**-24)),
        ("fma.rn.f64 ld, la, lb, lc", (f64(1 + 2.0**-30), f64(1 + 2.0**-30), f64(-(1 + 2.0**-29))), f64(2.0**-60)),
        ("div.rn.f32 wd, wa, wb", (f32(1), f32(3)), f32(1 / 3)),
        ("div.rn.f32 wd, wa, wb", (0, 0), NAN),
        ("div.rn.f64 ld, la, lb", (f64(1), f64(3)), f64(1 / 3)),
        ("rcp.rn.f32 wd, wa", (f32(4),), f32(0.25)),
        ("sqrt.rn.f32 wd, wa", (f32(2),), f32(2**0.5)),
        ("sqrt.rn.f32 wd, wa", (f32(-1),), NAN),
        ("rsqrt.approx.f32 wd, wa", (f32(16),), f32(0.25)),
        ("ex2.approx.f32 wd, wa", (f32(10),), f32(1024)),
        ("lg2.approx.f32 wd, wa", (f32(1024),), f32(10)),
        ("sin.approx.f32 wd, wa", (0,), 0),
        ("cos.approx.f32 wd, wa", (0,), f32(1)),
        ("neg.f32 wd, wa", (f32(1.5),), f32(-1.5)),
        ("abs.f64 ld, la", (f64(-1.5),), f64(1.5)),
        ("copysign.f32 wd, wa, wb", (f32(-1), f32(3)), f32(-3)),
        ("min.f32 wd, wa, wb", (NAN, f32(3)), f32(3)),
        ("min.NaN.f32 wd, wa, wb", (NAN, f32(3)), NAN),
        ("max.f32 wd, wa, wb", (0x80000000, 0), 0),
        ("min.f32 wd, wa, wb", (0, 0x80000000), 0x80000000),
        ("max.f32 wd, wa, wb", (0x7FC00001, 0xFFC00002), NAN),
        ("max.f64 ld, la, lb", (f64(-3), f64(2)), f64(2)),
    ],
    "convert": [
        ("cvt.rn.f32.s32 wd, wa", (M1,), f32(-1)),
        ("cvt.rn.f32.u32 wd, wa", (M1,), f32(2.0**32)),
        ("cvt.rn.f32.s32 wd, wa", (16777217,), f32(16777216)),
        ("cvt.rn.f64.s64 ld, la", (2**64 - 5,), f64(-5)),
        ("cvt.rzi.s32.f32 wd, wa", (f32(-2.75),), M1 - 1),
        ("cvt.rni.s32.f32 wd, wa", (f32(2.5),), 2),
        ("cvt.rni.s32.f32 wd, wa", (f32(3.5),), 4),
        ("cvt.rmi.s32.f32 wd, wa", (f32(-2.25),), M1 - 2),
        ("cvt.rpi.s32.f32 wd, wa", (f32(2.25),), 3),
        ("cvt.rzi.s32.f32 wd, wa", (f32(1e20),), 0x7FFFFFFF),
        ("cvt.rzi.u32.f32 wd, wa", (f32(-5),), 0),
        ("cvt.rzi.s32.f32 wd, wa", (NAN,), 0),
        ("cvt.rzi.s64.f64 ld, la", (f64(float("nan")),), 1 << 63),
        ("cvt.rzi.u8.f32 wd, wa", (f32(300),), 255),
        ("cvt.rni.f32.f32 wd, wa", (f32(2.5),), f32(2)),
        ("cvt.f64.f32 ld, wa", (f32(1.5),), f64(1.5)),
        ("cvt.rn.f32.f64 wd, la", (f64(1 + 2.0**-30),), f32(1)),
        ("cvt.sat.f32.f32 wd, wa", (f32(-7),), 0),
        ("cvt.rn.f16.f32 hd, wa", (f32(1.5),), 0x3E00),
        ("cvt.f32.f16 wd, ha", (0x3E00,), f32(1.5)),
        ("cvt.s64.s32 ld, wa", (M1,), 2**64 - 1),
        ("cvt.u64.u32 ld, wa", (M1,), M1),
        ("cvt.u32.u8 wd, wa", (0x1FF,), 0xFF),
        ("cvt.s32.s8 wd, wa", (0x180,), M1 - 127),
        ("cvt.s8.s32 wd, wa", (0x180,), M1 - 127),
        ("cvt.sat.s8.s32 wd, wa", (1000,), 127),
        ("cvt.sat.u8.s32 wd, wa", (M1,), 0),
        ("cvt.sat.u16.u32 hd, wa", (70000,), 65535),
        ("cvt.u16.u32 hd, wa", (70000,), 70000 - 65536),
        ("mov.b64 ld, {wa, wb}", (1, 2), 1 | 2 << 32),
        ("mov.b64 {wd, wa}, lb", (0, 7 | 9 << 32), 7),
        ("mov.b32 wd, {ha, hb}", (0x1234, 0x5678), 0x56781234),
        ("mov.f32 wd, 0f3FC00000", (), f32(1.5)),
        ("mov.f64 ld, 0.1", (), f64(0.1)),
        ("mov.f32 wd, 0.1", (), f32(0.1)),
    ],
    "special": [
        ("mov.u32 wd, %ntid.x", (), 32),
        ("mov.u32 wd, %nctaid.y", (), 1),
        ("mov.u32 wd, %lanemask_lt", (), 0x7FFFFFFF),
        ("mov.u32 wd, %lanemask_ge", (), 0x80000000),
        ("mov.u32 wd, WARP_SZ", (), 32),
        ("mov.u32 wd, %nsmid", (), 132),
        ("mov.u32 wd, %dynamic_smem_size", (), 48),
        ("mov.u32 wd, %total_smem_size", (), 48),
        ("activemask.b32 wd", (), M1),
        ("vote.sync.ballot.b32 wd, pa, -1", (1,), M1),
        ("vote.sync.all.pred pd, pa, -1", (0,), 0),
        ("vote.sync.any.pred pd, !pa, -1", (0,), 1),
        ("vote.sync.uni.pred pd, pa, -1", (0,), 1),
        ("match.any.sync.b32 wd, wa, -1", (7,), M1),
        ("match.all.sync.b64 wd|pa, lb, -1", (0, 5), M1),
        ("redux.sync.add.u32 wd, wa, -1", (3,), 96),
        ("redux.sync.min.s32 wd, wa, -1", (M1,), M1),
        ("redux.sync.xor.b32 wd, wa, 7", (5,), 5),
        ("elect.sync wd|pa, 0xFF0", (0,), 4),
        ("shfl.sync.idx.b32 wd, %tid, 5, 31, -1", (), 5),
    ],
}

REGISTERS = {"w": "b32", "l": "b64", "h": "b16", "p": "pred"}


def assemble(case: Case, number: int) -> str:
    """The case as PTX in a scope of its own. All lanes store to element `number`, so that the result of lane 31 stays."""
    text, values, _ = case
    operands = dict(zip("abce", values, strict=False))
    declared, code = [], []
    widths: dict[str, str] = {}
    for word in re.findall(r"[%\w.]+", text):
        if re.fullmatch("[wlhp][abced]", word):
            widths[word[1]] = word[0]
    for letter, width in widths.items():
        declared.append(f".reg .{REGISTERS[width]} {width}{letter};")
        if letter in operands:
            value, kind = operands[letter], REGISTERS[width]
            code.append(f"setp.ne.u32 p{letter}, {value}, 0;" if width == "p" else f"mov.{kind} {width}{letter}, {value:#x};")
    widen = {"w": "cvt.u64.u32 ld, wd;", "h": "cvt.u64.u16 ld, hd;", "p": "selp.u64 ld, 1, 0, pd;", "l": ""}[widths["d"]]
    if widths["d"] != "l":
        declared.append(".reg .b64 ld;")
    return "{ " + " ".join([*declared, *code, text + ";", widen, f"st.global.u64 [%out+{8 * number}], ld;"]) + " }"


@pytest.mark.parametrize("family", FAMILIES)
def test_values(family: str) -> None:
    cases = FAMILIES[family]
    target = emulator()
    out = target.zeros(len(cases), np.uint64)
    body = "\n".join(assemble(case, number) for number, case in enumerate(cases))
    target.load(parse(program(f"{body}\nret;")))["k"][1, 32, target.default_stream, 48](out)
    results = out.numpy().tolist()
    wrong = {case[0]: (hex(result), hex(case[2])) for case, result in zip(cases, results, strict=True) if result != case[2]}
    assert not wrong

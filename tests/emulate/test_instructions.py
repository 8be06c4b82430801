"""Single instructions with values worked out by hand from the PTX manual: those of `tests/cases/instructions`, and a few whose operands are
no registers. One kernel runs many cases."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from memlane.ptx import parse
from tests.emulate.running import emulator, program

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import handmade
from application import module, run

M1 = 0xFFFFFFFF


def f32(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def f64(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


# Each case: the instruction, with d the result and a, b, c its operands; their bits; the bits expected. Widths come from the prefixes:
# w 32 bits, l 64 bits, h 16 bits, p a predicate (1 or 0).
Case = tuple[str, tuple[int, ...], int]

FAMILIES: dict[str, list[Case]] = {
    "immediate": [
        ("shl.b32 wd, wa, 33", (1,), 0),
        ("shr.s32 wd, wa, 4", (1 << 31,), 0xF8000000),
        ("shr.s32 wd, wa, 32", (1 << 31,), M1),
        ("add.cc.u64 ld, la, lb; addc.u64 ld, lc, 0", (2**64 - 1, 1, 5), 6),
        ("mad.lo.cc.u32 wd, wa, wb, wc; madc.hi.u32 wd, wa, wb, we", (M1, M1, M1, 0), M1 - 1 + 1),
    ],
    "move": [
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


# -- the case files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in handmade.FILES.glob("*.txt")))
def test_case_files(name: str) -> None:
    target = emulator()
    chosen = tuple(line for line in handmade.lines() if line.place.startswith(f"{name}:"))
    assert len(chosen) > 15
    wrong = []
    for kernel in handmade.kernels(chosen):
        for line, found in kernel.wrong(run(kernel, target.load(module([kernel])), target)):
            wrong.append((line.place, line.case.name, [hex(bits) for bits in found]))
    assert wrong == []


def test_a_case_that_is_wrong_is_found_and_named() -> None:
    text = "add.u32 | 1 2 -> 3\nadd.u32 | 1 2 -> 4\nsetp.lt.s32 | 1 2 -> 1 1  # the second is the opposite\n"
    target = emulator()
    wrong = []
    for kernel in handmade.kernels(tuple(handmade.read("some.txt", text))):
        wrong += [(line.place, found) for line, found in kernel.wrong(run(kernel, target.load(module([kernel])), target))]
    assert wrong == [("some.txt:2", (3,)), ("some.txt:3", (1, 0))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add.u32 1 2 -> 3", r"^some\.txt:1: `add\.u32 1 2 -> 3` is not `instruction \| operands -> results`$"),
        ("add.u32 | 1 -> 3", r"^some\.txt:1: there is no add\.u32 with 1 operands among add\.u32$"),
        ("add.u32 | 1 2 -> 3 4", r"^some\.txt:1: add\.u32 has 1 results, not 2$"),
        ("add.f32 | 1 2.0 -> 3.0", r"1 is an integer where f32 is wanted: write bits, or a point$"),
        ("add.u16 | 0x10000 1 -> 1", r"0x10000 has more than the 16 bits of u16$"),
    ],
)
def test_a_case_file_that_makes_no_sense_is_refused_by_line(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(handmade.read("some.txt", line))


def test_values_are_written_as_bits_integers_or_real_numbers() -> None:
    text = "add.f32 | 2^-149 -1.5 -> nan\nadd.f64 | -inf nan -> ?\nadd.s16 | -1 0x7fff -> 32766\n"
    first, second, third = handmade.read("some.txt", text)
    assert (first.operands, first.results) == ((1, 0xBFC00000), (0x7FFFFFFF,))
    assert (second.operands, second.results) == ((0xFFF0 << 48, (1 << 63) - 1), (None,))
    assert (third.operands, third.results) == ((0xFFFF, 0x7FFF), (0x7FFE,))
    (any_nan,) = handmade.read("some.txt", "add.f64 | inf -inf -> nan")
    assert not any_nan.differs((0xFFF8 << 48,))
    assert any_nan.differs((0x7FF0 << 48,))

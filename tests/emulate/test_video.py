"""Scalar video instructions whose assembled code does not follow the manual: which forms are refused, and which of them are not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from memlane.errors import UnsupportedPtx
from memlane.ptx import parse
from tests.emulate.running import emulator, program

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from emulated import refusals

WORD = 0xFFFFFFFF
EDGES = np.array([0, 1, 0x80FF, 0x7FFFFFFF, 0x80000000, 0x80017F80, 0xFFFF0000, WORD], np.uint32)

HALF = "puts the upper half of the result into `.h1`: insert the result with `bfi`"
PART = "saturates to other limits than those of the part: saturate with `min` and `max`, and insert with `bfi`"
LARGE = "does not limit results that exceed 32 bits: compute in 64 bits, and limit with `min`"
NEGATIVE = "treats a negative result as the largest in `.min`: write a `min` of its own"
HIGHEST = "treats a result of 2^31 or more as the largest in `.max`: write a `max` of its own"

REFUSED = {
    "vadd.u32.u32.u32 %r0.h1, %r1, %r2, %r3": HALF,
    "vset.s32.s32.lt %r0.h1, %r1.h0, %r2.b1, %r3": HALF,
    "vadd.s32.s32.s32.sat %r0.b2, %r1.b3, %r2.h1, %r3": PART,
    "vsub.u32.u32.u32.sat %r0.h0, %r1.b3, %r2.b1, %r3": PART,
    "vmax.u32.s32.s32.sat %r0.b0, %r1, %r2, %r3": PART,
    "vshl.u32.u32.u32.sat.clamp %r0.b2, %r1.b3, %r2.h1, %r3": PART,
    "vshr.u32.u32.u32.sat.wrap %r0.b2, %r1, %r2, %r3": PART,
    "vadd.u32.u32.u32.sat %r0, %r1, %r2": LARGE,
    "vadd.u32.u32.s32.sat.add %r0, %r1.b0, %r2, %r3": "",
    "vadd.u32.u32.u32.sat %r0, %r1, %r2.b0": LARGE,
    "vsub.u32.u32.s32.sat %r0, %r1, %r2": LARGE,
    "vabsdiff.u32.s32.u32.sat %r0, %r1, %r2": LARGE,
    "vmin.u32.s32.u32.min %r0, %r1, %r2, %r3": NEGATIVE,
    "vsub.u32.u32.u32.min %r0, %r1.b0, %r2.b0, %r3": NEGATIVE,
    "vadd.u32.u32.u32.max %r0, %r1, %r2, %r3": HIGHEST,
    "vshr.u32.u32.u32.sat.wrap.max %r0, %r1, %r2, %r3": HIGHEST,
    "vadd.u32.u32.u32.max %r0, %r1.h0, %r2.b3, %r3": "",
    "vadd.u32.u32.u32.sat %r0.b2, %r1, %r2, %r3": "",
    "vshr.s32.u32.u32.sat.clamp %r0.b0, %r1.b0, %r2, %r3": PART,
    "vshr.s32.u32.u32.sat.clamp %r0.h0, %r1.b0, %r2, %r3": "",
    "vabsdiff.s32.s32.s32.sat %r0.h0, %r1, %r2, %r3": "",
    "vmax.u32.u32.s32.sat %r0.b0, %r1, %r2, %r3": "",
    "vshl.u32.u32.u32.sat.clamp %r0, %r1, %r2": "",
    "vmin.u32.s32.u32.sat.min %r0, %r1, %r2, %r3": "",
    "vshr.u32.u32.u32.wrap.max %r0, %r1, %r2, %r3": "",
}
"""What is said of a form after the colon; nothing of those that agree for all that their operands can be."""


def test_forms_whose_code_disagrees_with_the_manual_are_refused_with_what_to_write_instead() -> None:
    zeros = "".join(f"mov.b32 %r{number}, 0;\n" for number in range(4))
    module = parse(program(zeros + "".join(f"{form};\n" for form in REFUSED) + "ret;"))
    kernel = module.kernels["k"]
    said = refusals(module, kernel)
    first = next(index for index, one in enumerate(kernel.instructions()) if one.opcode.startswith("v"))
    for index, (form, otherwise) in enumerate(REFUSED.items(), first):
        head = f"the assembler for sm_90 disagrees with the manual on `{form.partition(' ')[0]}`: it "
        assert said.get(index, "") == (head + otherwise if otherwise else ""), form


def test_a_refused_form_is_named_with_its_place_when_its_kernel_is_launched() -> None:
    target = emulator()
    kernel = target.load(parse(program("mov.b32 %r1, 1;\nvadd.u32.u32.u32.sat %r0, %r1, %r1; ret;"), "test.ptx"))["k"]
    with pytest.raises(UnsupportedPtx) as caught:
        kernel[1, 32](target.zeros(8, np.uint32))
    said = "test.ptx:19:1: the assembler for sm_90 disagrees with the manual on `vadd.u32.u32.u32.sat`: it does not limit results"
    assert str(caught.value).startswith(said)


def bits(numbers: npt.NDArray[np.int64]) -> list[int]:
    return [int(number) & WORD for number in numbers]


def test_second_operations_and_products_follow_the_assembled_code() -> None:
    """By what ptxas 13.0 makes of them for sm_80 to sm_100: a sum is cut before it is compared, `c` of `vset` has the sign of `a`,
    and whole words are signed factors."""
    target = emulator()
    a, b, c = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES, EDGES, indexing="ij"))
    x, y, z = (word.view(np.int32).astype(np.int64) for word in (a, b, c))
    wanted = {
        "vadd.s32.u32.s32.min %r0, %r1, %r2, %r3": np.minimum((a + b).view(np.int32), z),
        "vsub.s32.u32.u32.max %r0, %r1, %r2, %r3": np.maximum((a - b).view(np.int32), z),
        "vset.s32.u32.lt.max %r0, %r1, %r2, %r3": np.maximum(x < b, z),
        "vset.u32.s32.ge.max %r0, %r1, %r2, %r3": np.maximum(a >= y, c.astype(np.int64)),
        "vmad.s32.u32.u32.sat %r0, %r1, %r2, %r3": np.clip(x * y + z, 0, WORD),
        "vmad.u32.u32.s32.sat %r0, %r1, %r2.h0, %r3": np.clip(x * b.astype(np.int16) + z, -(1 << 31), (1 << 31) - 1),
        "vmad.u32.u32.u32.po.shr7 %r0, %r1.b0, %r2, %r3": ((a & 255) * y + z + 1).view(np.uint64) >> np.uint64(7),
        "vmad.u32.s32.u32.shr15 %r0, %r1, %r2.h1, %r3": (x * (b >> 16) + z) >> 15,
    }
    operands = target.array(np.stack([a, b, c]))
    out = target.zeros((len(wanted), len(a)), np.uint32)
    lines = ["ld.param.u64 %rd1, [in];", "mul.wide.u32 %rd2, %tid, 4;", "add.u64 %rd1, %rd1, %rd2;", "add.u64 %rd3, %out, %rd2;"]
    lines += [f"ld.global.u32 %r{number + 1}, [%rd1+{4 * len(a) * number}];" for number in range(3)]
    for number, form in enumerate(wanted):
        lines += [f"{form};", f"st.global.u32 [%rd3+{4 * len(a) * number}], %r0;"]
    text = program("\n".join([*lines, "ret;"]), params=".param .u64 out, .param .u64 in")
    assert len(a) % 32 == 0
    target.load(parse(text))["k"][1, len(a)](out, operands)
    for form, found in zip(wanted, out.numpy(), strict=True):
        assert found.tolist() == bits(wanted[form]), form

"""Scalar video instructions whose assembled code does not follow the manual: the results are those of the code that ptxas 13.0 makes of
them for sm_90, instruction by instruction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from memlane.ptx import parse
from tests.emulate.running import emulator, program

WORD = 0xFFFFFFFF
EDGES = np.array([0, 1, 0x80FF, 0x7FFFFFFF, 0x80000000, 0x80017F80, 0xFFFF0000, WORD], np.uint32)


def bits(numbers: npt.NDArray[np.int64]) -> list[int]:
    return [int(number) & WORD for number in numbers]


def part(word: npt.NDArray[np.int64], shift: int, size: int, value: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The words with `size` bits from `shift` on replaced by the lowest of a value."""
    mask = ((1 << size) - 1) << shift
    return (word & ~mask) | (value << shift & mask)


def below(value: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Limited at the top, as if it were unsigned: a negative number is a large one."""
    return np.minimum(value.view(np.uint64), np.uint64(limit)).view(np.int64)


def cut(value: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The lower words, extended by their signs, as unsigned numbers of 64 bits."""
    return value.astype(np.int32).astype(np.int64).view(np.uint64)


def test_results_follow_the_assembled_code() -> None:
    """For sm_80 to sm_100: a sum is cut before it is compared, `c` of `vset` has the sign of `a`, whole words are signed factors, `.h1`
    receives the upper half of the result, parts are limited at the top only, and unsigned sums of words at 0 only."""
    target = emulator()
    a, b, c = (grid.ravel() for grid in np.meshgrid(EDGES, EDGES, EDGES, indexing="ij"))
    x, y, z = (word.view(np.int32).astype(np.int64) for word in (a, b, c))
    ul, vl, wl = (word.astype(np.int64) for word in (a, b, c))
    w = wl.view(np.uint64)
    byte_a, half_b = a.view(np.int8).reshape(-1, 4)[:, 3].astype(np.int64), b.view(np.int16).reshape(-1, 2)[:, 1].astype(np.int64)
    shifted = np.where(vl & 31 > 0, ul << (vl & 31), ul) << 30 >> 30  # an intermediate result of 34 bits
    wanted = {
        "vadd.u32.u32.u32 %r0.h1, %r1, %r2, %r3": part(wl, 16, 16, ul + vl >> 16),
        "vadd.s32.s32.s32.sat %r0.h1, %r1, %r2, %r3": part(wl, 16, 16, below(x + y, 0x7FFF) >> 16),
        "vset.s32.s32.lt %r0.h1, %r1, %r2, %r3": part(wl, 16, 16, wl * 0),
        "vadd.s32.s32.s32.sat %r0.b2, %r1.b3, %r2.h1, %r3": part(wl, 16, 8, below(byte_a + half_b, 0x7F)),
        "vsub.u32.u32.u32.sat %r0.h0, %r1, %r2, %r3": part(wl, 0, 16, below(ul - vl, 0xFFFF)),
        "vmax.u32.s32.s32.sat %r0.b0, %r1, %r2, %r3": part(wl, 0, 8, below(np.maximum(x, y), 0xFF)),
        "vshl.u32.u32.u32.sat.wrap %r0.b2, %r1, %r2, %r3": part(wl, 16, 8, np.clip(shifted, 0, WORD)),
        "vshr.s32.u32.u32.sat.wrap %r0.b0, %r1, %r2, %r3": part(wl, 0, 8, np.minimum(ul >> (vl & 31), 0x7FFFFFFF)),
        "vadd.u32.u32.u32.sat %r0, %r1, %r2": ul + vl,
        "vsub.u32.u32.s32.sat %r0, %r1, %r2": np.maximum(ul - y, 0),
        "vabsdiff.u32.s32.u32.sat %r0, %r1, %r2": np.abs(x - vl),
        "vmin.u32.s32.u32.min %r0, %r1, %r2, %r3": np.minimum(np.minimum(x, vl).view(np.uint64), w),
        "vsub.u32.u32.u32.min %r0, %r1, %r2, %r3": np.minimum(cut(ul - vl), w),
        "vadd.u32.u32.u32.max %r0, %r1, %r2, %r3": np.maximum(cut(ul + vl), w),
        "vshr.u32.u32.u32.sat.wrap.max %r0, %r1, %r2, %r3": np.maximum(cut(ul >> (vl & 31)), w),
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

"""One instruction applied to arrays of operands, one element a thread."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from memlane.ptx import parse
from tests.emulate.running import HEAD, emulator

_BITS = {"p": 1, "h": 16, "w": 32, "l": 64}
Bits = npt.NDArray[np.uint64]


def apply(instruction: str, *operands: npt.ArrayLike) -> Bits:
    """The bits of the result. The instruction names its operands as in `fma.rm.f32 wd, wa, wb, wc`: letter and, before it, its width
    (w 32 bits, l 64, h 16, p a predicate). `operands` are the bits of a, b and c."""
    arrays = [np.atleast_1d(np.asarray(operand, np.uint64)) for operand in operands]
    count = max(len(array) for array in arrays)
    names = sorted(set(re.findall(r"\b[phwl][abcd]\b", instruction)))
    body = [f".reg .{'pred' if name[0] == 'p' else f'b{_BITS[name[0]]}'} {name};" for name in names]
    for letter, _ in zip("abc", arrays, strict=False):
        width = next(name[0] for name in names if name[1] == letter)
        body.append(f"ld.param.u64 at, [{letter}]; add.u64 at, at, offset; ld.global.b64 l, [at];")
        if width == "p":
            body.append(f"setp.ne.u64 p{letter}, l, 0;")
        else:
            body.append(f"cvt.u{_BITS[width]}.u64 {width}{letter}, l;" if width != "l" else f"mov.b64 l{letter}, l;")
    result = next(name[0] for name in names if name[1] == "d")
    body.append(instruction + ";")
    body.append({"p": "selp.u64 l, 1, 0, pd;", "l": "mov.b64 l, ld;"}.get(result, f"cvt.u64.u{_BITS[result]} l, {result}d;"))
    params = ", ".join(f".param .u64 {name}" for name in ("out", *"abc"[: len(arrays)]))
    text = f"""{HEAD}
.visible .entry k({params}) {{
    .reg .b64 at, l, offset;
    .reg .b32 i, n, t;
    mov.u32 i, %ctaid.x; mov.u32 n, %ntid.x; mov.u32 t, %tid.x;
    mad.lo.u32 i, i, n, t;
    mul.wide.u32 offset, i, 8;
    {" ".join(body)}
    ld.param.u64 at, [out]; add.u64 at, at, offset; st.global.b64 [at], l;
    ret;
}}
"""
    target = emulator()
    padded = -(-count // 32) * 32
    out = target.zeros(padded, np.uint64)
    inputs = [target.array(np.resize(array, padded)) for array in arrays]
    target.load(parse(text, "test.ptx"))["k"][padded // 32, 32](out, *inputs)
    found: Bits = out.numpy()[:count]
    return found

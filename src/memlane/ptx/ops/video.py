"""Video instructions: arithmetic on words and on their bytes and halves, with a second operation.

An operand may select a part of a register: `%r1.b0`, `%r1.h1`, `%r1.b3210`. For a destination it is the part that receives the result.
"""

from __future__ import annotations

from memlane.ptx.forms import Op, op

_SCALAR = "scalar-video-instructions-"
_SIMD = "simd-video-instructions-"
_WORDS = "u32 s32"
_COMPARISONS = "eq ne lt le gt ge"
_ARITHMETIC = ("vadd", "vsub", "vabsdiff", "vmin", "vmax")
_SECOND = "add min max"


def _with_second(entry: Op, head: str) -> Op:
    """Add the rows of a scalar instruction: alone, merged into a part of `c`, and with a second operation."""
    return entry.form(f"{head} d, a, b{{, c}}").form(f"{head}.second d, a, b, c")


OPS = (
    *(
        _with_second(
            op(name, manual=_SCALAR + "-".join(_ARITHMETIC), types="d:dtype a:atype b:btype c:dtype"), f"{name}.dtype.atype.btype{{.sat}}"
        ).where(dtype=_WORDS, atype=_WORDS, btype=_WORDS, second=_SECOND)
        for name in _ARITHMETIC
    ),
    *(
        _with_second(
            op(name, manual=_SCALAR + "vshl-vshr", types="d:dtype a:atype b:u32 c:dtype"), f"{name}.dtype.atype.u32{{.sat}}.mode"
        ).where(dtype=_WORDS, atype=_WORDS, mode="clamp wrap", second=_SECOND)
        for name in ("vshl", "vshr")
    ),
    op("vmad", manual=_SCALAR + "vmad", types="d:dtype a:atype b:btype c:b32")
    .form("vmad.dtype.atype.btype{.po}{.sat}{.scale} d, a, b, c")
    .where(dtype=_WORDS, atype=_WORDS, btype=_WORDS, scale="shr7 shr15"),
    _with_second(op("vset", manual=_SCALAR + "vset", types="d:u32 a:atype b:btype c:u32"), "vset.atype.btype.cmp").where(
        atype=_WORDS, btype=_WORDS, cmp=_COMPARISONS, second=_SECOND
    ),
    *(
        op(f"{name}{lanes}", manual=f"{_SIMD}{name}{lanes}", types="d:b32 a:b32 b:b32 c:b32")
        .form(f"{name}{lanes}.dtype.atype.btype{{.sat}} d, a, b, c")
        .form(f"{name}{lanes}.dtype.atype.btype.add     d, a, b, c")
        .where(dtype=_WORDS, atype=_WORDS, btype=_WORDS)
        for lanes in "24"
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    ),
    *(
        op(f"vset{lanes}", manual=f"{_SIMD}vset{lanes}", types="d:b32 a:b32 b:b32 c:b32")
        .form(f"vset{lanes}.atype.btype.cmp{{.add}} d, a, b, c")
        .where(atype=_WORDS, btype=_WORDS, cmp=_COMPARISONS)
        for lanes in "24"
    ),
)

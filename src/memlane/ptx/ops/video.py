"""Video instructions: arithmetic on the four bytes or two halves of a word.

Selectors written on the operands (`a.b0`) are not modelled; compilers emit the plain forms.
"""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "simd-video-instructions-"
_WORDS = "u32 s32"
_COMPARISONS = "eq ne lt le gt ge"

OPS = (
    *(
        op(f"{name}{lanes}", manual=f"{_SECTION}{name}{lanes}", types="d:b32 a:b32 b:b32 c:b32")
        .form(f"{name}{lanes}.dtype.atype.btype{{.sat}} d, a, b, c")
        .form(f"{name}{lanes}.dtype.atype.btype.add     d, a, b, c")
        .where(dtype=_WORDS, atype=_WORDS, btype=_WORDS)
        for lanes in "24"
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax")
    ),
    *(
        op(f"vset{lanes}", manual=f"{_SECTION}vset{lanes}", types="d:b32 a:b32 b:b32 c:b32")
        .form(f"vset{lanes}.atype.btype.cmp{{.add}} d, a, b, c")
        .where(atype=_WORDS, btype=_WORDS, cmp=_COMPARISONS)
        for lanes in "24"
    ),
)

"""Comparison and selection, in all precisions."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "comparison-and-selection-instructions-"
_HALF = "half-precision-comparison-instructions-"
_TYPES = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"
_COMPARISONS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"
_BOOLEANS = "and or xor"

OPS = (
    op("set", manual=_SECTION + "set", types="a:stype b:stype c:pred")
    .form("set.cmp{.ftz}.dtype.stype      d, a, b")
    .form("set.cmp.bool{.ftz}.dtype.stype d, a, b, {!}c")
    .where(cmp=_COMPARISONS, bool=_BOOLEANS, dtype="u32 s32 f32 f16", stype=_TYPES),
    op("set", manual=_SECTION + "set", variant="to bf16", types="a:stype b:stype c:pred")
    .form("set.cmp.dtype.stype      d, a, b")
    .form("set.cmp.bool.dtype.stype d, a, b, {!}c")
    .where(cmp=_COMPARISONS, bool=_BOOLEANS, dtype="bf16", stype=_TYPES),
    op("setp", manual=_SECTION + "setp")
    .form("setp.cmp{.ftz}.type      p{|q}, a, b")
    .form("setp.cmp.bool{.ftz}.type p{|q}, a, b, {!}c")
    .where(cmp=_COMPARISONS, bool=_BOOLEANS, type=_TYPES),
    op("selp", manual=_SECTION + "selp", types="c:pred").form("selp.type d, a, b, c").where(type=_TYPES),
    op("slct", manual=_SECTION + "slct", types="d:dtype a:dtype b:dtype c:ctype")
    .form("slct.dtype.s32       d, a, b, c", types="d:dtype a:dtype b:dtype c:s32")
    .form("slct{.ftz}.dtype.f32 d, a, b, c", types="d:dtype a:dtype b:dtype c:f32")
    .where(dtype=_TYPES),
    op("set", manual=_HALF + "set", variant="half", types="a:stype b:stype c:pred")
    .form("set.cmp{.ftz}.dtype.stype      d, a, b")
    .form("set.cmp.bool{.ftz}.dtype.stype d, a, b, {!}c")
    .where(cmp=_COMPARISONS, bool=_BOOLEANS, dtype="f16 f16x2 bf16 bf16x2 u16 s16 u32 s32", stype="f16 f16x2 bf16 bf16x2"),
    op("setp", manual=_HALF + "setp", variant="half")
    .form("setp.cmp{.ftz}.type      p{|q}, a, b")
    .form("setp.cmp.bool{.ftz}.type p{|q}, a, b, {!}c")
    .where(cmp=_COMPARISONS, bool=_BOOLEANS, type="f16 f16x2 bf16 bf16x2"),
)

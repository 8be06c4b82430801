"""Logic and shift."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "logic-and-shift-instructions-"
_TYPES = "pred b16 b32 b64"

OPS = (
    op("and", manual=_SECTION + "and").form("and.type d, a, b").where(type=_TYPES),
    op("or", manual=_SECTION + "or").form("or.type d, a, b").where(type=_TYPES),
    op("xor", manual=_SECTION + "xor").form("xor.type d, a, b").where(type=_TYPES),
    op("not", manual=_SECTION + "not").form("not.type d, a").where(type=_TYPES),
    op("cnot", manual=_SECTION + "cnot").form("cnot.type d, a").where(type="b16 b32 b64"),
    op("lop3", manual=_SECTION + "lop3", types="d:b32 a:b32 b:b32 c:b32 lut:- q:pred")
    .form("lop3.b32      d, a, b, c, lut")
    .form("lop3.bool.b32 d|p, a, b, c, lut, q")
    .where(bool="and or"),
    op("shf", manual=_SECTION + "shf", types="d:b32 a:b32 b:b32 c:u32")
    .form("shf.direction.mode.b32 d, a, b, c")
    .where(direction="l r", mode="clamp wrap"),
    op("shl", manual=_SECTION + "shl", types="b:u32").form("shl.type d, a, b").where(type="b16 b32 b64"),
    op("shr", manual=_SECTION + "shr", types="b:u32").form("shr.type d, a, b").where(type="b16 b32 b64 u16 u32 u64 s16 s32 s64"),
)

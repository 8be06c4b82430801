"""Integer arithmetic."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "integer-arithmetic-instructions-"
_INTEGERS = "u16 u32 u64 s16 s32 s64"
_WORDS = "u32 s32"

OPS = (
    op("add", manual=_SECTION + "add")
    .form("add.type       d, a, b", type=_INTEGERS + " u16x2 s16x2")
    .form("add{.sat}.type d, a, b", type="s32"),
    op("sub", manual=_SECTION + "sub").form("sub.type       d, a, b", type=_INTEGERS).form("sub{.sat}.type d, a, b", type="s32"),
    op("mul", manual=_SECTION + "mul")
    .form("mul.mode.type d, a, b", mode="hi lo")
    .form("mul.wide.type d, a, b", type="u16 u32 s16 s32", types="d:type*2")
    .where(type=_INTEGERS),
    op("mad", manual=_SECTION + "mad")
    .form("mad.mode.type   d, a, b, c", mode="hi lo")
    .form("mad.wide.type   d, a, b, c", type="u16 u32 s16 s32", types="d:type*2 c:type*2")
    .form("mad.hi.sat.type d, a, b, c", type="s32")
    .where(type=_INTEGERS),
    op("mul24", manual=_SECTION + "mul24").form("mul24.mode.type d, a, b").where(mode="hi lo", type=_WORDS),
    op("mad24", manual=_SECTION + "mad24")
    .form("mad24.mode.type   d, a, b, c")
    .form("mad24.hi.sat.type d, a, b, c", type="s32")
    .where(mode="hi lo", type=_WORDS),
    op("sad", manual=_SECTION + "sad").form("sad.type d, a, b, c").where(type=_INTEGERS),
    op("div", manual=_SECTION + "div").form("div.type d, a, b").where(type=_INTEGERS),
    op("rem", manual=_SECTION + "rem").form("rem.type d, a, b").where(type=_INTEGERS),
    op("abs", manual=_SECTION + "abs").form("abs.type d, a").where(type="s16 s32 s64"),
    op("neg", manual=_SECTION + "neg").form("neg.type d, a").where(type="s16 s32 s64"),
    op("min", manual=_SECTION + "min")
    .form("min.type         d, a, b", type=_INTEGERS + " u16x2 s16x2")
    .form("min{.relu}.type  d, a, b", type="s16x2 s32"),
    op("max", manual=_SECTION + "max")
    .form("max.type         d, a, b", type=_INTEGERS + " u16x2 s16x2")
    .form("max{.relu}.type  d, a, b", type="s16x2 s32"),
    op("popc", manual=_SECTION + "popc", types="d:u32").form("popc.type d, a").where(type="b32 b64"),
    op("clz", manual=_SECTION + "clz", types="d:u32").form("clz.type d, a").where(type="b32 b64"),
    op("bfind", manual=_SECTION + "bfind", types="d:u32").form("bfind{.shiftamt}.type d, a").where(type="u32 u64 s32 s64"),
    op("fns", manual=_SECTION + "fns", types="d:b32 mask:b32 base:b32 offset:s32").form("fns.b32 d, mask, base, offset"),
    op("brev", manual=_SECTION + "brev").form("brev.type d, a").where(type="b32 b64"),
    op("bfe", manual=_SECTION + "bfe", types="b:u32 c:u32").form("bfe.type d, a, b, c").where(type="u32 u64 s32 s64"),
    op("bfi", manual=_SECTION + "bfi", types="c:u32 d:u32 f:type", writes="f").form("bfi.type f, a, b, c, d").where(type="b32 b64"),
    op("szext", manual=_SECTION + "szext", types="b:u32").form("szext.mode.type d, a, b").where(mode="clamp wrap", type=_WORDS),
    op("bmsk", manual=_SECTION + "bmsk", types="d:b32 a:u32 b:u32").form("bmsk.mode.b32 d, a, b").where(mode="clamp wrap"),
    op("dp4a", manual=_SECTION + "dp4a", types="d:b32 a:b32 b:b32 c:b32")
    .form("dp4a.atype.btype d, a, b, c")
    .where(atype=_WORDS, btype=_WORDS),
    op("dp2a", manual=_SECTION + "dp2a", types="d:b32 a:b32 b:b32 c:b32")
    .form("dp2a.mode.atype.btype d, a, b, c")
    .where(mode="lo hi", atype=_WORDS, btype=_WORDS),
)

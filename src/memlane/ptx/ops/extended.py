"""Extended-precision integer arithmetic: carry-in and carry-out through the condition code register."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "extended-precision-integer-arithmetic-instructions-"
_TYPES = "u32 s32 u64 s64"

OPS = (
    op("add.cc", manual=_SECTION + "add-cc").form("add.cc.type d, a, b").where(type=_TYPES),
    op("addc", manual=_SECTION + "addc").form("addc{.cc}.type d, a, b").where(type=_TYPES),
    op("sub.cc", manual=_SECTION + "sub-cc").form("sub.cc.type d, a, b").where(type=_TYPES),
    op("subc", manual=_SECTION + "subc").form("subc{.cc}.type d, a, b").where(type=_TYPES),
    op("mad.cc", manual=_SECTION + "mad-cc").form("mad.mode.cc.type d, a, b, c").where(mode="hi lo", type=_TYPES),
    op("madc", manual=_SECTION + "madc").form("madc.mode{.cc}.type d, a, b, c").where(mode="hi lo", type=_TYPES),
)

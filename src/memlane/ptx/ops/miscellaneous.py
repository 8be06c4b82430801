"""Stack manipulation and miscellaneous instructions."""

from __future__ import annotations

from memlane.ptx.forms import op

_STACK = "stack-manipulation-instructions-"
_SECTION = "miscellaneous-instructions-"

OPS = (
    op("stacksave", manual=_STACK + "stacksave").form("stacksave.type d").where(type="u32 u64"),
    op("stackrestore", manual=_STACK + "stackrestore", effect="other").form("stackrestore.type a").where(type="u32 u64"),
    op("alloca", manual=_STACK + "alloca", types="d:type size:type align:-", effect="other")
    .form("alloca.type d, size{, align}")
    .where(type="u32 u64"),
    op("brkpt", manual=_SECTION + "brkpt", effect="trap").form("brkpt"),
    op("nanosleep", manual=_SECTION + "nanosleep", effect="other", types="t:u32").form("nanosleep.u32 t"),
    op("pmevent", manual=_SECTION + "pmevent", effect="other", types="a:-").form("pmevent{.mask} a"),
    op("trap", manual=_SECTION + "trap", effect="trap").form("trap"),
    op("setmaxnreg", manual=_SECTION + "setmaxnreg", effect="other", types="n:-")
    .form("setmaxnreg.action.sync.aligned.u32 n")
    .where(action="inc dec"),
)

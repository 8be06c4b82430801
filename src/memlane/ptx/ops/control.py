"""Control flow."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "control-flow-instructions-"

OPS = (
    op("bra", manual=_SECTION + "bra", effect="branch", types="target:-").form("bra{.uni} target"),
    op("brx.idx", manual=_SECTION + "brx-idx", effect="branch", types="index:u32 targets:-").form("brx.idx{.uni} index, targets"),
    op("call", manual=_SECTION + "call", effect="call", types="result:- function:- arguments:- prototype:-", writes="result")
    .form("call{.uni} (result), function, (arguments){, prototype}")
    .form("call{.uni} (result), function")
    .form("call{.uni} function, (arguments){, prototype}")
    .form("call{.uni} function, prototype")
    .form("call{.uni} function"),
    op("ret", manual=_SECTION + "ret", effect="return").form("ret{.uni}"),
    op("exit", manual=_SECTION + "exit", effect="exit").form("exit"),
)

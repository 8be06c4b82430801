"""Exchange between the lanes of a warp."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "parallel-synchronization-and-communication-instructions-"

OPS = (
    op("shfl.sync", manual=_SECTION + "shfl-sync", effect="warp", types="d:b32 p:pred a:b32 b:u32 c:u32 mask:b32")
    .form("shfl.sync.mode.b32 d{|p}, a, b, c, mask")
    .where(mode="up down bfly idx"),
    op("shfl", manual=_SECTION + "shfl", effect="warp", types="d:b32 p:pred a:b32 b:u32 c:u32")
    .form("shfl.mode.b32 d{|p}, a, b, c")
    .where(mode="up down bfly idx"),
    op("vote.sync", manual=_SECTION + "vote-sync", effect="warp", types="d:pred a:pred mask:b32")
    .form("vote.sync.mode.pred   d, {!}a, mask", mode="all any uni")
    .form("vote.sync.ballot.b32  d, {!}a, mask", types="d:b32 a:pred mask:b32"),
    op("vote", manual=_SECTION + "vote", effect="warp", types="d:pred a:pred")
    .form("vote.mode.pred  d, {!}a", mode="all any uni")
    .form("vote.ballot.b32 d, {!}a", types="d:b32 a:pred"),
    op("match.sync", manual=_SECTION + "match-sync", effect="warp", types="d:b32 a:type mask:b32")
    .form("match.any.sync.type d, a, mask")
    .form("match.all.sync.type d{|p}, a, mask")
    .where(type="b32 b64"),
    op("activemask", manual=_SECTION + "activemask", effect="warp", types="d:b32").form("activemask.b32 d"),
    op("redux.sync", manual=_SECTION + "redux-sync", effect="warp", types="d:type a:type mask:b32")
    .form("redux.sync.op.type                d, a, mask", op="add min max", type="u32 s32")
    .form("redux.sync.op.b32                 d, a, mask", op="and or xor", types="d:b32 a:b32 mask:b32")
    .form("redux.sync.op{.abs}{.NaN}.f32     d, a, mask", op="min max", types="d:f32 a:f32 mask:b32"),
    op("elect.sync", manual=_SECTION + "elect-sync", effect="warp", types="d:b32 p:pred mask:b32").form("elect.sync d|p, mask"),
)

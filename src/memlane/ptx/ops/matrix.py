"""Matrix instructions of a warp and of a warpgroup."""

from __future__ import annotations

from memlane.ptx.forms import op

_WARP = "warp-level-matrix-instructions-"
_GROUP = "asynchronous-warpgroup-level-matrix-instructions-"
_SHARED = "shared shared::cta"
_LAYOUTS = "row col"
_WMMA_SHAPES = "m16n16k16 m8n32k16 m32n8k16 m16n16k8 m8n8k4 m8n8k32 m8n8k128"
_WGMMA_SHAPES = " ".join(f"m64n{columns}k{depth}" for depth in (8, 16, 32) for columns in range(8, 257, 8))

OPS = (
    op("ldmatrix", manual=_WARP + "ldmatrix", effect="matrix", types="d:b32")
    .form("ldmatrix.sync.aligned.m8n8.num{.trans}{.ss}.b16 d, [a]")
    .where(num="x1 x2 x4", ss=_SHARED),
    op("stmatrix", manual=_WARP + "stmatrix", effect="matrix", types="b:b32")
    .form("stmatrix.sync.aligned.m8n8.num{.trans}{.ss}.b16 [a], b")
    .where(num="x1 x2 x4", ss=_SHARED),
    op("mma", manual=_WARP + "mma", effect="matrix", types="d:- a:- b:- c:-")
    .form("mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype             d, a, b, c")
    .form("mma.sync.aligned.shape.alayout.blayout{.satfinite}.dtype.atype.btype.ctype d, a, b, c")
    .form("mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype.bitop.popc  d, a, b, c", bitop="and xor")
    .form("mma.sync.aligned.shape.alayout.blayout.rnd.dtype.atype.btype.ctype         d, a, b, c", dtype="f64", rnd="rn rz rm rp")
    .where(
        shape="m8n8k4 m8n8k16 m8n8k32 m8n8k128 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m16n8k64 m16n8k128 m16n8k256",
        alayout=_LAYOUTS,
        blayout=_LAYOUTS,
        dtype="f16 f32 f64 s32",
        atype="f16 bf16 tf32 f64 e4m3 e5m2 u8 s8 u4 s4 b1",
        btype="f16 bf16 tf32 f64 e4m3 e5m2 u8 s8 u4 s4 b1",
        ctype="f16 f32 f64 s32",
    ),
    op("wmma.load", manual=_WARP + "wmma-load", effect="matrix", types="d:- stride:-")
    .form("wmma.load.matrix.sync.aligned.layout.shape{.ss}.type d, [a]{, stride}")
    .where(
        matrix="a b c", layout=_LAYOUTS, shape=_WMMA_SHAPES, ss="global shared shared::cta", type="f16 bf16 tf32 f64 f32 u8 s8 u4 s4 b1 s32"
    ),
    op("wmma.store", manual=_WARP + "wmma-store", effect="matrix", types="b:- stride:-")
    .form("wmma.store.d.sync.aligned.layout.shape{.ss}.type [a], b{, stride}")
    .where(layout=_LAYOUTS, shape=_WMMA_SHAPES, ss="global shared shared::cta", type="f16 f32 s32 f64"),
    op("wmma.mma", manual=_WARP + "wmma-mma", effect="matrix", types="d:- a:- b:- c:-")
    .form("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.ctype{.satfinite}             d, a, b, c", dtype="f16 f32", ctype="f16 f32")
    .form("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite} d, a, b, c")
    .form("wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype.rnd         d, a, b, c", rnd="rn rz rm rp")
    .form("wmma.mma.bitop.popc.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype  d, a, b, c", bitop="and xor")
    .where(
        alayout=_LAYOUTS,
        blayout=_LAYOUTS,
        shape=_WMMA_SHAPES,
        dtype="f32 s32 f64",
        atype="bf16 tf32 f64 u8 s8 u4 s4 b1",
        btype="bf16 tf32 f64 u8 s8 u4 s4 b1",
        ctype="f32 s32 f64",
    ),
    op("wgmma.mma_async", manual=_GROUP + "wgmma-mma-async", effect="matrix", types="d:- a:- b:- scale_d:pred", updates="d")
    .form("wgmma.mma_async.sync.aligned.shape.dtype.atype.btype              d, a, b, scale_d, scale_a, scale_b, trans_a, trans_b")
    .form("wgmma.mma_async.sync.aligned.shape.dtype.atype.btype              d, a, b, scale_d, scale_a, scale_b, trans_b")
    .form("wgmma.mma_async.sync.aligned.shape.dtype.atype.btype              d, a, b, scale_d, scale_a, scale_b")
    .form("wgmma.mma_async.sync.aligned.shape.dtype.atype.btype{.satfinite}  d, a, b, scale_d")
    .form(
        "wgmma.mma_async.sync.aligned.shape.dtype.atype.btype.bitop.popc d, a, b, scale_d",
        shape=" ".join(f"m64n{columns}k256" for columns in range(8, 257, 8)),
        dtype="s32",
        atype="b1",
        btype="b1",
        bitop="and",
    )
    .where(shape=_WGMMA_SHAPES, dtype="f16 f32 s32", atype="f16 bf16 tf32 e4m3 e5m2 u8 s8", btype="f16 bf16 tf32 e4m3 e5m2 u8 s8"),
    op("wgmma.fence", manual=_GROUP + "wgmma-fence", effect="async").form("wgmma.fence.sync.aligned"),
    op("wgmma.commit_group", manual=_GROUP + "wgmma-commit-group", effect="async").form("wgmma.commit_group.sync.aligned"),
    op("wgmma.wait_group", manual=_GROUP + "wgmma-wait-group", effect="async", types="n:-").form("wgmma.wait_group.sync.aligned n"),
)

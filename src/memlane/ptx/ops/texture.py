"""Texture and surface instructions."""

from __future__ import annotations

from memlane.ptx.forms import op

_TEXTURE = "texture-instructions-"
_SURFACE = "surface-instructions-"
_GEOMETRIES = "1d 2d 3d a1d a2d cube acube"
_SURFACES = "1d 2d 3d a1d a2d"

OPS = (
    op("tex", manual=_TEXTURE + "tex", effect="texture", types="d:dtype e:- f:f32", spaces="a:tex")
    .form("tex.geom.vec.dtype.ctype       d, [a, c]{, e}{, f}")
    .form("tex.base.geom.vec.dtype.ctype  d, [a, c]{, e}{, f}")
    .form("tex.level.geom.vec.dtype.ctype d, [a, c], lod{, e}{, f}")
    .form("tex.grad.geom.vec.dtype.ctype  d, [a, c], dpdx, dpdy{, e}{, f}")
    .where(geom=_GEOMETRIES + " 2dms a2dms", vec="v2 v4", dtype="u32 s32 f32 f16x2 f16", ctype="s32 f32"),
    op("tld4", manual=_TEXTURE + "tld4", effect="texture", types="d:dtype e:- f:f32", spaces="a:tex")
    .form("tld4.comp.geom.v4.dtype.f32 d, [a, c]{, e}{, f}")
    .where(comp="r g b a", geom="2d a2d cube acube", dtype="u32 s32 f32"),
    op("txq", manual=_TEXTURE + "txq", types="d:b32", spaces="a:tex", effect="texture")
    .form("txq.query.b32 d, [a]")
    .where(query="width height depth channel_data_type channel_order normalized_coords array_size num_mipmap_levels num_samples"),
    op("istypep", manual=_TEXTURE + "istypep", types="a:-", writes="p").form("istypep.type p, a").where(type="texref samplerref surfref"),
    op("suld", manual=_SURFACE + "suld", effect="surface", types="d:dtype", spaces="a:tex", wider="d")
    .form("suld.b.geom{.cop}{.vec}.dtype.clamp d, [a, c]")
    .where(geom=_SURFACES, cop="ca cg cs cv", vec="v2 v4", dtype="b8 b16 b32 b64", clamp="trap clamp zero"),
    op("sust", manual=_SURFACE + "sust", effect="surface", types="v:ctype", spaces="a:tex", wider="v")
    .form("sust.b.geom{.cop}{.vec}.ctype.clamp [a, c], v", ctype="b8 b16 b32 b64")
    .form("sust.p.geom{.cop}{.vec}.ctype.clamp [a, c], v", ctype="b32 u32 s32 f32")
    .where(geom=_SURFACES, cop="wb cg cs wt", vec="v2 v4", clamp="trap clamp zero"),
    op("sured", manual=_SURFACE + "sured", effect="surface", types="v:ctype", spaces="a:tex")
    .form("sured.b.op.geom.ctype.clamp [a, c], v", ctype="u32 u64 s32 b32 s64")
    .form("sured.p.op.geom.ctype.clamp [a, c], v", ctype="b32 b64")
    .where(op="add min max and or", geom="1d 2d 3d", clamp="trap clamp zero"),
    op("suq", manual=_SURFACE + "suq", effect="surface", types="d:b32", spaces="a:tex")
    .form("suq.query.b32 d, [a]")
    .where(query="width height depth channel_data_type channel_order array_size memory_layout"),
)

"""Conversion and rearrangement of values in registers."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "data-movement-and-conversion-instructions-"
_INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
_FLOATS = "f16 bf16 f32 f64"

OPS = (
    op("cvt", manual=_SECTION + "cvt", types="d:dtype a:atype", wider="d a")
    .form("cvt{.irnd}{.ftz}{.sat}.dtype.atype   d, a")
    .form("cvt{.frnd}{.ftz}{.sat}.dtype.atype   d, a")
    .form("cvt.frnd{.relu}{.satfinite}.f16.f32  d, a", types="d:f16 a:f32")
    .form("cvt.frnd{.relu}{.satfinite}.bf16.f32 d, a", types="d:bf16 a:f32")
    .form("cvt.frnd{.relu}{.satfinite}.dtype.f32 d, a, b", dtype="f16x2 bf16x2", types="d:dtype a:f32 b:f32")
    .form("cvt.rs{.relu}{.satfinite}.dtype.f32   d, a, b, c", dtype="f16x2 bf16x2", types="d:dtype a:f32 b:f32 c:b32")
    .form("cvt.rna{.satfinite}.tf32.f32         d, a", types="d:b32 a:f32")
    .form("cvt.frnd{.relu}{.satfinite}.tf32.f32 d, a", types="d:b32 a:f32")
    .form("cvt.rn.satfinite{.relu}.dtype.f32    d, a, b", dtype="e4m3x2 e5m2x2", types="d:b16 a:f32 b:f32")
    .form("cvt.rn.satfinite{.relu}.dtype.f16x2  d, a", dtype="e4m3x2 e5m2x2", types="d:b16 a:f16x2")
    .form("cvt.rn{.relu}.f16x2.atype            d, a", atype="e4m3x2 e5m2x2", types="d:f16x2 a:b16")
    .where(irnd="rni rzi rmi rpi", frnd="rn rz rm rp", dtype=f"{_INTEGERS} {_FLOATS}", atype=f"{_INTEGERS} {_FLOATS}"),
    op("cvt.pack", manual=_SECTION + "cvt-pack", types="d:b32 a:s32 b:s32 c:b32")
    .form("cvt.pack.sat.dtype.s32     d, a, b", dtype="u16 s16")
    .form("cvt.pack.sat.dtype.s32.b32 d, a, b, c", dtype="u2 s2 u4 s4 u8 s8"),
    op("prmt", manual=_SECTION + "prmt")
    .form("prmt.b32{.mode} d, a, b, c", types="d:b32 a:b32 b:b32 c:b32")
    .where(mode="f4e b4e rc8 ecl ecr rc16"),
    op("movmatrix", manual="warp-level-matrix-instructions-movmatrix", types="d:b32 a:b32", effect="warp").form(
        "movmatrix.sync.aligned.m8n8.trans.b16 d, a"
    ),
)

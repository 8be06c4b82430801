"""Floating-point arithmetic in single and double precision."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "floating-point-instructions-"
_ROUNDINGS = "rn rz rm rp"

OPS = (
    op("testp", manual=_SECTION + "testp", writes="p")
    .form("testp.class.type p, a")
    .where(**{"class": "finite infinite number notanumber normal subnormal"}, type="f32 f64"),
    op("copysign", manual=_SECTION + "copysign").form("copysign.type d, a, b").where(type="f32 f64"),
    op("add", manual=_SECTION + "add")
    .form("add{.rnd}{.ftz}{.sat}.f32 d, a, b", types="d:f32 a:f32 b:f32")
    .form("add{.rnd}{.ftz}.f32x2     d, a, b", types="d:b64 a:b64 b:b64")
    .form("add{.rnd}.f64             d, a, b", types="d:f64 a:f64 b:f64")
    .where(rnd=_ROUNDINGS),
    op("sub", manual=_SECTION + "sub")
    .form("sub{.rnd}{.ftz}{.sat}.f32 d, a, b", types="d:f32 a:f32 b:f32")
    .form("sub{.rnd}{.ftz}.f32x2     d, a, b", types="d:b64 a:b64 b:b64")
    .form("sub{.rnd}.f64             d, a, b", types="d:f64 a:f64 b:f64")
    .where(rnd=_ROUNDINGS),
    op("mul", manual=_SECTION + "mul")
    .form("mul{.rnd}{.ftz}{.sat}.f32 d, a, b", types="d:f32 a:f32 b:f32")
    .form("mul{.rnd}{.ftz}.f32x2     d, a, b", types="d:b64 a:b64 b:b64")
    .form("mul{.rnd}.f64             d, a, b", types="d:f64 a:f64 b:f64")
    .where(rnd=_ROUNDINGS),
    op("fma", manual=_SECTION + "fma")
    .form("fma.rnd{.ftz}{.sat}.f32 d, a, b, c", types="d:f32 a:f32 b:f32 c:f32")
    .form("fma.rnd{.ftz}.f32x2     d, a, b, c", types="d:b64 a:b64 b:b64 c:b64")
    .form("fma.rnd.f64             d, a, b, c", types="d:f64 a:f64 b:f64 c:f64")
    .where(rnd=_ROUNDINGS),
    op("mad", manual=_SECTION + "mad")
    .form("mad.rnd{.ftz}{.sat}.f32 d, a, b, c", types="d:f32 a:f32 b:f32 c:f32")
    .form("mad.rnd.f64             d, a, b, c", types="d:f64 a:f64 b:f64 c:f64")
    .where(rnd=_ROUNDINGS),
    op("div", manual=_SECTION + "div")
    .form("div.mode{.ftz}.f32 d, a, b", mode="approx full", types="d:f32 a:f32 b:f32")
    .form("div.rnd{.ftz}.f32  d, a, b", types="d:f32 a:f32 b:f32")
    .form("div.rnd.f64        d, a, b", types="d:f64 a:f64 b:f64")
    .where(rnd=_ROUNDINGS),
    op("abs", manual=_SECTION + "abs").form("abs{.ftz}.f32 d, a", types="d:f32 a:f32").form("abs.f64       d, a", types="d:f64 a:f64"),
    op("neg", manual=_SECTION + "neg").form("neg{.ftz}.f32 d, a", types="d:f32 a:f32").form("neg.f64       d, a", types="d:f64 a:f64"),
    op("min", manual=_SECTION + "min")
    .form("min{.ftz}{.NaN}{.xorsign.abs}.f32 d, a, b", types="d:f32 a:f32 b:f32")
    .form("min{.ftz}{.NaN}{.abs}.f32         d, a, b, c", types="d:f32 a:f32 b:f32 c:f32")
    .form("min.f64 d, a, b", types="d:f64 a:f64 b:f64"),
    op("max", manual=_SECTION + "max")
    .form("max{.ftz}{.NaN}{.xorsign.abs}.f32 d, a, b", types="d:f32 a:f32 b:f32")
    .form("max{.ftz}{.NaN}{.abs}.f32         d, a, b, c", types="d:f32 a:f32 b:f32 c:f32")
    .form("max.f64 d, a, b", types="d:f64 a:f64 b:f64"),
    op("rcp", manual=_SECTION + "rcp")
    .form("rcp.approx{.ftz}.f32 d, a", types="d:f32 a:f32")
    .form("rcp.rnd{.ftz}.f32    d, a", types="d:f32 a:f32")
    .form("rcp.rnd.f64          d, a", types="d:f64 a:f64")
    .where(rnd=_ROUNDINGS),
    op("rcp.approx.ftz.f64", manual=_SECTION + "rcp-approx-ftz-f64").form("rcp.approx.ftz.f64 d, a", types="d:f64 a:f64"),
    op("sqrt", manual=_SECTION + "sqrt")
    .form("sqrt.approx{.ftz}.f32 d, a", types="d:f32 a:f32")
    .form("sqrt.rnd{.ftz}.f32    d, a", types="d:f32 a:f32")
    .form("sqrt.rnd.f64          d, a", types="d:f64 a:f64")
    .where(rnd=_ROUNDINGS),
    op("rsqrt", manual=_SECTION + "rsqrt")
    .form("rsqrt.approx{.ftz}.f32 d, a", types="d:f32 a:f32")
    .form("rsqrt.approx.f64       d, a", types="d:f64 a:f64"),
    op("rsqrt.approx.ftz.f64", manual=_SECTION + "rsqrt-approx-ftz-f64").form("rsqrt.approx.ftz.f64 d, a", types="d:f64 a:f64"),
    op("sin", manual=_SECTION + "sin").form("sin.approx{.ftz}.f32 d, a", types="d:f32 a:f32"),
    op("cos", manual=_SECTION + "cos").form("cos.approx{.ftz}.f32 d, a", types="d:f32 a:f32"),
    op("lg2", manual=_SECTION + "lg2").form("lg2.approx{.ftz}.f32 d, a", types="d:f32 a:f32"),
    op("ex2", manual=_SECTION + "ex2").form("ex2.approx{.ftz}.f32 d, a", types="d:f32 a:f32"),
    op("tanh", manual=_SECTION + "tanh").form("tanh.approx.f32 d, a", types="d:f32 a:f32"),
)

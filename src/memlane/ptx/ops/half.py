"""Half-precision and mixed-precision floating-point arithmetic."""

from __future__ import annotations

from memlane.ptx.forms import op

_SECTION = "half-precision-floating-point-instructions-"
_MIXED = "mixed-precision-floating-point-instructions-"
_HALVES = "f16 f16x2"
_BRAINS = "bf16 bf16x2"
_ALL = "f16 f16x2 bf16 bf16x2"
_ROUNDINGS = "rn rz rm rp"

OPS = (
    op("add", manual=_SECTION + "add")
    .form("add{.rnd}{.ftz}{.sat}.type d, a, b", type=_HALVES)
    .form("add{.rnd}.type             d, a, b", type=_BRAINS)
    .where(rnd="rn"),
    op("sub", manual=_SECTION + "sub")
    .form("sub{.rnd}{.ftz}{.sat}.type d, a, b", type=_HALVES)
    .form("sub{.rnd}.type             d, a, b", type=_BRAINS)
    .where(rnd="rn"),
    op("mul", manual=_SECTION + "mul")
    .form("mul{.rnd}{.ftz}{.sat}.type d, a, b", type=_HALVES)
    .form("mul{.rnd}.type             d, a, b", type=_BRAINS)
    .where(rnd="rn"),
    op("fma", manual=_SECTION + "fma")
    .form("fma.rnd{.ftz}{.sat}.type  d, a, b, c", type=_HALVES)
    .form("fma.rnd{.ftz}{.relu}.type d, a, b, c", type=_HALVES)
    .form("fma.rnd{.relu}.type       d, a, b, c", type=_BRAINS)
    .form("fma.rnd.oob{.relu}.type   d, a, b, c", type=_ALL)
    .where(rnd="rn"),
    op("neg", manual=_SECTION + "neg").form("neg{.ftz}.type d, a", type=_HALVES).form("neg.type d, a", type=_BRAINS),
    op("abs", manual=_SECTION + "abs").form("abs{.ftz}.type d, a", type=_HALVES).form("abs.type d, a", type=_BRAINS),
    op("min", manual=_SECTION + "min")
    .form("min{.ftz}{.NaN}{.xorsign.abs}.type d, a, b", type=_HALVES)
    .form("min{.NaN}{.xorsign.abs}.type       d, a, b", type=_BRAINS),
    op("max", manual=_SECTION + "max")
    .form("max{.ftz}{.NaN}{.xorsign.abs}.type d, a, b", type=_HALVES)
    .form("max{.NaN}{.xorsign.abs}.type       d, a, b", type=_BRAINS),
    op("tanh", manual=_SECTION + "tanh").form("tanh.approx.type d, a", type=_ALL),
    op("ex2", manual=_SECTION + "ex2").form("ex2.approx.type     d, a", type=_HALVES).form("ex2.approx.ftz.type d, a", type=_BRAINS),
    op("add", manual=_MIXED + "add", variant="mixed", types="d:f32 b:f32")
    .form("add{.rnd}{.sat}.f32.atype d, a, b")
    .where(rnd=_ROUNDINGS, atype="f16 bf16"),
    op("sub", manual=_MIXED + "sub", variant="mixed", types="d:f32 b:f32")
    .form("sub{.rnd}{.sat}.f32.atype d, a, b")
    .where(rnd=_ROUNDINGS, atype="f16 bf16"),
    op("fma", manual=_MIXED + "fma", variant="mixed", types="d:f32 a:abtype b:abtype c:f32")
    .form("fma.rnd{.sat}.f32.abtype d, a, b, c")
    .where(rnd=_ROUNDINGS, abtype="f16 bf16"),
)

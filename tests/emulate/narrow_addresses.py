"""A kernel whose addresses in shared and local memory overflow 32 bits on their way, as the assembler takes it too."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from memlane.launch import Target
from memlane.ptx import Module, parse

FIELDS = (
    "load",
    "atomic",
    "after reduction",
    "64-bit register",
    "generic",
    "third of a vector",
    "cp.async",
    "ldmatrix",
    "stmatrix",
    "barrier passed",
    "bulk copy",
    "local",
)
WORDS = 16
"""Words of the result of a thread."""
_BELOW = 4096

TEXT = f"""
.version 8.3
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in) {{
    .reg .pred p, first, done; .reg .b32 t, four, s, r, base, at, f<{WORDS}>, x<4>; .reg .b64 o, i, far, ignored;
    .shared .align 128 .b8 tile[4096]; .shared .align 8 .b64 bar; .shared .align 8 .b64 other; .local .align 16 .b8 own[16];
    ld.param.u64 o, [out]; ld.param.u64 i, [in]; mov.u32 t, %tid.x; setp.eq.u32 first, t, 0;
    mad.wide.u32 o, t, {4 * WORDS}, o; mad.wide.u32 i, t, 4, i;
    shl.b32 four, t, 2; mov.u32 s, tile; add.u32 r, s, four; mad.lo.u32 f0, t, 3, 1; st.shared.u32 [r], f0;
    bar.warp.sync -1;
    sub.u32 base, r, {_BELOW};
    ld.shared.u32 f0, [base+{_BELOW}];
    atom.shared.add.u32 f1, [base+{_BELOW}], 5;
    red.shared.add.u32 [base+{_BELOW}], 7;
    ld.shared.u32 f2, [r];
    cvt.u64.u32 far, base; ld.shared.u32 f3, [far+{_BELOW}];
    add.u64 far, far, {_BELOW}; cvta.shared.u64 far, far; ld.u32 f4, [far];
    mad.lo.u32 base, t, 16, s; sub.u32 base, base, {_BELOW - 1024};
    st.shared.v4.u32 [base+{_BELOW}], {{t, f0, f0, t}};
    ld.shared.v2.u32 {{x0, x1}}, [base+{_BELOW + 8}]; sub.u32 f5, x0, x1;
    sub.u32 base, r, {_BELOW}; cp.async.ca.shared.global [base+{_BELOW}], [i], 4; cp.async.wait_all;
    ld.shared.u32 f6, [r];
    bar.warp.sync -1;
    and.b32 at, t, 7; shl.b32 at, at, 4; add.u32 at, at, s; sub.u32 base, at, {_BELOW};
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{x0}}, [at]; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{f7}}, [base+{_BELOW}];
    xor.b32 f7, f7, x0;
    stmatrix.sync.aligned.m8n8.x1.shared.b16 [base+{_BELOW + 2048}], {{x0}}; bar.warp.sync -1; ld.shared.u32 f8, [r+2048];
    mov.u32 base, bar; sub.u32 base, base, 8192;
    @first mbarrier.init.shared.b64 [base+8192], 32;
    @first mbarrier.init.shared.b64 [other], 1;
    @first fence.mbarrier_init.release.cluster;
    @first fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    mbarrier.arrive.shared.b64 ignored, [base+8192];
    bar.warp.sync -1;
    mbarrier.test_wait.parity.shared.b64 p, [base+8192], 0; selp.u32 f9, 1, 0, p;
    mov.u32 base, other; sub.u32 base, base, 8192; sub.u32 at, s, {_BELOW};
    @first mbarrier.arrive.expect_tx.shared.b64 ignored, [base+8192], 128;
    @first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at+{_BELOW + 3072}], [i], 128, [base+8192];
WAIT:
    mbarrier.try_wait.parity.shared.b64 done, [base+8192], 0;
    @!done bra WAIT;
    ld.shared.u32 f10, [r+3072];
    mov.u32 base, own; st.local.u32 [base+8], t; sub.u32 base, base, 0x2000000; ld.local.u32 f11, [base+0x2000008];
    {" ".join(f"st.global.u32 [o+{4 * place}], f{place};" for place in range(len(FIELDS)))}
    ret;
}}
"""


@cache
def module() -> Module:
    """The kernel `k(out, in)`."""
    return parse(TEXT, "narrow.ptx")


def inputs() -> npt.NDArray[np.uint32]:
    """What the copies bring."""
    return np.arange(32, dtype=np.uint32) * 17 + 1000


def answers() -> npt.NDArray[np.uint32]:
    """What each thread leaves, by `FIELDS`."""
    lane = np.arange(32, dtype=np.int64)
    own = 3 * lane + 1
    nothing = np.zeros(32, np.int64)
    columns = (own, own, own + 12, own + 12, own + 12, own - lane, inputs(), nothing, inputs(), nothing + 1, inputs(), lane)
    return np.stack(columns, axis=1).astype(np.uint32)


def run(target: Target) -> npt.NDArray[np.uint32]:
    """What the kernel leaves on a target."""
    out = target.zeros((32, WORDS), np.uint32)
    target.load(module())["k"][1, 32](out, target.array(inputs()))
    return out.numpy()[:, : len(FIELDS)]

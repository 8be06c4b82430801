"""Where addresses come from."""

from __future__ import annotations

from memlane.ptx import parse
from memlane.ptx.origins import Origins, origins_of

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry walk(.param .u64 out, .param .u64 next, .param .u32 steps)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [next];
    ld.param.u32 %r1, [steps];
    mov.u32 %r2, %tid.x;
again:
    mad.wide.u32 %rd3, %r2, 4, %rd2;
    ld.global.u32 %r2, [%rd3];
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
    mov.u32 %r3, %tid.x;
    mad.wide.u32 %rd4, %r3, 4, %rd1;
    st.global.u32 [%rd4], %r2;
    ret;
}
"""


def test_a_chain_comes_from_itself_and_a_store_from_its_parameter() -> None:
    function = parse(KERNEL).functions["walk"]
    found = origins_of(function)
    body = list(function.body.instructions() if function.body else [])
    load, store = (next(index for index, one in enumerate(body) if one.name == name) for name in ("ld.global.u32", "st.global.u32"))
    assert found[load] == Origins(parameters=(1,), loads=(load,), bases=(1,))
    assert found[store] == Origins(parameters=(0,), loads=(), bases=(0,))

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


MEMBERS = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .align 8 .b8 arrays[32], .param .u64 index)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<9>;
    ld.param.v2.u64 {%rd1, %rd2}, [arrays+8];
    ld.param.u64 %rd3, [arrays];
    ld.param.u64 %rd4, [index];
    shl.b64 %rd7, %rd4, 2;
    add.u64 %rd5, %rd2, %rd7;
    ld.global.u32 %r1, [%rd5];
    add.u64 %rd6, %rd1, %rd7;
    st.global.u32 [%rd6], %r1;
    st.global.u32 [%rd3], %r1;
    ret;
}
"""


def test_pointers_in_a_structure_are_told_apart_by_their_offsets() -> None:
    """By hand: a vector of two pointers from byte 8 on fills `%rd1` (8) and `%rd2` (16)."""
    (function,) = parse(MEMBERS).kernels.values()
    instructions = tuple(function.instructions())
    found = origins_of(function)
    by_name = [(instructions[index].opcode, one.bases) for index, one in found.items() if "param" not in instructions[index].name]
    assert by_name == [("ld", ((0, 16),)), ("st", ((0, 8),)), ("st", ((0, 0),))]
    assert {one.parameters for index, one in found.items() if "param" not in instructions[index].name} == {(0, 1), (0,)}

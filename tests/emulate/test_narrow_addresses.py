"""Addresses of 32 bits wrap: the sum of base and immediate, and what is left of it in registers of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess, UnsupportedPtx
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.checking import check, kinds
from tests.emulate.narrow_addresses import FIELDS, answers, inputs, module
from tests.emulate.running import emulator, program, run
from tests.emulate.test_layers import counted, observe

BELOW = ".shared .align 4 .b32 s[64]; mov.u32 %r1, s; mad.lo.u32 %r1, %tid, 4, %r1; st.shared.u32 [%r1], %tid; bar.warp.sync -1;"
"""Each thread stores its number; %r1 is where."""


@pytest.mark.parametrize("layers", [Layers(), Layers(check=True), Layers(counts=True)], ids=["plain", "check", "counts"])
def test_sums_of_base_and_immediate_wrap_in_every_access(layers: Layers) -> None:
    target = emulator()
    out = target.zeros((32, 16), np.uint32)
    observed = observe(target.load(module())["k"][1, 32], out, target.array(inputs()), layers=layers)
    assert not observed.reports
    wanted = answers()
    for place, name in enumerate(FIELDS):
        assert out.numpy()[:, place].tolist() == wanted[:, place].tolist(), name


def test_a_wrapped_address_is_the_same_word_as_one_that_did_not_wrap() -> None:
    """Lanes that reach one word by addresses that are 2^32 apart are served at once."""
    body = f"""{BELOW}
        and.b32 %r2, %tid, 1; cvt.u64.u32 %rd1, %r2; shl.b64 %rd1, %rd1, 32; add.u64 %rd1, %rd1, 4;
        ld.shared.u32 %r3, [%rd1]; st.global.u32 [%mine], %r3; ret;"""
    target = emulator()
    observed = observe(target.load(parse(program(body)))["k"][1, 32], target.zeros(32, np.uint64), layers=Layers(counts=True))
    (load,) = counted(observed, "ld.shared")
    assert load["wavefronts"] == load["ideal_wavefronts"] == 1


def test_addresses_of_other_spaces_are_not_cut_to_32_bits() -> None:
    """Their lower half would often lie inside."""
    for base in ("%out", "%rd1"):
        with pytest.raises(BadAccess, match="outside the block's 256 bytes of shared memory"):
            run(f"{BELOW} mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; ld.shared.u32 %r3, [{base}]; ret;")
    with pytest.raises(BadAccess, match="outside the block's 256 bytes of shared memory"):
        run(f"{BELOW} cvta.to.shared.u64 %rd1, %out; ld.shared.u32 %r3, [%rd1]; ret;")


def test_what_lies_in_front_of_shared_memory_is_still_outside() -> None:
    with pytest.raises(BadAccess, match="read 4 bytes at 0xfffffff8"):
        run(f"{BELOW} ld.shared.u32 %r3, [%r1+-8]; ret;")
    target = emulator()
    call = target.load(parse(program(f"{BELOW} ld.shared.u32 %r3, [%r1+0x2fffffff8]; st.global.u32 [%mine], %r3; ret;")))["k"][1, 32]
    assert kinds(check(call, target.zeros(32, np.uint64))) == {("out of bounds", "shared")}


def test_addresses_of_constants_have_32_bits_too() -> None:
    body = """
        mov.u32 %r1, c; sub.u32 %r1, %r1, 64; and.b32 %r2, %tid, 3; mad.lo.u32 %r1, %r2, 4, %r1;
        ld.const.u32 %r3, [%r1+64]; st.global.u32 [%mine], %r3; ret;"""
    assert run(body, before=".const .b32 c[4] = {5, 6, 7, 8};").tolist() == [5, 6, 7, 8] * 8


def test_parameters_are_read_through_wrapped_addresses_and_not_in_front_of_them() -> None:
    body = """
        mov.u64 %rd1, out; cvt.u32.u64 %r1, %rd1; sub.u32 %r1, %r1, 8; ld.param.u32 %r3, [%r1+8];
        cvt.u32.u64 %r4, %out; sub.u32 %r3, %r3, %r4; st.global.u32 [%mine], %r3; ret;"""
    assert not run(body).any()
    with pytest.raises(UnsupportedPtx, match=r"ld\.param\.u32 of out, which is not a kernel parameter or too short"):
        run("ld.param.u32 %r3, [out+-8]; st.global.u32 [%mine], %r3; ret;")


CLUSTER = """
    .shared .align 4 .b32 s[64]; mov.u32 %r1, s; mad.lo.u32 %r2, %tid, 4, %r1; mov.u32 %r3, %cluster_ctarank;
    mad.lo.u32 %r4, %r3, 100, %tid; st.shared.u32 [%r2], %r4;
    barrier.cluster.arrive; barrier.cluster.wait;
    xor.b32 %r5, %r3, 1; sub.u32 %r6, %r2, 512;
    mapa.shared::cluster.u32 %r7, %r6, %r5; ld.shared::cluster.u32 %r10, [%r7+512];
    mapa.shared::cluster.u32 %r7, %r7, %r3; ld.shared::cluster.u32 %r11, [%r7+512];
    mapa.shared::cluster.u32 %r7, %r7, %r5; getctarank.shared::cluster.u32 %r12, %r7;
    cvt.u64.u32 %rd1, %r2; cvta.shared.u64 %rd1, %rd1; sub.u64 %rd1, %rd1, 512; mapa.u64 %rd2, %rd1, %r5; ld.u32 %r13, [%rd2+512];
    getctarank.u64 %r14, %rd1;
    ld.shared::cluster.u32 %r15, [%r6+512];
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r8, 32, %tid; mad.wide.u32 %rd3, %r8, 32, %out;
    st.global.v4.u32 [%rd3], {%r10, %r11, %r12, %r13}; st.global.v2.u32 [%rd3+16], {%r14, %r15};
    ret;
"""


def test_an_address_in_front_of_a_block_is_still_that_blocks() -> None:
    """`mapa` and `getctarank` of an address to which a distance is yet to be added."""
    target = emulator()
    out = target.zeros((4, 32, 8), np.uint32)
    target.load(parse(program(CLUSTER)))["k"][4, 32, None, 0, 2](out)
    lane = np.arange(32)
    for block, found in enumerate(out.numpy()):
        rank = block % 2
        there, here = 100 * (1 - rank) + lane, 100 * rank + lane
        wanted = np.stack([there, here, np.full(32, 1 - rank), there, np.full(32, rank), here], axis=1)
        assert found[:, :6].tolist() == wanted.tolist()


def test_a_fragment_is_loaded_through_wrapped_addresses_with_an_unsigned_stride() -> None:
    """A negative stride leads backwards in shared memory, where the sum wraps, and 4 GiB upwards in global memory."""
    load = "wmma.load.c.sync.aligned.m8n32k16{}.row.f32 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, [{}], %r2;"
    body = f"""
        .shared .align 32 .b8 big[1024]; mov.u32 %r1, big; mov.u32 %r2, {{}}; mul.wide.u32 %rd1, %tid, 4; cvt.u32.u64 %r3, %rd1;
        add.u32 %r3, %r3, %r1; {" ".join(f"st.shared.u32 [%r3+{128 * row}], %tid;" for row in range(8))} bar.warp.sync -1;
        {{}} st.global.f32 [%mine], %f0; ret;"""
    first = run(body.format(32, load.format(".shared", "%r1")))
    assert first.any()
    assert run(body.format(-32, f"sub.u32 %r1, %r1, 4096; {load.format('.shared', '%r1+4992')}")).tolist() == first.tolist()
    with pytest.raises(BadAccess, match="not near any allocation"):
        run(body.format(-32, load.format(".global", "%out+896")), threads=160)

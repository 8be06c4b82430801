"""What goes wrong in a kernel is said with its place, its thread and what it did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlane.errors import BadAccess, Deadlock, KernelTrap, UnsupportedPtx
from memlane.launch import Layers
from memlane.ptx import parse
from tests.emulate.running import emulator, program, run

SOURCE = '.file 1 "store.cu"\n'


def launch(body: str, *, grid: object = 1, block: object = 32, before: str = "", shared: int = 0, nbytes: int = 4096) -> str:
    """The message of the error that a kernel ends in."""
    target = emulator()
    out, _other = target.empty(nbytes, np.uint8), target.empty(100, np.uint8)
    kernel = target.load(parse(program(body, before=before), "test.ptx"))["k"]
    with pytest.raises((BadAccess, Deadlock, KernelTrap)) as caught:
        kernel[grid, block, target.default_stream, shared](out)
    return str(caught.value).replace(hex(out.address), "OUT")


def test_an_empty_array_is_called_empty() -> None:
    target = emulator()
    nothing = target.empty(0, np.float32)
    assert nothing.nbytes == 0
    kernel = target.load(parse(program("st.global.f32 [%out], 1.0; ret;"), "test.ptx"))["k"]
    with pytest.raises(BadAccess, match=f"just past the end of the empty allocation at {nothing.address:#x}"):
        kernel[1, 32](nothing)
    assert target.empty(0, np.float32).address != nothing.address


def test_a_store_behind_an_allocation() -> None:
    text = launch(
        """
        .loc 1 17 5
        mov.u32 %r1, %tid.y;
        mad.wide.u32 %rd1, %r1, 4112, %out;
        @!%p1 st.global.u32 [%rd1+4], %r1;
        ret;""".replace("@!%p1 ", ""),
        grid=(2, 2),
        block=(8, 2, 2),
        before=SOURCE,
    )
    assert text.startswith("kernel k, store.cu:17: block (0, 0, 0), thread (0, 1, 0) wrote 4 bytes at 0x")
    assert text.endswith("(st.global.u32), 20 bytes past the end of the 4096-byte allocation at OUT, argument 1 (u1[4096])")


def test_a_load_before_an_allocation() -> None:
    text = launch("ld.global.nc.f32 %f1, [%out+-8]; st.global.f32 [%out], %f1; ret;", before=SOURCE)
    assert "test.ptx:" in text
    assert "block (0, 0, 0), thread (0, 0, 0) read 4 bytes at 0x" in text
    assert text.endswith("(ld.global.nc.f32), 8 bytes before the 4096-byte allocation at OUT, argument 1 (u1[4096])")


def test_an_access_that_reaches_beyond_its_allocation() -> None:
    assert launch("ld.global.u64 %rd1, [%out]; st.global.u64 [%out], %rd1; ret;", nbytes=4).endswith(
        "extending past the end of the 4-byte allocation at OUT, argument 1 (u1[4])"
    )


def test_a_null_pointer() -> None:
    text = launch("mov.u64 %rd1, 0; atom.global.add.u32 %r1, [%rd1], 1; ret;")
    assert "updated 4 bytes at 0x0 (atom.global.add.u32), which is not near any allocation" in text


def test_freed_memory() -> None:
    target = emulator()
    out, gone = target.zeros(1, np.uint64), target.empty(64, np.uint8)
    stale = gone.address
    del gone
    kernel = target.load(parse(program("ld.global.u64 %rd1, [%out]; ld.global.u32 %r1, [%rd1]; st.global.u32 [%out], %r1; ret;")))["k"]
    out.copy_from(np.array([stale], np.uint64))
    with pytest.raises(BadAccess, match="read 4 bytes"):
        kernel[1, 1](out)


def test_a_misaligned_access() -> None:
    text = launch("st.global.v2.u32 [%out+12], {%r1, %r1}; ret;")
    assert "wrote 8 bytes at 0x70000000000c (st.global.v2.u32), which is not a multiple of 8, 12 bytes into the 4096-byte" in text


@pytest.mark.parametrize("full", [True, False])
def test_shared_memory_has_bounds(full: bool) -> None:
    text = launch(
        f"mul.lo.u32 %r1, %tid, {4 if full else 8}; st.shared.u32 [%r1], %tid; ret;",
        before=".extern .shared .align 4 .b8 s[];",
        block=32 if full else 17,
        shared=124 if full else 128,
    )
    thread, address = (31, 124) if full else (16, 128)
    nbytes = 124 if full else 128
    assert (
        f"thread ({thread}, 0, 0) wrote 4 bytes at {address:#x} (st.shared.u32), outside the block's {nbytes} bytes of shared memory"
        in text
    )


def test_dynamic_shared_memory_that_the_launch_does_not_give_is_named_with_the_option() -> None:
    body, before = (
        "st.shared.u32 [_ZN3sim4tileE+64], %tid; ret;",
        ".shared .align 4 .b8 own[8]; .extern .shared .align 4 .b8 _ZN3sim4tileE[];",
    )
    body = f"st.shared.u32 [own], %tid; {body}"
    assert (
        " bytes of shared memory; the launch gives none to `tile`: pass --shared BYTES (kernel[grid, block, None, BYTES] in Python)"
    ) in launch(body, before=before)
    assert "bytes of shared memory, 64 bytes of which the launch gave to `tile`" in launch(body, before=before, shared=64)
    own = launch("st.shared.u32 [own+8], %tid; ret;", before=".shared .align 4 .b8 own[8];")
    assert "outside the block's 8 bytes of shared memory" in own
    assert "the launch" not in own


def test_generic_addresses_have_the_bounds_of_their_space() -> None:
    body = "mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; st.u32 [%rd2+64], %tid; ret;"
    assert "outside the block's 64 bytes of shared memory" in launch(body, before=".shared .align 4 .b8 s[64];")


def test_local_memory_has_bounds() -> None:
    text = launch(".local .align 4 .b8 depot[8]; mov.u64 %rd1, depot; st.local.u32 [%rd1+16], %tid; ret;")
    assert "outside the thread's 16 bytes of local memory" in text


def test_trap() -> None:
    text = launch("setp.eq.u32 %p1, %tid, 37; @%p1 trap; ret;", block=64)
    assert "block (0, 0, 0), thread (37, 0, 0) executed trap" in text
    assert run("setp.eq.u32 %p1, %tid, 99; @%p1 trap; st.global.u32 [%mine], 5; ret;").tolist() == [5] * 32


def test_a_barrier_that_not_all_threads_reach() -> None:
    text = launch(
        """
        .loc 1 3 1
        setp.lt.u32 %p1, %tid, 40;
        @%p1 bra SECOND;
        .loc 1 5 1
        bar.sync 0;
        bra END;
    SECOND:
        .loc 1 7 1
        bar.sync 1;
    END:
        ret;""",
        block=64,
        before=SOURCE,
    )
    assert text == (
        "kernel k: block (0, 0, 0) cannot continue: 40 threads, the first (0, 0, 0), wait at barrier 1 (store.cu:7); "
        "24 threads, the first (40, 0, 0), wait at barrier 0 (store.cu:5)"
    )


def test_a_shuffle_whose_lanes_never_come() -> None:
    body = """
        setp.lt.u32 %p1, %tid, 4;
        @%p1 bra ALONE;
        shfl.sync.bfly.b32 %r1, %tid, 1, 31, -1;
        ret;
    ALONE:
        bar.sync 0;
        ret;"""
    text = launch(body)
    assert "4 threads, the first (0, 0, 0), wait at barrier 0 (test.ptx:24:9)" in text
    assert "28 threads, the first (4, 0, 0), wait for other lanes of their warp (test.ptx:21:9)" in text


def test_a_barrier_number_that_does_not_exist() -> None:
    assert "used barrier 16; there are barriers 0 to 15" in launch("bar.sync 16; ret;")


def test_an_endless_loop_is_reported() -> None:
    target = emulator(patience=3)
    out = target.zeros(8, np.uint32)
    kernel = target.load(parse(program("AGAIN: ld.volatile.global.u32 %r1, [%out]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN; ret;")))["k"]
    with pytest.raises(Deadlock, match="has been looping here for 3 iterations"):
        kernel[1, 32](out)


LOOPS = """\
.version 8.0
.target sm_90
.address_size 64
.file 1 "loop.cu"
.visible .entry k(.param .u64 flag)
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    .loc 1 3 1
    ld.param.u64 %rd1, [flag];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, 16;
    @%p1 bra OTHERS;
    FIRST:
    .loc 1 5 1
    ld.volatile.global.u32 %r2, [%rd1];
    setp.eq.u32 %p2, %r2, 0;
    .loc 1 6 1
    @%p2 bra FIRST;
    bra.uni END;
    OTHERS:
    .loc 1 9 1
    ld.volatile.global.u32 %r3, [%rd1];
    setp.eq.u32 %p2, %r3, 0;
    @%p2 bra OTHERS;
    END:
    .loc 1 12 1
    ret;
}
"""


@pytest.mark.parametrize("layers", [Layers(), Layers(clock=True)], ids=["plain", "clock"])
@pytest.mark.parametrize(("threads", "lines"), [(16, "loop.cu:5"), (32, "loop.cu:5 and loop.cu:9")])
def test_an_endless_loop_names_the_lines_that_its_threads_are_at(layers: Layers, threads: int, lines: str) -> None:
    target = emulator(patience=3)
    call = target.load(parse(LOOPS, "loop.ptx"))["k"][1, threads]
    one = replace(call.bind(target.zeros(1, np.uint32)), layers=layers)
    with pytest.raises(Deadlock) as caught:
        target.launch(one)
    assert str(caught.value) == (
        f"kernel k, {lines}: block (0, 0, 0) has been looping here for 3 iterations without any thread passing a barrier or ending; if "
        "the kernel does terminate, wait longer with --patience 30, in Python with target.patience = 30"
    )


def test_an_unsupported_instruction_is_named_when_its_kernel_is_launched() -> None:
    target = emulator()
    out = target.zeros(8, np.uint32)
    kernel = target.load(parse(program("istypep.texref %p1, %rd1; ret;"), "test.ptx"))["k"]
    with pytest.raises(UnsupportedPtx) as caught:
        kernel[1, 32](out)
    assert str(caught.value).startswith("test.ptx:18:5: the emulator does not model istypep.texref")
    assert "^^^" in str(caught.value)


def test_an_unsupported_instruction_of_a_program_is_named_at_its_source_line() -> None:
    target = emulator()
    text = program(".loc 1 17 3\nistypep.texref %p1, %rd1; ret;") + '.file 1 "odd.cu"\n'
    kernel = target.load(parse(text, "odd.cu (PTX)"))["k"]
    with pytest.raises(UnsupportedPtx) as caught:
        kernel[1, 32](target.zeros(8, np.uint32))
    head, line, carets = str(caught.value).splitlines()
    assert head == "odd.cu:17: the emulator does not model istypep.texref; PTX line 19"
    assert line.strip() == "istypep.texref %p1, %rd1; ret;"
    assert carets.strip() == "^" * len("istypep.texref %p1, %rd1;")


def test_a_launch_that_failed_leaves_the_emulator_usable() -> None:
    target = emulator()
    out = target.zeros(32, np.uint64)
    bad = target.load(parse(program("st.global.u32 [%out+-4], %tid; ret;")))["k"]
    good = target.load(parse(program("st.global.u32 [%mine], %tid; ret;")))["k"]
    with pytest.raises(BadAccess):
        bad[1, 32](out)
    good[1, 32](out)
    assert out.numpy().tolist() == list(range(32))


def test_an_access_is_told_by_the_user_s_array_and_not_by_a_variable_of_a_trace() -> None:
    target = emulator()
    out = target.empty(4096, np.uint8)
    address, _kept = target.memory.allocate(32, "memlane_trace")
    distance = address + 64 - out.address
    kernel = target.load(parse(program(f"add.u64 %rd0, %out, {distance}; st.global.f32 [%rd0], 1.0; ret;"), "test.ptx"))["k"]
    with pytest.raises(BadAccess, match=f"{distance - 4096:,} bytes past the end of the 4096-byte allocation at {out.address:#x}"):
        kernel[1, 32](out)


def test_an_address_near_another_array_is_told_by_the_array_it_is_computed_from() -> None:
    """The addresses lie 64 bytes before the second array, and thousands of bytes past the end of the first."""
    target = emulator()
    first, second = target.zeros(100, np.float32), target.zeros(100, np.float32)
    distance = second.address - 64 - first.address
    text = f"add.u64 %rd0, %out, {distance}; ld.global.f32 %f0, [%rd0]; st.global.f32 [%rd61], %f0; ret;"
    source = program(f"ld.param.u64 %rd61, [other];\n{text}", params=".param .u64 out, .param .u64 other")
    kernel = target.load(parse(source, "test.ptx"))["k"]
    with pytest.raises(BadAccess, match=f"{distance - 400:,} bytes past the end of the 400-byte allocation at {first.address:#x}"):
        kernel[1, 32](first, second)


def test_an_address_near_another_array_is_told_by_the_member_it_is_computed_from() -> None:
    target = emulator()
    first, second = target.zeros(100, np.float32), target.zeros(100, np.float32)
    distance = second.address - 64 - first.address
    body = f"ld.param.u64 %rd60, [pair+8]; add.u64 %rd0, %rd60, {distance}; st.global.f32 [%rd0], 1.0; ret;"
    kernel = target.load(parse(program(body, params=".param .u64 out, .param .align 8 .b8 pair[16]"), "test.ptx"))["k"]
    pair = np.array([second.address, first.address], np.uint64)
    with pytest.raises(BadAccess, match=f"{distance - 400:,} bytes past the end of the 400-byte allocation at {first.address:#x}"):
        kernel[1, 32](second, pair.view([("a", "u8"), ("b", "u8")])[0])

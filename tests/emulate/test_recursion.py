"""Functions that call themselves, and calls through pointers."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess, KernelTrap
from memlane.ptx import parse
from tests.emulate.running import emulator, program, run

FIBONACCI = """
.func (.param .b32 result) fib(.param .b32 n) {
    .reg .b32 %r<6>; .reg .pred %p<2>;
    ld.param.u32 %r1, [n];
    setp.ge.u32 %p1, %r1, 2;
    @%p1 bra DEEPER;
    st.param.b32 [result], %r1;
    ret;
DEEPER:
    sub.u32 %r2, %r1, 1;
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; call (r), fib, (a); ld.param.b32 %r3, [r]; }
    sub.u32 %r2, %r1, 2;
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; call (r), fib, (a); ld.param.b32 %r4, [r]; }
    add.u32 %r5, %r3, %r4;
    st.param.b32 [result], %r5;
    ret;
}
"""


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@pytest.mark.parametrize("threads", [32, 70])
def test_each_lane_at_a_depth_of_its_own(threads: int) -> None:
    body = """
        rem.u32 %r2, %tid, 12;
        { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2; call (r), fib, (a); ld.param.b32 %r1, [r]; }
        activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r1, %r3, 1000, %r1;
        st.global.u32 [%mine], %r1; ret;"""
    together = [min(32, threads - lane // 32 * 32) for lane in range(threads)]
    assert run(body, before=FIBONACCI, threads=threads).tolist() == [1000 * n + fib(lane % 12) for lane, n in enumerate(together)]


def test_a_guarded_call_leaves_the_other_lanes_alone() -> None:
    body = """
        mov.u32 %r1, 77;
        setp.lt.u32 %p1, %tid, 10;
        { .param .b32 a; .param .b32 r; st.param.b32 [a], %tid; @%p1 call (r), fib, (a); @%p1 ld.param.b32 %r1, [r]; }
        st.global.u32 [%mine], %r1; ret;"""
    assert run(body, before=FIBONACCI).tolist() == [fib(lane) if lane < 10 else 77 for lane in range(32)]


MUTUAL = """
.func (.param .b32 r) odd(.param .b32 n);
.func (.param .b32 r) even(.param .b32 n) {
    .reg .b32 %r<4>; .reg .pred %p<2>;
    ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 1;
    @%p1 bra DONE;
    sub.u32 %r3, %r1, 1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), odd, (a); ld.param.b32 %r2, [b]; }
DONE: st.param.b32 [r], %r2; ret;
}
.func (.param .b32 r) odd(.param .b32 n) {
    .reg .b32 %r<4>; .reg .pred %p<2>;
    ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, 0;
    @%p1 bra DONE;
    sub.u32 %r3, %r1, 1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3; call (b), even, (a); ld.param.b32 %r2, [b]; }
DONE: st.param.b32 [r], %r2; ret;
}
"""


def test_functions_that_call_each_other() -> None:
    body = """{ .param .b32 a; .param .b32 r; st.param.b32 [a], %tid; call (r), even, (a); ld.param.b32 %r1, [r]; }
        st.global.u32 [%mine], %r1; ret;"""
    assert run(body, before=MUTUAL).tolist() == [1 - lane % 2 for lane in range(32)]


LOCAL = """
.func (.param .b64 result) sum(.param .b32 n) {
    .local .align 16 .b8 depot[24];
    .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .pred %p<3>; .reg .f64 %fd<2>;
    mov.b64 %rd1, depot;
    ld.param.u32 %r1, [n];
    setp.gt.u32 %p2, %r1, 3;
    cvt.u64.u32 %rd2, %r1;
    st.local.u64 [depot+8], %rd2;
    mov.u64 %rd3, 0;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    sub.u32 %r2, %r1, 1;
    { .param .b32 a; .param .b64 r; st.param.b32 [a], %r2; call (r), sum, (a); ld.param.b64 %rd3, [r]; }
DONE:
    ld.local.u64 %rd4, [%rd1+8];
    cvta.local.u64 %rd5, %rd1;
    ld.u64 %rd6, [%rd5+8];
    add.u64 %rd3, %rd3, %rd4;
    mad.lo.u64 %rd3, %rd6, 100, %rd3;
    @%p2 add.u64 %rd3, %rd3, 1000000;
    st.param.b64 [result], %rd3;
    ret;
}
"""


def test_each_activation_has_local_memory_and_predicates_of_its_own() -> None:
    body = """{ .param .b32 a; .param .b64 r; st.param.b32 [a], %tid; call (r), sum, (a); ld.param.b64 %rd1, [r]; }
        cvt.u32.u64 %r1, %rd1; st.global.u32 [%mine], %r1; ret;"""
    expected = [sum(101 * n + 1000000 * (n > 3) for n in range(lane + 1)) for lane in range(32)]
    assert run(body, before=LOCAL).tolist() == expected


def test_recursion_that_is_too_deep_is_told() -> None:
    body = """mov.u32 %r1, 100000; setp.eq.u32 %p1, %tid, 5; @!%p1 mov.u32 %r1, 3;
        { .param .b32 a; .param .b64 r; st.param.b32 [a], %r1; call (r), sum, (a); ld.param.b64 %rd1, [r]; } ret;"""
    with pytest.raises(KernelTrap, match=r"thread \(5, 0, 0\) needs more than its 16384 bytes of stack"):
        run(body, before=LOCAL)


POINTERS = """
.func (.param .b32 r) more(.param .b32 x) { .reg .b32 %r<3>;
    ld.param.u32 %r1, [x]; add.u32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }
.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %r<3>;
    ld.param.u32 %r1, [x]; shl.b32 %r2, %r1, 1; st.param.b32 [r], %r2; ret; }
.func (.param .b32 r) fact(.param .b32 x) { .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<2>;
    ld.param.u32 %r1, [x]; mov.u32 %r2, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra DONE;
    mov.b64 %rd1, fact; sub.u32 %r3, %r1, 1;
    { .param .b32 a; .param .b32 b; st.param.b32 [a], %r3;
    P: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (b), %rd1, (a), P; ld.param.b32 %r4, [b]; }
    mul.lo.u32 %r2, %r4, %r1;
DONE: st.param.b32 [r], %r2; ret; }
.func other(.param .b64 x) { ret; }
.global .align 8 .u64 table[4] = {more, twice, fact, other};
"""
BY_POINTER = """
    mov.u64 %rd1, table;
    mad.wide.u32 %rd2, %r1, 8, %rd1;
    ld.global.u64 %rd3, [%rd2];
    { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2;
    P: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (r), %rd3, (a), P; ld.param.b32 %r3, [r]; }
    st.global.u32 [%mine], %r3; ret;"""


def test_calls_through_pointers() -> None:
    found = run(f"rem.u32 %r1, %tid, 3; and.b32 %r2, %tid, 7; {BY_POINTER}", before=POINTERS)
    factorial = [1, 1, 2, 6, 24, 120, 720, 5040]
    assert found.tolist() == [[lane % 8 + 1, 2 * (lane % 8), factorial[lane % 8]][lane % 3] for lane in range(32)]


def test_a_pointer_to_a_function_of_another_kind_is_told() -> None:
    with pytest.raises(
        BadAccess, match=r"thread \(0, 0, 0\) called 0x7b0000000030, which is not the address of a function that matches this call"
    ):
        run(f"mov.u32 %r1, 3; mov.u32 %r2, 0; {BY_POINTER}", before=POINTERS)


def test_structures_are_passed_whole_whatever_the_widths_of_the_accesses() -> None:
    before = """
    .func (.param .align 8 .b8 r[16]) turn(.param .align 8 .b8 x[16]) { .reg .b32 %r<5>; .reg .b16 %h<4>; .reg .b64 %rd<2>;
        ld.param.v2.b32 {%r1, %r2}, [x]; ld.param.u8 %h1, [x+8]; ld.param.s8 %h2, [x+9];
        add.u16 %h3, %h1, %h2;
        st.param.v2.b32 [r+8], {%r1, %r2}; st.param.b16 [r], %h3; st.param.b8 [r+2], 7; ret; }
    """
    body = """
    { .param .align 8 .b8 a[16]; .param .align 8 .b8 b[16];
      cvt.u64.u32 %rd1, %tid; or.b64 %rd1, %rd1, 0x900000000; st.param.b64 [a], %rd1; mov.u16 %h1, 0xFF05; st.param.b16 [a+8], %h1;
      call (b), turn, (a);
      ld.param.u64 %rd2, [b+8]; ld.param.u16 %h1, [b]; ld.param.u8 %h2, [b+2]; }
    cvt.u32.u16 %r1, %h1; cvt.u32.u16 %r2, %h2; shr.u64 %rd3, %rd2, 32; cvt.u32.u64 %r3, %rd3; cvt.u32.u64 %r4, %rd2;
    mad.lo.u32 %r1, %r1, 100, %r2; mad.lo.u32 %r1, %r1, 100, %r3; mad.lo.u32 %r1, %r1, 100, %r4;
    st.global.u32 [%mine], %r1; ret;"""
    assert run(body, before=before).tolist() == [((4 * 100 + 7) * 100 + 9) * 100 + lane for lane in range(32)]


def test_parameters_in_registers() -> None:
    before = ".func (.reg .b32 r) scale(.reg .b32 x, .reg .b32 y) { .reg .b32 t; mul.lo.u32 t, x, y; add.u32 r, t, 1; ret; }"
    assert run("call (%r1), scale, (%tid, 3); st.global.u32 [%mine], %r1; ret;", before=before).tolist() == [3 * i + 1 for i in range(32)]


def test_lanes_that_wait_for_each_other_inside_a_function_make_progress() -> None:
    """Each lane takes the lock in a function of its own activation, and gives it back outside."""
    before = """
    .global .u32 lock; .global .u32 total;
    .func take(.param .b64 where) { .reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %p<2>;
        ld.param.u64 %rd1, [where];
    AGAIN: atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra AGAIN; ret; }
    """
    body = """
        mov.u64 %rd1, lock;
        { .param .b64 a; st.param.b64 [a], %rd1; call take, (a); }
        ld.volatile.global.u32 %r1, [total]; add.u32 %r1, %r1, 1; st.volatile.global.u32 [total], %r1;
        st.global.u32 [%mine], %r1;
        membar.gl;
        atom.global.exch.b32 %r2, [%rd1], 0;
        ret;"""
    assert sorted(run(body, before=before, threads=64).tolist()) == list(range(1, 65))


def test_the_order_of_functions_in_the_module_does_not_matter() -> None:
    """A kernel before the functions that it calls, which are declared first."""
    call = "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %tid; call (r), fib, (a); ld.param.b32 %r1, [r]; }"
    text = program(f"{call} st.global.u32 [%mine], %r1; ret;").split("\n.visible")
    target = emulator()
    out = target.zeros(32, np.uint64)
    module = parse(f"{text[0]}.func (.param .b32 result) fib(.param .b32 n);\n.visible{text[1]}{FIBONACCI}", "test.ptx")
    target.load(module)["k"][1, 16](out)
    assert out.numpy()[:16].tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]


ALLOCATING = """
.func (.reg .u32 sum) summed(.reg .u32 n) {
    .reg .u64 place, bytes; .reg .u32 rest; .reg .pred last;
    mul.wide.u32 bytes, n, 4; alloca.u64 place, bytes; st.local.u32 [place], n;
    setp.le.u32 last, n, 1; @last bra END;
    sub.u32 rest, n, 1; call (rest), summed, (rest);
    ld.local.u32 sum, [place]; add.u32 sum, sum, rest; ret;
END: ld.local.u32 sum, [place];
}
.func (.reg .u32 d) much(.reg .u32 n) {
    .reg .u64 place; .reg .pred odd; .reg .u32 bit;
    alloca.u64 place, 4000, 32; st.local.u32 [place+16], n; ld.local.u32 d, [place+16];
    and.b32 bit, n, 1; setp.eq.u32 odd, bit, 1; @odd ret;
    add.u32 d, d, 100; ret;
}
"""


def test_what_is_allocated_on_the_stack_lasts_until_it_is_restored_or_the_function_ends() -> None:
    body = """
        .local .align 8 .b8 l[12]; mov.u64 %rd9, l; st.local.u32 [%rd9], %tid;
        stacksave.u64 %rd1; and.b32 %r1, %tid, 7; add.u32 %r1, %r1, 1; call (%r2), summed, (%r1);
        mov.u32 %r9, 0; mov.u32 %r8, 0;
    L:  call (%r3), much, (%r9); add.u32 %r8, %r8, %r3; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 20; @%p1 bra L;
        mul.wide.u32 %rd2, %r1, 8; alloca.u64 %rd3, %rd2; @!%p1 alloca.u64 %rd4, 8, 32;
        st.local.u32 [%rd3], %r2; cvta.local.u64 %rd5, %rd4; st.u32 [%rd5], %r8;
        stacksave.u64 %rd6; sub.u64 %rd6, %rd6, %rd1; and.b64 %rd7, %rd4, 31; stackrestore.u64 %rd1; alloca.u64 %rd8, 4;
        sub.u64 %rd8, %rd8, %rd3; add.u64 %rd7, %rd7, %rd8; ld.local.u32 %r7, [%rd9]; sub.u32 %r7, %r7, %tid;
        cvt.u32.u64 %r6, %rd7; add.u32 %r7, %r7, %r6; cvt.u32.u64 %r6, %rd6;
        ld.local.u32 %r4, [%rd3]; ld.local.u32 %r5, [%rd4];
        st.global.v4.u32 [%rd10], {%r4, %r5, %r6, %r7}; ret;"""
    target = emulator()
    out = target.zeros((32, 4), np.uint32)
    text = program(f"mul.wide.u32 %rd10, %tid, 16; add.u64 %rd10, %rd10, %out; {body}", before=ALLOCATING)
    target.load(parse(text))["k"][1, 32](out)
    sums, much, taken, zeros = out.numpy().T
    numbers = np.arange(32) % 8 + 1
    assert (sums == numbers * (numbers + 1) // 2).all()
    assert (much == sum(n + 100 * (n % 2 == 0) for n in range(20))).all()
    assert ((taken >= numbers * 8 + 8) & (taken < numbers * 8 + 8 + 48)).all()
    assert not zeros.any()


def test_too_much_on_the_stack_is_a_fault() -> None:
    with pytest.raises(KernelTrap, match=r"thread \(3, 0, 0\) needs more than its 16384 bytes of stack: .* or `alloca` takes too much"):
        run("mov.u64 %rd2, 8; setp.eq.u32 %p1, %tid, 3; @%p1 mov.u64 %rd2, -1; alloca.u64 %rd1, %rd2; st.local.u32 [%rd1], 1; ret;")


def test_registers_may_be_named_as_the_emulator_names_its_own() -> None:
    function = """
    .func (.reg .u32 d) depth(.reg .u32 n) {
        .reg .u32 place, frame, stack; .reg .pred last; .local .u32 kept;
        mov.u32 place, 7; mov.u32 frame, 5; mov.u32 stack, n; st.local.u32 [kept], n;
        setp.eq.u32 last, n, 0; mov.u32 d, 0; @last bra END;
        sub.u32 stack, n, 1; call (d), depth, (stack); ld.local.u32 stack, [kept];
    END: add.u32 d, d, place; add.u32 d, d, frame; add.u32 d, d, stack; ret;
    }"""
    body = ".reg .u64 %stack; mov.u64 %stack, %mine; and.b32 %r1, %tid, 3; call (%r2), depth, (%r1); st.global.u32 [%stack], %r2; ret;"
    found = run(body, before=function)
    assert found.tolist() == [sum(12 + n for n in range(lane % 4 + 1)) for lane in range(32)]

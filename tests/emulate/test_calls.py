"""Calls of device functions."""

from __future__ import annotations

import numpy as np
import pytest

from memlane.errors import BadAccess, KernelTrap, UnsupportedPtx
from memlane.ptx import parse
from tests.emulate.running import emulator, program, run

FUNCTIONS = """
.func (.param .b32 result) twice(.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
.func (.param .b32 result) collatz(.param .b32 x) {
    .reg .b32 %r<6>; .reg .pred %p<3>;
    ld.param.u32 %r1, [x];
    mov.u32 %r2, 0;
LOOP:
    setp.le.u32 %p1, %r1, 1;
    @%p1 bra DONE;
    and.b32 %r3, %r1, 1;
    setp.eq.u32 %p2, %r3, 0;
    add.u32 %r2, %r2, 1;
    @%p2 bra HALVE;
    mad.lo.u32 %r1, %r1, 3, 1;
    bra LOOP;
HALVE:
    shr.u32 %r1, %r1, 1;
    bra LOOP;
DONE:
    st.param.b32 [result], %r2;
    ret;
}
.func (.param .b32 result) both(.param .b32 x, .param .b32 y) {
    .reg .b32 %r<8>; .reg .pred %p<2>;
    ld.param.u32 %r1, [x];
    ld.param.u32 %r2, [y];
    setp.eq.u32 %p1, %r2, 0;
    st.param.b32 [result], %r1;
    @%p1 ret;
    { .param .b32 a; .param .b32 r;
      st.param.b32 [a], %r2;
      call.uni (r), twice, (a);
      ld.param.b32 %r3, [r]; }
    add.u32 %r4, %r1, %r3;
    st.param.b32 [result], %r4;
    ret;
}
.func store(.param .b64 where, .param .b32 value) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [where];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
}
"""


def call(name: str, result: str, *arguments: str) -> str:
    """A call as compilers write it."""
    stores = " ".join(f".param .b32 a{i}; st.param.b32 [a{i}+0], {value};" for i, value in enumerate(arguments))
    names = ", ".join(f"a{i}" for i in range(len(arguments)))
    return f"{{ {stores} .param .b32 r0; call.uni (r0), {name}, ({names}); ld.param.b32 {result}, [r0+0]; }}"


def collatz(x: int) -> int:
    steps = 0
    while x > 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    return steps


def test_calls_with_results() -> None:
    body = f"{call('twice', '%r1', '%tid')} {call('twice', '%r1', '%r1')} st.global.u32 [%mine], %r1; ret;"
    assert run(body, before=FUNCTIONS).tolist() == [4 * lane for lane in range(32)]


def test_a_called_function_may_loop_and_diverge() -> None:
    together = "activemask.b32 %r2; popc.b32 %r2, %r2; mad.lo.u32 %r1, %r2, 1000, %r1;"
    body = f"{call('collatz', '%r1', '%tid')} {together} st.global.u32 [%mine], %r1; ret;"
    assert run(body, before=FUNCTIONS).tolist() == [32000 + collatz(lane) for lane in range(32)]


def test_calls_within_calls_and_early_returns() -> None:
    body = f"and.b32 %r5, %tid, 3; {call('both', '%r1', '%tid', '%r5')} st.global.u32 [%mine], %r1; ret;"
    assert run(body, before=FUNCTIONS).tolist() == [lane + 2 * (lane % 4) for lane in range(32)]


def test_a_function_without_result() -> None:
    body = "{ .param .b64 a; .param .b32 b; st.param.b64 [a], %mine; st.param.b32 [b], %tid; call store, (a, b); } ret;"
    assert run(body, before=FUNCTIONS).tolist() == list(range(32))


def test_a_bad_access_in_a_called_function_is_told_at_the_call() -> None:
    body = "{ .param .b64 a; .param .b32 b; st.param.b64 [a], 64; st.param.b32 [b], %tid; call store, (a, b); } ret;"
    with pytest.raises(BadAccess, match=r"thread \(0, 0, 0\) accessed 4 bytes at 0x40 \(call\)"):
        run(body, before=FUNCTIONS)


def test_a_failed_assertion() -> None:
    before = ".extern .func __assertfail(.param .b64 a);"
    body = "setp.eq.u32 %p1, %tid, 3; @!%p1 bra FINE; { .param .b64 a; call __assertfail, (a); } FINE: ret;"
    with pytest.raises(KernelTrap, match=r"thread \(3, 0, 0\) failed an assertion"):
        run(body, before=before)


@pytest.mark.parametrize(
    ("before", "body", "message"),
    [
        (
            ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);",
            "{ .param .b64 a; .param .b32 r; call (r), vprintf, (a, a); } ret;",
            "vprintf",
        ),
        (
            ".func again(.param .b32 x) { .param .b32 y; call again, (y); ret; }",
            "{ .param .b32 x; call again, (x); } ret;",
            "recursion: k -> again -> again",
        ),
    ],
)
def test_what_cannot_be_written_out_is_refused(before: str, body: str, message: str) -> None:
    target = emulator()
    kernel = target.load(parse(program(body, before=before), "test.ptx"))["k"]
    with pytest.raises(UnsupportedPtx, match=message):
        kernel[1, 32](target.zeros(1, np.uint64))

"""What kernels print, and assertions that fail."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from memlane.emulate.run.printf import UnreadableError, formatted
from memlane.errors import KernelTrap
from tests.emulate.running import run

PRINT = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);"


def string(name: str, text: str) -> str:
    data = text.encode() + b"\0"
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


def printing(values: str = "0") -> str:
    return f"""{{ .param .b64 a; .param .b64 b; .param .b32 r; mov.u64 %rd1, text; st.param.b64 [a], %rd1; st.param.b64 [b], {values};
        call.uni (r), vprintf, (a, b); ld.param.b32 %r9, [r]; }}"""


def test_lines_come_in_the_order_of_blocks_warps_and_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    body = f"""
        .local .align 8 .b8 values[16];
        mov.u32 %r1, %ctaid.x; mov.f64 %fd1, 0d3FF8000000000000;
        st.local.v2.u32 [values], {{%r1, %tid}}; st.local.f64 [values+8], %fd1;
        mov.u64 %rd2, values; cvta.local.u64 %rd3, %rd2;
        and.b32 %r2, %tid, 15; setp.ne.u32 %p1, %r2, 7; @%p1 bra DONE;
        {printing("%rd3")}
        st.global.u32 [%mine], %r9;
    DONE: ret;"""
    found = run(body, before=PRINT + string("text", "block %d thread %3u %.2f%%\n"), blocks=2, threads=64)
    expected = [f"block {block} thread {thread:3} 1.50%\n" for block in range(2) for thread in (7, 23, 39, 55)]
    assert capsys.readouterr().out == "".join(expected)
    assert found[7] == 3


def test_what_was_printed_before_a_trap_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KernelTrap):
        run(f"setp.ne.u32 %p1, %tid, 0; @%p1 ret; {printing()} trap;", before=PRINT + string("text", "so far\n"))
    assert capsys.readouterr().out == "so far\n"


def test_a_format_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    run(f"setp.ne.u32 %p1, %tid, 0; @%p1 ret; {printing()} st.global.u32 [%mine], %r9;", before=PRINT + string("text", "%d"))
    assert capsys.readouterr().out == "(printf: no 4 bytes at 0x0)"


class Memory:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, address: int, nbytes: int) -> bytes:
        if address + nbytes > len(self.data):
            raise UnreadableError("the end")
        return self.data[address : address + nbytes]

    def string(self, address: int) -> str:
        return {100: "text"}[address]


@pytest.mark.parametrize(
    ("pattern", "values", "text", "count"),
    [
        ("%d|%5d|%-5d|%05d|%+d", struct.pack("<5i", -3, 42, 42, 42, 42), "-3|   42|42   |00042|+42", 5),
        ("%u|%x|%X|%#x|%o", struct.pack("<5i", -1, 255, 255, 255, 8), "4294967295|ff|FF|0xff|10", 5),
        ("%hd %hhu %hx", struct.pack("<3i", 0x18000, 0x1FF, -1), "-32768 255 ffff", 3),
        ("%lld %llu %lx %ld", struct.pack("<4q", -(1 << 62), -1, -1, 5), f"{-(1 << 62)} {2**64 - 1} {'f' * 16} 5", 4),
        ("%d %lld", struct.pack("<i4xq", 1, 2), "1 2", 2),
        ("%f %.3f %8.2f|%-8.1f|", struct.pack("<4d", 1.5, 2.0005, 3.14159, 2.5), f"1.500000 {2.0005:.3f}     3.14|2.5     |", 4),
        ("%e %g %G %E", struct.pack("<4d", 12345.678, 1e-10, 1e20, 0.5), "1.234568e+04 1e-10 1E+20 5.000000E-01", 4),
        ("%f %f %e", struct.pack("<3d", float("nan"), float("inf"), float("-inf")), "nan inf -inf", 3),
        ("%a", struct.pack("<d", 1.0), (1.0).hex(), 1),
        ("%c%c|%3c", struct.pack("<3i", 65, 66, 67), "AB|  C", 3),
        ("%s|%6s|%-6s|%.2s", struct.pack("<4q", 100, 100, 100, 100), "text|  text|text  |te", 4),
        ("%s %p %p", struct.pack("<3q", 0, 0, 0x7000), "(null) (nil) 0x7000", 3),
        (
            "%*d|%-*d|%.*f",
            struct.pack("<2i2i2id", 5, 42, 5, 42, 1, 0, 2.25)[:20] + bytes(4) + struct.pack("<d", 2.25),
            "   42|42   |2.2",
            6,
        ),
        ("%*d", struct.pack("<2i", -4, 7), "7   ", 2),
        ("100%% %y", b"", "100% %y", 0),
        ("%.0f %.3d", struct.pack("<di", 2.5, 7), "2 007", 2),
    ],
)
def test_formats(pattern: str, values: bytes, text: str, count: int) -> None:
    assert formatted(pattern, 0, Memory(values)) == (text, count)


def test_arguments_that_are_missing() -> None:
    with pytest.raises(UnreadableError):
        formatted("%d %d", 0, Memory(bytes(4)))


def test_a_failed_assertion_says_what_the_programmer_wrote() -> None:
    before = ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
    before += string("message", "i < n") + string("file", "halo.cu") + string("function", "void k(int)")
    body = """
        mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 64, %tid; setp.lt.u32 %p1, %r1, 100; @%p1 bra FINE;
        { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
          mov.u64 %rd1, message; mov.u64 %rd2, file; mov.u64 %rd3, function;
          st.param.b64 [a], %rd1; st.param.b64 [b], %rd2; st.param.b32 [c], 17; st.param.b64 [d], %rd3; st.param.b64 [e], 1;
          call.uni __assertfail, (a, b, c, d, e); }
    FINE: ret;"""
    message = r"block \(1, 0, 0\), thread \(36, 0, 0\): assertion `i < n` failed in void k\(int\) \(halo\.cu:17\)"
    with pytest.raises(KernelTrap, match=message):
        run(body, before=before, blocks=2, threads=64)


def test_printing_changes_nothing_else() -> None:
    body = f"mov.u32 %r1, %tid; {printing()} st.global.u32 [%mine], %r1; ret;"
    assert np.array_equal(run(body, before=PRINT + string("text", "")), np.arange(32))

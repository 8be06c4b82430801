"""Initial values of variables: the emulator's memory against the data that the assembler puts into the cubin, and what is refused."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
import pytest

from memlane.compile import assemble
from memlane.errors import PtxSyntaxError, PtxTypeError
from memlane.ptx import parse, print_module
from tests.emulate.running import HEAD, emulator

CONSTANTS = (
    *("5+1", "-7/2", "~5", "1 << 4 | 3", "010", "0b101", "0x1F", "-5U >> 1", "1 ? 2 : 3", "WARP_SZ * 2", "-1 < 0U", "300"),
    *("5 // a comment\n + 1", "/* one */ 1 /* and */ + 2"),
)
FRACTIONS = ("1.0", "-1.5 * 2.0", ".5", "5.", "1e3", "0f3f800000", "0d3ff8000000000000", "1e300", "-1e300", "1e-46")
ARRAYS = (
    *("[2] = {1, 2}", "[] = {1, 2, 3}", "[4] = {1, 2}", "[2] = {}", "[2][2] = {{1, 2}, {3, 4}}", "[2][3] = {{1, 2}, {3}}"),
    *("[2][2] = {{}, {1}}", "[][2] = {{1, 2}, {3, 4}}", "[2][2][2] = {{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}", "[2] = {1 + 1, (2) * 3}"),
    *("[2] = { // a comment\n 5, /* and\n another */ 6 }", "[3] = {0x1ffffffff, -1, 5U}"),
)
DECLARED = [
    *(f".{kind} a = {text};" for text in CONSTANTS for kind in ("u32", "s64", "u8", "b16")),
    *(f".{kind} a = {text};" for text in FRACTIONS for kind in ("f32", "f64", "b32")),
    *(f".{kind} a{text};" for text in ARRAYS for kind in ("u32", "u16")),
    ".v2 .u32 a[2] = {{1, 2}, {3, 4}};",
    ".v4 .f32 a = {1.0, 2.0, 3.0, 4.0};",
]
"""Each is a declaration of `a` behind its state space."""


@cache
def text_of_all() -> str:
    named = [f".visible .global {one.replace(' a', f' a{number}', 1)}" for number, one in enumerate(DECLARED)]
    uses = "\n".join(f"ld.global.u8 %r1, [a{number}]; st.global.u8 [%rd1], %r1;" for number in range(len(named)))
    body = f".reg .b64 %rd1; .reg .b32 %r1; ld.param.u64 %rd1, [out];\n{uses}\nret;"
    return HEAD + "\n".join(named) + f"\n.visible .entry k(.param .u64 out) {{ {body} }}\n"


def assembled_data(cubin: bytes) -> dict[str, bytes]:
    """The bytes of each symbol in the sections of global memory, by a reading of the ELF file of its own."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + number * size) for number in range(count)]

    def name_at(section: int, offset: int) -> str:
        start = headers[section][4] + offset
        return cubin[start : cubin.index(b"\0", start)].decode()

    titles = [name_at(names, header[0]) for header in headers]
    symbols = headers[titles.index(".symtab")]
    found = {}
    for offset in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, section, value, nbytes = struct.unpack_from("<IBBHQQ", cubin, offset)
        if section < count and titles[section].startswith(".nv.global"):
            has_data = headers[section][1] != 8
            start = headers[section][4] + value
            found[name_at(symbols[6], name)] = cubin[start : start + nbytes] if has_data else bytes(nbytes)
    return found


def emulated_data(text: str, name: str = "a") -> bytes:
    target = emulator()
    address, nbytes = target.symbol(target.load(parse(text)), name)
    values = np.zeros(nbytes, np.uint8)
    target.read(address, values)
    return values.tobytes()


def test_initial_values_are_those_of_the_assembler() -> None:
    pytest.importorskip("cuda.bindings.nvjitlink")
    data = assembled_data(assemble(text_of_all(), arch="sm_90").data)
    target = emulator()
    loaded = target.load(parse(text_of_all()))
    wrong = []
    for number, declared in enumerate(DECLARED):
        address, nbytes = target.symbol(loaded, f"a{number}")
        values = np.zeros(nbytes, np.uint8)
        target.read(address, values)
        if values.tobytes() != data[f"a{number}"]:
            wrong.append((declared, values.tobytes().hex(), data[f"a{number}"].hex()))
    assert wrong == []


def test_printing_a_module_keeps_them() -> None:
    module = parse(text_of_all())
    printed = print_module(module)
    assert parse(printed) == module
    assert print_module(parse(printed)) == printed
    assert module.variables[f"a{DECLARED.index('.u32 a[] = {1, 2, 3};')}"].nbytes == 12


def test_addresses_and_bytes_of_them() -> None:
    before = ".global .u32 a[4];\n.global .u64 b[3] = {a + 4, generic(a) + (2 * 4), a + -4};\n"
    before += ".global .u8 c[5] = {0xFF(a), 0xFF00(a), 0xFF(5), 0xFF0000(a+4), 255(generic(a))};\n"
    target = emulator()
    loaded = target.load(parse(f"{HEAD}{before}.visible .entry k() {{ ret; }}"))
    (a, _), (b, _), (c, _) = (target.symbol(loaded, name) for name in "abc")
    words, chars = np.zeros(3, np.uint64), np.zeros(5, np.uint8)
    target.read(b, words)
    target.read(c, chars)
    assert words.tolist() == [a + 4, a + 8, a - 4]
    assert chars.tolist() == [a & 255, a >> 8 & 255, 5, a + 4 >> 16 & 255, a & 255]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (".global .u32 a = 1.0;", "<ptx>:4:18: `a` needs an integer there: its type is `.u32`"),
        (".global .f32 a = 1;", "<ptx>:4:18: `a` needs a floating-point number there: its type is `.f32`"),
        (".global .u32 a[1] = {1, 2};", "<ptx>:4:21: the initialiser of `a` has 2 values in a row of 1"),
        (".global .u32 a[2][2] = {1, 2};", "<ptx>:4:25: expected `{`, for the initialiser of `a` nests braces 2 deep, found `1`"),
        (".global .u32 a[2] = {{1, 2}};", "<ptx>:4:22: expected a number, found `{`"),
        (".global .u32 a = {5};", "<ptx>:4:18: `a` is not an array: its initialiser has no braces"),
        (".global .u32 a[2] = 5;", "<ptx>:4:21: expected `{`, for the initialiser of `a` nests braces 1 deep, found `5`"),
        (".global .u32 a[2] = {1,};", "<ptx>:4:24: expected a number, found `}`"),
        (".global .u32 a[] = {};", "<ptx>:4:20: `a` has neither a length nor a value"),
        (".global .u8 a = b;", "<ptx>:4:17: an address does not fit `.u8`: declare `a` as `.u64`, or select its bytes with `0xFF(...)`"),
        (".global .u8 a = 0xFFFF(b);", "<ptx>:4:17: a mask has the eight bits of one byte, such as `0xFF00`"),
        (
            ".shared .u32 a = 5;",
            "<ptx>:4:16: `a` is in .shared memory, which cannot have initial values: store them at the start of the kernel",
        ),
    ],
)  # fmt: skip
def test_refused(declared: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(f"{HEAD}{declared}\n.visible .entry k() {{ ret; }}")
    assert str(caught.value).split("\n")[0] == message


def test_the_address_of_a_shared_variable_is_refused() -> None:
    text = f"{HEAD}.shared .u32 s;\n.global .u64 a = s;\n.visible .entry k() {{ ret; }}"
    with pytest.raises(
        PtxTypeError, match="the initialiser of a names s, which is neither a variable in global or constant memory nor a function"
    ):
        emulator().load(parse(text))

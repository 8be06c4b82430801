"""Constant expressions: their values by C's rules on 64 bits, as the assembler computes them, and what they refuse."""

from __future__ import annotations

import struct

import pytest

from memlane.errors import PtxSyntaxError
from memlane.ptx import SCALAR_TYPES, Immediate
from memlane.ptx.constants import bits_of, parse_constant
from memlane.ptx.lexer import Cursor
from memlane.source import Source


def constant(text: str) -> Immediate:
    return parse_constant(Cursor(Source("k.ptx", text)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5+1", 6),
        ("1 + 2*3", 7),
        ("(1+2)*3", 9),
        ("10-3-2", 5),
        ("100/10/2", 5),
        ("-7/2", -3),
        ("7/-2", -3),
        ("-7 % 3", 0),  # of unsigned numbers
        ("1|2^3&4", 3),
        ("1<<1+1", 4),
        ("1<<64", 1),
        ("-1>>1", -1),
        ("-1U>>1", (1 << 63) - 1),
        ("(.u64)-1>>1", (1 << 63) - 1),
        ("(.s64)0xffffffffffffffff>>1", -1),
        ("~0>>1", (1 << 63) - 1),
        ("(3U&1)-2>>1", (1 << 63) - 1),
        ("(1U<2U)-2>>1", -1),
        ("(1?1:1U)-2>>1", -1),
        ("-1<0", 1),
        ("-1<0U", 0),
        ("-100/3U", (2**64 - 100) // 3),
        ("1U-2U", (1 << 64) - 1),
        ("9223372036854775807+1", -(1 << 63)),
        ("-9223372036854775809", (1 << 63) - 1),
        ("1?2:0?3:4", 2),
        ("0 ? 2 : 3", 3),
        ("!0||0", 1),
        ("3&&0", 0),
        ("!7", 0),
        ("--5", 5),
        ("+5", 5),
        ("1<2<3", 1),
        ("1.5>1.0", 1),
        ("WARP_SZ*2-1", 63),
        ("0x10+010+0b11", 27),
        ("5 /* five */ + // and\n 1", 6),
    ],
)
def test_integers(text: str, value: int) -> None:
    found = constant(text)
    assert (found.kind, found.value) == ("int", value)


@pytest.mark.parametrize(("text", "value"), [("1.5*2.0", 3.0), ("-(1.0)", -1.0), (".5+5.", 5.5), ("1.0/4.0", 0.25), ("-0.0", -0.0)])
def test_floating_point_numbers_are_doubles(text: str, value: float) -> None:
    found = constant(text)
    assert (found.kind, found.value.to_bytes(8, "little")) == ("f64", struct.pack("<d", value))


def test_a_single_literal_keeps_its_spelling() -> None:
    assert [constant(text).text for text in ("0x1F", "-017", "5U", "0f3F800000")] == ["0x1F", "-017", "5U", "0f3F800000"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5+", "k.ptx:1:3: expected a number, found the end of the text"),
        ("1/0", "k.ptx:1:2: division by zero in a constant expression"),
        ("1 % 0", "k.ptx:1:3: division by zero in a constant expression"),
        ("1.0/0.0", "k.ptx:1:4: division by zero in a constant expression"),
        ("1e308*1e308*1.0", None),
        ("1.5*2", "k.ptx:1:4: `*` takes two integers or two floating-point numbers, not one of each"),
        ("1.5 % 2.5", "k.ptx:1:5: `%` takes integers"),
        ("~1.5", "k.ptx:1:2: expected an integer in a constant expression"),
        ("0f3F800000+1.0", "k.ptx:1:11: a bit literal such as `0f3F800000` cannot be part of an expression: write a decimal fraction"),
        ("(1", "k.ptx:1:3: expected `)` at the end of a constant expression, found the end of the text"),
        ("1?2", "k.ptx:1:4: expected `:` after the second part of `? :`, found the end of the text"),
        ("1e400", "k.ptx:1:1: `1e400` is too large for a double"),
        ("08", "k.ptx:1:1: `08` is not a number"),
    ],
)
def test_refused(text: str, message: str | None) -> None:
    if message is None:  # infinity is a double
        assert constant(text).value == 0x7FF << 52
        return
    with pytest.raises(PtxSyntaxError) as caught:
        constant(text)
    assert str(caught.value).split("\n")[0] == message


@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("1.0", "f32", 0x3F800000),
        ("1e300", "f32", 0x7F800000),
        ("-1e300", "f32", 0xFF800000),
        ("1e-50", "f32", 0),
        ("0d3FF8000000000000", "f32", 0x3FC00000),
        ("0f3F800000", "f64", 0x3F800000),  # bits, which the assembler does not convert
        ("1.5", "f16", 0x3E00),
        ("70000.0", "f16", 0x7C00),
        ("1.00390625", "bf16", 0x3F80),  # a tie, to even
        ("1.01171875", "bf16", 0x3F82),
        ("-200", "u8", 0x38),
    ],
)
def test_bits_of_a_literal(text: str, kind: str, bits: int) -> None:
    assert bits_of(constant(text), SCALAR_TYPES[kind]) == bits

"""Numbers as people read them, written in one way everywhere."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlane
from memlane.chip import load
from memlane.emulate import Emulator
from memlane.errors import BadAccess, BadLaunch
from memlane.measure import count, trace
from memlane.number_format import approximate, duration, extents, percent, plural, plural_noun, rounded, short, size
from memlane.ptx import parse
from memlane.report import render_counts, render_trace, to_text
from memlane.report.transactions import with_ideal

SOURCES = Path(memlane.__file__).parent
ONE_BYTE = """
.version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, 7;
    st.global.u8 [%rd1], %r1;
    ret;
}
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (32.0, "32"), (31.94, "31.9"), (4.3333, "4.33"), (0.25, "0.25"), (1234.5, "1,234"), (999.7, "1,000")],
)
def test_rounded(value: float | None, text: str) -> None:
    assert rounded(value) == text


def test_rounded_to_other_digits() -> None:
    assert [rounded(1234.56, 4), rounded(12.3456, 4), rounded(12.3456, 2), rounded(0.0004, 4)] == ["1,235", "12.35", "12", "0.0004"]


@pytest.mark.parametrize(
    ("pair", "text"), [((None, 4), "-"), ((32, None), "32"), ((32, 4), "32 (4)"), ((31.9, 10.66), "31.9 (10.7)"), ((0, 0), "0 (0)")]
)
def test_with_ideal(pair: tuple[float | None, float | None], text: str) -> None:
    assert with_ideal(*pair) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (-7, "-7"),
        (99_999, "99,999"),
        (100_000, "100k"),
        (999_499, "999k"),
        (999_500, "1M"),
        (1_234_567, "1.23M"),
        (5 * 10**10, "50G"),
    ],
)
def test_short(value: int | None, text: str) -> None:
    assert short(value) == text


@given(st.integers(0, 999 * 10**9))
def test_short_fits_six_characters(value: int) -> None:
    assert len(short(value)) <= 6
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(short(value)[-1])
    shown = int(short(value).replace(",", "")) if scale is None else float(short(value)[:-1]) * scale
    assert shown == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0.0 %"), (0.0004, "<0.1 %"), (0.051, "5.1 %"), (0.0996, "10 %"), (0.454, "45 %"), (1, "100 %")]
)
def test_percent(value: float | None, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (629.5, "630 ns"), (999.6, "1 us"), (12_480, "12.5 us"), (1.25e6, "1.25 ms"), (2.5e9, "2.5 s"), (3e12, "3,000 s")],
)
def test_duration(ns: float, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (896, "896 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1 << 20, "1 MiB"),
        (1_835_008, "1.75 MiB"),
        (1.2 * 2**30, "1.2 GiB"),
        (5 << 50, "5,120 TiB"),
    ],
)
def test_size(nbytes: float, text: str) -> None:
    assert size(nbytes) == text


@given(st.floats(1, 1e15))
def test_units_of_times_and_sizes_say_what_they_stand_for(value: float) -> None:
    amount, unit = duration(value).split()
    assert float(amount.replace(",", "")) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit] == pytest.approx(value, rel=0.006)
    amount, unit = size(value).split()
    assert float(amount.replace(",", "")) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}[unit] == pytest.approx(
        value, rel=0.006
    )


def test_words() -> None:
    assert [plural(1, "launch"), plural(2, "launch"), plural(0, "record"), plural(1000, "access")] == [
        "1 launch",
        "2 launches",
        "0 records",
        "1,000 accesses",
    ]
    assert [plural(1.0, "sector"), plural(1.5, "sector"), plural(0.25, "cycle"), plural(None, "lane")] == [
        "1 sector",
        "1.5 sectors",
        "0.25 cycles",
        "- lanes",
    ]
    assert [plural_noun(noun) for noun in ("byte", "axis", "time axis", "index", "copy", "array", "box", "address", "branch")] == [
        "bytes",
        "axes",
        "time axes",
        "indices",
        "copies",
        "arrays",
        "boxes",
        "addresses",
        "branches",
    ]
    assert [approximate(1.2, "warp cycle"), approximate(12_345_678, "warp cycle")] == ["1 warp cycle", "12.3 million warp cycles"]
    assert [extents((32, 1, 1)), extents((32, 32, 1)), extents((1, 1, 4))] == ["32", "32x32", "1x1x4"]
    assert [approximate(1234.4), approximate(12_345_678)] == ["1,234", "12.3 million"]


def test_no_message_writes_percent_or_microseconds_in_a_way_of_its_own() -> None:
    """`45 %` and `12.5 us` everywhere: no format that Python's `%` presentation writes (`45%`), and no other sign for micro."""
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "\N{MICRO SIGN}" not in text, path
        assert "\N{GREEK SMALL LETTER MU}" not in text, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
                spec = "".join(part.value for part in node.format_spec.values if isinstance(part, ast.Constant))
                assert not spec.endswith("%"), f"{path}:{node.lineno}: use memlane.number_format.percent"


OWN_WORDS = ("compile", "emulate/semantics", "lab", "model", "network", "stencils", "timeloop")
"""Packages whose amounts are written by hand: titles of measured cases, and words of their own."""
NOUNS = r" (bytes|bits|sectors|wavefronts|warps|threads|launches|records|accesses|cycles|requests|elements|blocks|rows|axes|dimensions)\b"


def test_no_message_writes_the_plural_of_an_amount_by_hand() -> None:
    """`1 byte` and `2 bytes`: lengths and sizes go through `plural`, which knows that 1 has no plural."""
    for path in SOURCES.rglob("*.py"):
        if path.relative_to(SOURCES).as_posix().startswith(OWN_WORDS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for amount, behind in pairwise(parts):
                if isinstance(amount, ast.FormattedValue) and isinstance(behind, ast.Constant) and re.match(NOUNS, str(behind.value)):
                    text = ast.unparse(amount.value)
                    assert not re.match(r"len\(|.*\bn?bytes$|.*\b(warps|lanes|threads)$", text), (
                        f"{path}:{node.lineno}: use plural({text}, ...)"
                    )


def test_messages_about_one_thing_are_singular() -> None:
    module = parse(ONE_BYTE, "one.ptx")
    emulator = Emulator(load("h200"))
    out = emulator.zeros(1, "u1")
    counts = count(emulator.load(module)["k"][1, 1], out)
    text = to_text(render_counts(counts), 200)
    assert "Global memory: 1 byte requested, 32 moved (1 sector, ideal 1)." in text
    with pytest.raises(BadAccess, match=r"wrote 1 byte at 0x[0-9a-f]+ .*just past the end of the 1-byte allocation"):
        emulator.load(parse(ONE_BYTE.replace("[%rd1]", "[%rd1+1]"), "past.ptx"))["k"][1, 1](out)
    with pytest.raises(BadAccess, match=r", 1 byte past the end of the 1-byte allocation"):
        emulator.load(parse(ONE_BYTE.replace("[%rd1]", "[%rd1+2]"), "past.ptx"))["k"][1, 1](out)
    with pytest.raises(BadLaunch, match=r"^kernel k takes 1 argument \(u64\), got 0$"):
        emulator.load(module)["k"][1, 1]()
    traced = trace(emulator.load(module)["k"][1, 1], out)
    assert "1 access recorded" in to_text(render_trace(traced), 200)
    assert "1 record kept" in to_text(render_trace(traced), 200)

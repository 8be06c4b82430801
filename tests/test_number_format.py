"""Numbers as people read them, written in one way everywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlane
from memlane.number_format import amount, approximate, duration, extents, percent, plural, rounded, short, size
from memlane.report.transactions import with_ideal

SOURCES = Path(memlane.__file__).parent


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
        (99_999, "99999"),
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
def test_short_fits_five_characters(value: int) -> None:
    assert len(short(value)) <= 5
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(short(value)[-1])
    shown = int(short(value)) if scale is None else float(short(value)[:-1]) * scale
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
    assert [amount(1.0, "warp"), amount(1.0004, "warp"), amount(2.5, "warp"), amount(0, "byte")] == [
        "1 warp",
        "1 warp",
        "2.5 warps",
        "0 bytes",
    ]
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

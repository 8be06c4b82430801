"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlane.report.numbers import extents, number, percent, plural, short, with_ideal


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (32.0, "32"), (31.94, "31.9"), (4.3333, "4.33"), (0.25, "0.25"), (1234.5, "1,234"), (999.7, "1,000")],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


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


def test_words() -> None:
    assert [plural(1, "launch"), plural(2, "launch"), plural(0, "record"), plural(1000, "access")] == [
        "1 launch",
        "2 launches",
        "0 records",
        "1,000 accesses",
    ]
    assert [extents((32, 1, 1)), extents((32, 32, 1)), extents((1, 1, 4))] == ["32", "32x32", "1x1x4"]

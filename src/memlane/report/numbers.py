"""Numbers as people read them. None is `-`, never 0."""

from __future__ import annotations

UNKNOWN = "-"
ALARMING = 1.5
"""Transactions over ideal from which on a number is coloured. Only a colour: what is a finding, `diagnose` says."""


def mean(total: int | None, requests: int) -> float | None:
    """Of a total its part for each request; None where that is not known."""
    return None if total is None or requests == 0 else total / requests


def number(value: float | None) -> str:
    """Three significant digits, and no decimal point where there is nothing behind it: `32`, `31.9`, `0.25`, `1,024`."""
    if value is None:
        return UNKNOWN
    if abs(value - round(value)) < 0.0005 or abs(value) >= 999.5:
        return f"{round(value):,}"
    return f"{value:.3g}"


def with_ideal(value: float | None, ideal: float | None) -> str:
    """`32 (4)`; the value alone where no ideal is known."""
    if value is None:
        return UNKNOWN
    return number(value) if ideal is None else f"{number(value)} ({number(ideal)})"


def is_alarming(value: float | None, ideal: float | None) -> bool:
    """Whether a number of transactions is coloured; nothing is where the ideal is none or not known."""
    return value is not None and bool(ideal) and value >= ALARMING * (ideal or 0)


def short(value: int | None) -> str:
    """At most five characters for up to 999 billion: `99999`, `123k`, `1.23M`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 100_000:
        return str(value)
    for scale, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if abs(value) < 999.5 * scale or letter == "G":
            return f"{value / scale:.3g}{letter}"
    raise AssertionError("unreachable")


def percent(fraction: float | None) -> str:
    """`45 %`, `4.5 %`, `<0.1 %`."""
    if fraction is None:
        return UNKNOWN
    if 0 < fraction < 0.001:
        return "<0.1 %"
    return f"{100 * fraction:.0f} %" if fraction >= 0.0995 else f"{100 * fraction:.1f} %"


def plural(count: int, noun: str) -> str:
    """`1 launch`, `2,000 launches`."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{count:,} {noun}{ending}"


def extents(dims: tuple[int, int, int]) -> str:
    """`32x32` for (32, 32, 1)."""
    kept = dims if dims[2] > 1 else dims[:2] if dims[1] > 1 else dims[:1]
    return "x".join(map(str, kept))

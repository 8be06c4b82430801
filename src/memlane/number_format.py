"""How numbers are written in every message, table and page: `1,024`, `31.9`, `45 %`, `12.5 us`, `1.8 MiB`.

A number has three significant digits, a count has all of them. Thousands are separated by commas. There is a space before a unit and before
the percent sign, microseconds are `us`, and an unknown number is `-`, never 0.
"""

from __future__ import annotations

from typing import SupportsFloat

UNKNOWN = "-"


def rounded(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits, or all those before the point: `32`, `31.9`, `0.25`, `1,024`."""
    if value is None:
        return UNKNOWN
    if abs(value - round(value)) < 0.5 * 10.0**-digits or abs(value) >= 10.0**digits - 0.5:
        return f"{round(value):,}"
    return f"{value:,.{digits}g}"


def approximate(value: float, noun: str = "") -> str:
    """Return a count whose last digits do not matter, with its noun: `1,234 cycles`, `12.3 million cycles`."""
    text = f"{value:,.0f}" if abs(value) < 1e6 else f"{rounded(value / 1e6)} million"
    return f"{text} {noun if text == '1' else plural_noun(noun)}" if noun else text


def short(value: int | None) -> str:
    """Return a count in at most six characters, up to 999 billion: `99,999`, `123k`, `1.23M`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 100_000:
        return f"{value:,}"
    for scale, letter in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if abs(value) < 999.5 * scale or letter == "G":
            return f"{value / scale:.3g}{letter}"
    raise AssertionError("unreachable")


def percent(fraction: float | None) -> str:
    """Return a share in percent: `45 %`, `4.5 %`, `<0.1 %`."""
    if fraction is None:
        return UNKNOWN
    if 0 < fraction < 0.001:
        return "<0.1 %"
    return f"{100 * fraction:.0f} %" if fraction >= 0.0995 else f"{100 * fraction:.1f} %"


def duration(ns: float, digits: int = 3) -> str:
    """Return a time with the unit that fits: `629 ns`, `12.5 us`, `1.25 ms`, `2.5 s`."""
    for unit, scale in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if abs(ns) < 999.5 * scale:
            return f"{rounded(ns / scale, digits)} {unit}"
    return f"{rounded(ns / 1e9, digits)} s"


def size(nbytes: float) -> str:
    """Return an amount of memory with the unit that fits: `896 B`, `1.75 MiB`, `1.2 GiB`."""
    amount, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(amount) >= 1023.5 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{rounded(amount)} {units[0]}"


def plural(count: SupportsFloat | None, noun: str) -> str:
    """Return a number with its noun, whose last word takes the plural unless one is written: `1 byte`, `2,000 launches`, `1.5 sectors`."""
    text = f"{count:,}" if isinstance(count, int) else rounded(None if count is None else float(count))
    return f"{text} {noun if text == '1' else plural_noun(noun)}"


def plural_noun(noun: str) -> str:
    """Return the plural of a noun, or of the last word of several: `copies` for `copy`, `time axes` for `time axis`."""
    for singular, ending in (("axis", "axes"), ("index", "indices")):
        if noun.endswith(singular):
            return noun.removesuffix(singular) + ending
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(("ch", "sh", "s", "x")) else "s")


def extents(dims: tuple[int, int, int]) -> str:
    """Return a grid or block without its trailing ones: `32x32` for (32, 32, 1)."""
    kept = dims if dims[2] > 1 else dims[:2] if dims[1] > 1 else dims[:1]
    return "x".join(map(str, kept))

"""Build the few shapes of the pictures, as SVG text.

Every shape has its colour of the light scheme as an attribute, which any viewer of SVG obeys, and a class, by which a style sheet in the
picture gives it the colour of the dark scheme in browsers that prefer that.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from html import escape as escape

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True)
class Ink:
    """A colour with a meaning, in both schemes."""

    name: str
    light: str
    dark: str


PAPER = Ink("paper", "#ffffff", "#12161c")
TEXT = Ink("text", "#18212c", "#e8edf3")
MUTED = Ink("muted", "#5c6875", "#9aa6b4")
FRAME = Ink("frame", "#c3cbd4", "#3b4654")
EMPTY = Ink("empty", "#f3f5f8", "#1b222b")
ASKED = Ink("asked", "#1668d6", "#4f9dff")
WASTED = Ink("wasted", "#f7cf95", "#8a5a1c")
GOOD = Ink("good", "#15733a", "#5fd08a")
BAD = Ink("bad", "#b3421b", "#ff9d6b")
_INKS = (PAPER, TEXT, MUTED, FRAME, EMPTY, ASKED, WASTED, GOOD, BAD)


def style_sheet() -> str:
    """Return the style that makes a picture dark where the reader prefers that. Several pictures in one page may each include it."""
    fills = "".join(f".ml-picture .f-{ink.name}{{fill:{ink.dark}}}.ml-picture .s-{ink.name}{{stroke:{ink.dark}}}" for ink in _INKS)
    return f"<style>@media (prefers-color-scheme: dark){{{fills}}}</style>"


def turn_colour(turn: int, turns: int) -> str:
    """Return the colour of one of several wavefronts; each contrasts with white letters and with light and dark backgrounds."""
    if turns <= 1:
        return "#1668d6"
    # Few neighbouring wavefronts have distant hues; many have adjacent ones.
    hue = (0.59 + turn / turns) % 1.0
    red, green, blue = colorsys.hls_to_rgb(hue, 0.36 if 0.1 < hue < 0.52 else 0.46, 0.62)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))


def rect(x: float, y: float, width: float, height: float, fill: Ink | str | None, *, frame: Ink | None = None, dashed: bool = False) -> str:
    """Return a box, with round corners where it is large enough for them."""
    words = [f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"']
    if min(width, height) >= 12:
        words.append('rx="3"')
    words.append(_paint(fill, frame))
    if dashed:
        words.append('stroke-dasharray="3 3"')
    return f"<rect {' '.join(words)}/>"


def text(
    x: float, y: float, content: str, size: float, ink: Ink | str = TEXT, *, anchor: str = "start", bold: bool = False, mono: bool = False
) -> str:
    """Return one line of text; `y` is its base line."""
    weight = ' font-weight="600"' if bold else ""
    family = f' font-family="{MONO}"' if mono else ""
    shown = "".join(character if character.isprintable() else " " for character in content)
    where = f'x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}"'
    return f"<text {where}{weight}{family} {_paint(ink, None)}>{escape(shown)}</text>"


def arrow(x: float, y: float, to_x: float, to_y: float, colour: Ink | str, *, faint: bool = False) -> str:
    """Return a curve with a head that leaves and arrives vertically."""
    neck = to_y - 6
    bend = (neck - y) * 0.55
    path = f"M{_n(x)} {_n(y)}C{_n(x)} {_n(y + bend)} {_n(to_x)} {_n(neck - bend)} {_n(to_x)} {_n(neck)}"
    stroke = _stroke(colour)
    opacity = ' stroke-opacity="0.55"' if faint else ""
    head = f"M{_n(to_x - 3)} {_n(neck)}h6l-3 6z"
    return f'<path d="{path}" fill="none" {stroke} stroke-width="1.4"{opacity}/><path d="{head}" {_paint(colour, None)}/>'


def line(x: float, y: float, to_x: float, to_y: float, ink: Ink) -> str:
    """Return a hairline."""
    return f'<path d="M{_n(x)} {_n(y)}L{_n(to_x)} {_n(to_y)}" {_stroke(ink)} stroke-width="1"/>'


def _paint(fill: Ink | str | None, frame: Ink | None) -> str:
    names = [f"f-{fill.name}"] if isinstance(fill, Ink) else []
    colour = fill.light if isinstance(fill, Ink) else fill or "none"
    words = [f'fill="{colour}"']
    if frame is not None:
        names.append(f"s-{frame.name}")
        words.append(f'stroke="{frame.light}"')
    return " ".join([f'class="{" ".join(names)}"' if names else "", *words]).strip()


def _stroke(colour: Ink | str) -> str:
    return f'class="s-{colour.name}" stroke="{colour.light}"' if isinstance(colour, Ink) else f'stroke="{colour}"'


def _n(value: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")

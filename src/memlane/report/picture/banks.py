"""Draw the lower half of the picture of an access to shared memory: the banks, and below them what they serve in each wavefront."""

from __future__ import annotations

from collections.abc import Callable

from memlane.chip.served import Touch, Wavefront
from memlane.number_format import plural
from memlane.report.picture import shapes as s
from memlane.report.picture.drawing import Drawing

LEFT, WIDTH = 64.0, 1152.0
_BANK_HEIGHT = 30.0
_TALL, _LOW = 26.0, 15.0
"""Height of a wavefront's row where there are few, and where there are many."""
_MANY = 16


def draw_banks(drawing: Drawing, top: float, lanes: Callable[[int], float]) -> tuple[list[str], float]:
    """Return arrows from the lanes, the banks and a row for each wavefront, and the lower edge of the drawing.

    The middle of a lane's lower edge is at `lanes(number)` and `top`.
    """
    rule, waves = drawing.rule, drawing.wavefronts
    pitch, upper = WIDTH / rule.banks, top + 120
    height = _TALL if len(waves) <= _MANY else _LOW
    first = upper + _BANK_HEIGHT + 10

    def middle(touch: Touch) -> float:
        left, width = _span(drawing, touch)
        return LEFT + (left + width / 2) * pitch

    shapes = []
    for turn, wave in enumerate(waves):
        colour = s.turn_colour(turn, len(waves))
        shapes += [s.arrow(lanes(touch.lane), top, middle(touch), upper, colour, faint=len(waves) > 4) for touch in wave.touches]
    for bank in range(rule.banks):
        shapes.append(s.rect(LEFT + bank * pitch + 2, upper, pitch - 4, _BANK_HEIGHT, s.EMPTY, frame=s.FRAME))
        shapes.append(s.text(LEFT + (bank + 0.5) * pitch, upper + 20, str(bank), 14, s.TEXT, anchor="middle"))
    bottom = first + height * len(waves)
    for turn, wave in enumerate(waves):
        shapes += _row(drawing, wave, turn, first + turn * height, pitch, height)
    label = "time" if len(waves) > 2 else ""
    if label:
        shapes.append(s.arrow(28, first, 28, bottom - 2, s.MUTED))
    note = (
        f"each row is a wavefront: what the {plural(rule.banks, 'bank')} of {plural(rule.bank_bytes, 'byte')} deliver at once; a "
        "number is the lane served"
    )
    shapes.append(s.text(LEFT, bottom + 26, note, 15, s.MUTED))
    return shapes, bottom + 38


def _row(drawing: Drawing, wave: Wavefront, turn: int, y: float, pitch: float, height: float) -> list[str]:
    """Return one wavefront: a box for each bank, or group of banks, that delivers something."""
    shapes = [s.rect(LEFT, y + 1, WIDTH, height - 2, s.EMPTY)]
    small = min(12.0, height - 3)
    shapes.append(s.text(LEFT - 8, y + height / 2 + small * 0.36, str(turn + 1), small, s.MUTED, anchor="end"))
    boxes: dict[tuple[int, float], list[int]] = {}
    for touch in wave.touches:
        boxes.setdefault(_span(drawing, touch), []).append(touch.lane)
    colour = s.turn_colour(turn, len(drawing.wavefronts))
    for (bank, width), lanes in boxes.items():
        x = LEFT + bank * pitch
        shapes.append(s.rect(x + 1, y + 1, width * pitch - 2, height - 2, colour))
        label = lanes_text(lanes, 7 if width * pitch > 50 else 5)
        size = small if len(label) < 5 or width * pitch > 50 else small - 2
        shapes.append(s.text(x + width * pitch / 2, y + height / 2 + size * 0.36, label, size, "#ffffff", anchor="middle", bold=True))
    if not wave.touches:
        shapes.append(s.text(LEFT + 8, y + height / 2 + small * 0.36, "the banks are busy again", small, s.MUTED))
    return shapes


def _span(drawing: Drawing, touch: Touch) -> tuple[int, float]:
    """Return the first bank of a touch, and the number of banks that it spans."""
    rule = drawing.rule
    first = touch.address // rule.bank_bytes
    last = (touch.address + touch.nbytes - 1) // rule.bank_bytes
    return first % rule.banks, last - first + 1


def lanes_text(lanes: list[int], room: int) -> str:
    """Return `7`, `0-31`, or `0+7` for eight lanes that are not consecutive; at most `room` characters."""
    if len(lanes) == 1:
        return str(lanes[0])
    if lanes == list(range(lanes[0], lanes[-1] + 1)) and len(f"{lanes[0]}-{lanes[-1]}") <= room:
        return f"{lanes[0]}-{lanes[-1]}"
    return f"{lanes[0]}+{len(lanes) - 1}"

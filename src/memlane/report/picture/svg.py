"""Draw the picture as SVG: 1280 units wide as a slide, light or dark as its reader prefers."""

from __future__ import annotations

from memlane.chip import LANES
from memlane.report.picture import shapes as s
from memlane.report.picture.banks import LEFT, WIDTH, draw_banks
from memlane.report.picture.drawing import Drawing
from memlane.report.picture.sectors import draw_sectors

PAGE = 1280
_PITCH = WIDTH / LANES
_LANES_TOP, _LANE_HEIGHT = 202.0, 30.0


def to_svg(drawing: Drawing) -> str:
    """Return the whole picture as an SVG document, which can also be embedded in HTML."""
    draw = draw_banks if drawing.space == "shared" else draw_sectors
    below, bottom = draw(drawing, _LANES_TOP + _LANE_HEIGHT, _middle)
    height = round(bottom + 46)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE} {height}" width="{PAGE}" height="{height}" class="ml-picture" '
        f'font-family="{s.SANS}" role="img" aria-label="{s.escape(drawing.caption, quote=True)}">'
    )
    parts = [
        head,
        f"<title>{s.escape(f'{drawing.place} {drawing.what}: {drawing.caption}')}</title>",
        s.style_sheet(),
        f'<rect width="{PAGE}" height="{height}" class="f-paper" fill="{s.PAPER.light}"/>',
        *_heading(drawing),
        *_lanes(drawing),
        *below,
        s.text(LEFT, height - 18, drawing.origin, 14, s.MUTED),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _heading(drawing: Drawing) -> list[str]:
    is_least = drawing.transactions <= drawing.ideal
    title = f"{drawing.place}   {drawing.what}"
    return [
        s.text(LEFT, 50, title, 24, s.TEXT, bold=True),
        s.text(LEFT, 82, _shortened(drawing.code, 100), 18, s.MUTED, mono=True),
        s.text(LEFT, 122, drawing.headline, 24, s.GOOD if is_least else s.BAD, bold=True),
        s.text(LEFT, 150, drawing.detail, 18, s.TEXT),
    ]


def _lanes(drawing: Drawing) -> list[str]:
    shapes = [s.text(LEFT, _LANES_TOP - 10, f"lanes of the warp, {drawing.nbytes} B each", 14, s.MUTED)]
    active = set(drawing.active)
    for lane in range(LANES):
        x, takes_part = LEFT + lane * _PITCH, lane in active
        box = s.rect(x + 2, _LANES_TOP, _PITCH - 4, _LANE_HEIGHT, s.EMPTY if takes_part else None, frame=s.FRAME, dashed=not takes_part)
        ink = s.TEXT if takes_part else s.FRAME
        shapes += [box, s.text(x + _PITCH / 2, _LANES_TOP + 20, str(lane), 14, ink, anchor="middle", bold=takes_part)]
    return shapes


def _middle(lane: int) -> float:
    return LEFT + (lane + 0.5) * _PITCH


def _shortened(code: str, most: int) -> str:
    return code if len(code) <= most else f"{code[: most - 1]}…"

"""Pictures of single warp accesses: lanes on top, what they reach below. Inside: drawing <- text, shapes <- sectors, banks <- svg."""

from memlane.report.picture.drawing import Drawing, drawing_of
from memlane.report.picture.svg import to_svg
from memlane.report.picture.text import render_drawing

__all__ = ["Drawing", "drawing_of", "render_drawing", "to_svg"]

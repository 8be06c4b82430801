"""Draw single warp accesses, with lanes on top and the memory that they reach below, and the timeline of a plan's steps.

Modules: drawing <- text, shapes <- sectors, banks <- svg; connectors, shapes <- timeline.
"""

from memlane.report.picture.drawing import Drawing, drawing_of
from memlane.report.picture.svg import to_svg
from memlane.report.picture.text import render_drawing
from memlane.report.picture.timeline import timeline_svg

__all__ = ["Drawing", "drawing_of", "render_drawing", "timeline_svg", "to_svg"]

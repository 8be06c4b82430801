"""Run the lab: its cases in order, and the rows, tables and figures made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memlane.errors import CommandError
from memlane.lab.interface import Cases, Lab, Request
from memlane.lab.result import Result, Row
from memlane.lab.volume.claims import MODELLED, PAIR, claims
from memlane.lab.volume.frames import DEPENDENT, check_renderer, difference, measure, reference_pictures
from memlane.lab.volume.observe import Observed, trace_fetches
from memlane.lab.volume.plots import figures
from memlane.lab.volume.reference import TOLERANCE, Picture
from memlane.lab.volume.renderer import Renderer
from memlane.lab.volume.scene import SHAPES, TURNED, Settings, View
from memlane.lab.volume.tables import rows, tables
from memlane.launch import Target

SOURCES = [
    "src/memlane/instrument",
    "src/memlane/measure",
    "src/memlane/ptx",
    "src/memlane/driver",
    "src/memlane/lab/volume",
    "src/memlane/lab/profiler.py",
]
CASES = ("image", "share", "frequency", "warps")
ENDS = (SHAPES[0], SHAPES[-1])
SM = "0"
"""The multiprocessor whose warps are examined individually."""


def run(target: Target, request: Request) -> Result:
    """Run with the lab's own viewpoints and sizes."""
    return run_with(target, request, Settings())


def run_with(target: Target, request: Request, settings: Settings) -> Result:
    """Render, and measure the chosen cases.

    `image` compares with NumPy, `share` is figure 5 of the publication, `frequency` gives figures 6 to 9, `warps` figures 10 and 11.
    """
    chosen = request.chosen(CASES)
    for case, shapes in (("share", ENDS), ("warps", PAIR)):
        if case in request.only and not set(shapes) <= set(settings.shapes):
            raise CommandError(f"--only {case} compares {' with '.join(shapes)}; leave --shape out, or name both")
    request.tell("the volume")
    renderer = Renderer(target, settings.scene(target, request.quick))
    views = settings.views
    checked = check_renderer(target, renderer)
    pictures = reference_pictures(checked, views)
    found = [_image_row(checked, view, pictures[view]) for view in views] if "image" in chosen else []
    shots = {f"image_{view.stem}": renderer.pixels(view, settings.shapes[0])[..., :3].copy() for view in views}
    cases = Cases()
    frames = measure(renderer, _wanted(chosen, settings), pictures, request, cases)
    warps = _along_an_sm(renderer, settings, request, cases) if "warps" in chosen else {}
    said = claims(frames, warps if views[-1] == TURNED else {})
    if target.modelled:
        said = [replace(claim, holds=MODELLED) for claim in said]
    made = tables(frames, warps, views[-1], said)
    return Result("volume", (*found, *rows(frames, warps, said), *cases.failed), made, figures(made), shots, cases.interrupted)


VOLUME = Lab(
    "volume", "Whether the access times in a trace explain the speed of volume rendering, compared with a paper of 2012.", CASES, run
)


def _wanted(chosen: Sequence[str], settings: Settings) -> list[tuple[View, str]]:
    """Return the frames to time and to trace: all of them, or those of figure 5."""
    if "frequency" in chosen:
        return [(view, shape) for view in settings.views for shape in settings.shapes]
    return [(settings.views[0], shape) for shape in ENDS if shape in settings.shapes] if "share" in chosen else []


def _along_an_sm(renderer: Renderer, settings: Settings, request: Request, cases: Cases) -> dict[str, Observed]:
    """Trace all warps on one SM, for the two shapes of the publication, from its second viewpoint or else the last one chosen."""
    view, found = settings.views[-1], {}
    for shape in cases.each(one for one in PAIR if one in settings.shapes):
        with cases.measuring(f"warps, {shape}"):
            request.tell(f"{view}, {shape}, warps of SM {SM}")
            seen = trace_fetches(renderer, view, shape, DEPENDENT, sms=SM)
            if seen is not None:
                found[shape] = seen
    return found


def _image_row(renderer: Renderer, view: View, expected: Picture) -> Row:
    """Return the row that compares the picture with NumPy's."""
    apart = difference(renderer, view, SHAPES[3], expected)
    scene = renderer.scene
    note = f"{scene.size}^3 voxels, {scene.image} x {scene.image} pixels"
    if apart > TOLERANCE:
        note += "; the kernel renders another image than NumPy, so the numbers below are not valid"
    return Row(f"image, seen from {view}", "largest difference from NumPy's, of 255", float(apart), "", TOLERANCE, note=note)

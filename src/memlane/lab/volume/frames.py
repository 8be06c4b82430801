"""Measure every picture with every block shape: its time, its trace, and the hit rate of the texture cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memlane.chip import LANES
from memlane.lab.interface import Cases, Request
from memlane.lab.volume import reference
from memlane.lab.volume.hits import Frame, Hits, counted_hit_rates, modelled
from memlane.lab.volume.observe import Observed, trace_fetches
from memlane.lab.volume.reference import Picture
from memlane.lab.volume.renderer import Renderer
from memlane.lab.volume.scene import Scene, View
from memlane.launch import Target
from memlane.measure import time
from memlane.measure.prediction import predict_launch

SCHEMES = ("dependent", "simple")
"""Our scheme, and stamps without any order, with which the publication compares."""
DEPENDENT, SIMPLE = SCHEMES
REPEATS = 10
SAMPLE_WARPS = 512
"""Number of warps traced in a frame on a GPU, evenly spread; on the emulator all."""
CHECKED = Scene(64, 64)
"""Scene that NumPy renders where the real size would take too long."""


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of a frame."""

    per_second: float
    """Frames per second, from launches without probes."""
    hits: Hits | None
    """Hits of the texture cache; None where not known."""
    observed: Mapping[str, Observed | None]
    """Observations by scheme; None where no fetch was recorded."""
    predicted_us: float | None = None
    """Time by the model of kernels, for the chip of an emulator; None where time is measured."""

    @property
    def hit_rate(self) -> float | None:
        """Share of hits; None where not known."""
        return self.hits.rate if self.hits else None


@dataclass(frozen=True, eq=False)
class Frames:
    """The measurements of several frames."""

    of: Mapping[Frame, Measured]
    every: int
    """Ratio of traced warps: one in so many."""
    hits_unknown: str = ""
    """Why the hit rate is not known; empty if it is."""
    pictures: Mapping[View, Picture] = field(default_factory=dict)

    @property
    def views(self) -> tuple[View, ...]:
        return tuple(dict.fromkeys(view for view, _ in self.of))

    def shapes(self, view: View) -> tuple[str, ...]:
        return tuple(shape for one, shape in self.of if one == view)


def measure(renderer: Renderer, frames: Sequence[Frame], pictures: Mapping[View, Picture], request: Request, cases: Cases) -> Frames:
    """Time and trace each frame; the hit rates of all come from one run under the profiler, or from the model."""
    if not frames:
        return Frames({}, 1)
    target, scene = renderer.target, renderer.scene
    rates, unknown = {}, "its measurement failed or was interrupted"
    with cases.measuring("hit rates of the texture cache"):
        request.tell("hit rates of the texture cache")
        if target.modelled:
            rates, unknown = modelled(target, renderer, frames, pictures), ""
        else:
            rates, unknown = counted_hit_rates(target, scene, frames)
    every = 1 if target.modelled else max(1, scene.image**2 // LANES // SAMPLE_WARPS)
    found = {}
    for view, shape in cases.each(frames):
        with cases.measuring(f"{view}, {shape}"):
            request.tell(f"{view}, {shape}")
            taken = time(renderer.call(shape), *renderer.arguments(view), repeats=REPEATS)
            seen = {scheme: trace_fetches(renderer, view, shape, scheme, every) for scheme in SCHEMES}
            model = predict_launch(renderer.call(shape).bind(*renderer.arguments(view))).us if target.modelled else None
            found[view, shape] = Measured(1e9 / taken.median_ns, rates.get((view, shape)), seen, model)
    return Frames(found, every, unknown, pictures)


def reference_pictures(renderer: Renderer, views: Sequence[View]) -> dict[View, Picture]:
    """Return NumPy's pictures of the renderer's volume."""
    return {view: reference.render(renderer.volume, renderer.scene, view) for view in views}


def difference(renderer: Renderer, view: View, shape: str, expected: Picture) -> int:
    """Return the largest difference of a channel of a pixel from NumPy's, of 255."""
    seen = renderer.pixels(view, shape).astype(int)
    return int(np.abs(seen - expected.pixels).max())


def check_renderer(target: Target, renderer: Renderer) -> Renderer:
    """Return the renderer whose pictures are compared with NumPy's: on a GPU one of `CHECKED` size, or smaller."""
    if target.modelled:
        return renderer
    scene = renderer.scene
    return Renderer(target, Scene(min(scene.size, CHECKED.size), min(scene.image, CHECKED.image)))

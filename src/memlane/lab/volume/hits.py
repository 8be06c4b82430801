"""Get the hit rate of the texture cache, from the counters of a GPU or from a model.

On a GPU every frame is rendered once more by a program of its own under Nsight Compute: `python -m memlane.lab.volume render SIZE IMAGE
VIEW;VIEW SHAPE;SHAPE TARGET`, where a view is `0,0,0`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memlane.lab.profiler import profile
from memlane.lab.volume.reference import Picture
from memlane.lab.volume.renderer import Renderer
from memlane.lab.volume.scene import Scene, View, view_of
from memlane.lab.volume.texture_cache import modelled_rate
from memlane.launch import Target
from memlane.number_format import plural
from memlane.targets import target as target_of

HITS = "l1tex__t_sectors_pipe_tex_mem_texture_lookup_hit.sum"
MISSES = "l1tex__t_sectors_pipe_tex_mem_texture_lookup_miss.sum"
ALL = "l1tex__t_sector_hit_rate.pct"
"""Hit rate of all accesses to L1, if the profiler has none for textures alone; the kernel has one store per pixel besides."""
TIMEOUT_S = 75.0

Frame = tuple[View, str]


@dataclass(frozen=True)
class Hits:
    """Hits of the texture cache."""

    rate: float
    """Share of hits among the sectors that were looked up."""
    sectors: float | None = None
    """Number of sectors looked up in a frame; None where not known."""


def counted_hit_rates(target: Target, scene: Scene, frames: Sequence[Frame]) -> tuple[dict[Frame, Hits], str]:
    """Return the hit rate of each frame from the profiler, and the reason if there is none."""
    views, shapes = list(dict.fromkeys(view for view, _ in frames)), list(dict.fromkeys(shape for _, shape in frames))
    said = ";".join(f"{view.alpha!r},{view.beta!r},{view.gamma!r}" for view in views)
    program = ["-m", "memlane.lab.volume", "render", str(scene.size), str(scene.image), said, ";".join(shapes), target.name]
    found = profile(program, (HITS, MISSES, ALL), "render", TIMEOUT_S)
    if "metric" in found.unknown:
        found = profile(program, (ALL,), "render", TIMEOUT_S)
    if found.unknown:
        return {}, found.unknown
    rendered = [(view, shape) for view in views for shape in shapes]
    if len(found.launches) != len(rendered):
        return {}, f"ncu saw {plural(len(found.launches), 'launch')} of {len(rendered)}"
    rates = {frame: hits_of(metrics) for frame, metrics in zip(rendered, found.launches, strict=True)}
    known = {frame: rate for frame, rate in rates.items() if rate is not None and frame in frames}
    return known, "" if len(known) == len(frames) else f"ncu knows neither {HITS} nor {ALL} here"


def hits_of(metrics: Mapping[str, float]) -> Hits | None:
    """Return the hit rate by the counters of a launch; None if they are missing."""
    sectors = metrics.get(HITS, 0.0) + metrics.get(MISSES, 0.0)
    if sectors > 0:
        return Hits(metrics.get(HITS, 0.0) / sectors, sectors)
    return Hits(metrics[ALL] / 100.0) if ALL in metrics else None


def modelled(target: Target, renderer: Renderer, frames: Sequence[Frame], pictures: Mapping[View, Picture]) -> dict[Frame, Hits]:
    """Return the hit rate of each frame by `texture_cache`."""
    kernel = renderer.loaded["render"]
    resident = target.resident_blocks(kernel, 128, 0)
    return {
        (view, shape): Hits(modelled_rate(target.chip, renderer.scene, view, shape, pictures[view].fetched, resident))
        for view, shape in frames
    }


def render_once(size: str, image: str, views: str, shapes: str, target: str) -> None:
    """Render every view with every shape once."""
    renderer = Renderer(target_of(target), Scene(int(size), int(image)))
    for view in views.split(";"):
        for shape in shapes.split(";"):
            renderer.call(shape)(*renderer.arguments(view_of(view)))
    renderer.target.sync()

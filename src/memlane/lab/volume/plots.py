"""The figures, numbered as in the publication."""

from __future__ import annotations

from collections.abc import Mapping

from memlane.lab.figures import Bars, Figure, Lines, Paired, Panels
from memlane.lab.volume.claims import FAST, SLOW
from memlane.lab.volume.frames import DEPENDENT, SCHEMES, SIMPLE, Frames
from memlane.lab.volume.observe import Observed
from memlane.lab.volume.scene import View

_SAID = {DEPENDENT: "stamps that wait", SIMPLE: "stamps that wait for nothing"}
_PER = "accesses per 1000 cycles"


def figures(frames: Frames, warps: Mapping[str, Observed], turned: View) -> dict[str, Figure]:
    """What was measured, by file name. `turned`: the viewpoint of `warps`."""
    found: dict[str, Figure] = {}
    if frames.of:
        found["fig_5"] = _shares(frames, frames.views[0])
    names = {0: ("fig_6", "fig_7"), 1: ("fig_8", "fig_9")}
    for number, view in enumerate(frames.views):
        if len(frames.shapes(view)) > 2:
            hits, rates = names.get(number, (f"hits_{view.stem}", f"rates_{view.stem}"))
            found[rates] = _frequencies(frames, view, against_hits=False)
            if any(frames.of[view, shape].hit_rate is not None for shape in frames.shapes(view)):
                found[hits] = _frequencies(frames, view, against_hits=True)
    if warps:
        found["fig_10"] = Panels(
            tuple(
                Lines(
                    f"{shape}, seen from {turned}: warps of one SM",
                    "warp of the launch",
                    "mean access time, cycles",
                    {shape: list(zip(map(float, seen.warp), seen.means.tolist(), strict=True))},
                )
                for shape, seen in warps.items()
            ),
            shared=True,
        )
        found["fig_11"] = Panels(
            tuple(
                Lines(
                    f"{shape}, seen from {turned}: warp {seen.warp[seen.chosen]}",
                    "access",
                    "access time, cycles",
                    {shape: [(float(number), float(cycles)) for number, cycles in enumerate(seen.series(seen.chosen))]},
                )
                for shape, seen in warps.items()
            ),
            shared=True,
        )
    return found


def _shares(frames: Frames, view: View) -> Bars:
    ends = [shape for shape in (SLOW, FAST) if (view, shape) in frames.of]
    shown = [(scheme, shape, frames.of[view, shape].observed[scheme]) for scheme in SCHEMES for shape in ends]
    labels = tuple(f"{scheme}, {shape}" for scheme, shape, _ in shown)
    parts = {
        "in accesses": [None if seen is None else seen.access_time for _, _, seen in shown],
        "other": [None if seen is None else seen.other_time for _, _, seen in shown],
    }
    return Bars(f"Where the time of the warps goes, seen from {view}", "cycles per access", labels, parts)


def _frequencies(frames: Frames, view: View, against_hits: bool) -> Panels:
    shapes = frames.shapes(view)
    measured = [frames.of[view, shape] for shape in shapes]
    rates = [one.hit_rate for one in measured] if against_hits else [one.per_second for one in measured]
    axis = "hit rate of the texture cache" if against_hits else "frames/s"
    panels = []
    for scheme in SCHEMES:
        values = [None if (seen := one.observed[scheme]) is None else seen.frequency for one in measured]
        panels.append(Paired(f"{_SAID[scheme]}, seen from {view}", "shape of a block", shapes, _PER, values, axis, rates))
    return Panels(tuple(panels))

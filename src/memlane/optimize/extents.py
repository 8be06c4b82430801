"""Infer the shape of a one-dimensional array: rows of words for structures, or rows as long as the distance between neighbouring lanes."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

import numpy as np

from memlane.launch import Launch, apply_observers, observing
from memlane.measure.viewer import Viewer
from memlane.record import AccessExample, SiteCounts


@dataclass(frozen=True)
class Extents:
    """The inferred shape and element type of an array."""

    shape: tuple[int, ...]
    dtype: str
    are_fields: bool = False
    """Whether its rows are structures."""


def extents_of(launch: Launch, sites: Sequence[SiteCounts], shape: tuple[int, ...], dtype: str) -> Extents | str:
    """Return the shape of an array accessed at `sites`: inferred if it has one dimension, else its own.

    Returns a text that explains why if a one-dimensional array cannot be interpreted as a matrix.
    """
    kind = np.dtype(dtype)
    if len(shape) != 1:
        return Extents(shape, dtype)
    if kind.kind == "V":
        word = gcd(kind.itemsize, max(one.site.nbytes for one in sites), 16)
        words = kind.itemsize // max(1, word)
        if words > 1:
            return Extents((shape[0], words), f"V{word}", are_fields=True)
    if all(one.site.address_loads for one in sites):
        return (
            "its addresses come from values in memory; if these are known before the launch, memlane.transfer.gather copies the "
            "elements in the order in which threads read them"
        )
    row = _row(launch, sites, kind.itemsize)
    if row and shape[0] % row == 0 and shape[0] > row:
        return Extents((shape[0] // row, row), dtype)
    return "it has one dimension: pass an array of two or more, or pass its shape as shapes= of ml.advise_layout"


def _row(launch: Launch, sites: Sequence[SiteCounts], element: int) -> int:
    """Return the distance between the accesses of neighbouring lanes in elements, if it is constant; 0 if it is unknown."""
    if not launch.kernel.target.observes:
        return 0
    viewer = Viewer()
    with observing(viewer):
        launch.kernel.target.launch(apply_observers(launch))
    trace = viewer.finish()
    wanted = {one.site.instruction for one in sites}
    found: Tally[int] = Tally()
    for example in trace.examples:
        if trace.sites[example.site].instruction in wanted:
            found[_step(example)] += 1
    steps = [step for step, _ in found.most_common() if step > element and step % element == 0]
    return steps[0] // element if steps else 0


def _step(example: AccessExample) -> int:
    """Return the bytes between neighbouring active lanes of an access, or 0 if they differ."""
    lanes = [lane for lane in range(32) if example.active_mask >> lane & 1]
    steps = {example.addresses[b] - example.addresses[a] for a, b in pairwise(lanes) if b == a + 1}
    return steps.pop() if len(steps) == 1 else 0

"""A remap run on a target, and what NumPy says that it has to give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import memlane as ml
from memlane.layout import ArrayLayout
from memlane.plan import PlanBuilder, View
from memlane.record import Counts
from memlane.remap.kernels import Remap, remap_by_function, remap_of
from memlane.remap.movement import movement_of

Bytes = npt.NDArray[np.uint8]


@dataclass
class Moved:
    remap: Remap
    counts: Counts | None
    given: Bytes
    """The bytes of each element of the array, by row-major index."""
    stored: Bytes
    """The bytes of each element of the memory."""


def views(layout: ArrayLayout, element: int) -> tuple[View, View]:
    """The memory under the layout, and the array in C order."""
    b = PlanBuilder()
    return b.array("stored", layout.size, f"V{element}"), b.array("given", layout.count, f"V{element}")


def chosen(layout: ArrayLayout, element: int, *, back: bool = False) -> Remap:
    stored, given = views(layout, element)
    movement = movement_of(layout, element)
    out, source = (given, stored) if back else (stored, given)
    if movement is None:
        return remap_by_function(layout, out, source, 0, layout.shape[0], back=back)
    return remap_of(movement.reversed() if back else movement, out, source)


def moved(target: ml.Target, layout: ArrayLayout, element: int, *, back: bool = False, counted: bool = False) -> Moved:
    """Put an array under a layout, or take it from there, with random bytes on both sides."""
    remap = chosen(layout, element, back=back)
    draw = np.random.default_rng(layout.count * element)
    given = draw.integers(0, 256, (layout.count, element), dtype=np.uint8)
    stored = draw.integers(0, 256, (layout.size, element), dtype=np.uint8)
    memory = {"given": target.array(given), "stored": target.array(stored)}
    launch = remap.launch
    call = target.load(remap.module)[launch.kernel.name][launch.grid, launch.block, None, launch.shared_bytes]
    arguments = [memory[one.buffer.name] if isinstance(one, View) else one for one in launch.arguments]
    counts = ml.count(call, *arguments) if counted else call(*arguments)
    result = memory["given" if back else "stored"].numpy()
    before = given if back else stored
    places = layout.table.ravel()
    expected = before.copy()
    if back:
        expected[:] = stored[places]
    else:
        expected[places] = given
    assert np.array_equal(result, expected), f"{launch.kernel} of {layout}, {element} bytes"
    return Moved(remap, counts, given, stored)

"""The launches of the example scripts, run once more with each of their arrays in shared memory laid out otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import memlane as ml
from memlane.launch import Launch, suspend_observers
from memlane.layout import Layout, Padded, RandomPermuteShift, RandomShift, Skewed, XorSwizzle
from memlane.measure.memory import Snapshot
from memlane.rewrite import shared_arrays

EXAMPLES_WITH_ARRAYS = [("transpose", 72, 32), ("matmul", 40, 16), ("reduction", 5000, 8), ("histogram", 5000, 16), ("chase", 40, 8)]
"""Script, size, and elements of a row of its arrays (those of the padded transpose are then 33 rows of 32)."""


def some_layouts(rows: int, columns: int) -> list[Layout]:
    return [
        Padded(rows, columns, 1),
        XorSwizzle(rows, columns),
        Skewed(rows, columns, 3),
        RandomShift(rows, columns, 1),
        RandomPermuteShift(rows, columns, 1),
    ]


class EachArray:
    """An observer that asks of the first launch of each kernel whether layouts of its arrays leave the bytes that the original leaves."""

    def __init__(self, columns: int, layouts: Callable[[int, int], Sequence[Layout]]) -> None:
        self.columns, self.layouts = columns, layouts
        self.tried = 0
        self._seen: set[str] = set()

    def launching(self, launch: Launch) -> Launch:
        if launch.kernel.title not in self._seen:
            self._seen.add(launch.kernel.title)
            with suspend_observers():
                before = Snapshot(launch)
                launch.kernel.target.launch(launch)
                left = Snapshot(launch)
                for array in shared_arrays(launch.kernel.module, launch.kernel.function):
                    nbytes = array.nbytes or launch.shared_bytes
                    for layout in self.layouts(nbytes // 4 // self.columns, self.columns):
                        if not array.is_dynamic or layout.size * 4 <= nbytes:
                            before.restore()
                            changed = ml.relayout(launch.kernel, layout, shared="dynamic" if array.is_dynamic else array.names[0])
                            launch.kernel.target.launch(replace(launch, kernel=changed))
                            assert Snapshot(launch).holds_what(left), (array.title, layout)
                            self.tried += 1
                before.restore()
        return launch

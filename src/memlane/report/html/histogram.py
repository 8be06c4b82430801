"""Bin cycles on a logarithmic scale, so that neighbouring values differ as visibly at 30 cycles as at 900."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from memlane.report.html.model import Histogram

IN_AN_OCTAVE = 8
"""Bins per power of two; below 16 cycles each number has its own bin."""
SPARK_WIDTH, SPARK_HEIGHT = 120, 20


@dataclass(frozen=True, eq=False)
class Bins:
    """Bin edges: bin `i` holds the whole numbers from `edges[i]` to below `edges[i + 1]`."""

    edges: npt.NDArray[np.int64]

    @classmethod
    def up_to(cls, most: int) -> Bins:
        """Return bins from 0 to at least `most`."""
        octaves = max(4, int(max(most, 1)).bit_length())
        grown = np.ceil(2.0 ** (np.arange(octaves * IN_AN_OCTAVE + 1) / IN_AN_OCTAVE)).astype(np.int64)
        return cls(np.unique(np.concatenate(([0], grown))))

    def counts(self, group: npt.NDArray[Any], cycles: npt.NDArray[Any], groups: int) -> list[Histogram]:
        """Return the histogram of each group; `group` is the group of each of `cycles`. Negative values count as 0."""
        width = len(self.edges) - 1
        places = np.searchsorted(self.edges, np.maximum(cycles, 0), side="right") - 1
        table = np.bincount(group * width + places, minlength=groups * width).reshape(groups, width)
        return [_trimmed(row) for row in table]

    def spark(self, histogram: Histogram) -> str:
        """Return a drawing of `SPARK_WIDTH` by `SPARK_HEIGHT` as an SVG path: one bar per bin over the cycles on a logarithmic axis."""
        most = max(histogram.counts, default=0)
        parts = []
        for number, count in enumerate(histogram.counts):
            if count:
                left, right = (self.position(int(self.edges[histogram.first + number + side])) * SPARK_WIDTH for side in (0, 1))
                height = max(1.0, count / most * SPARK_HEIGHT)  # a bin that is not empty stays visible
                parts.append(f"M{left:.1f} {SPARK_HEIGHT}V{SPARK_HEIGHT - height:.1f}H{max(right, left + 1):.1f}V{SPARK_HEIGHT}z")
        return "".join(parts)

    def position(self, cycles: float) -> float:
        """Return the position of `cycles` on the logarithmic axis, 0 to 1; the axis shows cycles plus one, so that 0 has a position."""
        return float(min(1.0, np.log(max(cycles, 0) + 1) / np.log(float(self.edges[-1]) + 1)))


def _trimmed(counts: npt.NDArray[np.int64]) -> Histogram:
    filled = np.flatnonzero(counts)
    if not len(filled):
        return Histogram(0, ())
    first, last = int(filled[0]), int(filled[-1])
    return Histogram(first, tuple(counts[first : last + 1].tolist()))

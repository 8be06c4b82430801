"""How far two medians are apart, and how sure that is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

ROUNDS = 4000
FEWEST = 5
"""Of fewer numbers on a side no interval is told."""
SEED = 20261121


def median_change(before: Numbers, after: Numbers, certainty: float) -> tuple[float, float, float | None, float | None] | None:
    """Median before, median after, and an interval for their difference, by resampling both sides (bootstrap, percentiles).

    The interval is None where a side has fewer than `FEWEST` numbers; everything is where a side has none. The same numbers give the same
    interval always.
    """
    if not len(before) or not len(after):
        return None
    medians = float(np.median(before)), float(np.median(after))
    if min(len(before), len(after)) < FEWEST:
        return (*medians, None, None)
    random = np.random.default_rng(SEED)
    differences = _medians(after, random) - _medians(before, random)
    tail = (1 - certainty) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    return (*medians, float(low), float(high))


def _medians(numbers: Numbers, random: np.random.Generator) -> Numbers:
    """Medians of resamples.

    The median of n numbers drawn from n sorted ones is the one at place floor(n u), where u is the median of n uniform numbers, which has
    a beta distribution. So a resample takes one random number, however many it stands for.
    """
    count = len(numbers)
    half = (count + 1) / 2
    places = np.floor(random.beta(half, half, ROUNDS) * count).astype(np.intp)
    return np.sort(numbers)[np.minimum(places, count - 1)]
